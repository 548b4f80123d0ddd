"""`RunState`: what a run needs to know from the entries of a branch: the open run, calls without a result, the totals.

The loop reads it before every step, and so does recovery after a crash. A run that is resumed in another process
therefore continues exactly where the first one stopped: both see the facts and nothing else. An entry takes constant
time, however long the session is.

The state has three lifetimes. Some fields hold for the whole branch (the model, the ids in use, the inbox), some for
the run (`_begin_run` resets them: its messages, its totals, the next call index), and an `OpenCall` lives from the
answer that makes a call to the message with its result. In between, facts about the call are collected there: the
question, the decision, the start, and a result that was posted from outside. A call of a sub-agent waits in the call
that runs the sub-agent, under an id that begins with the outer one (`nested_id`).

A damaged session is read as far as possible. If an entry of the open run cannot be read, `lost` has its seq, and the
run does not continue by itself: a call that seems to have no result may have had one.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import Any, NamedTuple, Self, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bartack.nouns.config import LoopConfig
from bartack.nouns.deltas import Failed, Usage
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
    SessionHeader,
    StreamFailed,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Part, ToolCall, ToolResult
from bartack.nouns.wire import dump, load
from bartack.session.decisions import counts_for
from bartack.session.outline import REPAIRED, UNREADABLE, Outline, Past, last_readable

__all__ = [
    "AGENT",
    "ANSWERED",
    "HANDOFF",
    "INCOMPLETE",
    "REPEATED",
    "SESSION",
    "SPENT",
    "WAITING",
    "OpenCall",
    "RunState",
    "RunTotals",
    "nested_id",
]

SESSION = "sessionId"  # metadata key of a call's progress and result: the session of the sub-agent that it runs
AGENT = "agent"  # likewise, of the progress with which it starts: its name
WAITING = "bartack.waiting"  # metadata key of its progress when that sub-agent has paused: the calls that wait
SPENT = "bartack.spent"  # metadata key of a result: the totals of the sub-agent that produced it
ANSWERED = "bartack.answered"  # metadata key of a result: the call was the answer of the run, and nothing is to follow
HANDOFF = "bartack.handoff"  # metadata key of a result: the agent that takes over the conversation
INCOMPLETE = frozenset(
    {"length", "content_filter", "refusal"}
)  # finish reasons of answers whose calls are not executed
REPEATED = "bartack.repeated"  # metadata key of the result of a call that was not executed because it repeats others


_OPEN = ("pause", "resume")  # decisions that leave a question open


class _CallRecord(Struct, frozen=True, kw_only=True):
    bad_args: str | None = None  # why its arguments are not JSON
    truncated: bool = False  # its message is not complete: cut off, filtered, refused or aborted
    started: ToolStarted | None = None  # the last start
    question: ApprovalRequired | None = None  # the last question
    decision: ApprovalDecided | None = None  # the answer to that question
    is_settled: bool = False  # the tool was started with that answer, which can no longer be corrected
    posted: ResultPosted | None = None  # its result, from outside
    posted_id: str | None = None  # the entry with it
    inner_session: str | None = None  # the session of the sub-agent that it runs
    nested: dict[str, "OpenCall"] = {}  # its calls that await a decision or a result, by their ids here
    is_paused: bool = False  # the sub-agent waits for them


def nested_id(tool_call_id: str, inner_id: str) -> str:
    """The id that a call of a sub-agent has in the session of the outer run: it names both calls."""
    return f"{tool_call_id}/{inner_id}"


class OpenCall(_CallRecord, frozen=True):
    """A tool call without a result, and what the session records about it."""

    call: ToolCall

    @property
    def verdict(self) -> ApprovalDecided | None:
        """The decision, unless it leaves the question open."""
        decision = self.decision
        return None if decision is None or decision.decision in _OPEN else decision

    @property
    def is_deferred(self) -> bool:
        """Whether it was started, and its result may come from outside."""
        return self.started is not None and self.started.deferred


class RunTotals(NamedTuple):
    """What a run and its sub-agents used; None where nothing was reported."""

    usage: Usage | None = None
    cost_usd: float | None = None
    iterations: int = 0  # answers of models
    tool_rounds: int = 0  # answers with tool calls

    @property
    def tokens(self) -> int:
        """All tokens that were reported."""
        return 0 if self.usage is None else self.usage.total_tokens

    def plus(self, fact: Fact) -> "RunTotals":
        """The totals including a fact: an answer, a failed attempt, a summary, or the result of a sub-agent."""
        match fact:
            case Message(role="assistant"):
                usage, cost = (None, None) if fact.meta is None else (fact.meta.usage, fact.meta.cost_usd)
                has_calls = any(call.executed_by == "client" for call in fact.tool_calls)
                return self._sum(RunTotals(usage, _cost(usage, cost), iterations=1, tool_rounds=int(has_calls)))
            case Message(role="tool"):
                return reduce(RunTotals._sum, map(_spent, fact.tool_results), self)
            case StreamFailed() | CompactionSummary() | BranchSummary():
                return self._sum(RunTotals(fact.usage, _cost(fact.usage)))
            case (
                SessionHeader()
                | RunStarted()
                | Message()
                | ToolStarted()
                | ToolProgress()
                | ApprovalRequired()
                | ApprovalDecided()
                | ModelChange()
                | ThinkingLevelChange()
                | RuntimeInit()
                | SystemPromptOverride()
                | Redaction()
                | MessageDeltaBatch()
                | MessageQueued()
                | ResultPosted()
                | AbortRequested()
                | RunEnded()
                | Custom()
            ):
                return self  # only model calls and sub-agents use anything; the totals of a run repeat the sum of these
            case _:
                assert_never(fact)

    def as_json(self) -> dict[str, Any]:
        """The totals as the metadata of a result contains them."""
        usage = None if self.usage is None else dump(self.usage)["payload"]
        rounds = {"iterations": self.iterations, "toolRounds": self.tool_rounds}
        return {"usage": usage, "costUsd": self.cost_usd, **rounds}

    def _sum(self, other: "RunTotals") -> "RunTotals":
        usage, cost = other.usage, other.cost_usd
        return RunTotals(
            self.usage if usage is None else usage if self.usage is None else self.usage + usage,
            self.cost_usd if cost is None else (self.cost_usd or 0.0) + cost,
            self.iterations + other.iterations,
            self.tool_rounds + other.tool_rounds,
        )


def _cost(usage: Usage | None, computed: float | None = None) -> float | None:
    """The cost of one model call: as the provider reports it, or else as computed."""
    return computed if usage is None or usage.cost is None else usage.cost


def _spent(result: ToolResult) -> RunTotals:
    """What a sub-agent used; nothing if the result is not from one."""
    if result.metadata is None or SPENT not in result.metadata:
        return RunTotals()
    try:
        spent = load(dict[str, Any], result.metadata[SPENT])
        return RunTotals(
            load(Usage | None, spent.get("usage")),
            load(float | None, spent.get("costUsd")),
            load(int, spent.get("iterations", 0)),
            load(int, spent.get("toolRounds", 0)),
        )
    except PartValidationError:  # written by another program
        return RunTotals()


class RunState:
    """The state of one branch."""

    def __init__(self) -> None:
        self.run_id: str | None = None  # the run that has started and not ended
        self.last_run_id: str | None = None
        self.ended: RunEnded | None = None  # how the last run ended
        self.agent: str | None = None  # the one that answers
        self.is_handed_off = False  # it took over from the agent that the run was started with
        self.metadata: dict[str, Any] | None = None  # what the last run was started or resumed with
        self.limits: LoopConfig | None = None  # set for the last run, if any
        self.model: ModelRef | None = None  # the current model
        self.requested_model: ModelRef | None = None  # the same, if others chose it for the open run or the next one
        self.inbox: dict[str, MessageQueued] = {}  # messages from others, not yet delivered, by entry id
        self.runtime: RuntimeInit | None = None
        self.open_calls: dict[str, OpenCall] = {}
        self.call_ids: set[str] = set()  # every id in use
        self.last_message: Message | None = None  # the last of a user or an assistant
        self._repeats = _RepeatCounter()
        self._head: str | None = None  # the last entry
        self._begin_run()

    def _begin_run(self) -> None:
        self.messages: list[Message] = []  # the messages of this run
        self.has_answered = False  # with a call of the tool for answers
        self.partial: tuple[Part, ...] = ()  # what a failed answer after them had received
        self.handoff: str | None = None  # an agent that was asked to take over and has not started yet
        self.live_s = 0.0  # how long the run has been live, according to its entries
        self._live_at: datetime | None = None  # the last of them
        self.call_index = 0  # the index of the next model call
        self.failed_attempts = 0  # how often that call has failed
        self.totals = RunTotals()
        self.abort: AbortRequested | None = None  # others have asked this run to end
        self.last_error: Failed | None = None  # why the last model call failed, until there is an answer
        self.trace_id: str | None = None
        self.span_id: str | None = None
        self.lost: int | None = None  # the seq of an entry of this run that cannot be read

    @classmethod
    def of_branch(cls, entries: Sequence[Entry], past: Past) -> Self:
        """The state after these entries. Those that `past` summarises are not read, except a few."""
        state = cls()
        models, runtimes = last_readable(past.models, entries), last_readable(past.runtimes, entries)
        for index in (*models, *runtimes, *past.inbox.values(), *past.about_open_calls):
            state.push(entries[index])
        requested = None if past.requested is None else entries[past.requested].fact
        state.requested_model = requested.model if isinstance(requested, ModelChange) else None
        state.open_calls = {id: call for id, call in state.open_calls.items() if id in past.open_calls}
        state.call_ids = set(past.call_ids)
        state.run_id, state.last_run_id = past.run_id, past.last_run_id
        state._head = past.head
        for index in range(past.end, len(entries)):
            state.push(entries[index])
        return state

    @property
    def answer(self) -> Message | None:
        """The final answer of the run: the last message, if it is the model's and leaves nothing to do."""
        last = self.last_message
        if last is None or last.role != "assistant" or self.open_calls:
            return None
        is_paused = last.meta is not None and last.meta.finish_reason == "pause"
        has_calls = any(call.executed_by == "client" for call in last.tool_calls)
        return None if is_paused or (has_calls and not self.has_answered) else last

    @property
    def is_uncertain(self) -> bool:
        """Whether an entry of the open run is lost that may have recorded work, which must not be repeated."""
        return self.lost is not None and self.answer is None

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to resume: no open run, no open calls, no message without an answer."""
        is_unanswered = self.last_message is not None and self.last_message.role == "user"
        return self.run_id is None and not self.open_calls and not is_unanswered and not self.inbox

    @property
    def questions(self) -> tuple[ApprovalRequired, ...]:
        """The pending approvals, including those for sub-agents."""
        return tuple(
            open_call.question for open_call in self._all_calls if open_call.question and not open_call.verdict
        )

    @property
    def deferred(self) -> tuple[ToolStarted, ...]:
        """The deferred calls whose results have not been posted, including those of sub-agents."""
        return tuple(
            open_call.started
            for open_call in self._all_calls
            if open_call.started and open_call.is_deferred and not open_call.posted
        )

    @property
    def answers(self) -> "tuple[ApprovalDecided | ResultPosted, ...]":
        """The decisions and posted results of open calls, including those of sub-agents."""
        return tuple(
            answer
            for open_call in self._all_calls
            for answer in (open_call.verdict, open_call.posted)
            if answer is not None
        )

    @property
    def _all_calls(self) -> Iterator[OpenCall]:
        for open_call in self.open_calls.values():
            yield open_call
            yield from open_call.nested.values()

    def find(self, call_id: str) -> OpenCall | None:
        """The open call with this id, which may be a sub-agent's call that awaits a decision or a result."""
        outer = self._outer_of(call_id)
        return self.open_calls.get(call_id) if outer is None else outer.nested.get(call_id)

    def _outer_of(self, call_id: str) -> OpenCall | None:
        """The open call that runs the sub-agent with this call; None for a call of this session itself."""
        if call_id in self.open_calls:
            return None
        calls = self.open_calls.items()
        return next((outer for outer_id, outer in calls if call_id.startswith(nested_id(outer_id, ""))), None)

    @property
    def repeats(self) -> int:
        """How many times in a row the open calls have been made before, with the same results each time."""
        return self._repeats.count

    def push(self, entry: Entry) -> None:
        """Add the next entry of the branch."""
        fact = entry.fact
        if self._head is not None and entry.parent_id != self._head:
            self._lose(entry.seq - 1)
        self._head = entry.id
        self._count_time(entry)
        match fact:
            case RunStarted():
                if entry.run_id != self.run_id:
                    self._begin_run()
                    self._live_at = entry.timestamp
                self.run_id = self.last_run_id = entry.run_id
                self.trace_id, self.span_id = fact.trace_id, fact.span_id
                self.ended = self.handoff = None
                self.agent, self.is_handed_off = fact.agent, fact.handed_off
                self.metadata, self.limits = fact.metadata, fact.limits
                self.model = fact.model or self.model
            case Message():
                self._add_message(fact)
            case ToolStarted() | ToolProgress() | ApprovalRequired() | ApprovalDecided() | ResultPosted():
                self._add_to_call(entry, fact)
            case StreamFailed():
                if fact.model_call_index is not None:  # a summary has none
                    self.failed_attempts += 1
                    self.partial = fact.parts
                self.last_error = fact.error
                self.totals = self.totals.plus(fact)
            case CompactionSummary() | BranchSummary():
                self.totals = self.totals.plus(fact)
            case ModelChange():
                self.model = fact.model
                self.requested_model = fact.model if entry.run_id is None else None
            case MessageQueued():
                self.inbox[entry.id] = fact
            case AbortRequested():
                self.abort = fact if self.run_id is not None else None
            case Redaction():
                self._withdraw(fact.entry_id)
            case RuntimeInit():
                self.runtime = fact
            case RunEnded():
                self.run_id, self.ended = None, fact
                self.abort = self.requested_model = self.lost = None
                self.open_calls.clear()  # calls without a result come from a damaged session
            case Custom(name=name) if name == UNREADABLE:
                self._lose(entry.seq)
            case Custom(name=name) if name == REPAIRED:
                self.lost = None
                self.open_calls.clear()  # it has given a result to each call that had none
            case SessionHeader() | ThinkingLevelChange() | SystemPromptOverride() | MessageDeltaBatch() | Custom():
                pass  # the context and the views read these
            case _:
                assert_never(fact)

    def add_other_branches(self, outlines: Iterable[Outline]) -> None:
        """Take from the outlines of all branches, in order, what holds for the whole session.

        That is which call ids are in use, and which calls have a result: a call that has one on another branch is not
        executed again on this one.
        """
        for outline in outlines:
            if outline.kind == Message.kind:
                self.call_ids.update(outline.calls)
                for call_id in outline.results:
                    self.open_calls.pop(call_id, None)

    def _count_time(self, entry: Entry) -> None:
        """Add the time since the last entry of the run, unless it was resumed in between."""
        if entry.run_id is not None and entry.run_id == self.run_id:
            if self._live_at is not None and not isinstance(entry.fact, RunStarted):
                self.live_s += max((entry.timestamp - self._live_at).total_seconds(), 0.0)
            self._live_at = entry.timestamp

    def _lose(self, seq: int) -> None:
        if self.run_id is not None or self.open_calls:
            self.lost = seq

    def _add_to_call(
        self, entry: Entry, fact: ToolStarted | ToolProgress | ApprovalRequired | ApprovalDecided | ResultPosted
    ) -> None:
        match fact:
            case ToolStarted():
                self._update_call(self._known(fact), started=fact, is_settled=True, is_paused=False)
            case ToolProgress():
                self._progress(fact)
            case ApprovalRequired():
                # A new question: an earlier decision does not answer it, and a tool that was started has done nothing.
                self._update_call(self._known(fact), question=fact, decision=None, is_settled=False, started=None)
            case ApprovalDecided():
                self._decide(entry, fact)
            case ResultPosted():
                open_call = self.find(fact.tool_call_id)
                if open_call is not None and open_call.is_deferred and open_call.posted is None:
                    self._update_call(fact.tool_call_id, posted=fact, posted_id=entry.id)
            case _:
                assert_never(fact)

    def _decide(self, entry: Entry, fact: ApprovalDecided) -> None:
        """Accept a decision if it is about exactly this question, in time, and the call has not acted upon another."""
        open_call = self.find(fact.tool_call_id)
        if open_call is None or open_call.question is None or open_call.is_settled:
            return
        expires_at = open_call.question.expires_at
        is_late = fact.decision != "expire" and expires_at is not None and entry.timestamp > expires_at
        if not is_late and counts_for(fact, open_call.question):
            is_nested = fact.tool_call_id not in self.open_calls  # a sub-agent may act upon it at once
            self._update_call(fact.tool_call_id, decision=fact, is_settled=is_nested and fact.decision not in _OPEN)

    def _withdraw(self, entry_id: str) -> None:
        """Forget a request that has not been delivered."""
        self.inbox.pop(entry_id, None)
        for open_call in [*self._all_calls]:
            if open_call.posted_id == entry_id:
                self._update_call(open_call.call.tool_call_id, posted=None, posted_id=None)

    def _known(self, fact: ToolStarted | ApprovalRequired) -> str:
        """The id of the call that the fact is about, which is added first if it is a new one of a sub-agent."""
        call_id = fact.tool_call_id
        outer = self._outer_of(call_id)
        if outer is not None and call_id not in outer.nested:
            nested = {**outer.nested, call_id: OpenCall(ToolCall(call_id, fact.tool_name, fact.arguments))}
            self._update_call(outer.call.tool_call_id, nested=nested)
        return call_id

    def _progress(self, fact: ToolProgress) -> None:
        """Take from the progress of a sub-agent in which session it works, and which of its calls wait."""
        open_call, metadata = self.open_calls.get(fact.tool_call_id), fact.metadata or {}
        inner_session, waiting = metadata.get(SESSION), metadata.get(WAITING)
        if open_call is None or not isinstance(inner_session, str):
            return
        changes: dict[str, Any] = {"inner_session": inner_session}
        if isinstance(waiting, list):
            nested = {call_id: inner_call for call_id, inner_call in open_call.nested.items() if call_id in waiting}
            changes |= {"nested": nested, "is_paused": True}
        self._update_call(fact.tool_call_id, **changes)

    def _update_call(self, call_id: str, **changes: Any) -> None:
        open_call = self.find(call_id)
        outer = self._outer_of(call_id)
        if open_call is not None and outer is not None:
            nested = {**outer.nested, call_id: replace(open_call, **changes)}
            self.open_calls[outer.call.tool_call_id] = replace(outer, nested=nested)
        elif open_call is not None:
            self.open_calls[call_id] = replace(open_call, **changes)

    def _add_message(self, message: Message) -> None:
        if message.meta is not None and message.meta.request_id is not None:
            self.inbox.pop(message.meta.request_id, None)
        if self.run_id is not None:
            self.messages.append(message)
        self.partial = ()
        if message.role in ("user", "assistant"):
            self.has_answered = False
        if message.role == "user":
            self.last_message = message
            self._repeats.reset()  # a user may ask for the same thing again
        elif message.role == "assistant":
            self.last_message = message
            self._add_answer(message)
        else:
            self.totals = self.totals.plus(message)
        for result in message.tool_results:
            name = None if result.metadata is None else result.metadata.get(HANDOFF)
            self.handoff = name if isinstance(name, str) else self.handoff
            self.has_answered = self.has_answered or (result.metadata is not None and ANSWERED in result.metadata)
            if self.open_calls.pop(result.tool_call_id, None) is not None:
                self._repeats.add(result, is_last=not self.open_calls)

    def _add_answer(self, message: Message) -> None:
        meta = message.meta
        self.failed_attempts = 0
        self.last_error = None
        self.call_index = max(self.call_index, (-1 if meta is None else meta.model_call_index or 0) + 1)
        self.totals = self.totals.plus(message)
        self.call_ids.update(call.tool_call_id for call in message.tool_calls)
        calls = [call for call in message.tool_calls if call.executed_by == "client"]
        self._repeats.begin(calls)
        bad_args = (meta.bad_args if meta is not None else None) or {}
        truncated = meta is not None and (meta.finish_reason in INCOMPLETE or meta.aborted)
        for call in calls:
            open_call = OpenCall(call, bad_args=bad_args.get(call.tool_call_id), truncated=truncated)
            self.open_calls[call.tool_call_id] = open_call


