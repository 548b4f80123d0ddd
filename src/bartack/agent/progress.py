"""`Progress`: what a session's entries amount to for the loop: which run is open, which calls have no result.

The loop asks it at every turn and so does recovery after a crash: a run that goes on in another process sees exactly
what the first one saw, because both see the facts and nothing else. It is a fold: entry by entry, in constant time.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bartack.nouns.deltas import Usage
from bartack.nouns.entries import (
    ApprovalDecided,
    ApprovalRequired,
    CompactionSummary,
    Entry,
    Fact,
    ModelChange,
    RunEnded,
    RunStarted,
    RuntimeInit,
    StreamFailed,
    ToolStarted,
)
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import ToolCall, ToolResult

__all__ = ["REPEATED", "OpenCall", "Progress", "Spent", "added_usage"]

REPEATED = "bartack.repeated"  # in the metadata of a result that stands for a call that was not run once more


class OpenCall(Struct, frozen=True, kw_only=True):
    """A call of the model that has no result yet, and what is known about it."""

    call: ToolCall
    bad_args: str | None = None  # why its arguments did not parse
    is_cut: bool = False  # its message was stopped by its length, or is what an abort left
    started: ToolStarted | None = None
    question: ApprovalRequired | None = None
    decision: ApprovalDecided | None = None

    @property
    def waits(self) -> bool:
        """Whether a human was asked and has not answered."""
        return self.question is not None and (self.decision is None or self.decision.decision == "pause")


class Spent(NamedTuple):
    """Tokens, and dollars where anybody knows them."""

    usage: Usage | None
    cost_usd: float | None


class Progress:
    """The state of one branch."""

    def __init__(self) -> None:
        self.run_id: str | None = None  # of the run that started and has not ended
        self.last_run_id: str | None = None  # of the run that started last
        self.stint: str | None = None  # the id of the last `run_started`
        self.stint_before: str | None = None  # and of the one before it
        self.ended: RunEnded | None = None  # how the last run ended
        self.model: ModelRef | None = None  # who answers
        self.runtime: RuntimeInit | None = None  # what the runtime last said
        self.open_calls: dict[str, OpenCall] = {}
        self.call_ids: set[str] = set()
        self.last: Message | None = None  # of user or assistant
        self.repeats = 0  # how often in a row the last round's calls gave the same results
        self.round: bytes | None = None  # which calls the last answer makes
        self._results: list[bytes] = []
        self._before: tuple[bytes | None, tuple[bytes, ...]] | None = None
        self._forget_run()

    def _forget_run(self) -> None:
        self.messages: list[Message] = []  # of this run
        self.call_index = 0  # of the next model call
        self.failed_attempts = 0  # at that call
        self.iterations = 0
        self.tool_rounds = 0
        self.usage: Usage | None = None
        self.cost_usd: float | None = None

    @property
    def answer(self) -> Message | None:
        """The answer that ends the run, if nothing has been said after it and it asks for nothing."""
        last = self.last
        if last is None or last.role != "assistant" or self.open_calls:
            return None
        paused = last.meta is not None and last.meta.finish_reason == "pause"
        asks = any(call.executed_by == "client" for call in last.tool_calls)
        return None if paused or asks else last

    @property
    def waiting(self) -> tuple[ApprovalRequired, ...]:
        """What humans were asked and have not answered."""
        return tuple(one.question for one in self.open_calls.values() if one.question is not None and one.waits)

    def push(self, entry: Entry) -> None:
        """Take the next entry."""
        fact = entry.fact
        match fact:
            case RunStarted():
                if entry.run_id != self.run_id:
                    self._forget_run()
                self.run_id = self.last_run_id = entry.run_id
                self.stint_before, self.stint, self.ended = self.stint, entry.id, None
                self.model = fact.model or self.model
            case Message():
                self._message(fact)
            case ToolStarted():
                self._note(fact.tool_call_id, started=fact)
            case ApprovalRequired():
                self._note(fact.tool_call_id, question=fact)
            case ApprovalDecided():
                self._note(fact.tool_call_id, decision=fact)
            case StreamFailed():
                self.failed_attempts += fact.model_call_index is not None  # else it was a summary
                self._spent(fact.usage)
            case CompactionSummary():
                self._spent(fact.usage)
            case ModelChange():
                self.model = fact.model
            case RuntimeInit():
                self.runtime = fact
            case RunEnded():
                self.run_id, self.ended = None, fact
            case _:
                pass

    def note_branches(self, entries: Iterable[Entry]) -> None:
        """Take note of what holds for the whole session, from the entries of all its branches in order: which run was
        started last, and that an id is one call's own, and its result too. A call that has its result on another branch
        is not run again on this one; `repair` closes it for models."""
        self.stint = self.stint_before = None
        for entry in entries:
            if isinstance(entry.fact, RunStarted):
                self.stint_before, self.stint = self.stint, entry.id
            elif isinstance(entry.fact, Message):
                self.call_ids.update(call.tool_call_id for call in entry.fact.tool_calls)
                for result in entry.fact.tool_results:
                    self.open_calls.pop(result.tool_call_id, None)

    def _note(self, call_id: str, **known: ToolStarted | ApprovalRequired | ApprovalDecided) -> None:
        one = self.open_calls.get(call_id)
        if one is not None:
            self.open_calls[call_id] = replace(one, **known)

    def _message(self, message: Message) -> None:
        if self.run_id is not None:
            self.messages.append(message)
        if message.role in ("user", "assistant"):
            self.last = message
        if message.role == "user":  # who asks for the same again may get the same again
            self._before, self.repeats = None, 0
        if message.role == "assistant":
            self._answered(message)
        for result in message.tool_results:
            self._ended(result)

    def _answered(self, message: Message) -> None:
        meta = message.meta
        self.failed_attempts = 0
        self.iterations += 1
        self.call_index = max(self.call_index, (-1 if meta is None else meta.model_call_index or 0) + 1)
        self._spent(None if meta is None else meta.usage, None if meta is None else meta.cost_usd)
        self.call_ids.update(call.tool_call_id for call in message.tool_calls)
        calls = [call for call in message.tool_calls if call.executed_by == "client"]
        self.round = _signature(calls) if calls else None
        self._results = []
        if not calls:
            self._before, self.repeats = None, 0
            return
        self.tool_rounds += 1
        bad = (meta.bad_args if meta is not None else None) or {}
        is_cut = meta is not None and (meta.finish_reason == "length" or meta.aborted)
        for call in calls:
            why = bad.get(call.tool_call_id)
            self.open_calls[call.tool_call_id] = OpenCall(call=call, bad_args=why, is_cut=is_cut)

    def _ended(self, result: ToolResult) -> None:
        if self.open_calls.pop(result.tool_call_id, None) is None:
            return
        if result.metadata is not None and REPEATED in result.metadata:
            self.repeats += not self.open_calls
            return
        self._results.append(_digest(result))
        if not self.open_calls:
            seen = (self.round, tuple(sorted(self._results)))  # sorted: tools that run together end in any order
            self.repeats = self.repeats + 1 if seen == self._before else 1
            self._before = seen

    def repeats_of(self) -> int:
        """How often in a row the calls that are open now have been made before, with the same results each time."""
        return self.repeats if self._before is not None and self._before[0] == self.round else 0

    def spent_with(self, facts: Iterable[Fact]) -> "Spent":
        """What the run used, with facts that are about to be appended."""
        usage, cost = self.usage, self.cost_usd
        for fact in facts:
            more = fact.usage if isinstance(fact, StreamFailed) else None
            if isinstance(fact, Message) and fact.meta is not None:
                more = fact.meta.usage
            if more is not None:
                usage = added_usage(usage, more)
                cost = cost if more.cost is None else (cost or 0.0) + more.cost
        return Spent(usage, cost)

    def _spent(self, usage: Usage | None, cost_usd: float | None = None) -> None:
        cost = cost_usd if usage is None or usage.cost is None else usage.cost
        if cost is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost
        if usage is not None:
            self.usage = added_usage(self.usage, usage)


def added_usage(one: Usage | None, other: Usage) -> Usage:
    """The tokens of both. A breakdown that only one of them tells is the sum's too."""
    if one is None:
        return other

    def total(first: float | None, second: float | None) -> float | None:
        return first if second is None else second if first is None else first + second

    names = ("cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cost")
    details = {name: total(getattr(one, name), getattr(other, name)) for name in names}
    return msgspec.convert(
        {
            "input_tokens": one.input_tokens + other.input_tokens,
            "output_tokens": one.output_tokens + other.output_tokens,
            "total_tokens": one.total_tokens + other.total_tokens,
            **details,
        },
        Usage,
    )


def _signature(calls: Iterable[ToolCall]) -> bytes:
    said = sorted(msgspec.json.encode([call.tool_name, call.arguments], order="deterministic") for call in calls)
    return b"\n".join(said)


def _digest(result: ToolResult) -> bytes:
    content = result.content
    told = [repr(part) for part in content] if isinstance(content, tuple) else content
    return hashlib.sha256(msgspec.json.encode([result.is_error, told], order="deterministic")).digest()
