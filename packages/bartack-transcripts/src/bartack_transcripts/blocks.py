"""Messages with the blocks of Anthropic's API, as programs store them that add and leave out fields.

The reader of the API itself (`values.read_messages`) would refuse a call without an id, or a result in another form.
"""

from collections.abc import Callable, Sequence

from bartack.nouns.messages import Message
from bartack.nouns.parts import Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.transcript import ReadReport, Record
from bartack_transcripts.values import Json, object_in, text_in

__all__ = ["block_messages"]


def block_messages(
    role: str,
    blocks: Sequence[Json],
    result_in: Callable[[Json], ToolResult | None],
    record: Record,
    report: ReadReport,
) -> list[Message]:
    """The messages in these blocks: the results of calls first, then what was said. Other blocks are reported."""
    parts: list[Part] = []
    results: list[ToolResult] = []
    for place, block in enumerate(blocks):
        kind, result = text_in(block, "type") or "no type", result_in(block)
        if result is not None:
            results.append(result)
        elif (part := _part(role, kind, block, f"{record.place}-{place}")) is not None:
            parts.append(part)
        elif kind not in ("text", "thinking"):  # without text
            report.left_out(record, f"content[{place}]: a block {kind!r} that is not understood")
    messages = [Message("tool", (result,)) for result in results]
    if parts and role in ("user", "assistant"):
        messages.append(Message("user" if role == "user" else "assistant", tuple(parts)))
    return messages


def _part(role: str, kind: str, block: Json, own_id: str) -> Part | None:
    """What a block says; a call without an id gets this one, and has no result."""
    text, name = text_in(block, "text"), text_in(block, "name")
    match kind:
        case "text" if text is not None:
            return Text(text)
        case "thinking" if role == "assistant" and (thinking := text_in(block, "thinking") or text) is not None:
            return Thinking(thinking)
        case "tool_use" if role == "assistant" and name is not None:
            return ToolCall(text_in(block, "id") or own_id, name, object_in(block, "input"))
    return None
