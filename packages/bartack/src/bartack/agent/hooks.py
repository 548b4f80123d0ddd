"""`Hooks`: user code around model calls and tool calls, which may see, change or stop them.

An agent has a list of `Hooks`, and a run may add further ones. They are called in this order, before a call as well as
after it, and each gets what the one before has made of the value. A hook that returns a `Refusal` stops the run: later
hooks are not called, and the result has the name of the hook as `refused_by`.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bartack.nouns.errors import ConfigError, ToolError
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.tools.tool_round import AfterTool, BeforeTool, Refusal

__all__ = ["HookChain", "Hooks", "Refusal"]

T = TypeVar("T")
_Hook = Callable[[T], Awaitable[T | Refusal | None]]


class Hooks(Struct, frozen=True, kw_only=True):
    """User code that runs before and after model calls and tools.

    Calls that write a summary are included; their `model_call_index` is None, in the metadata of the request and in the
    `meta` of the answer.

    Each hook is a coroutine function. It may return a changed value, or a `Refusal`, which ends the run; None changes
    nothing. An exception from a model hook ends the run as failed and is raised to the caller; one from a tool hook
    becomes the call's error result. `name` identifies these hooks in `RunResult.refused_by`; by default it is the name
    of the function that refused.
    """

    before_model: Callable[[ModelRequest], Awaitable[ModelRequest | Refusal | None]] | None = None
    after_model: Callable[[Message], Awaitable[Message | Refusal | None]] | None = None  # before the answer is stored
    before_tool: BeforeTool | None = None  # may also return a result, and then the tool is not run
    after_tool: AfterTool | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for field in _HOOKS:
            hook = getattr(self, field)
            if hook is not None and (not callable(hook) or isinstance(hook, type)):
                text = f"The {field} hook must be a coroutine function, not a value of type {type(hook).__name__}."
                raise ConfigError(text, path=f"$.hooks.{field}")


_HOOKS = ("before_model", "after_model", "before_tool", "after_tool")


class HookChain(Struct, frozen=True):
    """Several `Hooks` as one, in their order."""

    hooks: tuple[Hooks, ...] = ()

    @classmethod
    def of(cls, hooks: Hooks | Sequence[Hooks]) -> "HookChain":
        """The chain of these hooks."""
        return cls((hooks,) if isinstance(hooks, Hooks) else tuple(hooks))

    def __add__(self, other: "HookChain") -> "HookChain":
        return HookChain((*self.hooks, *other.hooks))

    async def change_request(self, request: ModelRequest) -> ModelRequest | Refusal:
        """The request as the hooks before the call change it."""
        return await self._changed("before_model", request, ModelRequest)

    async def change_answer(self, message: Message) -> Message | Refusal:
        """The answer as the hooks after the call change it."""
        return await self._changed("after_model", message, Message)

    async def _changed(self, field: str, value: T, kind: type[T]) -> T | Refusal:
        for hooks, hook in self._with(field):
            outcome = await _changed(field, hook, value, kind)
            if isinstance(outcome, Refusal):
                return _named(outcome, hooks, hook)
            value = outcome
        return value

    @property
    def before_tool(self) -> BeforeTool | None:
        """The hooks before a tool as one; None if there are none."""
        steps = self._with("before_tool")

        async def before(call: ToolCall) -> ToolCall | ToolResult | Refusal | None:
            changed: ToolCall | None = None
            for hooks, hook in steps:
                answer = await _awaited(hook, changed or call)
                if isinstance(answer, Refusal):
                    return _named(answer, hooks, hook)
                if answer is not None and not isinstance(answer, ToolCall):
                    return answer  # type: ignore[no-any-return]  # a result, or what the caller refuses
                changed = answer or changed
            return changed

        return before if steps else None

    @property
    def after_tool(self) -> AfterTool | None:
        """The hooks after a tool as one; None if there are none."""
        steps = self._with("after_tool")

        async def after(call: ToolCall, result: ToolResult) -> ToolResult | Refusal | None:
            changed: ToolResult | None = None
            for hooks, hook in steps:
                answer = await _awaited(hook, call, changed or result)
                if isinstance(answer, Refusal):
                    return _named(answer, hooks, hook)
                if answer is not None and not isinstance(answer, ToolResult):
                    return answer  # type: ignore[no-any-return]  # which the caller refuses
                changed = answer or changed
            return changed

        return after if steps else None

    def _with(self, field: str) -> list[tuple[Hooks, Any]]:
        return [(hooks, hook) for hooks in self.hooks if (hook := getattr(hooks, field)) is not None]


async def _awaited(hook: Callable[..., Any], *arguments: Any) -> Any:
    outcome = hook(*arguments)
    if not isawaitable(outcome):
        raise ToolError("a hook must be a coroutine function (async def)")
    return await outcome


def _named(refusal: Refusal, hooks: Hooks, hook: Any) -> Refusal:
    return replace(refusal, by=refusal.by or hooks.name or getattr(hook, "__name__", type(hook).__name__))


async def _changed(name: str, hook: _Hook[T], value: T, kind: type[T]) -> T | Refusal:
    """The value that the hook returns, or the original; `ConfigError` if it is not a valid hook."""
    outcome: Any = hook(value)
    is_async = isawaitable(outcome)
    changed = await outcome if is_async else outcome
    if is_async and isinstance(changed, kind | Refusal | None):
        return value if changed is None else changed
    described = "None" if changed is None else f"a value of type {type(changed).__name__}"
    fault = f"this one returned {described}" if is_async else "this one is not async"
    text = f"The {name} hook must be a coroutine function that returns a {kind.__name__}, a Refusal or None; {fault}."
    raise ConfigError(text)
