"""A session as Markdown that people read. In: the entries of a branch. Out: one text.

Whatever a message, an argument or a result holds, it ends where the next piece begins: a fence or a comment that
somebody left open swallows nothing.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bartack.nouns.entries import CompactionSummary, Entry, SessionHeader, StreamFailed
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.session.tool_state import output_text

__all__ = ["markdown_of"]

_NAMES = {"user": "You", "assistant": "Assistant", "system": "System"}


def markdown_of(branch: Iterable[Entry]) -> str:
    """The conversation from its beginning; what was redacted is blank."""
    return "\n\n".join(_pieces(branch)) + "\n"


def _pieces(branch: Iterable[Entry]) -> Iterator[str]:
    for entry in branch:
        match entry.fact:
            case SessionHeader(title=str(title)) if title:
                yield f"# {_line(title)}"
            case Message(role="tool") as message:
                for result in message.tool_results:
                    yield _result(result)
            case Message() as message:
                yield f"## {_NAMES[message.role]}"
                yield from filter(None, map(_part, message.parts))
            case StreamFailed() as failed:
                yield f"*The model failed: {_line(failed.error.message or failed.error.error_code)}*"
            case CompactionSummary() as compaction:
                yield f"*What was said before is told to the model as a summary:*\n\n{_quoted(compaction.summary)}"
            case _:
                pass


def _part(part: Part) -> str:
    match part:
        case Text():
            return _closed(part.text.strip("\n"))
        case Thinking():
            said = _closed(part.text.strip())
            return f"<details><summary>Thinking</summary>\n\n{said}\n\n</details>" if said else ""
        case ToolCall():
            arguments = msgspec.json.format(msgspec.json.encode(part.arguments), indent=2).decode()
            said = part.raw_args_text if part.raw_args_text and not part.arguments else arguments
            return f"Calls `{_line(part.tool_name)}`:\n\n{_fenced(said, 'json')}"
        case ToolResult():
            return _result(part)
        case Image():
            return f"*a picture ({part.mime_type})*"
        case FileRef():
            return f"*the file {_line(part.path)}*"


def _result(result: ToolResult) -> str:
    return f"{'It failed' if result.is_error else 'Result'}:\n\n{_fenced(output_text(result))}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _fenced(text: str, language: str = "") -> str:
    """In a fence that is longer than any in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _closed(text: str) -> str:
    """The text; what it leaves open is closed, or else all of it is shown as it was written."""
    last = _last_of(text)
    if last.type == "fence":
        closed = f"{text}\n{last.markup}"
        if _last_of(closed).type == "heading_close":
            return closed
    return text if last.type == "heading_close" else _fenced(text, "markdown")


def _last_of(text: str) -> Token:
    """The last token of the text with a heading after it: that heading, unless the text swallows it."""
    return MarkdownIt().parse(f"{text}\n\n## The next piece")[-1]


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
