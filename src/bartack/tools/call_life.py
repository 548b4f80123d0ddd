"""The life of one tool call inside a round: checked, approved, started, tried, ended with a result.

Each step asks the TOOL table by way of `tool_state`, and each is recorded before the next one builds on it. A call that
has its result takes no further step.
"""

import asyncio
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, ToolProgress, ToolStarted
from bartack.nouns.errors import ErrorCode, ToolError
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import tool_message
from bartack.nouns.parts import Span, Text, ToolCall, ToolResult
from bartack.nouns.tool_states import Pending, Running, ToolState
from bartack.session.tool_state import (
    create_pending,
    output_text,
    pending_to_error,
    pending_to_running,
    running_progress,
    running_to_completed,
    running_to_error,
)
from bartack.tools.approval import Decision, arguments_digest, counts_for, decided_fact, required_reason
from bartack.tools.attempt import Ending, attempt
from bartack.tools.call_history import CallHistory
from bartack.tools.definition import ToolDefinition
from bartack.tools.output import error_result, limited, output_of
from bartack.tools.round import Round
from bartack.tools.storable import storable_text
from bartack.tools.tool_context import ToolContext

__all__ = ["CallLife"]

T = TypeVar("T")
_MAX_ERROR_CHARS = 4_000  # of an exception's text: some carry a whole page
_EVENTS = {ErrorCode.TOOL_TIMEOUT: "time_out", ErrorCode.TOOL_ABORTED: "abort", ErrorCode.TOOL_INTERRUPTED: "abort"}


