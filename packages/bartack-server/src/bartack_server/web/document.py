"""A session as one HTML file that needs nothing else: the rendering of the page, without a script.

In: the entries of a branch, without redacted content. Out: the document. It may be opened from anywhere, so it has a
policy of its own: no script, no other hosts, only the style sheet that is in it.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from bartack.app.notices import exit_code, format_duration
from bartack.display.changes import CallEnded, CallReady, StepFinished
from bartack.display.run_reader import BranchReader, is_written
from bartack.display.visible_text import visible_text
from bartack.events import LiveEntry
from bartack.nouns.entries import BranchSummary, CompactionSummary, Entry, ModelChange, RunEnded, StreamFailed
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Span, Text, Thinking, ToolCall, ToolResult
from bartack.session.title import title_in
from bartack.session.tool_state import output_text
from bartack_server.web.markdown import markdown_blocks

__all__ = ["html_document"]

_STYLES = ("base.css", "chat.css", "code.css")
_FRAME = """
body { height: auto; padding: 22px 14px 60px; font: var(--reading); }
main.column > * { margin-inline-start: 0; }
header.head { display: block; padding: 0; }
header h1 { font-size: 20px; line-height: 28px; }
tool-card { display: block; border: 1px solid var(--line); border-radius: var(--radius); overflow: clip; }
tool-card summary { list-style: none; cursor: pointer; }
tool-card pre { padding: 8px 14px; border-top: 1px solid var(--line); overflow-x: auto; font: var(--mono-type); }
tool-card.failed .state { color: var(--bad); }
.notice { color: var(--soft); font: var(--interface); overflow-wrap: anywhere; }
.notice.bad { color: var(--bad); }
"""
_SHOWN_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


def html_document(branch: Sequence[Entry]) -> str:
    """The whole conversation."""
    title = title_in(branch) or "Session"
    style = (
        "".join(files("bartack_server.web").joinpath("static", name).read_text("utf-8") for name in _STYLES) + _FRAME
    )
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'"
    started = f"{branch[0].timestamp:%Y-%m-%d %H:%M} UTC" if branch else ""
    body = "\n".join(filter(None, _items(branch)))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main class="column">
<header class="head"><h1>{escape(title)}</h1><span class="hint">{escape(started)}</span></header>
{body}
</main>
</body>
</html>
"""


class _Call(NamedTuple):
    arguments: dict[str, Any]
    result: ToolResult | None = None


def _read_calls(branch: Iterable[Entry]) -> dict[tuple[str, str], _Call]:
    """The calls with the arguments that they ran with, which someone may have edited, and their results; by the entry
    of their answer and their id."""
    reader = BranchReader()
    calls: dict[str, _Call] = {}
    keys: dict[tuple[str, str], str] = {}
    for entry in branch:
        for change in reader.read(LiveEntry("", entry)):
            match change:
                case CallReady():
                    calls[change.key] = _Call(change.arguments)
                case CallEnded():
                    calls[change.key] = _Call(change.arguments, change.result)
                case StepFinished():
                    keys |= {(change.entry_id, call_id): key for call_id, key in change.keys.items()}
                case _:
                    pass
    return {place: calls[key] for place, key in keys.items()}


def _items(branch: Sequence[Entry]) -> Iterator[str]:
    calls = _read_calls(branch)
    for entry in branch:
        match entry.fact:
            case Message(role="user", parts=parts) if not is_written(entry.fact):
                yield _notice("\n\n".join(part.text for part in parts if isinstance(part, Text)))
            case Message(role="user") as message:
                yield f'<div class="you">{_media(message.parts)}<div class="text">{_texts(message.parts)}</div></div>'
            case Message(role="assistant") as message:
                for part in message.parts:
                    if isinstance(part, ToolCall):
                        yield _card(part.tool_name, *calls[entry.id, part.tool_call_id])
                    else:
                        yield _text(part)
                if message.meta is not None and message.meta.aborted:
                    yield _notice("Stopped.")
            case StreamFailed() as failed:
                yield from (_text(part) for part in failed.parts if isinstance(part, Text))
                yield _notice(f"The answer failed: {failed.error.message or failed.error.error_code}", is_bad=True)
            case CompactionSummary(summary=text):
                yield _folded("Older turns are sent to the model as this summary", text)
            case BranchSummary(summary=text):
                yield _folded("The model gets this summary of another branch", text)
            case ModelChange(model=model):
                yield _notice(f"Switched to {model.provider}:{model.model}.")
            case RunEnded(status="failed", error=error, reason=reason):
                why = (error and (error.message or error.error_code)) or reason or "unknown reason"
                yield _notice(f"The run failed: {why}", is_bad=True)
            case RunEnded(status="aborted", reason=reason):
                yield _notice(f"The run was stopped ({reason or 'user'}).")
            case _:
                pass


