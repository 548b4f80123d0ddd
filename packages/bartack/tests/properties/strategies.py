"""Values of every noun, legal streams and plausible sessions, for hypothesis.

`of_type` reads the annotations of a noun, as `bartack.nouns.wire` does, so a new field is tested as soon as it exists.
Constraints that annotations cannot express (an image has data or a URL, a call id is not empty) are in `_FIELDS` and
`_CLASSES`.
"""

import json
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from bartack.nouns.config import AgentConfig, AgentState, ModelConfig
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    MessageDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Custom,
    Entry,
    Fact,
    MessageDeltaBatch,
    MessageQueued,
    ModelChange,
    Redaction,
    ResultPosted,
    RunEnded,
    RunStarted,
    RuntimeInit,
    Session,
    SessionHeader,
    StreamFailed,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import ROLE_PARTS, Message, Meta, ModelRef, Role, stamped
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

T = TypeVar("T")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# -- basic values

texts = st.text(st.characters(codec="utf-8"), max_size=12)  # Unicode that can be stored: no lone surrogates
names = st.text("abcdefgh_", min_size=1, max_size=8)
counts = st.integers(0, 2**53)
numbers = st.floats(allow_nan=False, allow_infinity=False)
times = st.datetimes(
    datetime(1970, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))]),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
# Keys that no version defines; an empty `extra` is written as none.
extras = st.none() | st.dictionaries(names.map("x-{}".format), json_values, min_size=1, max_size=2)


# -- a noun from its annotations

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "extra": extras,
    "tool_call_id": names,
    "model_id": names,
    "seq": st.integers(1, 2**53),
    "max_tokens": st.none() | st.integers(1, 2**31),
    "max_cost_usd": st.none() | st.floats(0, 1e6),
    "temperature": st.none() | st.floats(0, 2),
    "top_p": st.none() | st.floats(0, 1),
}


