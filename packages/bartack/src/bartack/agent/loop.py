"""`Loop`: the run itself: ask the model, execute the tool calls of its answer, repeat until it has answered.

The next step is read from the facts every time (`RunState`), never from where the code happens to be, so a run that is
resumed in another process continues in the same way. Every change of status is an edge of the table AGENT.

A run ends in one of five ways. If it completes, fails, or is aborted (by its owner, or because its task is cancelled),
every call has a result and `run_ended` is durable before the caller gets the result. It pauses if a call needs approval
and there is no approver, if a result comes from outside, or if its owner suspends it. If the store fails, it stops
where it is.
"""

import asyncio
from contextlib import suppress
from typing import Any, Literal

from bartack.agent.handoff import hand_off
from bartack.agent.model_turn import ModelTurn
from bartack.agent.run_context import RunContext, RunFailed, RunOutcome, Work, current_run, refused
from bartack.agent.run_log import CLEANUP_S, News, complete, start
from bartack.agent.session_view import SessionViews
from bartack.agent.tool_calls import end_inner_runs, execute_calls, stopped_results
from bartack.agent.tracing import in_trace
from bartack.events import RunFinished, RunPaused, RunResult
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import AbortRequested, RunEnded
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError, StoreError, ToolError, exception_text
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import Text, Thinking
from bartack.session.run_state import OpenCall
from bartack.tools import ToolExecutor
from bartack.tools.tool_round import Superseded

__all__ = ["Loop"]

_OUTPUT_RETRIES = 2
_CORRECTION = "Your answer is not valid:"
_EMPTY = (ErrorCode.ANSWER_EMPTY, "The model returned an empty answer.")
_FAULTS = {  # why an answer is not whole, keyed by its finish reason
    "length": (ErrorCode.ANSWER_TRUNCATED, "The answer was cut off at the output limit of the model."),
    "content_filter": (ErrorCode.CONTENT_FILTER, "The provider's content filter stopped the answer."),
    "refusal": (ErrorCode.REFUSED, "The model declined to answer."),
}
_Status = Literal["completed", "failed", "aborted"]
_STATUSES: dict[str, _Status] = {"complete": "completed", "fail": "failed", "abort": "aborted"}