def _text(part: Part) -> str:
    match part:
        case Text():
            return f'<div class="say">{_markdown(part.text)}</div>'
        case Thinking() if part.text:
            return _folded("Thinking", part.text)
        case _:
            return ""


def _card(name: str, arguments: dict[str, Any], result: ToolResult | None) -> str:
    kind, sign, state = _state(result)
    head = (
        f'<summary class="head"><span class="sign" aria-hidden="true">{sign}</span><b>{_visible(name)}</b>'
        f'<code class="brief">{_visible(_brief(arguments))}</code>'
        f'<span class="t state">{escape(state)}</span></summary>'
    )
    parts = result.content if result is not None and isinstance(result.content, tuple) else ()
    output = "" if result is None else f"<pre>{_visible(output_text(result))}</pre>"
    details = f"<details>{head}<pre>{_visible(json_text(arguments))}</pre></details>"
    return f'<tool-card class="{kind}">{details}{output}{_media(parts)}</tool-card>'


def _state(result: ToolResult | None) -> tuple[str, str, str]:
    """The class, the sign and the words for the outcome of a call. A command that failed is a failure too."""
    if result is None:
        return "", "…", "no result"
    time = result.time or Span()
    took = (
        ""
        if time.start is None or time.end is None
        else f" · {format_duration((time.end - time.start).total_seconds())}"
    )
    code = exit_code(result.metadata)
    if not result.is_error and not code:
        return "done", "✓", f"done{took}"
    error = str(result.error_code or "failed").removeprefix("tool_").replace("_", " ")
    return "failed", "✗", f"{f'exit {code}' if code else error}{took}"


def _brief(arguments: dict[str, Any]) -> str:
    """What a call is about, on one line."""
    first = arguments.get("path", arguments.get("command", next(iter(arguments.values()), "")))
    return first.partition("\n")[0] if isinstance(first, str) else json_text(first)


def _visible(text: str) -> str:
    return escape(visible_text(text))


def _media(parts: Iterable[Part]) -> str:
    """Images in the file itself; anything else by its name."""
    elements: list[str] = []
    for part in parts:
        if isinstance(part, Image) and part.data is not None and part.mime_type in _SHOWN_TYPES:
            data = base64.b64encode(part.data).decode()
            alt = _visible(part.name or "image")
            elements.append(f'<img src="data:{part.mime_type};base64,{data}" alt="{alt}">')
        elif isinstance(part, Image | FileRef):
            name = part.path if isinstance(part, FileRef) else part.name or part.url or part.mime_type
            elements.append(f'<span class="hint">{_visible(name)}</span>')
    return f'<div class="files">{"".join(elements)}</div>' if elements else ""


def _texts(parts: Iterable[Part]) -> str:
    return "".join(_markdown(part.text) for part in parts if isinstance(part, Text))


def _markdown(text: str) -> str:
    return "".join(f"<div>{block}</div>" for block in markdown_blocks(text, has_spans=True))


def _folded(title: str, text: str) -> str:
    return (
        f'<details class="thought"><summary>{escape(title)}</summary><div class="say">{_markdown(text)}</div></details>'
    )


def _notice(text: str, *, is_bad: bool = False) -> str:
    return f'<div class="notice{" bad" if is_bad else ""}">{_visible(text)}</div>'
