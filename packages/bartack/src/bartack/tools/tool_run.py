"""`ToolRun`: one tool call, from validation and approval to its result.

Each step is recorded before the next one relies on it, and each change of status is an edge of the table TOOL. Whatever
keeps a call from running is a `ToolError` inside and an error result outside. A call that has its result takes no
further step.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from inspect import isawaitable
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from bartack.formats.repair import INTERRUPTED
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, ToolProgress, ToolStarted
from bartack.nouns.errors import ErrorCode, ToolError
from bartack.nouns.json_values import json_text
from bartack.nouns.logs import logger
from bartack.nouns.parts import Span, Text, ToolCall, ToolResult
from bartack.nouns.tables import TOOL, ToolStatus, advance
from bartack.session.decisions import Decision, arguments_digest, result_message
from bartack.session.run_state import OpenCall
from bartack.session.tool_state import WHILE_RUNNING
from bartack.tools import tool_round
from bartack.tools.approval import PROVIDER_QUESTIONS
from bartack.tools.attempt import attempt
from bartack.tools.call_approval import CallApproval, asked_approval, preview_of
from bartack.tools.definition import MAX_OUTPUT_CHARS, ToolDefinition
from bartack.tools.output import error_result, limited, result_of, valid_object, valid_result
from bartack.tools.preview import PreviewChanged
from bartack.tools.registry import ToolRegistry
from bartack.tools.tool_context import ToolContext
from bartack.tools.tool_round import NOT_STARTED, CallPaused, Refusal, Superseded, ToolRound, WriteFailed, describe
from bartack.tools.tracer import ToolCallSpan, traceback_text

__all__ = ["ToolRun"]

_log, _content_log = logger("tools"), logger("content")

P = ParamSpec("P")
T = TypeVar("T")

_TRUNCATED = (
    "Not executed: the response containing this call was not complete. "
    "Call the tool again, in smaller steps if necessary."
)
_MAX_CONFLICTS = 10  # a tool may say so often that its preview has changed, although it is the same
_BAD_JSON = "Not executed: the arguments are not a valid JSON object: {}"


class ToolRun:
    """One tool call and its progress. `result` is set once."""

    def __init__(self, round: ToolRound, open_call: OpenCall) -> None:
        self.call = open_call.call
        self.definition = _definition(round.settings.registry, self.call.tool_name)
        self.result: ToolResult | None = None
        self._round = round
        self._settings = round.settings
        self._hook_s = round.settings.timeout_ms / 1000
        self._past = open_call
        self._status = ToolStatus.PENDING
        self._is_prepared = False
        self._started_at: datetime | None = None
        self._mark_s = 0.0  # when it started
        self._asked = self.call  # the call shown to the approver
        self._approval: CallApproval | None = None  # None: it needs none
        self._preview: dict[str, Any] | None = None  # what the call may do, if it was approved and the tool can tell
        self._conflicts = 0  # how many times the tool found a difference from that
        self._values: dict[str, Any] = {}
        self._is_modified = False
        # What the tool has attached to its result, whatever the result will be.
        self._metadata: dict[str, Any] = {}
        self._span: ToolCallSpan | None = None  # while it is executed
        if open_call.is_deferred and open_call.started is not None:
            self._use_started(open_call.started)

    def _use_started(self, started: ToolStarted) -> None:
        """Continue a deferred call, which has started with these arguments."""
        self._is_modified = started.arguments != self.call.arguments
        self.call = replace(self.call, arguments=started.arguments)

    @property
    def _is_waiting(self) -> bool:
        """Whether the call has started its work elsewhere, which must not or need not be started again."""
        past = self._past
        may_repeat = past.started is not None and past.started.idempotent and past.posted is None
        return past.is_deferred and not (may_repeat and self.definition is not None and self.definition.idempotent)

    @property
    def has_preview(self) -> bool:
        """Whether a question about the call shows what it would do now."""
        return self.definition is not None and self.definition.preview is not None

    # -- before it runs

    async def prepare(self) -> None:
        """Validate the call, and record a question if it needs approval. `run` does it, unless it was done before."""
        if self._is_prepared:
            return
        self._is_prepared = True
        if self._is_waiting:
            return
        try:
            self._check()
            if await self._passes_hook():
                self._read_arguments()
                self._asked = self.call
                assert self.definition is not None
                self._approval = await asked_approval(self._round, self._past, self.call, self.definition)
        except ToolError as refusal:
            await self._fail(refusal.code, refusal.message)

    def _check(self) -> None:
        past, definition, name = self._past, self.definition, self.call.tool_name
        if self._round.stop.is_set():
            raise ToolError(NOT_STARTED, code=ErrorCode.TOOL_ABORTED)
        if past.truncated:
            raise ToolError(_TRUNCATED, code=ErrorCode.TOOL_NOT_RUN)
        if past.bad_args is not None:
            raise ToolError(_BAD_JSON.format(past.bad_args), code=ErrorCode.TOOL_BAD_ARGUMENTS)
        if past.started is not None and not (past.started.idempotent and definition and definition.idempotent):
            self._start()
            raise ToolError(INTERRUPTED, code=ErrorCode.TOOL_INTERRUPTED)
        if definition is None:
            raise ToolError(self._missing(name), code=ErrorCode.TOOL_NOT_FOUND)
        if definition.requires_runtime and self._settings.runtime is None:
            raise ToolError(f"Tool {name!r} requires a runtime; none is configured.", code=ErrorCode.TOOL_NOT_RUN)
        if definition.requires_agent and self._settings.agent is None:
            raise ToolError(f"Tool {name!r} requires an agent; none is configured.", code=ErrorCode.TOOL_NOT_RUN)

    def _missing(self, name: str) -> str:
        registry = self._settings.registry
        names = ", ".join(sorted(registry.names)) or "none"
        return f"{registry.problem(name) or f'Unknown tool {name!r}.'} Available tools: {names}."

    async def _passes_hook(self) -> bool:
        """Whether the call still has to run; the hook may return its result instead."""
        hook = self._settings.before_tool
        if hook is None:
            return True
        try:
            answer = await self._round.call("The before_tool hook", _awaited(hook, self.call), self._hook_s)
        except ToolError as error:
            is_aborted = error.code is ErrorCode.TOOL_ABORTED
            raise ToolError(error.message, code=error.code if is_aborted else ErrorCode.TOOL_NOT_RUN) from None
        match answer:
            case ToolCall():
                self.call = replace(self.call, arguments=answer.arguments)
            case ToolResult():
                self._start()
                await self._finish(valid_result(answer))
                return False
            case Refusal():
                self._round.refuse(answer)
                raise ToolError(f"Refused: {answer.reason}", code=ErrorCode.TOOL_DENIED)
            case None:
                pass
            case _:
                text = f"The before_tool hook returned {_kind(answer)} instead of a ToolCall, a ToolResult or None."
                raise ToolError(text, code=ErrorCode.TOOL_NOT_RUN)
        return True

    def _read_arguments(self) -> None:
        assert self.definition is not None
        try:
            arguments_digest(self.call.arguments)
            self._values = self.definition.read_arguments(self.call.arguments)
        except Exception as error:  # noqa: BLE001 - a definition may have its own reader
            text = f"Invalid arguments for tool {self.call.tool_name!r}: {describe(error)}"
            if self._is_modified:
                text = f"The user changed the arguments. {text}"
            raise ToolError(text, code=ErrorCode.TOOL_BAD_ARGUMENTS) from None

    # -- approval

    async def _is_approved(self) -> bool:
        """Whether the call may run; False if it still waits. `ToolError` if it may not."""
        if self._approval is None:
            return True
        verdict = await self._approval.verdict()
        return verdict is not None and self._apply(verdict)

    def _is_current(self) -> bool:
        """Whether the decision that the call acts upon is still the last one."""
        return self._approval is None or self._approval.is_current()

    def _apply(self, decided: ApprovalDecided) -> bool:
        because = f": {decided.reason}" if decided.reason else "."
        match decided.decision:
            case "approve":
                self._use_arguments(self._asked.arguments, is_modified=False)
                return True
            case "modify_args":
                self._use_arguments(decided.arguments or {}, is_modified=True)
                return True
            case "deny" | "expire" as verdict:
                text = "The call was denied" if verdict == "deny" else "The call was not approved"
                raise ToolError(text + because, code=ErrorCode.TOOL_DENIED)
            case "abort":
                self._round.aborted = True
                self._round.stop.set()
                raise ToolError(f"The run was aborted{because}", code=ErrorCode.TOOL_ABORTED)
            case "pause" | "resume":
                return False

    def _use_arguments(self, arguments: dict[str, Any], *, is_modified: bool) -> None:
        if is_modified or self._is_modified:
            self.call = replace(self._asked, arguments=arguments)
            self._is_modified = is_modified
            self._read_arguments()

    # -- running

    async def run(self, slots: asyncio.Semaphore) -> None:
        """Continue to the result, or leave the call waiting for approval or a result from outside.

        A decision may be corrected until the call has acted upon it, that is until its start or result is stored.
        """
        await self.prepare()
        while self.result is None:
            try:
                if not await self._run(slots):
                    break
            except Superseded:
                if self._is_current():  # not by a correction, but by the end of the run
                    await self._fail(ErrorCode.TOOL_ABORTED, NOT_STARTED)

    async def _run(self, slots: asyncio.Semaphore) -> bool:
        """Take the next step; True if the call would not have done what was approved, so that it is asked again."""
        try:
            if self._is_waiting:
                await self._deliver_posted()
            elif await self._is_approved():
                async with slots:
                    if not await self._is_unchanged():
                        return True
                    with self._round.tracer.tool_call(self.call, self.definition) as self._span:
                        await self._execute()
        except PreviewChanged as change:
            self._conflicts += 1
            if self._approval is not None and self._conflicts <= _MAX_CONFLICTS:
                return True
            await self._fail(change.code, change.message)
        except ToolError as refusal:
            await self._fail(refusal.code, refusal.message)
        finally:
            self._span = None
        return False

    async def _is_unchanged(self) -> bool:
        """Whether the call would still do what was approved; otherwise the question is asked again."""
        if self._approval is None:
            return True
        definition = _definition(self._settings.registry, self.call.tool_name)
        if definition is None:
            raise ToolError(self._missing(self.call.tool_name), code=ErrorCode.TOOL_NOT_FOUND)
        approval = await self._approval.renewed(self._asked, definition)
        if approval is not self._approval:
            self.definition, self._approval = definition, approval
            self._use_arguments(self._asked.arguments, is_modified=False)
            self._read_arguments()
            return False
        # A person who changes the arguments is shown no preview of that: the change is bound to the files as they are.
        self._preview = (
            await preview_of(self._round, self.call, definition) if self._is_modified else approval.question.preview
        )
        return True

    async def _execute(self) -> None:
        """Run the tool until it returns or fails permanently.

        An exception may be transient. A `ToolError` is meant for the model, unless it is marked as retryable.
        """
        assert self.definition is not None
        first = 1 if self._past.started is None else self._past.started.attempt + 1
        last = first + self.definition.retries
        for number in range(first, last + 1):
            if self._round.stop.is_set():
                return await self._fail(ErrorCode.TOOL_ABORTED, NOT_STARTED)
            try:
                value = await self._attempt(self.definition, number)
            except (WriteFailed, Superseded, PreviewChanged):
                raise
            except CallPaused:
                return None
            except ToolError as error:
                if error.cause is not None:
                    self._report(error.cause)
                if number == last or not error.retryable:
                    return await self._fail(error.code, describe(error))
            except Exception as error:  # noqa: BLE001 - tools may raise anything
                self._report(error)
                if number == last:
                    return await self._fail(ErrorCode.TOOL_FAILED, describe(error))
            else:
                is_deferred = self.definition.deferred and value is None
                return None if is_deferred else await self._finish(self._result_of(value))
            assert self._span is not None
            self._span.retrying(number)
            delay = asyncio.create_task(asyncio.sleep(tool_round.RETRY_DELAY_MS / 1000 * 2 ** (number - first)))
            await self._round.finishes(delay, None)
        return None

    def _report(self, error: BaseException) -> None:
        """Log where the tool has failed, and attach it to the span."""
        has_content = _content_log.isEnabledFor(logging.DEBUG)
        log = _content_log if has_content else _log
        if log.isEnabledFor(logging.DEBUG):
            name, call_id = self.call.tool_name, self.call.tool_call_id
            log.debug("tool call %s: %s raised\n%s", call_id, name, traceback_text(error, has_content=has_content))
        if self._span is not None:
            self._span.raised(error)

    async def _attempt(self, definition: ToolDefinition, number: int) -> Any:
        call, settings = self.call, self._settings
        started = ToolStarted(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=call.arguments,
            idempotent=definition.idempotent,
            attempt=number,
            deferred=definition.deferred,
        )
        await self._round.record(started, still=self._is_current)
        self._start()
        context: ToolContext[Any] = ToolContext(
            deps=settings.deps,
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            run_id=self._round.run_id,
            session_id=self._round.session_id,
            attempt=number,
            preview=self._preview,
            agent=settings.agent if definition.requires_agent else None,
            runtime=settings.runtime if definition.requires_runtime else None,
            record=self._record_progress,
            ask=self._ask,
            loop=asyncio.get_running_loop(),
        )
        self._metadata = context.metadata
        limit = definition.timeout_ms or settings.timeout_ms
        return await attempt(definition, self._values, context, self._round, timeout_ms=limit)

    async def _ask(self, question: ApprovalRequired) -> Decision:
        approver = self._settings.approver
        if approver is None:
            return Decision("deny", reason="this run has no approver")
        self._round.log.publish(question)
        return await approver.decide(question) or Decision("deny", reason="no decision was made")

    async def _deliver_posted(self) -> None:
        """Take the result that was posted from outside, if there is one; otherwise leave the call waiting."""
        posted = self._past.posted
        if posted is not None:
            self._start()
            size = MAX_OUTPUT_CHARS if self.definition is None else self.definition.max_output_chars
            await self._finish(limited(valid_result(posted.result), size))

    def _start(self) -> None:
        self._status = advance(TOOL, self._status, "start")
        if self._started_at is None:
            self._started_at, self._mark_s = self._settings.environment.now(), time.monotonic()

    async def _record_progress(self, fact: ToolProgress) -> None:
        advance(TOOL, self._status, "progress")
        await self._round.record(fact)

    # -- the result

    def _result_of(self, value: Any) -> ToolResult:
        assert self.definition is not None
        result = result_of(value, self.call.tool_call_id)
        return limited(result, self.definition.max_output_chars)

    async def _fail(self, code: ErrorCode, message: str) -> None:
        await self._finish(error_result(self.call.tool_call_id, code, message))

    async def _finish(self, result: ToolResult) -> None:
        """Record the result, which ends the call."""
        if self._started_at is not None:
            result = await self._after_hook(result)
        environment, started_at = self._settings.environment, self._started_at
        finished_at = environment.now() if started_at is None else environment.later(started_at, self._mark_s)
        if self._is_modified:
            result = _with_changed_arguments(result, self.call.arguments)
        if self._metadata:
            result = replace(result, metadata={**(valid_object(self._metadata) or {}), **(result.metadata or {})})
        result = replace(result, tool_call_id=self.call.tool_call_id, time=Span(started_at or finished_at, finished_at))
        event = "fail" if self._started_at is not None else "reject"
        event = WHILE_RUNNING.get(result.error_code, event) if result.is_error else "complete"  # type: ignore[arg-type]
        status = advance(TOOL, self._status, event)
        logged_call = self._round.log.find(result.tool_call_id)
        message = result_message(
            result, *((None, None) if logged_call is None else (logged_call.decision, logged_call.posted_id))
        )
        await self._round.record(message, still=None if self._started_at else self._is_current)
        self.result, self._status = result, status
        self._trace(result)

    def _trace(self, result: ToolResult) -> None:
        if self._span is not None:
            self._span.finished(result)
            return
        with self._round.tracer.tool_call(self.call, self.definition) as span:  # it was never executed
            span.finished(result)

    async def _after_hook(self, result: ToolResult) -> ToolResult:
        hook = self._settings.after_tool
        if hook is None:
            return result
        try:
            work = _awaited(hook, self.call, result)
            answer = await self._round.call("The after_tool hook", work, self._hook_s, patient=True)
            if isinstance(answer, Refusal):
                self._round.refuse(answer)
                raise ToolError(f"Refused: {answer.reason}")
            if not isinstance(answer, ToolResult | None):
                raise ToolError(f"The after_tool hook returned {_kind(answer)} instead of a ToolResult or None.")
        except ToolError as error:  # the hook may exist to hide something: without it the result is not shown
            return error_result(self.call.tool_call_id, ErrorCode.TOOL_FAILED, error.message)
        return result if answer is None else valid_result(answer)


async def _awaited(hook: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the hook returns. It is also called in here, so that one that is not async fails like one that raises."""
    outcome = hook(*args, **kwargs)
    if not isawaitable(outcome):
        raise ToolError("a hook must be a coroutine function (async def)")
    return await outcome


def _definition(registry: ToolRegistry, name: str) -> ToolDefinition | None:
    """The tool of a call: one of the agent, or the answer to a question of the provider."""
    return registry.get(name) or PROVIDER_QUESTIONS.get(name)


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _with_changed_arguments(result: ToolResult, arguments: dict[str, Any]) -> ToolResult:
    """The result with a note of the arguments that the tool really ran with."""
    note = f"[The user changed the arguments to {json_text(arguments)}]"
    content = result.content
    if isinstance(content, str):
        content = f"{content}\n{note}"
    elif isinstance(content, tuple):
        content = (*content, Text(note))
    else:
        content = {**content, "note": note}
    return replace(result, content=content, metadata={**(result.metadata or {}), "approved_arguments": arguments})
