"""`Run`: the handle of a run: its events, and the ways to influence it while it is live.

    async with agent.stream("Will it rain?", session="trip") as run:
        async for event in run: ...
    print(run.result.output)

Entering starts the run, and raises `Conflict` if the session is in use. Leaving before the end aborts it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

from bartack.agent.approvals import LiveApprover
from bartack.agent.channel import EventChannel
from bartack.agent.loop import Loop
from bartack.agent.output import output_call, output_text
from bartack.agent.run_context import Inbox, RunContext, RunOutcome
from bartack.agent.run_log import complete, start
from bartack.events import Event, Output, RunResult, Snapshot
from bartack.models.model import Model
from bartack.nouns.config import AgentState
from bartack.nouns.errors import AgentError, BartackError, ConfigError, ErrorCode, PartValidationError
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import ContentPart
from bartack.nouns.tables import AgentStatus
from bartack.session.run_state import RunTotals
from bartack.tools.tool_context import in_event_loop
from bartack.tools.tool_round import retrieve_exception

__all__ = ["Prompt", "Run", "as_history", "as_message", "as_messages", "blocking"]

T = TypeVar("T")

Prompt = str | ContentPart | Message

_NOT_STARTED = "The run has not started. Enter it first: `async with agent.stream(...) as run:`."


class Run(Generic[Output]):
    """A run in its own task. Iterate over it for its events; `wait` for its result without them."""

    def __init__(
        self,
        session_id: str,
        open: Callable[[EventChannel, Inbox], Coroutine[Any, Any, Loop | RunResult[Any]]],
        connect: Callable[[str], Model],
        *,
        snapshots: bool = False,
    ) -> None:
        """`open` starts the run, or returns the last result if there is nothing to resume."""
        self.session_id = session_id
        self._channel = EventChannel(self._snapshot_event if snapshots else None)
        self._inbox = Inbox()
        self._open = open
        self._connect = connect
        self._loop: Loop | None = None
        self._result: RunResult[Output] | None = None
        self._stop: RunOutcome | None = None
        self._is_last_step = False
        self._task: asyncio.Task[RunResult[Output]] | None = None
        self._is_entered = False

    # -- in the caller's task, or in its own

    async def complete(self) -> RunResult[Output]:
        """Start the run and drive it to its end in the caller's task, without events."""
        self._channel.leave()
        await self._start()
        return await self._drive()

    async def __aenter__(self) -> "Run[Output]":
        await self._start()
        self._task = asyncio.create_task(self._drive())
        return self

    async def _start(self) -> None:
        """Start the run. If cancelled, it still completes the start and then aborts the run, so that no lease or open
        run is left behind.
        """
        if self._is_entered:
            text = "A run can be entered only once. Call `agent.stream(...)` again for another one."
            raise AgentError(text, code=ErrorCode.INVALID_TRANSITION)
        self._is_entered = True
        if not in_event_loop():
            raise ConfigError("Bartack needs asyncio, and this task runs in another event loop, such as Trio's.")
        started = start(self._open(self._channel, self._inbox))
        try:
            opened = await asyncio.shield(started)
        except asyncio.CancelledError:
            with suppress(BartackError):
                loop = await complete(started)
                if isinstance(loop, Loop):
                    loop.stop(RunOutcome("abort", "cancelled"))
                    await loop.drive()
            raise
        if not isinstance(opened, Loop):
            self._result = opened
            return
        self._loop = opened
        opened.is_last_step = self._is_last_step
        if self._stop is not None:
            opened.stop(self._stop)

    async def _drive(self) -> RunResult[Output]:
        try:
            if self._loop is not None:
                self._result = await self._loop.drive()
            return self.result
        finally:
            self._channel.end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        assert task is not None
        self._channel.leave()
        if not task.done():
            self.abort("left" if error is None else "cancelled")
            while not task.done():
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError as again:  # the run limits how long its end takes
                    error = again
        retrieve_exception(task)  # if the block raised, that error is the one to report
        if isinstance(error, asyncio.CancelledError):
            raise error
        if error is None and not task.cancelled():
            task.result()

    def __aiter__(self) -> AsyncIterator[Event[Output]]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event[Output]]:
        task = self._started
        while (event := await self._channel.get()) is not None:
            yield event
        if task.done():
            task.result()  # raises what the store or user code raised

    async def wait(self) -> RunResult[Output]:
        """The result, without reading further events."""
        task = self._started
        self._channel.leave()
        return await asyncio.shield(task)

    @property
    def _started(self) -> "asyncio.Task[RunResult[Output]]":
        if self._task is None:
            raise AgentError(_NOT_STARTED, code=ErrorCode.INVALID_TRANSITION)
        return self._task

    @property
    def result(self) -> RunResult[Output]:
        """How the run ended; `AgentError` while it is running."""
        if self._result is None:
            raise AgentError("The run has not ended.", code=ErrorCode.INVALID_TRANSITION)
        return self._result

    # -- inspecting it

    @property
    def _context(self) -> RunContext | None:
        return None if self._loop is None else self._loop.context

    @property
    def run_id(self) -> str:
        """The id of the run; `AgentError` before it has started."""
        if self._context is not None:
            return self._context.run_id
        if self._result is None:
            raise AgentError(_NOT_STARTED, code=ErrorCode.INVALID_TRANSITION)
        return self._result.run_id

    @property
    def status(self) -> AgentStatus:
        """The status of the run."""
        return AgentStatus.IDLE if self._context is None else self._context.status

    @property
    def state(self) -> AgentState:
        """The status with its details (004)."""
        if self._context is None:
            return AgentState()
        state = self._context.state
        return AgentState(
            status=self._context.status,
            current_run_id=state.run_id,
            pending_tool_calls=tuple(open_call.call for open_call in state.open_calls.values()),
            last_error=state.last_error if self._result is None else self._result.error,
            token_usage=state.totals.usage,
            cost_usage=state.totals.cost_usd,
        )

    @property
    def totals(self) -> RunTotals:
        """What the run has used so far, with its sub-agents."""
        if self._context is not None:
            return self._context.state.totals
        return RunTotals() if self._result is None else self._result.totals

    def snapshot(self) -> Message | None:
        """The answer so far, while one is arriving."""
        return None if self._loop is None else self._loop.snapshot()

    def partial_output(self) -> Any:
        """The output received so far, as plain JSON or text: all of it after the answer, None between answers."""
        if self._loop is None:
            return None
        message, type = self.snapshot(), self._loop.context.settings.output.type
        if message is not None:
            return message.text if type is None else type.partial(output_text(message))
        answer = self._loop.answer
        if answer is None or (answer.tool_calls and output_call(answer) is None):
            return None
        try:
            return answer.text if type is None else type.plain(output_text(answer))
        except PartValidationError:  # the answer was cut off, or is no JSON
            return None if type is None else type.partial(output_text(answer))

    def _snapshot_event(self) -> Snapshot | None:
        message = self.snapshot()
        return None if message is None else Snapshot(message, self.partial_output())

    # -- influencing it

    def abort(self, reason: str = "user") -> None:
        """Stop the run wherever it is. The answer so far is kept, and every call gets a result."""
        self._stop = self._stop or RunOutcome("abort", reason)
        if self._loop is not None:
            self._loop.stop(self._stop)

    def suspend(self, *, after_step: bool = False) -> None:
        """Stop the run wherever it is and leave it open for `Agent.resume`, here or in another process.

        The answer so far is kept as an interrupted one, and the model is asked again on `resume`. A tool call that is
        stopped gets an error result. With `after_step`, the answer or the tool calls in progress are completed first.
        """
        if after_step:
            self._is_last_step = True
            if self._loop is not None:
                self._loop.is_last_step = True
            return
        self._stop = self._stop or RunOutcome("pause", "suspended")
        if self._loop is not None:
            self._loop.stop(self._stop)

    def steer(self, *prompt: Prompt) -> None:
        """Add a message before the next model call. The run does not end before it is answered."""
        self._inbox.steering.append(as_message(*prompt))

    @property
    def steering(self) -> tuple[Message, ...]:
        """The messages that wait for the next model call, as `steer` got them."""
        return tuple(self._inbox.steering)

    def withdraw(self, message: Message) -> bool:
        """Take back a message of `steering`; False if it is not there, because it has been delivered."""
        index = next((index for index, waiting in enumerate(self._inbox.steering) if waiting is message), None)
        if index is None:
            return False
        del self._inbox.steering[index]
        return True

    def queue(self, *prompt: Prompt) -> None:
        """Add a message when the run would otherwise end, and continue with it."""
        self._inbox.queued.append(as_message(*prompt))

    def switch_model(self, model: str | Model) -> None:
        """Use another model from the next model call on."""
        self._inbox.model = self._connect(model) if isinstance(model, str) else model

    def approve(self, tool_call_id: str, **decision: Any) -> None:
        """Let a call run; see `LiveApprover.approve`."""
        self._approver.approve(tool_call_id, **decision)

    def deny(self, tool_call_id: str, **decision: Any) -> None:
        """Refuse a call; see `LiveApprover.deny`."""
        self._approver.deny(tool_call_id, **decision)

    @property
    def _approver(self) -> LiveApprover:
        approver = None if self._context is None else self._context.settings.tools.approver
        if not isinstance(approver, LiveApprover):
            raise AgentError("run.approve() and run.deny() need a LiveApprover.", code=ErrorCode.INVALID_CONFIG)
        return approver


