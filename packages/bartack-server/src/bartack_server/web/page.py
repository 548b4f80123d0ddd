"""What the page needs in addition to the API: its files, entries to draw, and live events.

Both are drawn from the changes of `bartack.display`. An ``entry`` has its canonical JSON, for each text in it the HTML
of its blocks, and the tool calls whose state it changes.

While an answer arrives, unnamed events have what is new in it, as a list of changes. An empty change begins another
answer. ``[0, null, "text"]`` begins a part, ``[0, ...]`` has the growth of a text as `GrowingMarkdown` returns it, or
more of the arguments of a call. The entry of the answer does not repeat texts that arrived in this way.
"""

import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from starlette.responses import RedirectResponse, Response

from bartack.display.changes import (
    CallAsked,
    CallDecided,
    CallEnded,
    CallGrew,
    CallProgressed,
    CallRunning,
    CallStarted,
    StepFinished,
    StepStarted,
    StepVoided,
    TextGrew,
    TextKind,
    TextStarted,
)
from bartack.display.question_text import question_text
from bartack.display.run_reader import BranchReader, turn_start
from bartack.events import LiveEntry, LiveEvent
from bartack.nouns.entries import (
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Entry,
    MessageQueued,
    StreamFailed,
)
from bartack.nouns.messages import Message
from bartack.nouns.parts import Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.wire import dump
from bartack.session.decisions import question_digest
from bartack.store.live import ends_answer
from bartack_server.web.endpoint import Call, Endpoint
from bartack_server.web.event_stream import frame
from bartack_server.web.markdown import GrowingMarkdown, Item, joined_growth, markdown_blocks

__all__ = ["PAGE_ENDPOINTS", "PageEvents", "page_entries"]

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_MAX_MARKDOWN = 200_000  # characters of one text; longer ones are shown as they are


# -- its files


def _load() -> dict[str, tuple[bytes, str]]:
    """Every file by its name, with its type. They are read once, so no request can name a path."""
    folder = files("bartack_server.web").joinpath("static")
    return {
        file.name: (file.read_bytes(), _TYPES[f".{file.name.rpartition('.')[2]}"])
        for file in folder.iterdir()
        if file.is_file()
    }


_FILES = _load()


def _file(name: str, call: Call) -> Response:
    if name not in _FILES:
        return Response(status_code=404)
    data, kind = _FILES[name]
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


def page_entries(branch: Sequence[Entry], start: int, end: int) -> list[dict[str, Any]]:
    """The entries of a branch from `start` up to `end`, as the page draws them."""
    reader = PageEvents(branch[turn_start(branch, start) : start])
    return [reader.entry_json(entry) for entry in branch[start:end]]


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
    """Turns the entries of one branch, and the live events of one viewer, into what the page draws."""

    def __init__(self, earlier: Iterable[Entry] = ()) -> None:
        """`earlier` are the entries that the page has, from the start of the turn on."""
        self._reader = BranchReader()
        self._call_ids: dict[str, str] = {}  # the calls on the page: key -> id
        self._parts: dict[str, _GrowingText | _GrowingCall] = {}  # the answer in progress: key -> part
        for entry in earlier:
            self._read_calls(entry)

    def entry_json(self, entry: Entry, *, is_shown: bool = False) -> dict[str, Any]:
        """The next entry in canonical JSON; with the HTML of its texts under ``html``, the calls that it changes under
        ``calls``, and for a question its text and the digest by which a decision names it.

        If its texts are shown already, it has ``isShown`` instead of them.
        """
        json: dict[str, Any] = dump(entry)
        if is_shown:
            json["isShown"] = True
            for part in json["payload"]["parts"]:
                if part["kind"] != "tool_call":
                    part["payload"]["text"] = ""
        if isinstance(entry.fact, ApprovalRequired):
            json["questionDigest"] = question_digest(entry.fact)
            json["questionText"] = question_text(entry.fact)
        if not is_shown and (html := _html_of(entry)):
            json["html"] = html
        if calls := self._read_calls(entry):
            json["calls"] = calls
        return json

    def frame(self, event: LiveEvent) -> bytes:
        """The frame of the next event."""
        if isinstance(event, LiveEntry):
            if not ends_answer(event.entry.fact):
                return frame("entry", self.entry_json(event.entry), event.position)
            missing = self._complete(event.entry)
            is_shown = missing is not None
            self._parts = {}
            last = _answer_frame(missing) if missing else b""
            return last + frame("entry", self.entry_json(event.entry, is_shown=is_shown), event.position)
        changes: list[Any] = []
        for change in self._reader.read(event):
            match change:
                case StepStarted() | StepVoided():
                    self._parts = {}
                    changes = [()]
                case TextStarted():
                    changes.append(self._start_part(change.key, _GrowingText(change.kind)))
                case CallStarted():
                    changes.append(self._start_part(change.key, _GrowingCall(change.key, change.tool_name)))
                case TextGrew() | CallGrew():
                    if growth := self._parts[change.key].add(change.text):
                        changes.append((list(self._parts).index(change.key), *growth))
                case _:  # an entry will have it
                    pass
        return _answer_frame(changes) if changes else b""

    def _start_part(self, key: str, part: "_GrowingText | _GrowingCall") -> tuple[Any, ...]:
        self._parts[key] = part
        return (len(self._parts) - 1, None, *part.start())

    def _complete(self, entry: Entry) -> list[Any] | None:
        """What the viewer lacks of an answer of which some has arrived: the last pieces come with the entry. None if
        that is not enough, so that the entry has to have the whole answer."""
        if not isinstance(entry.fact, Message) or not self._parts or len(self._parts) > len(entry.fact.parts):
            return None
        changes: list[Any] = []
        growing_parts = list(self._parts.values())
        for number, part in enumerate(entry.fact.parts):
            if number == len(growing_parts):
                growing_parts.append(_new_part(part))
                changes.append((number, None, *growing_parts[number].start()))
            growth = growing_parts[number].complete(part)
            if growth is None:
                return None
            if growth:
                changes.append((number, *growth))
        return changes

    def _read_calls(self, entry: Entry) -> list[dict[str, Any]]:
        """The calls that an entry changes, each with its new state. One without a state waits for its turn."""
        calls: dict[str, dict[str, Any]] = {}
        for change in list(self._reader.read(LiveEntry("", entry))):
            match change:
                case StepFinished():
                    self._call_ids |= {key: call_id for call_id, key in change.keys.items()}
                case CallStarted(is_nested=True):
                    self._call_ids[change.key] = self._reader.find_id(change.key)
                    calls[change.key] = {"name": change.tool_name, "isNested": True}
                case CallAsked() | CallDecided() | CallRunning() | CallProgressed() | CallEnded():
                    calls.setdefault(change.key, {}).update(_call_change(change))
                case _:
                    pass
        return [{"id": self._call_ids[key], **call} for key, call in calls.items() if key in self._call_ids]


