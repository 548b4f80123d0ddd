"""A session as a Markdown document. In: the entries of a branch. Out: one text.

Each part of it is self-contained: a code fence or a comment left open in a message, an argument or a result does not
swallow what follows.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bartack.nouns.entries import BranchSummary, CompactionSummary, Entry, StreamFailed
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.session.title import title_in
from bartack.session.tool_state import output_text

_NAMES = {"user": "You", "assistant": "Assistant", "system": "System"}


def markdown_transcript(branch: Sequence[Entry]) -> str:
    """The whole conversation. Redacted content is blank."""
    title = title_in(branch)
    heading = [f"# {_line(title)}"] if title else []
    return "\n\n".join([*heading, *_blocks(branch)]) + "\n"


def _blocks(branch: Iterable[Entry]) -> Iterator[str]:
    for entry in branch:
        match entry.fact:
            case Message(role="tool") as message:
                for result in message.tool_results:
                    yield _result(result)
            case Message() as message:
                yield f"## {_NAMES[message.role]}"
                yield from filter(None, map(_part, message.parts))
            case StreamFailed() as failed:
                yield f"*Model error: {_line(failed.error.message or failed.error.error_code)}*"
            case CompactionSummary() as compaction:
                yield f"*Compacted: the model gets this summary of everything above.*\n\n{_quoted(compaction.summary)}"
            case BranchSummary() as other:
                yield f"*The model gets this summary of another branch.*\n\n{_quoted(other.summary)}"
            case _:
                pass


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _part(part: Part) -> str:
    match part:
        case Text():
            return _closed(part.text.strip("\n"))
        case Thinking():
            text = _closed(part.text.strip())
            return f"<details><summary>Thinking</summary>\n\n{text}\n\n</details>" if text else ""
        case ToolCall():
            arguments = msgspec.json.format(msgspec.json.encode(part.arguments), indent=2).decode()
            text = part.raw_args_text if part.raw_args_text and not part.arguments else arguments
            return f"Tool call `{_line(part.tool_name)}`:\n\n{_fenced(text, 'json')}"
        case ToolResult():
            return _result(part)
        case Image():
            name = "" if part.name is None else f"{_line(part.name)} "
            return f"*Image {name}({part.mime_type})*"
        case FileRef():
            return f"*File {_line(part.path)}*"


def _result(result: ToolResult) -> str:
    return f"{'Error' if result.is_error else 'Result'}:\n\n{_fenced(output_text(result))}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _fenced(text: str, language: str = "") -> str:
    """The text in a code fence longer than any inside it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _closed(text: str) -> str:
    """The text with an open fence closed; or fenced as a whole if it leaves anything else open."""
    last = _last_of(text)
    if last.type == "fence":
        closed = f"{text}\n{last.markup}"
        if _last_of(closed).type == "heading_close":
            return closed
    return text if last.type == "heading_close" else _fenced(text, "markdown")


def _last_of(text: str) -> Token:
    """The last token of the text followed by a heading: that heading, unless the text swallows it."""
    return MarkdownIt().parse(f"{text}\n\n## Next")[-1]
