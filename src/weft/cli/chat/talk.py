"""`Talk`: one conversation in the terminal: the session it is stored in, the model that answers, and its runs.

Everything that is said is durable before it is answered, so a `Talk` may be killed at any moment and another one goes
on with the session. Ctrl-C stops the answer and keeps what was said of it; a second one leaves.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

from rich.console import Console

from weft.agent import Agent, ApprovalRequested, Run
from weft.cli.agent_setup import LEASE_S
from weft.cli.chat.approving import Approvals
from weft.cli.chat.keyboard import quiet
from weft.cli.chat.status import Usage, usage_of
from weft.cli.chat.turns import has_open_run
from weft.cli.session_choice import there_or_made
from weft.cli.terminal.screen import Screen, new_screen, show_message
from weft.entries import Entry
from weft.errors import Conflict, WeftError
from weft.messages import Message
from weft.models.model import Model
from weft.store import SessionStore

__all__ = ["Talk"]

_PROGRAM = "weft chat"
_TICK_S = 1 / 8
_TOLD = 8  # messages that are shown when a session is continued


class Talk:
    """See the module."""

    def __init__(
        self,
        agent: Agent,
        store: SessionStore,
        model_name: str,
        *,
        console: Console,
        approvals: Approvals,
        thinking: bool,
    ) -> None:
        self.agent = agent
        self.store = store
        self.console = console
        self.approvals = approvals
        self.model: Model = agent.model
        self.model_name = model_name
        self.thinking = thinking
        self.usage = Usage()
        self.session_id: str | None = None  # None until something is said
        self.head: str | None = None  # where the next message goes on, if that is not the end of the session
        self.last_thinking: str | None = None
        self.was_interrupted = False  # by Ctrl-C, since something was said
        self.is_leaving = False
        self._run: Run | None = None

    # -- telling the human something that no model said

    def note(self, text: str) -> None:
        """A quiet line."""
        self.console.print(text, style="dim", markup=False, highlight=False)

    def fault(self, error: WeftError) -> None:
        """What went wrong, and the hint that came with it; the chat goes on."""
        self.console.print(" ".join(str(error).split()), style="red", markup=False, highlight=False)
        for hint in getattr(error, "__notes__", ())[-1:]:
            self.note(f"hint: {hint}")

    # -- which session

    async def open(self, session_id: str) -> None:
        """Go on with a stored session: show its last messages, and let a run that was cut finish.

        Raises `NotFound` if it is not there.
        """
        branch = await self.store.load(session_id)
        self._enter(session_id)
        self.show(branch)
        await self._measure()
        if has_open_run(branch):
            self.note("The last answer was cut off; going on with it.")
            await self.watch(lambda: self.agent.resume_stream(session_id, model=self.model))

    def begin_anew(self) -> None:
        """Let the next message begin a new session."""
        self._enter(None)

    def _enter(self, session_id: str | None) -> None:
        self.session_id, self.head, self.usage, self.last_thinking = session_id, None, Usage(), None

    async def branch(self) -> list[Entry]:
        """The entries from the beginning to where the next message goes on; none where nothing was said yet."""
        return [] if self.session_id is None else list(await self.store.load(self.session_id, head=self.head))

    async def move(self, head: str) -> None:
        """Go on after this entry: the next message begins a branch there."""
        self.head = head
        await self._measure()

    def show(self, branch: Iterable[Entry]) -> None:
        """The last messages of a branch."""
        said = [entry.fact for entry in branch if isinstance(entry.fact, Message) and entry.fact.role != "system"]
        if len(said) > _TOLD:
            self.note(f"... {len(said) - _TOLD} earlier messages; /export writes all of them")
        for message in said[-_TOLD:]:
            show_message(self.console, message, thinking=self.thinking)

    # -- saying something

    async def say(self, text: str) -> None:
        """Say something and show the answer."""
        self.was_interrupted = False
        session_id, head = await self._session_for(text), self.head
        if await self.watch(lambda: self.agent.stream(text, session=session_id, model=self.model, head=head)):
            self.head = None

    async def _session_for(self, text: str) -> str:
        if self.session_id is None:
            self.session_id = await there_or_made(self.store, None, prompt=text, program=_PROGRAM)
        return self.session_id

    # -- a run

    async def watch(self, new_run: Callable[[], Run]) -> bool:
        """Show a run to its end, whichever it is; False where it could not begin."""
        screen: Screen | None = None
        try:
            async with AsyncExitStack() as stack:
                self._run = run = await self._begun(new_run)
                stack.push_async_exit(run)
                screen = new_screen(self.console, thinking=self.thinking)
                await self._shown(run, screen)
        except WeftError as error:
            if screen is not None:
                screen.close()
            self.fault(error)
        finally:
            self._run = None
        if screen is not None:
            self.last_thinking = screen.last_thinking() or self.last_thinking
            await self._measure()
        return screen is not None

    async def _begun(self, new_run: Callable[[], Run]) -> Run:
        """The run, entered. A session that another process works on is waited for as long as a dead one holds it."""
        deadline = time.monotonic() + LEASE_S + 1
        while True:
            run = new_run()
            try:
                return await run.__aenter__()
            except Conflict as conflict:
                if time.monotonic() > deadline:
                    conflict.add_note("another program works on this session; /new begins another one")
                    raise
                with self.console.status("waiting for another program that works on this session"):
                    await asyncio.sleep(0.5)

    async def _shown(self, run: Run, screen: Screen) -> None:
        ticking = asyncio.create_task(_tick(screen))
        try:
            with quiet():
                async for event in run:
                    screen.show(event)
                    if isinstance(event, ApprovalRequested):
                        screen.suspend()
                        await self.approvals.ask(run, event.request)
                        screen.resume()
        finally:
            ticking.cancel()
            screen.close()

    async def _measure(self) -> None:
        if self.session_id is not None:
            self.usage = await usage_of(self.store, self.session_id, await self.branch())

    # -- Ctrl-C

    def interrupt(self) -> bool:
        """Stop the answer that is being given; the second time, leave after it. False if there is no answer to stop."""
        if self._run is None:
            return False
        self.is_leaving = self.was_interrupted
        self.was_interrupted = True
        self._run.abort("user")
        return True


async def _tick(screen: Screen) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        screen.tick()
