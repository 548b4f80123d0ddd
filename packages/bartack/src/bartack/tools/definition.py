"""`ToolDefinition`: a tool as the executor runs it; and `@tool`, which creates one from a typed function.

    @tool(timeout_ms=5_000)
    async def weather(city: str, days: int = 1) -> str:
        \"\"\"Weather forecast for a city.

        Args:
            city: Name of the city.
        \"\"\"

The decorated function can still be called: ``await weather("Paris")``.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Generic, ParamSpec, TypeVar, overload

from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import ConfigError, ToolError
from bartack.nouns.parts import Continuation
from bartack.session.schema_check import ArgumentCheck, argument_check
from bartack.tools.preview import MakePreview
from bartack.tools.signature import Signature
from bartack.tools.tool_context import ToolContext

__all__ = ["MAX_OUTPUT_CHARS", "Tool", "ToolDefinition", "tool", "valid_name"]

MAX_OUTPUT_CHARS = 30_000  # about 8,000 tokens; not measured

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Function_co = TypeVar("Function_co", covariant=True)  # unbound: mypy finds a common type of different tools

Execute = Callable[[dict[str, Any], ToolContext], Any]
NeedsApproval = bool | Callable[[dict[str, Any]], bool | str]


async def _nothing(values: dict[str, Any], context: ToolContext) -> None:
    """The function of a deferred tool whose work is started by the reader of the call."""


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool: what the model sees, how it is executed and under which conditions (004)."""

    name: str
    description: str
    parameter_schema: dict[str, Any]
    execute: Execute = _nothing  # a regular function runs in a thread; receives the arguments as returned by `read`
    read: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # None: arguments are checked against the schema
    timeout_ms: int | None = None  # per attempt; None: the executor's default
    requires_approval: NeedsApproval = False
    requires_runtime: bool = False
    requires_agent: bool = False
    idempotent: bool = False  # safe to run again
    retries: int = 0  # after the first failed attempt
    sequential: bool = False  # never runs at the same time as another tool
    deferred: bool = False  # `execute` only starts the work, unless it returns a value; the result is posted later
    strict: bool | None = None
    # Whether the model sees it only after a search for tools; None: if the agent has one (`Agent(tool_search=True)`).
    defer_loading: bool | None = None
    input_examples: Sequence[dict[str, Any]] = ()  # arguments of typical calls, for providers that show them
    native: Continuation | None = None  # the provider's own declaration of it, instead of its schema
    max_output_chars: int = MAX_OUTPUT_CHARS
    # Identifies a definition from elsewhere, which may change: an approval counts for this one only.
    digest: str | None = None
    # What a call would do: a function of its arguments, and of a `ToolContext` if it takes two. Its value, a JSON
    # object or text, is part of the question; the call runs only if it is the same again (`bartack.tools.preview`).
    preview: MakePreview | None = None
    deps_type: type[Any] | None = None  # the class of the dependencies that it uses, if that is known
    changed: str | None = None  # why its calls need approval whatever the policy, after such a change

    def __post_init__(self) -> None:
        _require(
            isinstance(self.name, str) and bool(self.name),
            f"A tool name must be a non-empty string, got {self.name!r}.",
        )
        has_function = self.deferred or self.execute is not _nothing
        _require(has_function, f"Tool {self.name!r} needs a function to execute, unless it is deferred.")
        is_regular = not iscoroutinefunction(self.requires_approval)
        _require(is_regular, f"Tool {self.name!r}: requires_approval must not be a coroutine function.")
        for option, least in (("timeout_ms", 1), ("retries", 0), ("max_output_chars", 1)):
            value = getattr(self, option)
            is_number = type(value) is int and value >= least
            may_be_none = option == "timeout_ms" and value is None
            claim = "must be a positive number" if least else "must be a number and not negative"
            _require(is_number or may_be_none, f"Tool {self.name!r}: {option} {claim}, got {value!r}.")
        if self.read is None:
            try:
                _ = self._check  # a schema that cannot be checked is refused now, not when the tool is called
            except ToolError as error:
                raise ToolError(f"Tool {self.name!r}: {error.message}", code=error.code, cause=error.cause) from None

    @cached_property
    def _check(self) -> ArgumentCheck:
        return argument_check(self.parameter_schema)

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(
            self.name,
            self.parameter_schema,
            description=self.description or None,
            strict=self.strict,
            native=self.native,
            required=self.native is not None,
            defer_loading=self.defer_loading,
            input_examples=tuple(self.input_examples),
        )

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop rather than in a thread."""
        return iscoroutinefunction(self.execute) or iscoroutinefunction(getattr(self.execute, "__call__", None))  # noqa: B004 - an object may be async

    def read_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The values for `execute`; `ToolError` with code ``tool_bad_arguments`` if the arguments are invalid."""
        if self.read is not None:
            return self.read(arguments)
        self._check(arguments)
        return arguments


@dataclass(frozen=True, kw_only=True)
class Tool(ToolDefinition, Generic[Function_co]):
    """A tool created from a function, which it can be called as."""

    function: Function_co = field(compare=False)

    def __call__(self: "Tool[Callable[P, R]]", *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


@overload
def tool(function: F, /) -> Tool[F]: ...
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
    deferred: bool = False,
    strict: bool | None = None,
    defer_loading: bool | None = None,
    input_examples: Sequence[dict[str, Any]] = (),
    max_output_chars: int = MAX_OUTPUT_CHARS,
    preview: MakePreview | None = None,
) -> Callable[[F], Tool[F]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function into a tool, as ``@tool`` or with options; `TypeError` if a model could not call it."""
    if function is None:
        return partial(_create, options)
    if not callable(function):
        raise ConfigError(f"@tool takes a function, not {function!r}; pass a name as name=...")
    return _create(options, function)


def _create(options: dict[str, Any], function: F) -> Tool[F]:
    signature = Signature(function)
    name = options.get("name") or signature.name
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        raise ConfigError(f"tool {name!r} must not be a generator; report progress with ctx.progress()")
    if valid_name(name) != name:
        raise ConfigError(f"tool {name!r}: a name consists of ASCII letters, digits, _ and -; pass another as name=...")
    return Tool(
        **{
            **options,
            "name": name,
            "description": options.get("description") or signature.description,
            "parameter_schema": signature.schema,
            "execute": _execute(function, signature),
            "read": signature.read,
            "deps_type": signature.deps_type,
            "function": function,
        }
    )


def _execute(function: Callable[..., Any], signature: Signature) -> Execute:
    def call(values: dict[str, Any], context: ToolContext) -> Any:
        return function(**values, **dict.fromkeys(signature.context_names, context))

    async def call_async(values: dict[str, Any], context: ToolContext) -> Any:
        return await call(values, context)

    return call_async if signature.is_async else call


def valid_name(text: str) -> str:
    """The text as the name of a tool: without the characters that providers refuse."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text) if isinstance(text, str) else text  # a definition refuses other values


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
