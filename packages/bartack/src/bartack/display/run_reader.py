"""`RunReader`: the events of one run -> changes to a client's display of it.

It reads the events of `Agent.stream`, those of `SessionStore.follow_live` from any process, or stored entries alone, in
any mixture. However much of an answer arrived as deltas, the display ends up with the stored answer.

`RunReader` stops at the end of its run. A branch may have any number of runs, and in imported sessions none:
`BranchReader` shows every answer in it, also those of the history that a run began with.

Deltas that arrive together are joined first: the pieces of one text become one, so that each is encoded and sent once.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal

from msgspec.structs import replace

from bartack.display.changes import (
    AttemptFailed,
    CallAsked,
    CallDecided,
    CallGrew,
    CallProgressed,
    CallReady,
    CallRunning,
    CallStarted,
    Change,
    MessageAdded,
    Noted,
    RunEnds,
    RunPauses,
    StepFinished,
    StepStarted,
    StepVoided,
    Subagent,
    SubagentChanged,
)
from bartack.display.shown_step import ShownCall, ShownKeys, ShownStep
from bartack.events import (
    DeltaReceived,
    EntryAppended,
    Event,
    LiveDeltas,
    LiveEntry,
    LiveEvent,
    LiveReset,
    RunFinished,
    RunPaused,
    RunResult,
    SubagentEvent,
)
from bartack.nouns.deltas import Delta, Failed, MessageDelta, Start, TextDelta, ThinkingDelta, ToolCallArgs
from bartack.nouns.entries import (
    ApprovalDecided,
    ApprovalRequired,
    Custom,
    Entry,
    ResultPosted,
    RunEnded,
    RunStarted,
    StreamFailed,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Meta
from bartack.nouns.parts import Text, ToolCall
from bartack.nouns.tables import AgentStatus
from bartack.session.run_state import AGENT, SESSION, WAITING, nested_id

__all__ = ["BranchReader", "RunReader", "is_answer", "is_requested", "is_written", "joined", "last_run", "turn_start"]

OWN_NOTES = "bartack."  # what the names of Bartack's own notes begin with; they are not for clients
_CallFact = ToolStarted | ToolProgress | ApprovalRequired | ApprovalDecided | ResultPosted
_STATUSES: dict[AgentStatus, Literal["completed", "aborted"]] = {
    AgentStatus.COMPLETED: "completed",
    AgentStatus.ABORTED: "aborted",
}
_NOT_RUN = "Not executed: the model call failed."
_SUSPENDED = Failed(ErrorCode.PAUSED, "The run was suspended.")
_INTERRUPTED = Failed(ErrorCode.STREAM_TRUNCATED, "The connection to the run was lost.")


def is_answer(entry: Entry, message: Message) -> bool:
    """Whether a run made this message, rather than beginning with it as history; True without a run."""
    made_by_model = message.meta is not None and message.meta.model_call_index is not None
    return entry.run_id is None or (made_by_model and message.run_id == entry.run_id)


def is_written(message: Message) -> bool:
    """Whether a person wrote the message, and not the run itself."""
    return not all(isinstance(part, Text) and part.synthetic for part in message.parts)


def is_requested(message: Message) -> bool:
    """Whether the message was queued, or steered a live run: then it is not the prompt of a client."""
    return message.meta is not None and message.meta.request_id is not None


def last_run(branch: Sequence[Entry]) -> Sequence[Entry]:
    """The entries since the last run started, which may have been resumed since."""
    starts = [(entry.run_id, index) for index, entry in enumerate(branch) if isinstance(entry.fact, RunStarted)]
    first = next((index for run_id, index in starts if run_id == starts[-1][0]), len(branch))
    return branch[first:]


def _step_text(event: Event) -> str:
    """A step of a sub-agent in words: the tools that it starts, and its answers. Empty for anything else."""
    match event:
        case SubagentEvent():
            text = _step_text(event.event)
            return text and f"{event.agent}: {text}"
        case EntryAppended(entry=Entry(fact=ToolStarted() as started)):
            return started.title or started.tool_name
        case EntryAppended(entry=Entry(fact=Message(role="assistant") as message)):
            return message.text
        case _:
            return ""


class RunReader:
    """Reads one run: the first one that it gets an event of."""

    def __init__(
        self, earlier: Iterable[Entry] = (), taken_keys: Iterable[str] = (), *, from_start: bool = False
    ) -> None:
        """`earlier` are the entries of the run that the client shows already, for a run that continues; `taken_keys`
        are the keys of all calls that it shows. With `from_start`, it is the next run that starts: that may end another
        one, which was paused."""
        self.run_id: str | None = None
        self.is_ended = False  # the run has ended or paused; nothing changes after that
        self._awaits_start = from_start
        self._keys = ShownKeys(taken_keys)
        self._step: ShownStep | None = None  # the answer that is arriving
        self._steps = 0
        self._failed: StreamFailed | None = None  # the last attempt, until the next one begins
        self._notes: list[Noted] = []
        self._open: dict[str, ShownCall] = {}  # the calls of stored answers that have no result, by id
        self._subagents: dict[str, RunReader] = {}  # the runs of sub-agents, by the id of the call
        self._keys.are_known = True
        for entry in earlier:
            for _ in self._entry(entry):
                pass
        self._keys.are_known = False

    def read(self, event: Event | LiveEvent) -> Iterator[Change]:
        """The changes that an event brings about."""
        if self.is_ended:
            return
        match event:
            case DeltaReceived():
                yield from self._delta(event.delta)
            case LiveDeltas():
                for delta in joined(event.deltas):
                    yield from self._delta(delta)
            case LiveReset():
                yield from self._snapshot(event.snapshot)
            case EntryAppended() | LiveEntry():
                yield from self._entry(event.entry)
            case SubagentEvent():
                yield from self._progress(event)
            case RunPaused():
                yield from self._pause(event.approvals)
            case RunFinished():
                yield from self._finish(event.result)
            case _:
                pass

    @property
    def is_waiting(self) -> bool:
        """Whether the run can only continue once its calls are decided or their results are posted."""
        is_busy = self.is_ended or self._step is not None or not self._open
        return not is_busy and all(call.is_waiting for call in self._open.values())

    def pause(self) -> Iterator[Change]:
        """End the stream of a run that `is_waiting`: `SessionStore.follow_live` has no event for that."""
        if self.is_waiting:
            calls = self._calls.values()
            yield from self._pause(tuple(call.question for call in calls if call.is_undecided and call.question))

    def close(self, error: Failed | None = None) -> Iterator[Change]:
        """End the stream although the run has not ended: its events cannot be read any longer."""
        if not self.is_ended:
            yield from self._end(RunEnds(status="failed", error=error or _INTERRUPTED))

    def next_run(self) -> None:
        """Read another run. The calls without a result stay open."""
        self.run_id, self.is_ended = None, False
        self._step = self._failed = None

    # -- the answer in progress

    def _delta(self, delta: MessageDelta) -> Iterator[Change]:
        self.run_id = self.run_id or delta.run_id
        if delta.run_id != self.run_id:
            return
        if isinstance(delta.delta, Start):
            yield from self._begin(void=True)
        elif self._step is not None:
            yield from self._step.extend(delta)

    def _snapshot(self, snapshot: Message) -> Iterator[Change]:
        self.run_id = self.run_id or snapshot.run_id
        if snapshot.run_id == self.run_id:
            yield from self._become(snapshot, is_final=False)

    def _begin(self, *, void: bool) -> Iterator[Change]:
        """Begin a step, or the next attempt at the one that is open."""
        failed, self._failed = self._failed, None
        if self._step is None:
            self._steps += 1
            yield StepStarted(self._steps)
        elif void or failed is not None:
            yield from self._step.give_up(_NOT_RUN)
            self._step.void()
            yield StepVoided(None if failed is None else failed.error)
        else:
            return
        self._step = ShownStep(self._keys)

    def _drop_failed(self) -> Iterator[Change]:
        """Take back what is shown of a failed attempt, because something comes before the next one. That is so if the
        run was suspended, or its process ended, in the middle of an answer."""
        if self._failed is not None and self._step is not None:
            yield from self._begin(void=True)
            self._step = None
            self._steps -= 1

    def _become(self, message: Message, *, is_final: bool) -> Iterator[Change]:
        step = self._step
        is_void = step is not None and not step.can_become(message.parts, is_final=is_final)
        yield from self._begin(void=is_void)
        assert self._step is not None
        meta = message.meta or Meta()
        yield from self._step.become(
            message.parts, bad_args=meta.bad_args or {}, open_calls=meta.open_calls or (), is_final=is_final
        )

    # -- facts

    def _entry(self, entry: Entry) -> Iterator[Change]:
        if self._awaits_start and entry.run_id is not None:
            self._awaits_start = not isinstance(entry.fact, RunStarted)
            if self._awaits_start:
                return
        self.run_id = self.run_id or entry.run_id
        if entry.run_id not in (None, self.run_id):
            return  # None: added by others
        fact = entry.fact
        match fact:
            case Message(role="assistant"):
                if is_answer(entry, fact):
                    yield from self._answer(entry.id, fact)
            case Message(role="tool"):
                for result in fact.tool_results:
                    call = self._open.pop(result.tool_call_id, None)
                    if call is not None:
                        self._subagents.pop(result.tool_call_id, None)
                        yield from call.end(result, entry.timestamp)
            case Message(role="user"):
                joins = self._steps > 0 or is_requested(fact)
                yield from self._drop_failed()
                if joins and is_written(fact):
                    yield MessageAdded(entry.id, fact)
            case ToolStarted() | ToolProgress() | ApprovalRequired() | ApprovalDecided() | ResultPosted():
                call = self._open.get(fact.tool_call_id)
                introduction: Iterable[Change] = ()
                if call is None:
                    call, introduction = self._nested(fact)
                yield from introduction
                if call is not None:
                    if isinstance(fact, ToolStarted):
                        call.started_at = call.started_at or entry.timestamp
                    yield from self._call_fact(call, fact)
            case StreamFailed():
                if fact.model_call_index is not None:  # None: it wrote a summary
                    if self._failed is not None and self._step is not None:  # an earlier attempt is shown
                        yield from self._begin(void=True)
                    self._failed = fact
                    yield AttemptFailed(fact.error)
            case Custom(name=name) if not name.startswith(OWN_NOTES):
                self._notes.append(Noted(entry.id, fact.name, fact.data))
                if self._step is None:  # otherwise after the answer, which may still be voided
                    yield from self._take_notes()
            case RunEnded():
                yield from self._end(
                    RunEnds(
                        status=fact.status,
                        reason=fact.reason,
                        error=fact.error,
                        usage=fact.usage,
                        cost_usd=fact.cost_usd,
                    )
                )
            case _:
                pass

    def _answer(self, entry_id: str, message: Message) -> Iterator[Change]:
        yield from self._become(message, is_final=True)
        assert self._step is not None
        step, self._step = self._step, None
        for part in message.parts:
            if isinstance(part, ToolCall) and part.executed_by == "client":
                self._open[part.tool_call_id] = step.calls[part.tool_call_id]
        yield StepFinished(entry_id, message, {call_id: call.key for call_id, call in step.calls.items()})
        yield from self._take_notes()

    def _take_notes(self) -> Iterator[Change]:
        notes, self._notes = self._notes, []
        yield from notes

    def _progress(self, event: SubagentEvent) -> Iterator[Change]:
        """What a sub-agent does: the changes to its own display, and its steps as progress of the call that runs it."""
        call = self._open.get(event.tool_call_id)
        if call is None:
            return
        if event.tool_call_id not in self._subagents:
            self._subagents[event.tool_call_id] = RunReader()
        for change in self._subagents[event.tool_call_id].read(event.event):
            yield SubagentChanged(call.key, call.tool_name, event.agent, change)
        text = _step_text(event)
        if text:
            yield CallProgressed(call.key, call.tool_name, text, subagent=call.subagent, by_subagent=True)

    @property
    def call_ids(self) -> dict[str, str]:
        """The ids of the calls without a result, by their keys."""
        return {call.key: call_id for call_id, call in self._calls.items()}

    def find(self, call_id: str) -> ShownCall | None:
        """The open call with this id, which may be a sub-agent's call that awaits a decision or a result."""
        return self._calls.get(call_id)

    @property
    def _calls(self) -> dict[str, ShownCall]:
        """The calls without a result, and those of sub-agents that await a decision or a result, by their ids."""
        nested = (call.nested for call in self._open.values())
        return self._open | dict(chain.from_iterable(calls.items() for calls in nested))

    def _nested(self, fact: _CallFact) -> tuple[ShownCall | None, Iterable[Change]]:
        """The sub-agent's call that the fact is about, and the changes that show it when it first awaits a decision or
        a result."""
        call_id = fact.tool_call_id
        outer = next((call for id, call in self._open.items() if call_id.startswith(nested_id(id, ""))), None)
        if outer is None or call_id in outer.nested or not isinstance(fact, ToolStarted | ApprovalRequired):
            return None if outer is None else outer.nested.get(call_id), ()
        call = outer.nested[call_id] = ShownCall(
            self._keys.for_call(call_id), call_id, fact.tool_name, by_provider=False
        )
        call.arguments, call.outer = fact.arguments, outer
        return call, (
            CallStarted(call.key, call.tool_name, is_nested=True),
            CallGrew(call.key, call.tool_name, json_text(fact.arguments)),
            CallReady(call.key, call.tool_name, arguments=fact.arguments),
        )

    def _call_fact(self, call: ShownCall, fact: _CallFact) -> Iterator[Change]:
        match fact:
            case ToolStarted():
                if fact.arguments != call.arguments:  # changed by an approver or a hook
                    call.arguments = fact.arguments
                    yield CallReady(call.key, call.tool_name, arguments=fact.arguments, is_whole=False)
                call.is_deferred, call.is_paused = fact.deferred, False
                yield CallRunning(call.key, call.tool_name, fact.arguments, fact.title, call.subagent)
            case ToolProgress():
                metadata = fact.metadata or {}
                call.is_paused = WAITING in metadata
                if call.is_paused:
                    yield from call.end_nested(waiting=metadata[WAITING])
                if call.subagent is None and SESSION in metadata:
                    call.subagent = Subagent(str(metadata.get(AGENT, call.tool_name)), str(metadata[SESSION]))
                yield CallProgressed(call.key, call.tool_name, fact.content, fact.title, call.subagent, fact.metadata)
            case ApprovalRequired():
                call.question, call.is_undecided = fact, True
                yield CallAsked(call.key, call.tool_name, fact)
            case ResultPosted():
                call.is_deferred = False  # the run is about to use it
            case _:
                call.is_undecided = fact.decision in ("pause", "resume")  # these leave the question open
                call.is_denied = fact.decision == "deny"
                yield CallDecided(call.key, call.tool_name, fact, call.question)

    # -- the end

    def _pause(self, approvals: tuple[ApprovalRequired, ...]) -> Iterator[Change]:
        deferred = tuple(call.key for call in self._calls.values() if call.is_deferred)
        if approvals or deferred:
            self.is_ended = True
            yield RunPauses(approvals, deferred)
        else:  # nothing that a client sends would continue it
            yield from self.close(_SUSPENDED)

    def _finish(self, result: RunResult) -> Iterator[Change]:
        """The end of a run without a stored one: it paused, or the store failed."""
        self.run_id = self.run_id or result.run_id
        if result.status is AgentStatus.AWAITING_HUMAN:
            yield from self._pause(result.approvals)
            return
        end = RunEnds(
            status=_STATUSES.get(result.status, "failed"),
            reason=result.reason,
            error=result.error,
            usage=result.usage,
            cost_usd=result.cost_usd,
        )
        yield from self._end(end)

    def _end(self, end: RunEnds) -> Iterator[Change]:
        failed, self._failed = self._failed, None
        if failed is not None and (failed.parts or self._step is not None):
            yield from self._show_failed(failed)
        if self._step is not None:
            yield from self._step.give_up(_NOT_RUN)
            self._step = None
        yield from self._take_notes()
        self.is_ended = True
        yield end

    def _show_failed(self, failed: StreamFailed) -> Iterator[Change]:
        """Show what had arrived of the answer. Its calls stay open: none ran but those that the provider executed."""
        if self._step is None:
            yield from self._begin(void=False)
        step = self._step
        assert step is not None
        if step.can_become(failed.parts, is_final=False):
            calls = [part.tool_call_id for part in failed.parts if isinstance(part, ToolCall) and part.result is None]
            yield from step.become(failed.parts, bad_args={}, open_calls=calls, is_final=False)


