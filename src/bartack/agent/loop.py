"""`Loop`: the run itself: ask the model, run what it asks for, until it has answered.

What comes next is read from the facts at every turn (`Progress`), never from where the code happens to be: a run that
is resumed in another process goes on in the same words. Every change of status goes through the table AGENT.

A run ends in one of five ways. It completes; it fails; it is aborted, by its owner or by the cancellation of its task;
it pauses because a human must decide and nobody is there; or the store fails, and then it stops where it stands. In the
first three every call has its result and a `run_ended` is durable before the caller hears of it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from bartack.agent.answering import Answering
from bartack.agent.events import RunFinished, RunPaused, RunResult
from bartack.agent.inbox import Inbox
from bartack.agent.progress import OpenCall
from bartack.agent.recovery import stopped_results
from bartack.agent.rounds import executor_for, run_round
from bartack.agent.shielding import begun, carried_out
from bartack.agent.summary import compact
from bartack.agent.view import SessionView
from bartack.agent.work import RunFailed, Work
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import ApprovalRequired, Fact, RunEnded
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError, StoreError
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import Text
from bartack.nouns.tables import AgentStatus

__all__ = ["Ending", "Loop", "result_of"]

_OUTPUT_RETRIES = 2
_ENDED: dict[str, Literal["completed", "failed", "aborted"]] = {
    "complete": "completed",
    "fail": "failed",
    "abort": "aborted",
}


class Ending(NamedTuple):
    """How a run ends: an event of the table AGENT, or ``pause``."""

    event: Literal["complete", "fail", "abort", "pause"]
    reason: str | None = None
    error: Failed | None = None
    value: Any = None


class Loop:
    """One run, from its first model call to its end."""

    def __init__(
        self,
        work: Work,
        answering: Answering,
        inbox: Inbox,
        *,
        keep: Callable[[SessionView], None],
        compacts: bool = False,
    ) -> None:
        """`keep` takes the session's view when the run is over and it is known to be right. With `compacts` the run
        makes the context smaller and does nothing else."""
        self._work = work
        self._keep = keep
        self._compacts = compacts
        self._answering = answering
        self._inbox = inbox
        self._executor = executor_for(work)
        self._output_retries = _OUTPUT_RETRIES
        self._task: asyncio.Task[Any] | None = None
        self._stop: Ending | None = None
        self._has_cancelled = False
        self._is_ending = False

    def stop(self, ending: Ending) -> None:
        """End the run as soon as it can be interrupted; a run that is ending anyway is left alone."""
        if self._stop is None and not self._is_ending:
            self._stop = ending
            if self._task is not None:
                self._has_cancelled = self._task.cancel()

    def snapshot(self) -> Message | None:
        """The answer so far, while the model speaks."""
        return self._answering.snapshot()

    async def drive(self) -> RunResult:
        """Work until the end. Raises `StoreError`, what a user's code raised, and `CancelledError`; a model's failure
        is no exception but part of the result."""
        task = self._task = asyncio.current_task()
        assert task is not None
        cancelled_before = task.cancelling()
        timer = self._start_timer()
        error: BaseException | None = None
        self._enter()
        try:
            ending = self._stop or await (self._compaction() if self._compacts else self._turns())
        except asyncio.CancelledError as cancelled:
            ending = self._stop or Ending("abort", "cancelled")
            error = cancelled
        except RunFailed as failure:
            ending = Ending("fail", failure.reason, failure.failed)
        except StoreError as failure:
            ending, error = Ending("fail", "store", Failed(failure.code, failure.message)), failure
        except Exception as failure:  # noqa: BLE001 - a user's code may raise anything; it is raised again below
            ending, error = Ending("fail", "error", _failed_by(failure)), failure
        finally:
            self._is_ending = True
            if timer is not None:
                timer.cancel()
        result = await self._finished(ending)
        if self._has_cancelled:  # the cancellation was our own way of interrupting the run
            task.uncancel()
            error = None if isinstance(error, asyncio.CancelledError) else error
        failed_write = self._work.ledger.failure
        if task.cancelling() > cancelled_before:
            raise asyncio.CancelledError
        if error is not None or failed_write is not None:
            raise error or failed_write  # type: ignore[misc]
        return result

    def _start_timer(self) -> asyncio.TimerHandle | None:
        limit_ms = self._work.setup.config.loop.timeout_ms
        if limit_ms is None:
            return None
        failed = Failed(ErrorCode.LIMIT_EXCEEDED, f"the run took longer than {limit_ms} ms")
        ending = Ending("fail", "timeout", failed)
        return asyncio.get_running_loop().call_later(limit_ms / 1000, self.stop, ending)

    async def _compaction(self) -> Ending:
        if not await compact(self._work, overflow=True):
            raise RunFailed(ErrorCode.COMPACTION_FAILED, "compaction is switched off")
        self._work.move("call_model")  # the model was asked, for the summary
        return Ending("complete", "compacted")

    # -- the turns

    async def _turns(self) -> Ending:
        work = self._work
        while True:
            if work.progress.open_calls:
                done = await run_round(work, self._executor)
                if done.aborted:
                    return Ending("abort", "human")
                if done.waiting:
                    return Ending("pause")
                continue
            heard = self._inbox.take_steering()
            if heard:
                await work.ledger.append(*heard)
            answer = work.progress.answer
            if answer is not None:
                ending = await self._settled(answer)
                if ending is not None:
                    return ending
                continue
            self._check_limits()
            if self._inbox.model is not None:
                model, self._inbox.model = self._inbox.model, None
                await self._answering.switch(model, "chosen")
            await self._answering.ask()

    def _enter(self) -> None:
        """A run begins by preparing. One that was resumed after its last answer stands where that answer left it."""
        self._work.move("prepare")
        if self._work.progress.answer is not None and not self._compacts:
            self._work.move("call_model")

    async def _settled(self, answer: Message) -> Ending | None:
        """How the run ends with this answer; None if it goes on."""
        reason = answer.meta.finish_reason if answer.meta is not None else None
        value: Any = answer.text
        if self._work.setup.output is not None:
            try:
                value = self._work.setup.output.read(answer.text)
            except PartValidationError as error:
                await self._ask_again(error, reason)
                return None
        more = self._inbox.take_queued()
        if more:
            await self._work.ledger.append(*more)
            return None
        return Ending("complete", None if reason == "stop" else reason, value=value)

    async def _ask_again(self, error: PartValidationError, reason: str | None) -> None:
        if reason in ("refusal", "content_filter"):
            code = ErrorCode.REFUSED if reason == "refusal" else ErrorCode.CONTENT_FILTER
            raise RunFailed(code, "the model refused to answer", reason=reason)
        if not self._output_retries:
            raise RunFailed(ErrorCode.INVALID_OUTPUT, f"the answer is not of the output type: {error.message}")
        self._output_retries -= 1
        say = f"That answer is not what was asked for: {error.message}\nAnswer again with JSON that fits the schema."
        await self._work.ledger.append(user(Text(say, synthetic=True)))

    def _check_limits(self) -> None:
        limits, progress = self._work.setup.config.loop, self._work.progress
        tokens = 0 if progress.usage is None else progress.usage.total_tokens
        for limit, used, name in (
            (limits.max_iterations, progress.iterations, "max_iterations"),
            (limits.max_total_tokens, tokens, "max_total_tokens"),
            (limits.max_cost_usd, progress.cost_usd or 0.0, "max_cost_usd"),
        ):
            if limit is not None and used >= limit:
                raise RunFailed(ErrorCode.LIMIT_EXCEEDED, f"{name} is {limit}, and {used} are used", reason=name)

    # -- the end

    async def _finished(self, ending: Ending) -> RunResult:
        """The run's last facts, durable; then its result. Cancelling does not stop this, only a store that hangs."""
        work = self._work
        try:
            await carried_out(begun(self._end(ending)))
        except StoreError as error:  # the caller gets it from the ledger
            work.ledger.failure = work.ledger.failure or error
        finally:
            with suppress(StoreError):
                await carried_out(begun(work.ledger.close()))
        if ending.event == "pause":
            work.tell(RunPaused(work.progress.waiting))
        elif work.ledger.failure is not None:
            work.move("fail")
        else:
            work.move(ending.event)
        if work.ledger.failure is None:
            self._keep(work.view)
        result = result_of(work, ending, self._inbox.undelivered)
        work.tell(RunFinished(result))
        return result

    async def _end(self, ending: Ending) -> None:
        work = self._work
        if ending.event == "pause" or work.ledger.failure is not None:
            return
        facts = self._answering.partial()
        calls = [*work.progress.open_calls.values()]
        for fact in facts:
            if isinstance(fact, Message):
                calls += [OpenCall(call=call) for call in fact.tool_calls if call.executed_by == "client"]
        facts += [Message("tool", (result,)) for result in stopped_results(calls)]
        await work.ledger.append(*facts, self._run_ended(ending, facts))

    def _run_ended(self, ending: Ending, last: list[Fact]) -> RunEnded:
        progress = self._work.progress
        # what was stopped just now has been paid for too, and its fact is not in the fold yet
        spent = progress.spent_with(last)
        return RunEnded(
            _ENDED[ending.event], reason=ending.reason, error=ending.error, usage=spent.usage, cost_usd=spent.cost_usd
        )


def result_of(work: Work, ending: Ending, undelivered: tuple[Message, ...]) -> RunResult:
    """What the caller gets."""
    progress = work.progress
    answers = [message for message in progress.messages if message.role == "assistant"]
    paused: tuple[ApprovalRequired, ...] = progress.waiting if ending.event == "pause" else ()
    return RunResult(
        status=AgentStatus.AWAITING_HUMAN if ending.event == "pause" else work.status,
        session_id=work.view.session_id,
        run_id=work.run_id,
        message=answers[-1] if answers else None,
        messages=tuple(progress.messages),
        usage=progress.usage,
        cost_usd=progress.cost_usd,
        reason=ending.reason,
        error=ending.error,
        undelivered=undelivered,
        approvals=paused,
        value=ending.value,
    )


def _failed_by(error: Exception) -> Failed:
    if isinstance(error, BartackError):
        return Failed(error.code, error.message)
    return Failed(ErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
