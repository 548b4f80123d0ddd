"""`Run`: one run as its owner holds it: its events, and the ways to speak to it while it works.

    async with agent.stream("Will it rain?", session="trip") as run:
        async for event in run: ...
    print(run.result.output)

Entering begins the run, and raises `Conflict` if another works on the session. Leaving before the end aborts it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any

from bartack.agent.channel import Channel
from bartack.agent.events import Event, RunResult
from bartack.agent.inbox import Inbox
from bartack.agent.live import LiveApprover
from bartack.agent.loop import Ending, Loop
from bartack.agent.shielding import begun, carried_out
from bartack.agent.work import Work
from bartack.models.model import Model
from bartack.nouns.config import AgentState
from bartack.nouns.errors import AgentError, BartackError, ErrorCode, PartValidationError
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import ContentPart
from bartack.nouns.tables import AgentStatus

__all__ = ["Run", "as_message"]

Said = str | ContentPart | Message


class Run:
    """A run in its own task. Iterate over it for its events; `wait` for its result without them."""

    def __init__(
        self,
        session_id: str,
        begin: "Callable[[Run], Coroutine[Any, Any, Loop | RunResult]]",
        connect: Callable[[str], Model],
        *,
        snapshots: bool = False,
    ) -> None:
        self.session_id = session_id
        self.inbox = Inbox()
        self.channel = Channel(self.snapshot if snapshots else None)
        self.work: Work | None = None
        self.loop: Loop | None = None
        self._begin = begin
        self._connect = connect
        self._result: RunResult | None = None
        self._stop: Ending | None = None
        self._task: asyncio.Task[RunResult] | None = None

    # -- in the caller's task, or in one of its own

    async def complete(self) -> RunResult:
        """Begin and work to the end in the task of the caller; nobody watches."""
        self.channel.leave()
        return await self._drive(await self._opened())

    async def __aenter__(self) -> "Run":
        self._task = asyncio.create_task(self._drive(await self._opened()))
        return self

    async def _opened(self) -> Loop | RunResult:
        """The run, begun. Opening is not cancelled half-way: a lease must not be left behind, nor a run that nobody
        ends; it is carried out, and then the run is ended as aborted."""
        opening = begun(self._begin(self))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            with suppress(BartackError):
                loop = await carried_out(opening)
                if isinstance(loop, Loop):
                    loop.stop(Ending("abort", "cancelled"))
                    await loop.drive()
            raise

    async def _drive(self, opened: Loop | RunResult) -> RunResult:
        try:
            if isinstance(opened, Loop):
                self.loop = opened
                if self._stop is not None:
                    opened.stop(self._stop)
                self._result = await opened.drive()
            else:
                self._result = opened
            return self._result
        finally:
            self.channel.end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        assert task is not None
        self.channel.leave()
        if not task.done():
            self.abort("left" if error is None else "cancelled")
            while not task.done():
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError as again:  # the run has its own limit for writing down its end
                    error = again
        if isinstance(error, asyncio.CancelledError):
            raise error
        if error is None and not task.cancelled():
            task.result()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event]:
        while (event := await self.channel.get()) is not None:
            yield event
        if self._task is not None and self._task.done():
            self._task.result()  # a failure of the store, or of a user's code, is raised here

    async def wait(self) -> RunResult:
        """The result, without reading further events."""
        assert self._task is not None, "the run has not begun"
        self.channel.leave()
        return await asyncio.shield(self._task)

    @property
    def result(self) -> RunResult:
        """How the run ended; `AgentError` while it works."""
        if self._result is None:
            raise AgentError("the run has not ended", code=ErrorCode.INVALID_TRANSITION)
        return self._result

    # -- looking at it

    @property
    def run_id(self) -> str:
        """The run's id, once it has begun."""
        assert self.work is not None, "the run has not begun"
        return self.work.run_id

    @property
    def status(self) -> AgentStatus:
        """Where the run stands."""
        return AgentStatus.IDLE if self.work is None else self.work.status

    @property
    def state(self) -> AgentState:
        """Where the run stands, with everything beside it (004)."""
        if self.work is None:
            return AgentState()
        progress = self.work.progress
        return AgentState(
            status=self.work.status,
            current_run_id=progress.run_id,
            pending_tool_calls=tuple(one.call for one in progress.open_calls.values()),
            last_error=None if self._result is None else self._result.error,
            token_usage=progress.usage,
            cost_usage=progress.cost_usd,
        )

    def snapshot(self) -> Message | None:
        """The answer so far, while the model speaks."""
        return None if self.loop is None else self.loop.snapshot()

    # -- speaking to it

    def abort(self, reason: str = "user") -> None:
        """Stop, wherever the run is. What the model had said is kept and every call gets a result."""
        self._stop = self._stop or Ending("abort", reason)
        if self.loop is not None:
            self.loop.stop(self._stop)

    def steer(self, *said: Said) -> None:
        """Say something before the next model call; an answer that comes first does not end the run."""
        self.inbox.steering.append(as_message(*said))

    def queue(self, *said: Said) -> None:
        """Say something when the run would end; it goes on with it instead."""
        self.inbox.queued.append(as_message(*said))

    def switch_model(self, model: str | Model) -> None:
        """Let another model answer, from the next model call on."""
        self.inbox.model = self._connect(model) if isinstance(model, str) else model

    def approve(self, tool_call_id: str, **decision: Any) -> None:
        """Let a call run; see `LiveApprover.approve`."""
        self._approver.approve(tool_call_id, **decision)

    def deny(self, tool_call_id: str, **decision: Any) -> None:
        """Do not let a call run; see `LiveApprover.deny`."""
        self._approver.deny(tool_call_id, **decision)

    @property
    def _approver(self) -> LiveApprover:
        approver = None if self.work is None else self.work.setup.approver
        if not isinstance(approver, LiveApprover):
            raise AgentError("this agent's approver is not a LiveApprover", code=ErrorCode.INVALID_CONFIG)
        return approver


def as_message(*said: Said) -> Message:
    """A user message of texts and other content; a message that is given alone is taken as it is.

    `PartValidationError` for a message of another role: an answer that is given as a prompt could call tools that no
    model asked for.
    """
    if len(said) == 1 and isinstance(said[0], Message):
        if said[0].role != "user":
            raise PartValidationError(f"a prompt is a message of the user, not of {said[0].role}", path="$.prompt")
        return said[0]
    return user(*(piece for piece in said if not isinstance(piece, Message)))
