"""What the page needs in addition to the API: its files, and live events with rendered Markdown.

An ``entry`` has its canonical JSON and, for each text in it, the HTML of its blocks. While an answer arrives, an
``answer`` has what is new in each of its parts: the blocks that are finished now, and the HTML of the one that grows.
"""

import hashlib
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from starlette.responses import RedirectResponse, Response

from bartack.nouns.deltas import MessageDelta, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallStart
from bartack.nouns.entries import ApprovalRequired, BranchSummary, CompactionSummary, Entry, MessageQueued, StreamFailed
from bartack.nouns.messages import Message
from bartack.nouns.parts import Part, Text, Thinking, ToolCall
from bartack.nouns.wire import dump
from bartack.session.decisions import arguments_digest
from bartack.store.live import LiveDeltas, LiveEntry, LiveEvent, LiveReset, ends_answer
from bartack.web.endpoint import Call, Endpoint
from bartack.web.event_stream import frame
from bartack.web.markdown import GrowingMarkdown, markdown_blocks

__all__ = ["PAGE_ENDPOINTS", "PageEvents", "entry_json"]

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_MAX_MARKDOWN = 200_000  # characters of one text; longer ones are shown as they are


# -- its files


def _load() -> dict[str, tuple[bytes, str]]:
    """Every file by its name, with its type. They are read once, so no request can name a path."""
    folder = files("bartack.web").joinpath("static")
    found = [file for file in folder.iterdir() if file.is_file()]
    return {file.name: (file.read_bytes(), _TYPES[f".{file.name.rpartition('.')[2]}"]) for file in found}


_FILES = _load()


def _file(name: str, call: Call) -> Response:
    found = _FILES.get(name)
    if found is None:
        return Response(status_code=404)
    data, kind = found
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if call.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=f"{kind}; charset=utf-8")


async def _page(call: Call) -> Response:
    if not call.request.url.path.endswith("/"):  # mounted: relative addresses need the slash
        return RedirectResponse(f"{call.request.url.path}/", 308)
    return _file("index.html", call)


async def _static(call: Call) -> Response:
    return _file(call.request.path_params["name"], call)


PAGE_ENDPOINTS = (
    Endpoint("GET", "/", _page, "The page.", media_type="text/html", is_public=True),
    Endpoint("GET", "/static/{name}", _static, "A file of the page.", media_type="*/*", is_public=True),
)


# -- entries


def entry_json(entry: Entry) -> dict[str, Any]:
    """The entry in canonical JSON, with the HTML of its texts under ``html``, and for a question the digest that a
    decision about exactly these arguments has."""
    shown: dict[str, Any] = dump(entry)
    if isinstance(entry.fact, ApprovalRequired):
        return {**shown, "argumentsDigest": arguments_digest(entry.fact.arguments)}
    html = _html_of(entry)
    return {**shown, "html": html} if html else shown


def _html_of(entry: Entry) -> list[list[str]]:
    """The blocks of each part that has some; of a summary, those of its text."""
    match entry.fact:
        case Message(role="tool"):
            return []
        case Message(parts=parts) | StreamFailed(parts=parts):
            return _parts_html(parts)
        case MessageQueued(message=message):
            return _parts_html(message.parts)
        case CompactionSummary(summary=text) | BranchSummary(summary=text):
            return [_blocks(text)]
        case _:
            return []


def _parts_html(parts: Iterable[Part]) -> list[list[str]]:
    return [_blocks(part.text) if isinstance(part, Text | Thinking) else [] for part in parts]


def _blocks(text: str) -> list[str]:
    return markdown_blocks(text) if len(text) <= _MAX_MARKDOWN else []


# -- an answer that is arriving


class PageEvents:
    """Turns the live events of one viewer into frames for the page."""

    def __init__(self) -> None:
        self._parts: list[_GrowingPart] = []

    def frame(self, event: LiveEvent) -> bytes:
        """The frame of the next event."""
        match event:
            case LiveEntry():
                if ends_answer(event.entry.fact):
                    self._parts = []
                return frame("entry", entry_json(event.entry), event.position)
            case LiveReset():
                self._parts = [_part_of(part) for part in event.snapshot.parts]
                is_new = True
            case LiveDeltas():
                is_new = not self._parts
                for delta in event.deltas:
                    self._consume(delta)
        changes = [{"index": at, **part.change()} for at, part in enumerate(self._parts) if part.has_changed]
        return frame("answer", {"isNew": is_new, "parts": changes}, event.position)

    def _consume(self, stamped: MessageDelta) -> None:
        match stamped.delta:
            case TextDelta(text_delta=text, new_part=new_part):
                self._text("text", text, new_part)
            case ThinkingDelta(text_delta=text, new_part=new_part):
                self._text("thinking", text, new_part)
            case ToolCallStart(tool_call_id=call_id, tool_name=name):
                self._parts.append(_GrowingCall(call_id, name))
            case ToolCallArgs(tool_call_id=call_id, args_text_delta=text):
                for part in self._parts:
                    if isinstance(part, _GrowingCall) and part.call_id == call_id:
                        part.add(text)
            case _:
                pass

    def _text(self, kind: str, text: str, new_part: bool) -> None:
        last = self._parts[-1] if self._parts else None
        if new_part or not isinstance(last, _GrowingText) or last.kind != kind:
            last = _GrowingText(kind)
            self._parts.append(last)
        last.add(text)


class _GrowingPart:
    kind = ""

    def __init__(self) -> None:
        self.has_changed = True
        self._new: list[str] = []

    def add(self, text: str) -> None:
        self._new.append(text)
        self.has_changed = True

    def change(self) -> dict[str, Any]:
        """What is new since the last time."""
        text, self._new, self.has_changed = "".join(self._new), [], False
        return {"kind": self.kind, **self._shown(text)}

    def _shown(self, text: str) -> dict[str, Any]:
        raise NotImplementedError


class _GrowingText(_GrowingPart):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self._markdown = GrowingMarkdown()

    def _shown(self, text: str) -> dict[str, Any]:
        first = self._markdown.count
        finished, tail = self._markdown.add(text)
        return {"first": first, "blocks": finished, "tail": tail}


class _GrowingCall(_GrowingPart):
    kind = "tool_call"

    def __init__(self, call_id: str, name: str) -> None:
        super().__init__()
        self.call_id = call_id
        self._name = name

    def _shown(self, text: str) -> dict[str, Any]:
        return {"toolCallId": self.call_id, "toolName": self._name, "arguments": text}


def _part_of(part: Part) -> _GrowingPart:
    """A part that has begun to arrive."""
    made: _GrowingPart
    match part:
        case Thinking():
            made = _GrowingText("thinking")
            made.add(part.text)
        case ToolCall():
            made = _GrowingCall(part.tool_call_id, part.tool_name)
            made.add(part.raw_args_text or "")
        case _:
            made = _GrowingText("text")
            made.add(part.text if isinstance(part, Text) else "")
    return made
