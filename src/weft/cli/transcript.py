"""A session as Markdown that people read. In: the entries of a branch. Out: one text."""

from collections.abc import Iterable, Iterator

import msgspec

from weft.entries import CompactionSummary, Entry, SessionHeader, StreamFailed
from weft.messages import Message
from weft.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from weft.tool_state import output_text

__all__ = ["markdown_of"]

_NAMES = {"user": "You", "assistant": "Assistant", "system": "System"}


def markdown_of(branch: Iterable[Entry]) -> str:
    """The conversation from its beginning; what was redacted is blank."""
    return "\n\n".join(_pieces(branch)) + "\n"


def _pieces(branch: Iterable[Entry]) -> Iterator[str]:
    for entry in branch:
        match entry.fact:
            case SessionHeader(title=str(title)) if title:
                yield f"# {' '.join(title.split())}"
            case Message(role="tool") as message:
                for result in message.tool_results:
                    yield _result(result)
            case Message() as message:
                yield f"## {_NAMES[message.role]}"
                yield from filter(None, map(_part, message.parts))
            case StreamFailed() as failed:
                yield f"*The model failed: {failed.error.message or failed.error.error_code}*"
            case CompactionSummary() as compaction:
                yield f"*What was said before is told to the model as a summary:*\n\n{_quoted(compaction.summary)}"
            case _:
                pass


def _part(part: Part) -> str:
    match part:
        case Text():
            return part.text.strip()
        case Thinking():
            return f"<details><summary>Thinking</summary>\n\n{part.text.strip()}\n\n</details>" if part.text else ""
        case ToolCall():
            arguments = msgspec.json.format(msgspec.json.encode(part.arguments), indent=2).decode()
            return f"Calls `{part.tool_name}`:\n\n{_fenced(arguments, 'json')}"
        case ToolResult():
            return _result(part)
        case Image():
            return f"*a picture ({part.mime_type})*"
        case FileRef():
            return f"*the file {part.path}*"


def _result(result: ToolResult) -> str:
    return f"{'It failed' if result.is_error else 'Result'}:\n\n{_fenced(output_text(result))}"


def _fenced(text: str, language: str = "") -> str:
    """In a fence that is longer than any in the text."""
    longest = max((len(run) for run in text.replace("`", " `").split() if set(run) == {"`"}), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