# -- branches


def turn_start(branch: Sequence[Entry], end: int) -> int:
    """The index to read from, so that all calls are known that the entry at `end` may be about: where the run before it
    ended, or a person wrote a message outside of any run."""
    for index in range(end - 1, -1, -1):
        entry = branch[index]
        if isinstance(entry.fact, RunEnded):
            return index + 1
        if isinstance(entry.fact, Message) and entry.fact.role == "user" and entry.run_id is None:
            return index
    return 0


class BranchReader:
    """Reads one branch, from any entry on."""

    def __init__(self) -> None:
        self._reader = RunReader()

    def read(self, event: LiveEvent) -> Iterator[Change]:
        """The changes that an event brings about."""
        if not isinstance(event, LiveEntry):
            yield from self._reader.read(event)
            return
        entry = event.entry
        if isinstance(entry.fact, RunStarted) and entry.run_id != self._reader.run_id:
            self._reader.next_run()
        if isinstance(entry.fact, Message):  # without its run, so that the reader does not take it for mere history
            entry = replace(entry, run_id=None)
        yield from self._reader.read(LiveEntry(event.position, entry))
        if isinstance(entry.fact, RunEnded):
            self._reader.next_run()

    def find_id(self, key: str) -> str:
        """The id of a call that has no result."""
        return self._reader.call_ids[key]


