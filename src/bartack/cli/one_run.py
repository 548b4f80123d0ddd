"""One run of `bartack run`: a job in, its events to an output, an exit status or an error with a hint out."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NamedTuple

from bartack.agent import Run
from bartack.agent.events import EntryAppended, RunFinished, RunResult
from bartack.agent.run import as_message
from bartack.cli.agent_setup import new_agent
from bartack.cli.attachments import not_sent
from bartack.cli.failure_hints import failure_hint
from bartack.cli.run_output import Output, loss_text, note
from bartack.cli.session_choice import newest_here, there_or_made
from bartack.cli.store_access import store_hint, store_words
from bartack.cli.terminal.safe_text import safe_line
from bartack.models.model import Model
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import StreamFailed
from bartack.nouns.errors import AgentError, BartackError, Conflict, ErrorCode, StoreError
from bartack.nouns.parts import FileRef, Image
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore, open_store
from bartack.tools import Approver, ToolDefinition

__all__ = ["Job", "OneRun"]


_WORDS = dict.fromkeys(
    (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_VALUE),
    "bartack run --help says what the words mean, and bartack doctor checks the settings",
)


class Job(NamedTuple):
    """What is wanted, with everything made ready that needs neither network nor store."""

    prompt: str
    attachments: tuple[Image | FileRef, ...]
    model: Model
    tools: tuple[ToolDefinition, ...]
    files: bool
    approver: Approver
    instructions: str | None
    place: str  # of the store
    session: str | None
    goes_on: bool  # with the newest session of the directory


class OneRun:
    """One run: how far it came is known here, also when it raises."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._stopped_by: int | None = None
        self._run: Run | None = None
        self._new_session: str | None = None
        self._place = ""
        self._last_fault: Failed | None = None  # of a model call
        self.result: RunResult | None = None
        self.failed: Failed | None = None
        self.has_begun = False

    async def run(self, job: Job) -> int:
        """0, or the status of the signal that stopped it. Raises what failed, with a hint."""
        try:
            with self._signals():
                await self._work(job)
        except asyncio.CancelledError:
            if self._stopped_by is None:
                raise
            self.failed = Failed(ErrorCode.ABORTED, "stopped before the run began")
        except Conflict as error:
            if self.has_begun:
                raise
            busy = Conflict("another run works on this session")  # in plainer words than those of leases
            busy.add_note(failure_hint(busy.code, job.model))
            raise busy from error
        except BartackError as error:
            if not getattr(error, "__notes__", ()):
                error.add_note(self._hint(error, job))
            raise
        if self._stopped_by is not None and (self.result is None or self.result.status is AgentStatus.ABORTED):
            return 128 + self._stopped_by
        self._raise_failure(job.model)
        return 0

    def _hint(self, error: BartackError, job: Job) -> str:
        if not self.has_begun:
            hint = store_hint(error.code, job.place) if isinstance(error, StoreError) else _WORDS.get(error.code)
            if hint is not None:
                return hint
        return failure_hint(error.code, job.model)

    async def _work(self, job: Job) -> None:
        async with AsyncExitStack() as stack:
            close = getattr(job.model, "aclose", None)
            if close is not None:
                stack.push_async_callback(close)
            store = await open_store(job.place)
            stack.push_async_callback(store.close)
            agent = new_agent(
                job.model,
                store=store,
                place=job.place,
                instructions=job.instructions,
                tools=job.tools,
                files=job.files,
                approver=job.approver,
            )
            await stack.enter_async_context(agent)
            session = await self._session(store, job)
            message = as_message(*job.attachments, job.prompt)
            for loss in not_sent(job.model, message) if job.attachments else ():
                note(f"warning: {loss_text(loss)}")  # no event says it
            self._run = agent.stream(message, session=session)
            async with self._run:
                self.has_begun = True
                async for event in self._run:
                    if isinstance(event, RunFinished):
                        self.result = event.result
                    elif isinstance(event, EntryAppended) and isinstance(event.entry.fact, StreamFailed):
                        self._last_fault = event.entry.fact.error
                    await self._output.see(event)

    async def _session(self, store: SessionStore, job: Job) -> str:
        if job.goes_on:
            return await newest_here(store)
        made = await there_or_made(store, job.session, prompt=job.prompt, program="bartack run")
        self._place = job.place
        self._new_session = made if job.session is None else None
        return made

    def tell_session(self) -> None:
        """Say where a conversation is that nobody gave a name to."""
        if self._new_session is not None:
            name, where = self._new_session, store_words(self._place)
            self._output.tell(f"session {name}; go on with: bartack run{where} --session {name} ...", is_dim=True)

    def _raise_failure(self, model: Model) -> None:
        result, fault = self.result, self._last_fault
        assert result is not None  # every run tells its end
        if result.status is AgentStatus.COMPLETED:
            return
        self.failed = result.error or Failed(ErrorCode.ABORTED, result.reason or str(result.status))
        message = safe_line(self.failed.message or str(self.failed.error_code))
        if fault is not None and fault.error_code is self.failed.error_code:
            self.failed = fault  # it knows when to come back
            message = f"{model.model_info().provider}: {message}"
        error = AgentError(message, code=self.failed.error_code)
        error.add_note(failure_hint(error.code, model, self.failed.retry_after_ms))
        raise error

    # -- signals

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop the run and let it write down its end. A second one ends the process at once."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            self._stopped_by = number
            if self._run is None:
                task.cancel()
            else:
                self._run.abort("interrupted")

        def heard(number: int, frame: Any) -> None:
            signal.signal(number, signal.SIG_DFL)
            loop.call_soon_threadsafe(stop, number)

        before = {
            number: signal.signal(number, heard)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN  # a shell's background jobs
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is heard:  # else the next one is to end the process
                    signal.signal(number, handler)