class CallLife:
    """One call and how far it is. `result` is set once and for all."""

    def __init__(
        self, round: Round, call: ToolCall, history: CallHistory, refused: tuple[ErrorCode, str] | None
    ) -> None:
        self.call = call
        self.result: ToolResult | None = None
        self.definition: ToolDefinition | None = round.rules.registry.get(call.tool_name)
        self.state: ToolState = create_pending(call.arguments, _raw(call))
        self._round = round
        self._rules = round.rules
        self._history = history
        self._refused = refused
        self._request: ApprovalRequired | None = None
        self._values: dict[str, Any] = {}
        self._modified = False

    # -- before it may run

    async def prepare(self) -> None:
        """Refuse what cannot run, and ask for what a human must decide."""
        refusal = self._refusal()
        if refusal is not None:
            return await self._fail(*refusal)
        assert self.definition is not None
        if not await self._passes_hook():
            return None
        if await self._reads(""):
            await self._ask()
        return None

    async def _reads(self, preamble: str) -> bool:
        """Whether the tool can take the arguments; if not, the model is told why."""
        assert self.definition is not None
        try:
            arguments_digest(self.call.arguments)
            self._values = self.definition.read_arguments(self.call.arguments)
        except Exception as error:  # noqa: BLE001 - a definition may bring its own reader, which is anyone's code
            text = f"the arguments of {self.call.tool_name!r} are not right: {_told(error)}"
            await self._fail(ErrorCode.TOOL_BAD_ARGUMENTS, f"{preamble}{text}")
            return False
        return True

    def _refusal(self) -> tuple[ErrorCode, str] | None:
        name, definition = self.call.tool_name, self.definition
        if self._round.stop.is_set():
            return ErrorCode.TOOL_ABORTED, "aborted before it started"
        if self._refused is not None:
            return self._refused
        if self._history.starts and not (self._history.idempotent and definition is not None and definition.idempotent):
            self.state = pending_to_running(self.state, start=self._rules.environment.now())
            return ErrorCode.TOOL_INTERRUPTED, "interrupted after it had started; the outcome is unknown"
        if definition is None:
            known = ", ".join(sorted(self._rules.registry.names)) or "none"
            return ErrorCode.TOOL_NOT_FOUND, f"there is no tool {name!r}; the tools are: {known}"
        if definition.requires_runtime and self._rules.runtime is None:
            return ErrorCode.TOOL_NOT_RUN, f"tool {name!r} needs a runtime and there is none"
        if definition.requires_agent and self._rules.agent is None:
            return ErrorCode.TOOL_NOT_RUN, f"tool {name!r} needs an agent and there is none"
        return None

    async def _passes_hook(self) -> bool:
        if self._rules.before is None:
            return True
        hook = await self._round.unless_stopped(self._rules.before(self.call), seconds=self._rules.timeout_ms / 1000)
        if self._round.stop.is_set() and hook is None:
            await self._fail(ErrorCode.TOOL_ABORTED, "aborted before it started")
            return False
        answer = _hooked(hook)
        if isinstance(answer, str):
            await self._fail(ErrorCode.TOOL_NOT_RUN, f"the hook before the tool {answer}")
            return False
        match answer:
            case ToolCall():
                self.call = msgspec.structs.replace(self.call, arguments=answer.arguments)
            case ToolResult():
                self.state = pending_to_running(self.state, start=self._rules.environment.now())
                await self._finish(msgspec.structs.replace(answer, tool_call_id=self.call.tool_call_id))
                return False
            case None:
                pass
        return True

    async def _ask(self) -> None:
        """Record the question, unless it stands in the session already."""
        assert self.definition is not None
        asked = self._history.required
        if asked is not None and counts_for(asked, self.call.arguments):
            self._request = asked
            return
        reason = required_reason(self._rules.approval, self.call, self.definition)
        if reason is None:
            return
        limit = self._rules.approval_timeout_ms
        self._request = ApprovalRequired(
            self.call.tool_call_id,
            self.call.tool_name,
            self.call.arguments,
            reason=storable_text(reason) or None,
            expires_at=None if limit is None else self._rules.environment.now() + timedelta(milliseconds=limit),
        )
        await self._round.record(self._request)

    # -- the human's word

    async def _approved(self) -> bool:
        """Whether the call may run now. If not, it has its result, or it waits on."""
        if self._request is None:
            return True
        decided = self._history.decided
        if decided is None or decided.decision in {"pause", "resume"} or not counts_for(decided, self.call.arguments):
            decision = await self._decision(self._request)
            if decision is None:
                return False
            decided = await self._decided(self._request, decision)
        return await self._obeys(decided)

    async def _decision(self, request: ApprovalRequired) -> Decision | None:
        """What the human says; None where nobody can be asked now or the round was stopped meanwhile."""
        left = (
            None if request.expires_at is None else (request.expires_at - self._rules.environment.now()).total_seconds()
        )
        if left is not None and left <= 0:
            return Decision("expire", reason="nobody decided in time")
        if self._rules.approver is None:
            return None
        asking = await self._round.unless_stopped(self._rules.approver.decide(request), seconds=left)
        if asking is not None:
            return _answer(asking)
        if self._round.stop.is_set():
            await self._fail(ErrorCode.TOOL_ABORTED, "aborted while it waited for approval")
            return None
        return Decision("expire", reason="nobody decided in time")

    async def _decided(self, request: ApprovalRequired, decision: Decision) -> ApprovalDecided:
        try:
            fact = decided_fact(request, decision)
        except ToolError as error:
            fact = decided_fact(request, Decision("deny", reason=error.message, decided_by=decision.decided_by))
        await self._round.record(fact)
        return fact

    async def _obeys(self, decided: ApprovalDecided) -> bool:
        because = f": {decided.reason}" if decided.reason else ""
        match decided.decision:
            case "approve":
                return True
            case "modify_args":
                return await self._takes(decided.arguments or {})
            case "deny":
                await self._fail(ErrorCode.TOOL_DENIED, f"the call was denied{because}")
            case "expire":
                await self._fail(ErrorCode.TOOL_DENIED, f"the call was not approved{because}")
            case "abort":
                self._round.aborted = True
                self._round.stop.set()
                await self._fail(ErrorCode.TOOL_ABORTED, f"the run was aborted{because}")
            case "pause" | "resume":
                pass  # undecided: the call waits on
        return False

    async def _takes(self, arguments: dict[str, Any]) -> bool:
        """Whether the call can run with what the human wrote instead."""
        self.call = msgspec.structs.replace(self.call, arguments=arguments)
        self._modified = True
        return await self._reads("a human changed the arguments, and now ")

    # -- running

    async def run(self, slots: asyncio.Semaphore) -> None:
        """Go on from `prepare` to the result, or stay waiting for a human."""
        if self.result is not None or not await self._approved():
            return
        async with slots:
            await self._run()

    async def _run(self) -> None:
        assert self.definition is not None
        for number in range(self._history.starts + 1, self._history.starts + self.definition.retries + 2):
            if self._round.stop.is_set():
                return await self._fail(ErrorCode.TOOL_ABORTED, "aborted before it started")
            ending = await self._attempt(number)
            last = number == self._history.starts + self.definition.retries + 1
            if last or not _worth_another_try(ending, self.definition):
                return await self._end(ending)
            await self._pause(number - self._history.starts - 1)
        return None

    async def _attempt(self, number: int) -> Ending:
        assert self.definition is not None
        call, definition, rules = self.call, self.definition, self._rules
        await self._round.record(
            ToolStarted(
                call.tool_call_id, call.tool_name, call.arguments, idempotent=definition.idempotent, attempt=number
            )
        )
        if isinstance(self.state, Pending):
            self.state = msgspec.structs.replace(
                pending_to_running(self.state, start=rules.environment.now()), input=call.arguments
            )
            self._round.changed(call.tool_call_id, self.state)
        context = ToolContext(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            run_id=self._round.run_id,
            session_id=self._round.session_id,
            attempt=number,
            agent=rules.agent if definition.requires_agent else None,
            runtime=rules.runtime if definition.requires_runtime else None,
            record=self._progress,
            loop=asyncio.get_running_loop(),
        )
        limit = definition.timeout_ms or rules.timeout_ms
        return await attempt(
            definition, self._values, context, timeout_ms=limit, grace_ms=rules.grace_ms, stop=self._round.stop
        )

    async def _progress(self, fact: ToolProgress) -> None:
        running_progress(self.state)  # asks the table before anything is recorded
        await self._round.record(fact)
        if isinstance(self.state, Running):  # several may be on their way at once: each adds to what there is by now
            self.state = running_progress(self.state, title=fact.title, metadata=fact.metadata)
            self._round.changed(self.call.tool_call_id, self.state)

    async def _pause(self, failures: int) -> None:
        delay = self._rules.retry_delay_ms / 1000 * 2**failures
        stopping = asyncio.create_task(self._round.stop.wait())
        await asyncio.wait({stopping}, timeout=delay)
        stopping.cancel()

    # -- its result

    async def _end(self, ending: Ending) -> None:
        assert self.definition is not None
        left = "; it did not stop when told to and was left running" if ending.left_running else ""
        match ending.how:
            case "returned":
                output = output_of(ending.value)
                content = limited(output.content, self.definition.max_output_chars, self.call.tool_call_id)
                await self._finish(
                    ToolResult(
                        self.call.tool_call_id,
                        content,
                        is_error=output.is_error,
                        error_code=ErrorCode.TOOL_FAILED if output.is_error else None,
                        title=output.title,
                        metadata=output.metadata,
                    )
                )
            case "raised":
                assert ending.error is not None
                code = ending.error.code if isinstance(ending.error, ToolError) else ErrorCode.TOOL_FAILED
                await self._fail(code, _told(ending.error))
            case "timed_out":
                limit = self.definition.timeout_ms or self._rules.timeout_ms
                await self._fail(ErrorCode.TOOL_TIMEOUT, f"timed out after {limit} ms{left}")
            case "stopped":
                await self._fail(ErrorCode.TOOL_ABORTED, f"aborted while it ran{left}")

    async def _fail(self, code: ErrorCode, message: str) -> None:
        await self._finish(error_result(self.call.tool_call_id, code, message))

    async def _finish(self, result: ToolResult) -> None:
        """Record the result: from here on the call is over."""
        if isinstance(self.state, Running):
            result = await self._after_hook(result)
        now = self._rules.environment.now()
        start = self.state.time.start if isinstance(self.state, Running) else now
        if self._modified:
            result = _with_changed_arguments(result, self.call.arguments)
        result = msgspec.structs.replace(result, time=Span(start, now))
        after = self._ended(result)
        await self._round.record(tool_message(result))
        self.result, self.state = result, after
        self._round.changed(self.call.tool_call_id, after)

    def _ended(self, result: ToolResult) -> ToolState:
        """The state after this result, by the table."""
        now = self._rules.environment.now() if result.time is None or result.time.end is None else result.time.end
        text = output_text(result)
        if not result.is_error:
            return running_to_completed(self.state, text, now, title=result.title, metadata=result.metadata)
        code = result.error_code or ErrorCode.TOOL_FAILED
        if isinstance(self.state, Running):
            return running_to_error(self.state, text, now, event=_EVENTS.get(code, "fail"))
        return pending_to_error(self.state, text, now, event=_EVENTS.get(code, "reject"))

    async def _after_hook(self, result: ToolResult) -> ToolResult:
        if self._rules.after is None:
            return result
        seconds = self._rules.timeout_ms / 1000
        hook = await self._round.unless_stopped(self._rules.after(self.call, result), seconds=seconds, patient=True)
        answer = _hooked(hook)
        if isinstance(answer, str):  # the hook may have been there to hide something: without it nothing is shown
            text = f"the hook after the tool {answer}"
            return error_result(self.call.tool_call_id, ErrorCode.TOOL_FAILED, text)
        return msgspec.structs.replace(answer, tool_call_id=self.call.tool_call_id)


