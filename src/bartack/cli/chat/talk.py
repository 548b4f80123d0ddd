"""`Talk`: one conversation in the terminal: the session it is stored in, the model that answers, and its runs.

Everything that is said is durable before it is answered, so a `Talk` may be killed at any moment and another one goes
on with the session. Ctrl-C stops the answer and keeps what was said of it; a second one leaves.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from typing import Any

from rich.console import Console

from bartack.agent import Agent, ApprovalRequested, Run
from bartack.cli.app import sentence
from bartack.cli.chat.approving import Approvals
from bartack.cli.chat.keyboard import Keyboard
from bartack.cli.chat.prints import Prints
from bartack.cli.chat.status import Usage, usage_of
from bartack.cli.chat.turns import has_open_run
from bartack.cli.failure_hints import failure_hint
from bartack.cli.session_choice import there_or_made
from bartack.cli.terminal.safe_text import safe_text
from bartack.cli.terminal.screen import Screen, new_screen, show_message
from bartack.models.model import Model
from bartack.nouns.entries import ApprovalRequired, Entry
from bartack.nouns.errors import BartackError, Conflict, ErrorCode, NotFound
from bartack.nouns.messages import Message
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore

__all__ = ["Talk"]

_PROGRAM = "bartack chat"
_TICK_S = 1 / 8
_AGAIN_S = 0.5  # until a session that another program works on is asked for again
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
        keyboard: Keyboard,
        approvals: Approvals,
        thinking: bool,
    ) -> None:
        self.agent = agent
        self.store = store
        self.console = console
        self.keyboard = keyboard
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
        self._is_spaced = False  # the last line on the screen is blank
        self._prints = Prints()
        self._run: Run | None = None
        self._stopped = asyncio.Event()  # the run, or waiting until it can begin

    # -- telling the human something that no model said

    def note(self, text: str) -> None:
        """A quiet line."""
        self._tell(text, style="dim")

    def line(self, text: str) -> None:
        """A line that is cut where the window ends."""
        self._tell(text, no_wrap=True, overflow="ellipsis")

    def complain(self, sentence: str) -> None:
        """A sentence in red."""
        self._tell(sentence, style="red")

    def _tell(self, text: str, **how: Any) -> None:
        self._is_spaced = False
        self.console.print(safe_text(text), markup=False, highlight=False, **how)

    def space(self) -> None:
        """A blank line, unless there is one."""
        if not self._is_spaced:
            self.console.print()
        self._is_spaced = False

    def fault(self, error: BartackError) -> None:
        """What went wrong, and the hint that came with it; the chat goes on."""
        self.complain(sentence(error))
        for hint in getattr(error, "__notes__", ())[-1:]:
            self.hint(hint)

    def hint(self, hint: str) -> None:
        """What to do about it. Hints are written for the command line; here a slash stands for the two hyphens."""
        self.note(f"hint: {hint.replace('--model', '/model')}")

    # -- which session

    async def open(self, session_id: str) -> None:
        """Go on with a stored session: show its last messages, and let a run that was cut finish.

        Raises `NotFound` if it is not there.
        """
        try:
            branch = await self.store.load(session_id)
        except NotFound as error:
            error.add_note("bartack sessions list shows what there is")
            raise
        self._enter(session_id)
        self.show(branch)
        await self._measure()
        if has_open_run(branch):
            self.note("The last answer is not finished; going on with it.")
            await self._go_on(session_id, len(branch))

    async def _go_on(self, session_id: str, known: int) -> None:
        """Let the last run finish, or show what another program has made of it meanwhile."""
        runs: list[Run] = []

        def new_run() -> Run:
            runs.append(self.agent.resume_stream(session_id, model=self.model))
            return runs[-1]

        await self.watch(new_run)
        if runs[-1].status is AgentStatus.IDLE:  # there was nothing left to do
            self.show((await self.branch())[known:])

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
        self._is_spaced = bool(said) and not said[-1].tool_calls  # the blank line after a message

    # -- which model

    async def take_model(self, model: Model, name: str) -> None:
        """Let another model answer from here on; the one before it lets go of its memory and connections."""
        await self.aclose()
        self.model, self.model_name = model, name

    async def aclose(self) -> None:
        """Let the model go."""
        close = getattr(self.model, "aclose", None)
        if close is not None:
            await close()

    # -- saying something

    async def say(self, text: str) -> bool:
        """Say something and show the answer; False if it could not be said."""
        self.was_interrupted = False
        session_id, head = await self._session_for(text), self.head
        has_begun = await self.watch(lambda: self.agent.stream(text, session=session_id, model=self.model, head=head))
        if has_begun:
            self.head = None
        return has_begun

    async def _session_for(self, text: str) -> str:
        if self.session_id is None:
            self.session_id = await there_or_made(self.store, None, prompt=text, program=_PROGRAM)
        return self.session_id

    # -- a run

    async def watch(self, new_run: Callable[[], Run]) -> bool:
        """Show a run to its end, whichever it is; False where it could not begin."""
        self._stopped.clear()
        has_begun = False
        try:
            run = await self._begun(new_run)
            if run is not None:
                has_begun = True
                await self._shown(run)
                self._hint_at_failure(run)
        except BartackError as error:
            if not hasattr(error, "__notes__"):
                error.add_note(failure_hint(error.code, self.model))
            self.fault(error)
        finally:
            self._run = None
        if has_begun:
            await self._measure_after_run()
        return has_begun

    async def _measure_after_run(self) -> None:
        try:
            await self._measure()
        except BartackError as error:  # it was said and answered all the same
            self.fault(error)

    async def _begun(self, new_run: Callable[[], Run]) -> Run | None:
        """The run, entered; None if the user would not wait for it. Whoever else works on the session may take as long
        as a run takes, and a dead one holds it until its lease is over."""
        is_told = False
        while not self._stopped.is_set():
            self._run = run = new_run()
            with suppress(Conflict):
                return await run.__aenter__()
            if not is_told:
                self.note("Another program works on this session; waiting for it. Ctrl-C stops waiting.")
                is_told = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), _AGAIN_S)
        return None

    async def _shown(self, run: Run) -> None:
        screen = new_screen(self.console, thinking=self.thinking)
        self.space()
        ticking = asyncio.create_task(_tick(screen))
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_exit(run)
                stack.enter_context(self._prints.shown_by(screen.print))
                stack.enter_context(self.keyboard.listening(lambda: self._toggle(screen)))
                async for event in run:
                    screen.show(event)
                    if isinstance(event, ApprovalRequested):
                        await self._ask(run, event.request, screen)
        finally:
            ticking.cancel()
            screen.close()
            self.last_thinking = screen.last_thinking() or self.last_thinking

    def _toggle(self, screen: Screen) -> None:
        self.thinking = screen.toggle_thinking()

    async def _ask(self, run: Run, request: ApprovalRequired, screen: Screen) -> None:
        if self._stopped.is_set():  # of several calls an earlier one was answered with: stop
            return
        try:
            if not await self.approvals.ask(run, request, screen):
                self._stopped.set()
                run.abort("user")
        except (KeyboardInterrupt, EOFError):
            self.interrupt()

    def _hint_at_failure(self, run: Run) -> None:
        error = run.result.error
        if run.result.status is not AgentStatus.FAILED or error is None:
            return
        if error.error_code is not ErrorCode.COMPACTION_FAILED:  # its sentence says it all
            self.hint(failure_hint(error.error_code, self.model, error.retry_after_ms))

    async def _measure(self) -> None:
        if self.session_id is not None:
            self.usage = await usage_of(self.store, self.session_id, await self.branch())

    # -- Ctrl-C

    def interrupt(self) -> bool:
        """Stop the answer that is being given; the second time, leave after it. False if there is no answer to stop
        and this is the second time."""
        if self._run is None and self.was_interrupted:
            return False
        self.is_leaving = self.was_interrupted
        self.was_interrupted = True
        self._stopped.set()
        if self._run is not None:
            self._run.abort("user")
        return True


async def _tick(screen: Screen) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        screen.tick()
