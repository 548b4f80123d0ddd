"""What Claude Code adds to its requests for Anthropic alone, and models of other providers should not see.

- The first system text is a line about billing, which changes with every request: no cache of a prompt would hit.
- Tools with `defer_loading` are hidden from Claude until a search of the client has found them. The result of the
  search names them in `tool_reference` blocks. Other providers would show all of them from the start, so a tool is
  declared once it was found or called.
- A placeholder stands for the hidden tools while there are none.

Everything else that only Anthropic has is labelled as such, and encoders report it.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from bartack.formats.body_values import object_of, text_of
from bartack.formats.losses import Loss
from bartack.nouns.config import ToolSpec
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.nouns.requests import ModelRequest

__all__ = ["without_client_details"]

_FORMAT = "anthropic-messages"
_BILLING = "x-anthropic-billing-header:"
_PLACEHOLDER = "DeferredToolPlaceholder"


def without_client_details(request: ModelRequest) -> tuple[ModelRequest, tuple[Loss, ...]]:
    """A request that was read from Anthropic's format, for a model of another provider; and what was left out of it."""
    losses: list[Loss] = []
    messages = tuple(_without_billing(request.messages, losses))
    available = set(_available_tools(request.messages))
    tools = []
    for index, spec in enumerate(request.tools):
        if spec.name == _PLACEHOLDER or (_is_deferred(spec) and spec.name not in available):
            why = "it is a placeholder" if spec.name == _PLACEHOLDER else "the client's search has not found it yet"
            losses.append(Loss(where=f"tools[{index}]", what=f"tool {spec.name}", why=why))
        else:
            tools.append(_loaded(spec))
    return replace(request, messages=messages, tools=tuple(tools)), tuple(losses)


def _without_billing(messages: Sequence[Message], losses: list[Loss]) -> Iterator[Message]:
    for index, message in enumerate(messages):
        first = message.parts[0] if message.role == "system" and message.parts else None
        if not isinstance(first, Text) or not first.text.startswith(_BILLING):
            yield message
            continue
        why = "it is meant for Anthropic, and changes with every request"
        losses.append(Loss(where=f"history[{index}].parts[0]", what="billing line", why=why))
        if message.parts[1:]:
            yield replace(message, parts=message.parts[1:])


def _available_tools(messages: Sequence[Message]) -> Iterator[str]:
    """The names of the tools that were called, or found by a search."""
    for message in messages:
        for call in message.tool_calls:
            yield call.tool_name
        for result in message.tool_results:
            for part in result.content if isinstance(result.content, tuple) else ():
                data = {} if part.continuation is None else part.continuation.data
                yield text_of(object_of(data, "block"), "tool_name")


def _is_deferred(spec: ToolSpec) -> bool:
    return object_of(spec.extra or {}, _FORMAT).get("defer_loading") is True


def _loaded(spec: ToolSpec) -> ToolSpec:
    """The tool without the mark that hides it, which is no loss."""
    if not _is_deferred(spec):
        return spec
    fields = {name: value for name, value in object_of(spec.extra or {}, _FORMAT).items() if name != "defer_loading"}
    return replace(spec, extra={**(spec.extra or {}), _FORMAT: fields})