class Loop:
    """One run, from its first step to its end."""

    def __init__(self, context: RunContext, views: SessionViews, *, work: Work | None = None) -> None:
        """`views` keeps the session's view after the run. With `work` the run does that instead of answering."""
        self.context = context
        self._views = views
        self._work = work
        self._turn = ModelTurn(context)
        self._task: asyncio.Task[Any] | None = None
        self._stop: RunOutcome | None = None
        self._has_cancelled = False
        self._is_ending = False
        self.is_last_step = False  # pause once the current step is done
        context.log.listener = self._notice

    def stop(self, outcome: RunOutcome) -> None:
        """End the run as soon as it can be interrupted, unless it is ending already."""
        if self._stop is None:
            self._stop = outcome
            if self._task is not None and not self._is_ending:
                self._has_cancelled = self._task.cancel()

    def _notice(self, news: News) -> None:
        """React at once to what others have added. Everything else is read from the facts between two steps."""
        if isinstance(news, StoreError):
            self.stop(RunOutcome("fail", "store", _failed(news)))
        elif isinstance(news.fact, AbortRequested):
            self.stop(_requested_abort(news.fact))

    def snapshot(self) -> Message | None:
        """The answer so far, while one is arriving."""
        return self._turn.snapshot()

    @property
    def answer(self) -> Message | None:
        """The last answer, until the next one begins."""
        return self._turn.answer

    async def drive(self) -> RunResult:
        """Run to the end. A failure of the model is part of the result.

        Raises `StoreError`, `CancelledError`, and whatever user code raised.
        """
        token = current_run.set(self.context)
        try:
            with in_trace(self.context.trace_id), self.context.tracer.active():
                return await self._drive()
        except BaseException:
            self.context.log.abandon()  # it is closed already, unless this is a fault that nothing can be recorded of
            raise
        finally:
            current_run.reset(token)

    async def _drive(self) -> RunResult:
        task = self._task = asyncio.current_task()
        assert task is not None
        cancelled_before = task.cancelling()
        timer = self._start_timer()
        self.context.move("prepare")
        outcome, error = await self._outcome()
        while not await self._is_recorded(outcome):  # others have added something that comes first
            self._is_ending = False
            is_cancelled = task.cancelling() > cancelled_before
            outcome, error = (RunOutcome("abort", "cancelled"), None) if is_cancelled else await self._outcome()
        if timer is not None:
            timer.cancel()
        result = await self._conclude(outcome)
        if self._has_cancelled:  # `stop` has cancelled the task to interrupt the run
            task.uncancel()
            error = None if isinstance(error, asyncio.CancelledError) else error
        if task.cancelling() > cancelled_before:
            raise asyncio.CancelledError
        error = error or self.context.log.failure
        if error is not None:
            raise error
        return result

    async def _outcome(self) -> tuple[RunOutcome, BaseException | None]:
        """How the run ends, and what `drive` raises then."""
        try:
            if self._stop is not None:
                return self._stop, None
            return await (self._steps() if self._work is None else self._work(self.context)), None
        except asyncio.CancelledError as cancelled:
            return self._stop or RunOutcome("abort", "cancelled"), cancelled
        except RunFailed as failure:
            return failure.outcome, None
        except StoreError as failure:
            return RunOutcome("fail", "store", _failed(failure)), failure
        except GeneratorExit:  # the coroutine is being closed and cannot await anything
            raise
        except KeyboardInterrupt as interrupt:
            return RunOutcome("abort", "cancelled"), interrupt
        except BaseException as failure:  # noqa: BLE001 - user code may raise anything; it is raised by `drive`
            return RunOutcome("fail", "error", _failed(failure)), failure
        finally:
            self._is_ending = True

    def _start_timer(self) -> asyncio.TimerHandle | None:
        limit_ms = self.context.settings.config.loop.timeout_ms
        if limit_ms is None:
            return None
        failed = Failed(ErrorCode.LIMIT_EXCEEDED, f"The run timed out after {limit_ms} ms.")
        outcome = RunOutcome("fail", "timeout", failed)
        left_s = limit_ms / 1000 - self.context.state.live_s
        return asyncio.get_running_loop().call_later(max(left_s, 0), self.stop, outcome)

    # -- the steps

    async def _steps(self) -> RunOutcome:
        context = self.context
        while True:
            state = context.state
            if state.abort is not None:
                return _requested_abort(state.abort)
            if self.is_last_step:
                return RunOutcome("pause", "suspended")
            if state.open_calls:
                outcome = await self._execute_calls()
                if outcome is not None:
                    return outcome
            elif state.handoff is not None:
                await hand_off(context, state.handoff)
            elif await context.deliver(steer=True):
                pass
            elif state.answer is not None:
                outcome = await self._outcome_of(state.answer)
                if outcome is not None:
                    return outcome
            else:
                self._check_limits()
                if not await context.update_model():
                    await self._turn.take()

    async def _execute_calls(self) -> RunOutcome | None:
        """How the run ends, or pauses, with its open calls; None if it continues."""
        context = self.context
        before = context.state.answers
        round = await execute_calls(context, ToolExecutor(context.settings.tools))
        if round.aborted:
            return RunOutcome("abort", "human")
        if round.refusal is not None:
            raise refused(round.refusal)
        if round.waiting:
            await context.log.catch_up()
            is_answered = any(all(answer is not earlier for earlier in before) for answer in context.state.answers)
            if not is_answered and context.state.abort is None:
                return RunOutcome("pause")
        return None

    async def _outcome_of(self, answer: Message) -> RunOutcome | None:
        """How the run ends with this answer; None if it continues."""
        reason = answer.meta.finish_reason if answer.meta is not None else None
        is_empty = not answer.text.strip() and all(isinstance(part, Thinking | Text) for part in answer.parts)
        fault = _FAULTS.get(reason or "") or (_EMPTY if is_empty else None)
        value: Any = None
        if fault is None:
            try:
                value = await self.context.output_of(answer)
            except (PartValidationError, ToolError) as error:
                await self._request_correction(error.message)
                return None
        if await self.context.deliver(steer=False):
            return None
        if fault is not None:
            raise RunFailed(*fault, reason=reason if reason in _FAULTS else "empty")
        return RunOutcome("complete", None if reason in ("stop", "tool_calls") else reason, value=value)

    async def _request_correction(self, problem: str) -> None:
        prompts = (message.text for message in self.context.state.messages if message.role == "user")
        corrections = sum(1 for text in prompts if text.startswith(_CORRECTION))
        if corrections >= _OUTPUT_RETRIES:
            raise RunFailed(ErrorCode.INVALID_OUTPUT, f"The answer is not a valid output: {problem}")
        await self.context.log.append(user(Text(f"{_CORRECTION} {problem}\nAnswer again.", synthetic=True)))

    def _check_limits(self) -> None:
        limits, totals = self.context.settings.config.loop, self.context.state.totals
        for limit, used, name in (
            (limits.max_iterations, totals.iterations, "max_iterations"),
            (limits.max_total_tokens, totals.tokens, "max_total_tokens"),
            (limits.max_cost_usd, totals.cost_usd or 0.0, "max_cost_usd"),
        ):
            if limit is not None and used >= limit:
                text = f"Limit reached: {name} is {limit}, used {used}."
                raise RunFailed(ErrorCode.LIMIT_EXCEEDED, text, reason=name)

    # -- the end

    async def _is_recorded(self, outcome: RunOutcome) -> bool:
        """Make the last facts durable; False if others have added something that the run must react to first.

        Only a store that hangs can interrupt this.
        """
        log = self.context.log
        try:
            await complete(start(self._append_end(outcome)), max(CLEANUP_S, log.retries_for_s))
        except Superseded:
            return False
        except StoreError as error:  # raised by `drive`
            log.failure = log.failure or error
        return True

    async def _conclude(self, outcome: RunOutcome) -> RunResult:
        context, log = self.context, self.context.log
        with suppress(StoreError):
            await complete(start(self._close()))
        if outcome.event == "pause":
            context.move("ask_human")
            context.channel.put(RunPaused(context.state.questions, context.state.deferred))
        else:
            context.move(outcome.event if log.failure is None else "fail")
        if log.failure is None:
            self._views.put(log.store, context.session)
        result = context.result(outcome)
        context.tracer.finished(result)
        context.channel.put(RunFinished(result))
        return result

    async def _close(self) -> None:
        try:
            await self._turn.close()
        finally:
            await self.context.log.close()

    async def _append_end(self, outcome: RunOutcome) -> None:
        state, log = self.context.state, self.context.log
        await log.settle()
        if log.failure is not None:
            return
        if outcome.event == "pause":
            interrupted = self._turn.take_interrupted()
            if interrupted is not None:
                await log.append(interrupted)
            return
        facts = self._turn.take_partial()
        totals = state.totals
        open_calls = [*state.open_calls.values()]
        for fact in facts:
            totals = totals.plus(fact)
            if isinstance(fact, Message):
                open_calls += [OpenCall(call) for call in fact.tool_calls if call.executed_by == "client"]
        ended = RunEnded(
            status=_STATUSES[outcome.event],
            reason=outcome.reason,
            error=outcome.error,
            usage=totals.usage,
            cost_usd=totals.cost_usd,
        )
        still = self._is_done if outcome.event == "complete" and self._work is None else None
        await log.append(*facts, *stopped_results(open_calls), ended, still=still)
        await end_inner_runs(open_calls, self.context.settings.tools.registry, log.store)

    def _is_done(self) -> bool:
        """Whether nothing has been requested since the last step."""
        return not self.context.state.inbox and self.context.state.abort is None and self.context.inbox.is_empty


def _requested_abort(request: AbortRequested) -> RunOutcome:
    return RunOutcome("abort", request.reason or "user")


def _failed(error: BaseException) -> Failed:
    if isinstance(error, BartackError):
        return Failed(error.code, error.message)
    return Failed(ErrorCode.INTERNAL_ERROR, exception_text(error))