class _RepeatCounter:
    """How many rounds in a row made the same calls and got the same results."""

    def __init__(self) -> None:
        self._calls: bytes | None = None  # the calls of the current round
        self._results: list[bytes] = []
        self.reset()

    def reset(self) -> None:
        self._count = 0
        self._last: tuple[bytes | None, tuple[bytes, ...]] | None = None  # the calls and results of the last round

    @property
    def count(self) -> int:
        return self._count if self._last is not None and self._last[0] == self._calls else 0

    def begin(self, calls: list[ToolCall]) -> None:
        self._calls = b"\n".join(sorted(_digest([call.tool_name, call.arguments]) for call in calls)) if calls else None
        self._results = []
        if not calls:
            self.reset()

    def add(self, result: ToolResult, *, is_last: bool) -> None:
        if result.metadata is not None and REPEATED in result.metadata:
            self._count += is_last
            return
        content = result.content
        readable = [repr(part) for part in content] if isinstance(content, tuple) else content
        self._results.append(_digest([result.is_error, readable]))
        if is_last:
            this_round = (self._calls, tuple(sorted(self._results)))  # sorted: parallel tools finish in any order
            self._count = self._count + 1 if this_round == self._last else 1
            self._last = this_round


def _digest(value: object) -> bytes:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).digest()