@cache
def of_type(tp: Any) -> st.SearchStrategy[Any]:
    """Values of any type that a noun's field may have."""
    origin, args = get_origin(tp), get_args(tp)
    if tp in _SCALARS:
        return _SCALARS[tp]
    if origin in (Union, UnionType):
        return st.one_of([of_type(member) for member in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(of_type(args[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(texts, of_type(args[1]), max_size=2)
    if issubclass(tp, Enum):
        return st.sampled_from(list(tp))
    return st.deferred(lambda: _CLASSES[tp] if tp in _CLASSES else struct(tp))


def struct(cls: type[T], **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Values of a noun; its optional fields may be given or left to their defaults."""
    assert issubclass(cls, Struct)
    required: dict[Any, st.SearchStrategy[Any]] = {}
    optional: dict[Any, st.SearchStrategy[Any]] = {}
    own = _FIELDS | strategies
    for field in fields(cls):
        group = required if field.required or field.name in strategies else optional
        group[field.name] = own[field.name] if field.name in own else of_type(field.type)
    return st.fixed_dictionaries(required, optional=optional).map(lambda values: cls(**values))


_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    Any: json_values,
    str: texts,
    int: counts,
    float: numbers,
    bool: st.booleans(),
    bytes: st.binary(max_size=6),
    datetime: times,
    NoneType: st.none(),
}


# -- parts and messages


def _with_content(part: Image | FileRef, data: bytes) -> Image | FileRef:
    """With `data` instead of a URL."""
    return replace(part, data=data, url=None)


@st.composite
def _calls(draw: st.DrawFn) -> ToolCall:
    call = draw(struct(ToolCall, executed_by=st.just("client"), result=st.none()))
    if draw(st.booleans()):
        return call
    result = draw(st.none() | struct(ToolResult, tool_call_id=st.just(call.tool_call_id)))
    return replace(call, executed_by="provider", result=result)


_images = struct(Image, data=st.none(), url=texts)
_files = struct(FileRef, data=st.none())
images = _images | st.builds(_with_content, _images, st.binary(max_size=6))
files = _files | st.builds(_with_content, _files, st.binary(max_size=6))
tool_calls = _calls()

_CLASSES: dict[Any, st.SearchStrategy[Any]] = {Image: images, FileRef: files, ToolCall: tool_calls}

parts: st.SearchStrategy[Part] = of_type(Part)
metas = struct(Meta)


def _call_id(part: Part) -> str | int:
    return part.tool_call_id if isinstance(part, ToolCall | ToolResult) else id(part)


def messages(*roles: Role, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Message]:
    """Messages of these roles, or of any; no message contains a call or a result twice."""

    def of_role(role: Role) -> st.SearchStrategy[Message]:
        content = st.lists(st.one_of([of_type(cls) for cls in ROLE_PARTS[role]]), max_size=3, unique_by=_call_id)
        return struct(Message, role=st.just(role), parts=content.map(tuple), **fields)

    return st.one_of([of_role(role) for role in roles or ROLE_PARTS])


_CLASSES[Message] = messages()
stamped_messages = messages(id=names, timestamp=times)  # messages that have become facts

# -- deltas and streams

deltas: st.SearchStrategy[Delta] = of_type(Delta)
message_deltas = struct(MessageDelta)
usages = struct(Usage, cost=st.none() | st.floats(0, 100))
_continuations = st.none() | st.dictionaries(names, json_values, max_size=2)
_tool_content: st.SearchStrategy[Any] = texts | json_objects | st.lists(struct(Text) | images, max_size=2).map(tuple)
good_args = json_objects.map(json.dumps)
bad_args = st.sampled_from(
    ["{", '{"a": 1', "[1]", "null", '"text"', "{'a': 1}", '{"a": NaN}', '{"a": "\\ud800"}', "1 2"]
)


def cut(draw: st.DrawFn, text: str) -> list[str]:
    """The text in pieces, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def _call_deltas(draw: st.DrawFn, call_id: str) -> list[Delta]:
    provider = draw(st.booleans())
    args = draw(good_args | bad_args | st.just(""))
    result = draw(st.none() | _tool_content) if provider else None
    return [
        ToolCallStart(
            call_id,
            draw(names),
            executed_by="provider" if provider else "client",
            continuation=draw(_continuations),
        ),
        *(ToolCallArgs(call_id, piece) for piece in cut(draw, args)),
        ToolCallEnd(call_id, result=result, result_is_error=draw(st.booleans()), continuation=draw(_continuations)),
    ]


def _piece(draw: st.DrawFn) -> Delta:
    if draw(st.integers(0, 3)) == 0:
        return draw(usages)
    make = TextDelta if draw(st.booleans()) else ThinkingDelta
    return make(draw(texts), new_part=draw(st.booleans()), continuation=draw(_continuations))


def _interleaved(draw: st.DrawFn, lines: list[list[Delta]]) -> list[Delta]:
    """The sequences interleaved into one; each keeps its own order."""
    out: list[Delta] = []
    while lines := [line for line in lines if line]:
        out.append(draw(st.sampled_from(lines)).pop(0))
    return out


@st.composite
def streams(draw: st.DrawFn, *, end: Literal["done", "error", "any"] = "any") -> list[MessageDelta]:
    """A legal stream: start, interleaved text, thinking, calls and usage, then done or error."""
    calls = [_call_deltas(draw, f"call_{number}") for number in range(draw(st.integers(0, 3)))]
    pieces = [_piece(draw) for _ in range(draw(st.integers(0, 6)))]
    body = _interleaved(draw, [pieces, *calls])
    last: Delta = (
        draw(struct(Done)) if end == "done" or (end == "any" and draw(st.booleans())) else draw(struct(Failed))
    )
    if isinstance(last, Failed):  # a failure may come at any time: calls stay open
        body = body[: draw(st.integers(0, len(body)))]
    return stamp_stream(draw, [draw(struct(Start)), *body, last])


def stamp_stream(draw: st.DrawFn, deltas: list[Delta]) -> list[MessageDelta]:
    """The deltas with a run, an increasing `seq`, sometimes with gaps, and a time that never decreases."""
    run_id, seq, timestamp = draw(names), draw(st.integers(0, 5)), draw(times)
    place = draw(st.none() | st.tuples(st.integers(0, 9), st.integers(1, 3)))
    index, attempt = place or (None, None)
    out = []
    for delta in deltas:
        out.append(MessageDelta(run_id, seq, delta, timestamp, model_call_index=index, attempt=attempt))
        seq += draw(st.sampled_from([1, 1, 1, 7]))
        timestamp += timedelta(milliseconds=draw(st.integers(0, 2000)))
    return out


# -- facts, entries and sessions

_CLASSES[MessageDelta] = message_deltas
facts: st.SearchStrategy[Fact] = st.one_of(
    [stamped_messages if cls is Message else of_type(cls) for cls in get_args(Fact)]
)
entries: st.SearchStrategy[Entry] = struct(Entry, fact=facts)
_CLASSES[Entry] = entries
raw_sessions: st.SearchStrategy[Session] = struct(Session)  # any entries at all; `sessions` makes plausible ones
model_configs = struct(ModelConfig)
agent_configs = struct(AgentConfig)
agent_states = struct(AgentState)


class _Log:
    """A growing list of entries: each follows the previous one, and ids and times count upwards."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.entries: list[Entry] = []
        self.run_id: str | None = None
        self.calls = 0

    def add(self, fact: Fact, parent_id: str | None = None) -> Entry:
        seq = len(self.entries) + 1
        timestamp = NOON + timedelta(seconds=seq)
        if isinstance(fact, Message):
            fact = stamped(fact, id=f"m{seq}", timestamp=timestamp, run_id=self.run_id)
        entry = Entry(
            id=f"e{seq}",
            session_id="s1",
            seq=seq,
            timestamp=timestamp,
            fact=fact,
            parent_id=parent_id or (self.entries[-1].id if self.entries else None),
            run_id=self.run_id,
        )
        self.entries.append(entry)
        return entry

    def new_calls(self, count: int) -> list[ToolCall]:
        self.calls += count
        numbers = range(self.calls - count, self.calls)
        return [replace(self.draw(tool_calls), tool_call_id=f"call_{n}", result=None) for n in numbers]


@st.composite
def sessions(draw: st.DrawFn) -> list[Entry]:
    """A plausible session: one chain of entries, occasionally with a branch, as a loop or a crash would leave it."""
    log = _Log(draw)
    log.add(SessionHeader(title=draw(st.none() | texts), metadata=draw(st.none() | json_objects)))
    for run in range(draw(st.integers(0, 2))):
        _run(log, f"run_{run}")
        _afterwards(log)
    return log.entries


def _run(log: _Log, run_id: str) -> None:
    draw = log.draw
    log.run_id = run_id
    log.add(RunStarted(agent=draw(st.none() | names), model=ModelRef("p", "m"), tools=("read", "write")))
    log.add(draw(messages("user", id=st.none(), timestamp=st.none(), run_id=st.none())))
    for index in range(draw(st.integers(0, 2))):
        _model_call(log, index)
    if draw(st.booleans()):
        log.add(draw(struct(RunEnded)))
    log.run_id = None


def _model_call(log: _Log, index: int) -> None:
    draw = log.draw
    if draw(st.integers(0, 3)) == 0:
        arrived: tuple[Part, ...] = (*draw(st.lists(struct(Text) | struct(Thinking), max_size=2)), *log.new_calls(1))
        error = Failed(draw(st.sampled_from(ErrorCode)), draw(texts), retryable=draw(st.booleans()))
        usage = draw(st.none() | struct(Usage))
        log.add(StreamFailed(error=error, parts=arrived, usage=usage, model_call_index=index, attempt=1))
        return
    calls = log.new_calls(draw(st.integers(0, 2)))
    prose = draw(st.lists(struct(Text) | struct(Thinking), max_size=2))
    meta = Meta(
        model=ModelRef("p", "m"),
        usage=draw(st.none() | struct(Usage)),
        cost_usd=draw(st.none() | st.floats(0, 9)),
        duration_ms=draw(st.none() | counts),
        finish_reason="tool_calls" if calls else "stop",
        model_call_index=index,
    )
    log.add(Message("assistant", (*prose, *calls), meta=meta))
    for call in calls:
        if call.executed_by == "client":
            _execution(log, call)


def _execution(log: _Log, call: ToolCall) -> None:
    """The facts about a call, up to any point: it may have been denied, interrupted, or never started."""
    draw, call_id = log.draw, call.tool_call_id
    if draw(st.integers(0, 3)) == 0:
        log.add(ApprovalRequired(tool_call_id=call_id, tool_name=call.tool_name, arguments=call.arguments))
        answer = draw(st.integers(0, 2))
        if answer == 0:
            return
        log.add(
            ApprovalDecided(
                tool_call_id=call_id, decision="deny" if answer == 1 else "approve", arguments=call.arguments
            )
        )
        if answer == 1:
            log.add(Message("tool", (ToolResult(call_id, "no", is_error=True, error_code=ErrorCode.TOOL_DENIED),)))
            return
    if draw(st.integers(0, 5)) == 0:
        return
    log.add(
        ToolStarted(
            tool_call_id=call_id, tool_name=call.tool_name, arguments=call.arguments, title=draw(st.none() | texts)
        )
    )
    for _ in range(draw(st.integers(0, 2))):
        log.add(ToolProgress(tool_call_id=call_id, content=draw(texts), metadata=draw(st.none() | json_objects)))
    if draw(st.integers(0, 3)):
        result = draw(struct(ToolResult, tool_call_id=st.just(call_id)))
        log.add(Message("tool", (result,)))


def _afterwards(log: _Log) -> None:
    """Facts that may occur between runs."""
    draw = log.draw
    entry_ids = st.sampled_from([entry.id for entry in log.entries])
    for _ in range(draw(st.integers(0, 2))):
        choices: list[st.SearchStrategy[Fact]] = [
            struct(CompactionSummary, first_kept_entry_id=entry_ids),
            struct(BranchSummary, from_entry_id=entry_ids),
            struct(Redaction, entry_id=entry_ids),
            struct(ModelChange),
            struct(ThinkingLevelChange),
            struct(SystemPromptOverride),
            struct(RuntimeInit),
            struct(Custom),
            st.builds(MessageDeltaBatch, deltas=streams().map(tuple)),
            struct(MessageQueued),
            struct(ResultPosted),
            struct(AbortRequested),
        ]
        parent = draw(st.none() | st.none() | entry_ids)
        log.add(draw(st.one_of(choices)), parent)


plausible_sessions: st.SearchStrategy[Session] = sessions().map(Session.of)