# -- deltas that arrive together


def joined(deltas: Iterable[MessageDelta]) -> Iterator[MessageDelta]:
    """The deltas, with pieces that extend the same text or the same arguments as one.

    It has the seq of the last piece, and the time of the first.
    """
    pieces: list[MessageDelta] = []
    for delta in deltas:
        if pieces and not _extends(delta.delta, pieces[-1].delta):
            yield _as_one(pieces)
            pieces = []
        pieces.append(delta)
    if pieces:
        yield _as_one(pieces)


def _extends(delta: Delta, last: Delta) -> bool:
    """Whether a delta adds text to what the last one belongs to, and nothing else."""
    match delta:
        case TextDelta() | ThinkingDelta():
            return type(delta) is type(last) and not delta.new_part and delta.continuation is None
        case ToolCallArgs():
            return type(last) is ToolCallArgs and last.tool_call_id == delta.tool_call_id
        case _:
            return False


def _as_one(pieces: list[MessageDelta]) -> MessageDelta:
    first, delta = pieces[0], pieces[0].delta
    if len(pieces) == 1:
        return first
    name = "args_text_delta" if isinstance(delta, ToolCallArgs) else "text_delta"
    text = "".join([getattr(piece.delta, name) for piece in pieces])
    return replace(first, seq=pieces[-1].seq, delta=replace(delta, **{name: text}))