def _with_changed_arguments(result: ToolResult, arguments: dict[str, Any]) -> ToolResult:
    """The model and whoever reads along are told with which arguments it really ran."""
    note = f"[a human changed the arguments to {json_text(arguments)}]"
    content = result.content
    if isinstance(content, str):
        content = f"{content}\n{note}"
    elif isinstance(content, tuple):
        content = (*content, Text(note))
    else:
        content = {**content, "note": note}
    metadata = {**(result.metadata or {}), "approved_arguments": arguments}
    return msgspec.structs.replace(result, content=content, metadata=metadata)


def _hooked(hook: "asyncio.Task[T] | None") -> T | str:
    """What the hook gave, or how it went wrong."""
    if hook is None:
        return "did not end in time"
    if hook.cancelled():
        return "cancelled itself"
    error = hook.exception()
    return hook.result() if error is None else f"failed: {_told(error)}"


def _worth_another_try(ending: Ending, definition: ToolDefinition) -> bool:
    """A fault of the tool may pass; what it told the model on purpose will not, unless it says so itself. After a
    time-out nobody knows what was done, so only an idempotent tool that has really ended is tried again."""
    match ending.how:
        case "raised":
            return not isinstance(ending.error, ToolError) or ending.error.retryable
        case "timed_out":
            return definition.idempotent and not ending.left_running
        case _:
            return False


def _told(error: BaseException) -> str:
    text = error.message if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
    return storable_text(text if len(text) <= _MAX_ERROR_CHARS else f"{text[:_MAX_ERROR_CHARS]} [...]")


def _answer(asking: "asyncio.Task[Decision]") -> Decision:
    if asking.cancelled():
        return Decision("deny", reason="the approver was cancelled")
    error = asking.exception()
    return asking.result() if error is None else Decision("deny", reason=f"nobody could be asked: {_told(error)}")


def _raw(call: ToolCall) -> str:
    return json_text(call.arguments) if call.raw_args_text is None else call.raw_args_text
