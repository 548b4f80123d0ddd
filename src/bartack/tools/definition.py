"""`ToolDefinition`: a tool as the executor runs it, and `@tool`, which makes one of a typed function.

    @tool(timeout_ms=5_000)
    async def weather(city: str, days: int = 1) -> str:
        \"\"\"Weather forecast for a city.

        Args:
            city: Where.
        \"\"\"

The decorated name is still a function: ``await weather("Paris")`` calls it as it was written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Generic, ParamSpec, TypeVar, overload

from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.tools.schema_check import check_arguments
from bartack.tools.signature import Signature
from bartack.tools.tool_context import ToolContext

__all__ = ["MAX_OUTPUT_CHARS", "Tool", "ToolDefinition", "tool"]

MAX_OUTPUT_CHARS = 30_000  # about 8,000 tokens: a page a model can still use; not measured

P = ParamSpec("P")
R = TypeVar("R")

Execute = Callable[[dict[str, Any], ToolContext], Any]
NeedsApproval = bool | Callable[[dict[str, Any]], bool | str]


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool: what the model is told, how it runs and under which conditions (004)."""

    name: str
    description: str
    parameter_schema: dict[str, Any]
    execute: Execute  # async, or plain: then it runs in a thread; gets what `read` made of the arguments
    read: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # None: the schema itself is the check
    timeout_ms: int | None = None  # of one attempt; None: the executor's own
    requires_approval: NeedsApproval = False
    requires_runtime: bool = False
    requires_agent: bool = False
    idempotent: bool = False  # running it again does no harm
    retries: int = 0  # how often it is tried again after a failure
    sequential: bool = False  # never at the same time as another tool
    strict: bool | None = None
    max_output_chars: int = MAX_OUTPUT_CHARS

    def __post_init__(self) -> None:
        _require(bool(self.name), "a tool has a name")
        _require(self.timeout_ms is None or self.timeout_ms > 0, f"timeout_ms of {self.name!r} is positive")
        _require(self.retries >= 0, f"retries of {self.name!r} is not negative")
        _require(self.max_output_chars > 0, f"max_output_chars of {self.name!r} is positive")

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it; it says nothing about agent or runtime."""
        return ToolSpec(self.name, self.parameter_schema, description=self.description or None, strict=self.strict)

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop; else in a thread."""
        return iscoroutinefunction(self.execute) or iscoroutinefunction(getattr(self.execute, "__call__", None))  # noqa: B004 - an object may be async

    def read_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What `execute` gets; `ToolError` with code ``tool_bad_arguments`` says what is wrong and where."""
        if self.read is not None:
            return self.read(arguments)
        check_arguments(arguments, self.parameter_schema)
        return arguments


@dataclass(frozen=True, kw_only=True)
class Tool(ToolDefinition, Generic[P, R]):
    """A tool that was made of a function, and is one."""

    function: Callable[P, R] = field(compare=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_ms: int | None = None,
    requires_approval: NeedsApproval = False,
    requires_runtime: bool = False,
    requires_agent: bool = False,
    idempotent: bool = False,
    retries: int = 0,
    sequential: bool = False,
    strict: bool | None = None,
    max_output_chars: int = MAX_OUTPUT_CHARS,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """The function as a tool, bare (``@tool``) or with options; `TypeError` where a model could not call it."""
    return partial(_made, options) if function is None else _made(options, function)


def _made(options: dict[str, Any], function: Callable[P, R]) -> Tool[P, R]:
    name = options.get("name") or getattr(function, "__name__", type(function).__name__)
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        raise TypeError(f"tool {name!r}: a tool returns one value; it says how far it is with ctx.progress()")
    signature = Signature(function)
    return Tool(
        **{
            **options,
            "name": name,
            "description": options.get("description") or signature.description,
            "parameter_schema": signature.schema,
            "execute": _execute(function, signature.context_names),
            "read": signature.read,
            "function": function,
        }
    )


def _execute(function: Callable[..., Any], context_names: tuple[str, ...]) -> Execute:
    def call(values: dict[str, Any], context: ToolContext) -> Any:
        return function(**values, **dict.fromkeys(context_names, context))

    async def call_async(values: dict[str, Any], context: ToolContext) -> Any:
        return await call(values, context)

    return call_async if iscoroutinefunction(function) else call


def _require(condition: bool, claim: str) -> None:
    if not condition:
        raise BartackError(claim, code=ErrorCode.INVALID_CONFIG)