def as_history(history: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of a history; `PartValidationError` for anything else, such as a provider's JSON."""
    messages = tuple(history)
    for index, message in enumerate(messages):
        if not isinstance(message, Message):
            text = (
                f"A history consists of messages, not of {type(message).__name__}; "
                "bartack.formats.read_request reads those of a provider."
            )
            raise ConfigError(text, path=f"$.history[{index}]")
    return messages


def as_message(*prompt: Prompt) -> Message:
    """A user message made of strings and other content, or the message itself if it is the only argument.

    Raises `PartValidationError` for several messages, and for a message with another role.
    """
    *before, message = as_messages(*prompt)
    if before:
        raise ConfigError("Expected a single message.", path="$.prompt")
    return message


def as_messages(*prompt: Prompt) -> list[Message]:
    """The messages of a prompt: each given message, and one for all strings and other content between two of them.

    The model answers the last one. Raises `PartValidationError` unless it is from the user.
    """
    messages: list[Message] = []
    content: list[str | ContentPart] = []
    for piece in (*prompt, None):
        if piece is not None and not isinstance(piece, Message):
            if not isinstance(piece, str | ContentPart):
                raise _foreign_prompt_error(piece)
            content.append(piece)
            continue
        if content:
            messages.append(user(*content))
            content = []
        if piece is not None:
            messages.append(piece)
    if not messages:
        raise ConfigError("The prompt is empty.", path="$.prompt")
    if messages[-1].role != "user":
        text = f"A prompt must end with a user message, not with one from the {messages[-1].role}."
        raise ConfigError(text, path="$.prompt")
    return messages


def _foreign_prompt_error(piece: object) -> ConfigError:
    text = f"A prompt consists of strings, parts and messages, not of {type(piece).__name__}."
    if isinstance(piece, dict | list):
        text += (
            " Read messages in a provider's format with bartack.formats.read_request, and pass earlier ones as "
            "history=..."
        )
    return ConfigError(text, path="$.prompt")


def blocking(work: Callable[[], Awaitable[T]], close: Callable[[], Awaitable[None]], method: str) -> T:
    """Run the work in a new event loop, close its connections, and return the result.

    Raises `AgentError` inside an event loop: await `method` there instead.
    """
    if in_event_loop():
        raise AgentError(f"Inside an event loop, use `await agent.{method}(...)`.", code=ErrorCode.INVALID_CONFIG)

    async def once() -> T:
        try:
            return await work()
        finally:
            await close()

    return asyncio.run(once())