def _answer_frame(changes: Sequence[Any]) -> bytes:
    """A frame without a name and a position, neither of which the page needs: many of them are short."""
    return b"data:%s\n\n" % msgspec.json.encode(changes)


def _call_change(change: CallAsked | CallDecided | CallRunning | CallProgressed | CallEnded) -> dict[str, Any]:
    match change:
        case CallAsked():
            return {"state": "ask"}
        case CallDecided(decision=ApprovalDecided(decision="pause" | "resume")):  # the question stays open
            return {}
        case CallDecided(decision=ApprovalDecided(decision="deny")):
            return {"state": "denied"}
        case CallDecided():
            return {"state": "pending"}
        case CallRunning():
            return {"state": "running"}
        case CallProgressed():
            return {} if change.subagent is None else {"inner": change.subagent.session_id}
        case CallEnded(is_nested=True, result=ToolResult(is_error=True)):
            return {"state": "denied"}
        case CallEnded(result=result):
            has_failed = result.is_error or (result.metadata or {}).get("exit_code")
            return {"state": "failed" if has_failed else "done"}


class _GrowingText:
    """A text of the answer in progress."""

    def __init__(self, kind: TextKind) -> None:
        self.kind = kind
        self._markdown = GrowingMarkdown()

    def start(self) -> tuple[str, ...]:
        return (self.kind,)

    def add(self, text: str) -> list[Item]:
        return self._markdown.add(text)

    def complete(self, part: Part) -> list[Item] | None:
        """The growth to the end of this part; None if it is another one, or rendered in another way."""
        if not isinstance(part, Text | Thinking) or isinstance(part, Thinking) != (self.kind == "thinking"):
            return None
        text = self._markdown.text
        if not part.text.startswith(text) or len(part.text) > _MAX_MARKDOWN:
            return None
        growth = joined_growth(self._markdown.add(part.text[len(text) :]), self._markdown.end())
        return growth if self._markdown.is_final() else None


class _GrowingCall:
    """A call in the answer in progress."""

    def __init__(self, key: str, tool_name: str) -> None:
        self._key, self._tool_name = key, tool_name

    def start(self) -> tuple[str, ...]:
        return ("call", self._key, self._tool_name)

    def add(self, text: str) -> list[Item]:
        return [text] if text else []

    def complete(self, part: Part) -> list[Item] | None:
        """Nothing: the entry has the arguments. None if this is not the call."""
        return [] if isinstance(part, ToolCall) and part.tool_name == self._tool_name else None


def _new_part(part: Part) -> _GrowingText | _GrowingCall:
    if isinstance(part, ToolCall):
        return _GrowingCall(part.tool_call_id, part.tool_name)
    return _GrowingText("thinking" if isinstance(part, Thinking) else "text")
