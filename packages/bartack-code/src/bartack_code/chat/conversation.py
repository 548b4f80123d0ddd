"""`Conversation`: one chat in the terminal, with its session, its model and its runs.

Every message is stored before it is sent, so a chat may be killed at any moment and another one can continue the
session. Ctrl-C stops the answer and keeps what has arrived; a second one exits.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from prompt_toolkit.keys import Keys
from rich.console import Console
from rich.text import Text

from bartack.agent import Agent, Run
from bartack.app.agent_setup import close_model, connect_model
from bartack.app.errors import error_hint, error_text, failure_hint, with_hint, with_store_hint
from bartack.app.mcp_servers import unavailable_servers
from bartack.app.notices import losses_text
from bartack.app.safe_text import safe_line, safe_text
from bartack.app.sessions import branch_with, ensure_session, find_session, has_unfinished_run, model_of
from bartack.app.usage import SessionUsage, session_usage
from bartack.display.run_reader import last_run
from bartack.events import Retrying, RunFinished
from bartack.models.model import Model
from bartack.nouns.entries import ApprovalRequired, Entry
from bartack.nouns.errors import BartackError, Conflict, ErrorCode, NotFound
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import ContentPart
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore
from bartack.store.foreign import ForeignSession, adopt, find_foreign
from bartack_code.chat.approvals import ApprovalQueue, Approvals
from bartack_code.chat.draft import Steering
from bartack_code.chat.keyboard import Keyboard
from bartack_code.chat.page import PageServer
from bartack_code.chat.status_line import StatusProgram, status_facts, status_pieces
from bartack_code.terminal.live_area import CapturedOutput
from bartack_code.terminal.messages import show_message
from bartack_code.terminal.rendering import Line, unwrapped
from bartack_code.terminal.screen import Screen, new_screen
from bartack_code.terminal.style import FAINT, ChatConsole, is_plain
from bartack_code.workspace.attachments import command_output_part, load_mention, mentions, unsupported_content
from bartack_code.workspace.checkpoints import CheckpointFolder, CheckpointRuntime
from bartack_code.workspace.extensions import Extensions
from bartack_code.workspace.hooks import HookRunner

_PROGRAM = "bartack chat"
_TICK_S = 1 / 8
_RETRY_S = 0.5  # pause before another try to start a run on a session in use
_SHOWN = 8  # messages shown when a session is continued
_STOP_HINT = "Ctrl-C to stop"
_NOTIFY_AFTER_S = 10.0  # an answer that took longer may have been left alone


class Conversation:
    """See the module."""

    def __init__(
        self,
        agent: Agent,
        store: SessionStore,
        model_name: str,
        *,
        console: ChatConsole,
        keyboard: Keyboard,
        approvals: Approvals,
        runtime: CheckpointRuntime,
        checkpoints: CheckpointFolder,
        extensions: Extensions,
        hooks: HookRunner,
        page: PageServer,
        directory: Path,
        thinking: bool,
        uses_own_models: bool = True,
        notify: Literal["bell", "desktop", "off"] = "bell",
        status_line: str = "",
    ) -> None:
        """`checkpoints` has what the tools of `runtime` replaced. With `uses_own_models`, a session that is continued
        keeps its model."""
        self.agent = agent
        self.store = store
        self.console = console
        self.keyboard = keyboard
        self.approvals = approvals
        self.runtime = runtime
        self.checkpoints = checkpoints
        self.extensions = extensions
        self._hooks = hooks
        self.page = page
        self.directory = directory
        self.uses_own_models = uses_own_models
        self.outputs: list[ContentPart] = []  # output of the user's own commands, sent with the next message
        self._notify = notify
        self._status_program = StatusProgram(status_line, directory, keyboard.redraw)
        self.model: Model = agent.model
        self.model_name = model_name
        self.thinking = thinking  # shown in full
        self.usage = SessionUsage()
        self.session_id: str | None = None  # None until the first message
        self.head: str | None = None  # the entry that the next message follows, if not the last one
        self._seen: str | None = None  # the last entry that was shown, if it is known
        self.last_thinking: str | None = None
        self.was_interrupted = False  # whether Ctrl-C was pressed since the last message
        self.is_leaving = False
        self._is_spaced = False  # the last line on the screen is blank
        self._captured = CapturedOutput()
        self._reported_servers: set[str] = set()
        self._run: Run | None = None
        self._retry_at = 0.0  # when a failed model call is repeated, on the monotonic clock
        self._screen: Screen | None = None  # shows the current run or command
        self._terminal = asyncio.Lock()  # held by what needs the whole terminal during a run: a question, a pager
        self._stopped = asyncio.Event()  # the run, or the wait for it to start

    # -- printing

    def note(self, text: str, *, soft_wrap: bool = False) -> None:
        """Print a dim line. With `soft_wrap` the terminal wraps it, so that a path or command can be copied."""
        self._print(text, style="dim", soft_wrap=soft_wrap)

    def line(self, text: str) -> None:
        """Print a line, cut at the window's edge."""
        self._print(text, no_wrap=True, overflow="ellipsis")

    def error(self, text: str) -> None:
        """Print a line in red."""
        self._print(text, style="red")

    def _print(self, text: str, **how: Any) -> None:
        self._is_spaced = False
        self.console.print(safe_text(text), markup=False, highlight=False, **how)

    def space(self) -> None:
        """Print a blank line, unless the last one is blank."""
        if not self._is_spaced:
            self.console.print()
        self._is_spaced = False

    def show_error(self, error: BartackError) -> None:
        """Print an error and its hint."""
        self.error(error_text(error))
        hint = error_hint(error)
        if hint is not None:
            self.hint(hint)

    def hint(self, hint: str) -> None:
        """Print a hint. Hints are written for the command line, so that some flags and commands are replaced."""
        for name, slash in {"--model": "/model", "'bartack sessions list'": "/sessions"}.items():
            hint = hint.replace(name, slash)
        self.note(f"hint: {hint}")

    @property
    def status(self) -> str:
        """The line below the prompt."""
        return status_pieces(self.status_facts(), width=self.console.width, first=self._mode_text, last="/help")

    @property
    def _mode_text(self) -> str:
        mode = self.approvals.modes.mode
        return "" if mode == "ask" else f"{mode} mode"

    def status_facts(self) -> list[str]:
        """Model, context, tokens, cost and session, or what the user's program makes of them."""
        if self._status_program.line:
            return [self._status_program.line]
        info = self.model.model_info()
        return status_facts(
            f"{info.provider}:{info.model_id}", self.usage, window=info.context_window, session=self.session_id
        )

    def refresh_status(self) -> None:
        """Run the user's program for the status line again."""
        info, spend = self.model.model_info(), self.usage.spend
        self._status_program.refresh(
            {
                "model": f"{info.provider}:{info.model_id}",
                "directory": str(self.directory),
                "sessionId": self.session_id,
                "mode": self.approvals.modes.mode,
                "contextTokens": self.usage.context_tokens,
                "contextWindow": info.context_window,
                "inputTokens": spend.input_tokens,
                "outputTokens": spend.output_tokens,
                "costUsd": spend.cost_usd,
            }
        )

    # -- the session

    async def open(self, session_id: str, entry: str | None = None) -> None:
        """Continue a stored session: show its last messages and resume an interrupted run. Raises `NotFound`.

        With an entry, the newest branch with this entry is continued.
        """
        try:
            session_id = await find_session(self.store, session_id)
            head = None if entry is None else await branch_with(self.store, session_id, entry)
            branch = await self.store.load(session_id, head=head)
            is_newest = head in (None, (await self.store.tail_of(session_id)).entry_id)
        except NotFound as error:
            with_store_hint(error)
            raise
        foreign = await find_foreign(self.store, session_id)
        if foreign is not None:
            self.show(branch)
            if not await self._adopts(foreign):
                self.note("Not continued. The next message starts a new session.")
                return
        self._enter(session_id)
        self.head = None if is_newest else head
        await self._use_own_model(session_id)
        if foreign is None:
            self.show(branch)
        await self._update_usage()
        self._seen = branch[-1].id
        if is_newest and has_unfinished_run(branch):
            self.note("Resuming the unfinished answer.")
            await self.show_run(
                lambda: self.agent.resume_stream(session_id, model=self.model), earlier=last_run(branch)
            )

    async def _adopts(self, foreign: ForeignSession) -> bool:
        """Ask once whether to continue an imported session, and show what it brings along."""
        model, instructions = foreign.model, foreign.instructions
        self.note("This session was imported.")
        self.note(f"Its model: {safe_line(f'{model.provider}:{model.model}') if model else 'none'}")
        self.note(f"Its own instructions: {safe_text(instructions) if instructions else 'none'}")
        answer = await self.keyboard.choice("Continue it, with these? [y/n]: ")
        if answer.lower() not in ("y", "yes"):
            return False
        await adopt(self.store, foreign.session_id)
        return True

    async def _use_own_model(self, session_id: str) -> None:
        """Switch to the model that the session used last, if it can be used here."""
        used = await model_of(self.store, session_id) if self.uses_own_models else None
        info = self.model.model_info()
        if used is None or (used.provider, used.model) == (info.provider, info.model_id):
            return
        name = f"{used.provider}:{used.model}"
        try:
            await self.switch_model(connect_model(name), name)
        except BartackError as error:
            self.note(f"This session used {safe_line(name)}, which is not available: {error_text(error)}")
        else:
            self.note(f"Continuing with {safe_line(name)}, the model of this session.")

    def new_session(self) -> None:
        """Let the next message start a new session."""
        self._enter(None)

    def _enter(self, session_id: str | None) -> None:
        self.session_id, self.head, self.usage, self.last_thinking = session_id, None, SessionUsage(), None
        self._seen = None

    async def branch(self) -> list[Entry]:
        """The entries that the next message follows, from the first one."""
        return [] if self.session_id is None else list(await self.store.load(self.session_id, head=self.head))

    async def move_to(self, head: str) -> None:
        """Let the next message follow this entry, in a new branch."""
        self.head = head
        await self._update_usage()

    def show(self, branch: Iterable[Entry]) -> None:
        """Print the last messages of a branch."""
        messages = [entry.fact for entry in branch if isinstance(entry.fact, Message) and entry.fact.role != "system"]
        if len(messages) > _SHOWN:
            self.note(f"... {len(messages) - _SHOWN} earlier messages (/export saves all of them)")
        for message in messages[-_SHOWN:]:
            show_message(self.console, message, thinking=self.thinking)
        self._is_spaced = bool(messages) and not messages[-1].tool_calls  # `show_message` ends with a blank line

    async def _show_added(self, heading: str | None = None) -> None:
        """Print the messages that another process has added to the session since this chat last looked."""
        if self.session_id is None or self._seen is None or self.head is not None:
            return
        if (await self.store.tail_of(self.session_id)).entry_id == self._seen:
            return
        branch = await self.branch()
        ids = [entry.id for entry in branch]
        added = branch[ids.index(self._seen) + 1 :] if self._seen in ids else []
        self._seen = ids[-1]
        if any(isinstance(entry.fact, Message) for entry in added):
            if heading is not None:
                self.note(heading)
            self.space()
            self.show(added)

    def show_own(self, text: str) -> None:
        """Print a message of the user that no prompt has shown."""
        show_message(self.console, user(text))
        self._is_spaced = True

    def toggle_thinking(self) -> None:
        """Switch between the full text of thinking and a summary; if it is the full text now, print the last one."""
        self.thinking = not self.thinking
        self.note("Thinking is shown in full." if self.thinking else "Thinking is folded.")
        if self.thinking and self.last_thinking:
            self.console.print(self.last_thinking, style="dim italic", markup=False, highlight=False)

    async def _update_usage(self) -> None:
        if self.session_id is not None:
            branch = await self.branch()
            self._seen = branch[-1].id if branch else None
            self.usage = await session_usage(self.store, self.session_id, branch)
        self.refresh_status()

    # -- the model

    async def switch_model(self, model: Model, name: str) -> None:
        """Use another model from now on, and close the previous one."""
        await close_model(self.model)
        self.model, self.model_name = model, name

    async def aclose(self) -> None:
        """Close the models, the runtime, the web page and the program for the status line."""
        await self._status_program.close()
        for model in (self.model, *self.agent.models[1:]):
            await close_model(model)
        await self.runtime.close()
        await self.page.close()

    # -- runs

    async def send(self, text: str) -> bool:
        """Send a message and show the answer; False if the run could not start."""
        self.was_interrupted = False
        message = await self._message(text, self.outputs)
        if self.session_id is None:
            self.session_id = await ensure_session(self.store, None, prompt=text, program=_PROGRAM)
        session_id, head = self.session_id, self.head
        await self._show_added("Another process has added:")
        has_started = await self.show_run(
            lambda: self.agent.stream(message, session=session_id, model=self.model, head=head)
        )
        if has_started:
            self.head = None
            self.outputs.clear()
        return has_started

    async def _message(self, text: str, outputs: Sequence[ContentPart] = ()) -> Message:
        """The message with the files that it mentions and the outputs that wait for it. Raises `BartackError` for a
        file that cannot be sent."""
        mentioned = await asyncio.to_thread(mentions, text, self.directory)
        files = [await asyncio.to_thread(load_mention, mention) for mention in mentioned]
        message = user(text, *files, *outputs)
        if mentioned:
            self.note(f"Attached: {', '.join(safe_line(mention.name) for mention in mentioned)}")
        losses = unsupported_content(self.model, message) if files else ()
        if losses:
            self.note(losses_text(losses))
        return message

    async def run_command(self, command: str) -> None:
        """Run the user's own command in a terminal of its own, and keep its output for the next message."""
        from bartack_code.chat.own_command import run_own_command  # noqa: PLC0415 - needs POSIX

        stop = threading.Event()
        self.console.file.flush()
        work = partial(
            run_own_command,
            command,
            directory=self.directory,
            environment=os.environ,
            terminal=(sys.stdin.fileno(), self.console.file.fileno()),
            stop=stop,
        )
        running = asyncio.create_task(asyncio.to_thread(work))
        try:
            async with self._terminal:
                ended = await asyncio.shield(running)
        finally:
            stop.set()
            await asyncio.wait({running})
        if ended.exit_code:
            self.note(ended.text.rpartition("\n")[2])
        if ended.was_full_screen:
            self.note("Its output filled the screen and is not added to your next message.")
            return
        self.outputs.append(command_output_part(command, ended.text))
        self.note("The output is added to your next message.")

    async def show_run(self, new_run: Callable[[], Run], *, earlier: Sequence[Entry] = ()) -> bool:
        """Show a run until it ends, whether or not it succeeds; False if it could not start. `earlier` are the entries
        of a run that is resumed."""
        self._stopped.clear()
        run = None
        try:
            run = await self._start(new_run)
            if run is not None:
                await self._show_events(run, earlier)
                self._hint_at_failure(run)
        except BartackError as error:
            self.show_error(with_hint(error, failure_hint(error.code, self.model)))
        finally:
            self._run = None
            self._retry_at = 0.0
        if run is None:
            return False
        if self.was_interrupted and not self.is_leaving:
            self.note("Press Ctrl-C again to exit.")
        elif run.status is AgentStatus.COMPLETED and self.approvals.modes.mode == "plan":
            self.note("Plan mode: nothing was changed. Leave it with Shift-Tab to have the plan carried out.")
        self._report_servers()
        await self._hooks.end_turn(self.session_id)
        try:
            if run.status is AgentStatus.IDLE:  # there was nothing to resume: another process has finished it
                await self._show_added()
            await self._update_usage()
        except BartackError as error:  # the answer is complete anyway
            self.show_error(error)
        return True

    def _report_servers(self) -> None:
        """Name each MCP server that cannot be used, once."""
        problems = unavailable_servers(self.agent)
        for name in problems.keys() - self._reported_servers:
            self.note(f"{problems[name]} /mcp shows the servers.")
        self._reported_servers |= problems.keys()

    async def _start(self, new_run: Callable[[], Run]) -> Run | None:
        """The run, started; None if the user stopped waiting for the session. Another process may hold the session as
        long as its run takes, and after a crash until its lease expires."""
        self._run = run = new_run()
        with suppress(Conflict):
            return await run.__aenter__()
        self.note("Session is in use by another process; waiting (Ctrl-C to cancel).")
        with self._footer_shown():
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), _RETRY_S)
                    return None
                await self._show_added()
                self._run = run = new_run()
                with suppress(Conflict):
                    return await run.__aenter__()

    async def _show_events(self, run: Run, earlier: Sequence[Entry]) -> None:
        self._screen = screen = new_screen(self.console, thinking=self.thinking, footer=self._footer, earlier=earlier)
        started = time.monotonic()
        keys: dict[Keys, Callable[[], object]] = {
            Keys.ControlO: lambda: self._toggle_live_thinking(screen),
            Keys.ControlT: lambda: viewing.append(asyncio.create_task(self._view_during_run(screen))),
        }
        viewing: list[asyncio.Task[None]] = []
        questions = ApprovalQueue()
        self.keyboard.draft.steering = steering = Steering(run, self._message, self.show_error)
        self.space()
        if self.console.display == "screen-reader":
            self.note("Assistant:")
        ticking = asyncio.create_task(_tick(screen))
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_exit(run)
                stack.enter_context(self._captured.capture(screen.print))
                stack.enter_context(self.keyboard.listening(keys, screen.tick))
                async for event in run:
                    if isinstance(event, Retrying):
                        self._retry_at = time.monotonic() + event.delay_ms / 1000
                    if isinstance(event, RunFinished):
                        async with self._terminal:
                            screen.show(event)
                        continue
                    screen.show(event)
                    questions.note(event)
                    while (request := questions.next()) is not None:
                        async with self._terminal:
                            await self._ask(run, request, screen)
        finally:
            self.keyboard.draft.steering = None
            self.keyboard.draft.queued[:0] = await steering.close()
            for task in viewing:
                task.cancel()
            await asyncio.gather(*viewing, return_exceptions=True)
            ticking.cancel()
            self._screen = None
            screen.close()
            if time.monotonic() - started >= _NOTIFY_AFTER_S:
                self.notify("The answer is complete")
            self.last_thinking = screen.last_thinking() or self.last_thinking

    @contextmanager
    def _footer_shown(self) -> Iterator[None]:
        """Show what is typed, and the status line, while something other than an answer takes its time."""
        self._screen = screen = new_screen(self.console, footer=self._footer)
        ticking = asyncio.create_task(_tick(screen))
        try:
            with self.keyboard.listening({}, screen.tick):
                yield
        finally:
            ticking.cancel()
            self._screen = None
            screen.close()

    def _footer(self) -> list[Line]:
        """What is typed, and the status line, below an answer that arrives."""
        wait_s = max(self._retry_at - time.monotonic(), 0)
        first = f"retrying in {wait_s:.0f} s · {_STOP_HINT}" if wait_s else _STOP_HINT
        status = status_pieces([self._mode_text, *self.status_facts()], width=self.console.width, first=first)
        return [*self.keyboard.draft.lines(self.console), *unwrapped(self.console, [Text(status, style=FAINT)])]

    async def show_transcript(self) -> None:
        """Show all of the session, with every output in full."""
        messages = [entry.fact for entry in await self.branch() if isinstance(entry.fact, Message)]

        def draw(console: Console) -> None:
            for message in messages:
                show_message(console, message, thinking=True, unfolded=True)

        if messages:
            await self.keyboard.page(self.console, draw, "transcript", at_end=True)
        else:
            self.note("Nothing to show yet.")

    async def _view_during_run(self, screen: Screen) -> None:
        if self._terminal.locked() or is_plain(self.console):
            return
        async with self._terminal:
            screen.suspend()
            try:
                await self.show_transcript()
            finally:
                screen.resume()

    def _toggle_live_thinking(self, screen: Screen) -> None:
        self.thinking = screen.toggle_thinking()

    async def _ask(self, run: Run, request: ApprovalRequired, screen: Screen) -> None:
        if self._stopped.is_set():  # the answer to an earlier call stopped the run
            return
        self.notify("Approval needed")
        try:
            if not await self.approvals.ask(run, request, screen):
                self._stopped.set()
                run.abort("user")
        except (KeyboardInterrupt, EOFError):
            self.interrupt()

    def notify(self, text: str) -> None:
        """Call the user back to the terminal."""
        if self._notify == "desktop" and not is_plain(self.console):
            self.console.file.write(f"\x1b]9;bartack: {text}\x07")
            self.console.file.flush()
        elif self._notify != "off":
            self.console.bell()

    def _hint_at_failure(self, run: Run) -> None:
        error = run.result.error
        if run.result.status is not AgentStatus.FAILED or error is None:
            return
        if error.error_code is not ErrorCode.COMPACTION_FAILED:  # its message needs no hint
            self.hint(failure_hint(error.error_code, self.model, error.retry_after_ms))

    @property
    def is_live(self) -> bool:
        """Whether an answer is being shown, and no prompt, question or pager."""
        return self._screen is not None and not self._terminal.locked()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """While the process is stopped: what changes on the screen is not there, and the terminal is as it was."""
        screen = self._screen if self.is_live else None
        if screen is None:  # a prompt has cleaned up itself
            yield
            return
        screen.suspend()
        with self.keyboard.released():
            yield
        screen.resume()

    def interrupt(self) -> bool:
        """Handle Ctrl-C: stop the run, and the second time leave after it. False if the second one finds no run."""
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
