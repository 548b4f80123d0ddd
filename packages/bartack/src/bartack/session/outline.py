"""`Outline`: the few fields of a stored entry that the folds need from closed runs.

An old session is mostly closed runs. To open it, only two things are needed from them: which call ids are in use, and
which calls have no result. Most entries are therefore never decoded: `outlines_of` reads the canonical JSON of an entry
and skips its content. `Past` summarises the closed runs of a branch, and `RunState.of_branch` continues from there.

**What an outline leaves out.** `_OUTLINE` is a decoder for structs that declare only the fields below. msgspec skips
every other key without creating a Python object for it, so the cost of an entry is a scan over its bytes, whatever its
texts and results contain. One payload type stands for all kinds, because the fields that the folds need have the same
names and types in all of them. Nothing is validated that is not read: an entry with an invalid part has an outline.

**What the past is.** The entries of a branch are cut in two. From `Past.end` on, every entry is decoded and pushed into
the folds. Before it, `Past` adds up the outlines, and remembers the indexes of the few entries whose content still
matters: the last model and the last runtime, messages that were not delivered, and whatever concerns a call that has no
result. Only these are decoded.

The result must be what folding every entry gives. `tests/properties/test_opening_laws.py` compares the two for
generated sessions.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from bartack.nouns.entries import (
    Custom,
    Entry,
    MessageQueued,
    ModelChange,
    Redaction,
    RunEnded,
    RunStarted,
    RuntimeInit,
)
from bartack.nouns.ids import derived_id
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolCall, ToolResult

__all__ = [
    "REPAIRED",
    "REQUEST",
    "SCHEDULED",
    "SOURCE",
    "UNREADABLE",
    "Outline",
    "Past",
    "delivery_id",
    "is_readable",
    "last_readable",
    "outlines_of",
]

# The names of our own `Custom` facts.
UNREADABLE = "bartack.unreadable"  # stands in place of an entry that cannot be read
REPAIRED = "bartack.repaired"  # a repair accepts what is lost
REQUEST = "bartack.request"  # the set-up of a model request (bartack.agent.sent_request)
SCHEDULED = "bartack.scheduled"  # a message that a worker delivers later
SOURCE = "bartack.source"  # a record of another program (bartack_transcripts.entries)


def delivery_id(scheduled_id: str) -> str:
    """The id of the entry with which the message of a scheduled entry is delivered."""
    return derived_id(scheduled_id, "delivered")


class _Present(Struct, frozen=True, gc=False):
    """An object whose presence alone matters."""


class _OutlinePartPayload(Struct, frozen=True, rename="camel", gc=False):
    tool_call_id: str = ""
    result: _Present | None = None  # only if the provider executed the call


class _OutlinePart(Struct, frozen=True, gc=False):
    kind: str
    payload: _OutlinePartPayload


class _OutlineMeta(Struct, frozen=True, rename="camel", gc=False):
    model_call_index: int | None = None
    attempt: int | None = None
    request_id: str | None = None


class _OutlinePayload(Struct, frozen=True, rename="camel", gc=False):
    """The fields of all kinds that a fold needs."""

    role: str = ""
    parts: tuple[_OutlinePart, ...] = ()
    run_id: str | None = None
    meta: _OutlineMeta | None = None
    model: Raw = Raw()
    tool_call_id: str = ""
    first_kept_entry_id: str = ""
    entry_id: str = ""  # what a redaction hides
    name: str = ""


class Outline(Struct, frozen=True, rename="camel", gc=False):
    """An entry without its content."""

    id: str
    seq: int
    kind: str
    payload: _OutlinePayload
    run_id: str | None = None

    @property
    def model(self) -> bytes | None:
        """The JSON text of the model that the entry names."""
        text = bytes(self.payload.model)
        return None if text in (b"", b"null") else text

    @property
    def calls(self) -> list[str]:
        """The ids of the tool calls in a message."""
        return [part.payload.tool_call_id for part in self.payload.parts if part.kind == ToolCall.kind]

    @property
    def results(self) -> list[str]:
        """The ids of the tool calls that end with this message."""
        return [
            part.payload.tool_call_id
            for part in self.payload.parts
            if part.kind == ToolResult.kind or part.payload.result is not None
        ]

    @property
    def answer_key(self) -> tuple[str, int, int | None] | None:
        """What identifies an answer of a model: its run, its call and its attempt."""
        payload = self.payload
        run_id = self.run_id or payload.run_id
        if payload.role != "assistant" or payload.meta is None or payload.meta.model_call_index is None or not run_id:
            return None
        return run_id, payload.meta.model_call_index, payload.meta.attempt


_OUTLINE = msgspec.json.Decoder(Outline)
_NOTHING = Outline("", 0, "", _OutlinePayload())


def outlines_of(texts: Iterable[bytes]) -> list[Outline]:
    """The outlines of stored entries. One that cannot be read is of no kind, and so means nothing to any fold."""
    decode = _OUTLINE.decode
    outlines = []
    for text in texts:
        try:
            outlines.append(decode(text))
        except ValueError:  # raised by msgspec, and for invalid UTF-8
            outlines.append(_NOTHING)
    return outlines


def is_readable(entry: Entry) -> bool:
    """Whether the entry could be read; a `Custom` fact takes the place of one that is damaged or of a newer version."""
    return not isinstance(entry.fact, Custom)


def last_readable(indexes: Sequence[int], entries: Sequence[Entry]) -> list[int]:
    """The last of these indexes whose entry can be read, if there is one."""
    return next(([index] for index in reversed(indexes) if is_readable(entries[index])), [])


class Past:
    """The summary of the entries before `end`. From `end` on, the entries must be folded one by one.

    These are the last run and everything after it. If that run does not begin with a user message, they start at the
    last user message, because repeated calls are counted from there.
    """

    def __init__(self, outlines: Sequence[Outline]) -> None:
        self.end = _end_of_past(outlines)
        self.head = outlines[self.end - 1].id if self.end else None  # the last of these entries
        self.run_id: str | None = None
        self.last_run_id: str | None = None
        self.models: list[int] = []  # entries that name a model
        self.requested: int | None = None  # the entry that requests a model for the open or the next run
        self.inbox: dict[str, int] = {}  # entries with messages that have not been delivered, by id
        self.runtimes: list[int] = []  # entries that describe a runtime
        self.call_ids: set[str] = set()
        self.open_calls: set[str] = set()  # without a result
        for index in range(self.end):
            self._add(index, outlines[index])
        self.about_open_calls = [  # earlier entries that must be folded too
            index for index in (range(self.end) if self.open_calls else ()) if self._is_about_open(outlines[index])
        ]

    def _add(self, index: int, outline: Outline) -> None:
        kind = outline.kind
        if kind == Message.kind:
            calls, results = outline.calls, outline.results
            if calls:
                self.call_ids.update(calls)
                self.open_calls.update(calls)
            if results:
                self.open_calls.difference_update(results)
            if self.inbox and outline.payload.meta is not None:
                self.inbox.pop(outline.payload.meta.request_id or "", None)
        elif kind == RunStarted.kind:
            self.run_id = self.last_run_id = outline.run_id
            if outline.model is not None:
                self.models.append(index)
        elif kind == RunEnded.kind:
            self.run_id = self.requested = None
            self.open_calls.clear()
        elif kind == ModelChange.kind:
            self.models.append(index)
            self.requested = index if outline.run_id is None else None
        elif kind == MessageQueued.kind:
            self.inbox[outline.id] = index
        elif kind == Redaction.kind:
            self.inbox.pop(outline.payload.entry_id, None)
        elif kind == RuntimeInit.kind:
            self.runtimes.append(index)
        elif kind == Custom.kind and outline.payload.name == REPAIRED:
            self.open_calls.clear()

    def _is_about_open(self, outline: Outline) -> bool:
        ids = outline.calls if outline.kind == Message.kind else [outline.payload.tool_call_id]
        return outline.kind == Redaction.kind or not self.open_calls.isdisjoint(ids)  # a posted result


def _end_of_past(outlines: Sequence[Outline]) -> int:
    run_id: str | None = None
    begin: int | None = None  # the entry with which the last run began
    last_user = user_before = 0
    for index, outline in enumerate(outlines):
        if outline.payload.role == "user":
            last_user = index
        elif outline.kind == RunStarted.kind:
            if outline.run_id != run_id:  # otherwise a run was resumed
                begin, user_before = index, last_user
            run_id = outline.run_id
        elif outline.kind == RunEnded.kind:
            run_id = None
    if begin is None:
        return 0
    first = next((outline.payload.role for outline in outlines[begin:] if outline.kind == Message.kind), None)
    return begin if first == "user" else user_before
