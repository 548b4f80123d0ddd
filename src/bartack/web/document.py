"""A session as one HTML file that needs nothing else: the rendering of the page, without a script.

In: the entries of a branch, without redacted content. Out: the document. It may be opened from anywhere, so it has a
policy of its own: no script, no other hosts, only the style sheet that is in it.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from bartack.app.notices import exit_code, format_duration
from bartack.app.safe_text import visible_text
from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Entry,
    ModelChange,
    RunEnded,
    StreamFailed,
    ToolStarted,
)
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Span, Text, Thinking, ToolCall, ToolResult
from bartack.session.title import title_in
from bartack.session.tool_state import output_text
from bartack.web.markdown import markdown_blocks

__all__ = ["html_document"]

_STYLES = ("base.css", "chat.css", "code.css")
_FRAME = """
body { padding: 22px 14px 60px; }
tool-card summary { list-style: none; cursor: pointer; }
.head h1 { font-size: 20px; margin-bottom: 4px; }
"""
_SHOWN_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


def html_document(branch: Sequence[Entry]) -> str:
    """The whole conversation."""
    title = title_in(branch) or "Session"
    style = "".join(files("bartack.web").joinpath("static", name).read_text("utf-8") for name in _STYLES) + _FRAME
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'"
    started = f"{branch[0].timestamp:%Y-%m-%d %H:%M} UTC" if branch else ""
    body = "\n".join(_items(branch))
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


def _items(branch: Sequence[Entry]) -> Iterator[str]:
    results = {
        result.tool_call_id: result
        for entry in branch
        if isinstance(entry.fact, Message)
        for result in entry.fact.tool_results
    }
    started = {entry.fact.tool_call_id: entry.fact for entry in branch if isinstance(entry.fact, ToolStarted)}
    for entry in branch:
        match entry.fact:
            case Message(role="user", parts=parts) if all(isinstance(one, Text) and one.synthetic for one in parts):
                yield _notice("\n\n".join(one.text for one in parts if isinstance(one, Text)))
            case Message(role="user") as message:
                yield f'<div class="you">{_media(message.parts)}<div class="text">{_texts(message.parts)}</div></div>'
            case Message(role="assistant") as message:
                yield from filter(None, (_part(part, results, started) for part in message.parts))
                if message.meta is not None and message.meta.aborted:
                    yield _notice("Stopped.")
            case StreamFailed() as failed:
                yield from (_part(part, results, started) for part in failed.parts if isinstance(part, Text))
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


def _part(part: Part, results: Mapping[str, ToolResult], started: Mapping[str, ToolStarted]) -> str:
    match part:
        case Text():
            return f'<div class="say">{_markdown(part.text)}</div>'
        case Thinking():
            return _folded("Thinking", part.text) if part.text else ""
        case ToolCall():
            begun = started.get(part.tool_call_id)  # perhaps with arguments that someone has edited
            arguments = part.arguments if begun is None else begun.arguments
            return _card(part.tool_name, arguments, part.result or results.get(part.tool_call_id))
        case Image() | FileRef():
            return _media((part,))
        case _:
            return ""


def _card(name: str, arguments: Any, result: ToolResult | None) -> str:
    shown = _visible(json_text(arguments))
    kind, sign, state = _state(result)
    head = (
        f'<summary class="head"><span class="sign" aria-hidden="true">{sign}</span><b>{_visible(name)}</b>'
        f'<span class="brief">{_visible(_brief(arguments))}</span><span class="state">{escape(state)}</span></summary>'
    )
    parts = result.content if result is not None and isinstance(result.content, tuple) else ()
    output = "" if result is None else f"<pre>{_visible(output_text(result))}</pre>"
    return f'<tool-card class="{kind}"><details>{head}<pre>{shown}</pre></details>{output}{_media(parts)}</tool-card>'


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


def _brief(arguments: Any) -> str:
    """What a call is about, on one line."""
    given = arguments if isinstance(arguments, dict) else {}
    first = given.get("path", given.get("command", next(iter(given.values()), "")))
    return first.partition("\n")[0] if isinstance(first, str) else json_text(first)


def _visible(text: str) -> str:
    return escape(visible_text(text))


def _media(parts: Iterable[Part]) -> str:
    """Images in the file itself; anything else by its name."""
    shown: list[str] = []
    for part in parts:
        if isinstance(part, Image) and part.data is not None and part.mime_type in _SHOWN_TYPES:
            data = base64.b64encode(part.data).decode()
            shown.append(f'<img src="data:{part.mime_type};base64,{data}" alt="image">')
        elif isinstance(part, Image | FileRef):
            name = part.path if isinstance(part, FileRef) else part.url or part.mime_type
            shown.append(f'<span class="hint">{_visible(name)}</span>')
    return f'<div class="files">{"".join(shown)}</div>' if shown else ""


def _texts(parts: Iterable[Part]) -> str:
    return "".join(_markdown(part.text) for part in parts if isinstance(part, Text))


def _markdown(text: str) -> str:
    return "".join(f"<div>{block}</div>" for block in markdown_blocks(text))


def _folded(title: str, text: str) -> str:
    return (
        f'<details class="thought"><summary>{escape(title)}</summary><div class="say">{_markdown(text)}</div></details>'
    )


def _notice(text: str, *, is_bad: bool = False) -> str:
    return f'<div class="notice{" bad" if is_bad else ""}">{_visible(text)}</div>'
