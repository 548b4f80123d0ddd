"""`LocalRuntime`: one directory of this machine for an agent to work in.

Files are confined to the directory (see `confined`). Commands are not: a shell can reach whatever its user can. They
run in the directory, without the secrets of this process's environment, under limits of time and output, and the ready
tools ask for approval before each one. A command that runs as the same user may still look at this process (on Linux by
/proc); where that matters, give the agent a user or a container of its own.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from bartack.nouns.errors import ToolError
from bartack.tools.commands import Finished, run_command, scrubbed
from bartack.tools.confined import ConfinedRoot
from bartack.tools.file_work import FileWork
from bartack.tools.operations import (
    EditFile,
    ListFiles,
    Operation,
    ReadFile,
    RunCommand,
    Runtime,
    SearchFiles,
    WriteFile,
)
from bartack.tools.output import ToolOutput
from bartack.tools.search import search

__all__ = ["LocalRuntime", "Runtime"]

_THREADS = 32  # operations at the same time; more wait their turn
_SEARCH_SECONDS = 30.0


class LocalRuntime:
    """Files and commands below `root`.

    `forbidden` names files and directories inside that stay out of reach, such as the session store. `environment` is
    what commands get beside the harmless variables of this process.
    """

    name = "local"

    def __init__(
        self,
        root: str | Path,
        *,
        forbidden: Iterable[str | Path] = (),
        environment: Mapping[str, str] | None = None,
        timeout_ms: int = 120_000,
        max_output_bytes: int = 1_000_000,
        commands: bool = True,
    ) -> None:
        self.root = Path(root)
        self._forbidden = [Path(path) for path in forbidden]
        self._environment = dict(environment or {})
        self._timeout_ms = timeout_ms
        self._max_output_bytes = max_output_bytes
        self._commands = commands
        self._confined: ConfinedRoot | None = None
        self._files: FileWork | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._stops: set[threading.Event] = set()

    async def connect(self) -> None:
        """Open the directory; `ToolError` where there is none."""
        if self._confined is not None:
            return
        if not hasattr(os, "killpg"):
            raise ToolError("LocalRuntime needs a POSIX system")
        try:
            self._confined = ConfinedRoot(self.root, self._forbidden)
        except OSError as error:
            raise ToolError(f"{str(self.root)!r}: {error.strerror}", cause=error) from None
        self._files = FileWork(self._confined, self._max_output_bytes)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bartack-runtime")

    async def close(self) -> None:
        """End what runs and let go of the directory."""
        confined, threads = self._confined, self._threads
        self._confined = self._files = self._threads = None
        for stop in self._stops:
            stop.set()
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        if confined is not None:
            confined.close()

    @property
    def status(self) -> Literal["closed", "connected"]:
        """Whether it can be used now."""
        return "closed" if self._confined is None else "connected"

    @property
    def capabilities(self) -> frozenset[str]:
        """The kinds of operation it takes."""
        files = {"read_file", "write_file", "edit_file", "list_files", "search_files"}
        return frozenset(files | {"run_command"} if self._commands else files)

    async def get_init_data(self) -> dict[str, Any]:
        """Root, platform and capabilities."""
        root = str(self.root if self._confined is None else self._confined.path)
        return {"root": root, "platform": sys.platform, "capabilities": sorted(self.capabilities)}

    def get_hints(self) -> str:
        """What a model should know."""
        commands = (
            f" Commands run there with /bin/sh for at most {self._timeout_ms / 1000:g} s; what they leave running in"
            " the background is ended with them."
            if self._commands
            else ""
        )
        return f"Files are below one directory; give paths relative to it. Symbolic links are not followed.{commands}"

    async def execute(self, operation: Operation) -> ToolOutput:
        """Do it in a thread; on cancellation, what it started is ended before the cancellation goes on."""
        if self._threads is None:
            raise ToolError("the runtime is not connected")
        stop = threading.Event()
        self._stops.add(stop)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._perform, operation, stop)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait({work})
            if not work.cancelled():
                work.exception()  # nobody waits for it; looked at so that asyncio does not report it as lost
            raise
        finally:
            self._stops.discard(stop)

    def _perform(self, operation: Operation, stop: threading.Event) -> ToolOutput:
        confined, files = self._confined, self._files
        if stop.is_set() or confined is None or files is None:
            raise ToolError("the runtime was stopped")
        match operation:
            case ReadFile():
                return files.read(operation, stop)
            case WriteFile():
                return files.write(operation)
            case EditFile():
                return files.edit(operation)
            case ListFiles():
                return files.list(operation, stop)
            case SearchFiles():
                return _found(operation, search(confined, operation, seconds=_SEARCH_SECONDS, stop=stop))
            case RunCommand():
                return self._run(confined, operation, stop)

    def _run(self, confined: ConfinedRoot, operation: RunCommand, stop: threading.Event) -> ToolOutput:
        if not self._commands:
            raise ToolError("this runtime runs no commands")
        if "\0" in operation.command:
            raise ToolError("a command holds no NUL character")
        limit_ms = min(operation.timeout_ms or self._timeout_ms, self._timeout_ms)
        names = confined.parts(operation.directory)
        with confined.directory(names) as fd:
            finished = run_command(
                operation.command,
                directory=_path_of(fd, confined.path.joinpath(*names)),
                environment={**scrubbed(os.environ), **self._environment},
                seconds=limit_ms / 1000,
                max_output_bytes=self._max_output_bytes,
                stop=stop,
            )
        return _told(operation, finished, limit_ms)


def _path_of(fd: int, path: Path) -> Path:
    # The directory itself, whatever its name leads to by now: the child still has the descriptor when it goes there.
    link = Path(f"/proc/self/fd/{fd}")
    return link if link.exists() else path


def _found(operation: SearchFiles, lines: list[str]) -> ToolOutput:
    if not lines:
        return ToolOutput("no matches", metadata={"matches": 0})
    more = f"\n[the first {len(lines)} matches; there may be more]" if len(lines) == operation.limit else ""
    return ToolOutput("\n".join(lines) + more, metadata={"matches": len(lines)})


def _told(operation: RunCommand, finished: Finished, limit_ms: int) -> ToolOutput:
    text = finished.output.decode("utf-8", "replace")
    line = "" if not text or text.endswith("\n") else "\n"
    match finished.how:
        case "stopped":
            raise ToolError(f"{text}{line}[the command was stopped]")
        case "timed_out":
            raise ToolError(f"{text}{line}[timed out after {limit_ms} ms; the command and all it started were ended]")
        case "exited":
            code = finished.exit_code
            note = f"{line}[exit code {code}]" if code >= 0 else f"{line}[ended by signal {-code}]"
            metadata = {"exit_code": code, "bytes_left_out": finished.left_out}
            return ToolOutput(
                text if code == 0 and text else f"{text}{note}", title=operation.command[:80], metadata=metadata
            )
