"""`LocalRuntime`: a directory on this machine that an agent can work in.

File operations are confined to the directory (see `bartack.tools.sandbox`). Commands are not: a shell can reach
whatever its user can. Commands run in the directory, without the secrets in this process's environment, with limits on
time and output, and the file tools require approval for each one. A command that runs as the same user can still
inspect this process (on Linux through /proc). Where that matters, run the agent as a separate user or in a container.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args

from bartack.nouns.errors import ToolError
from bartack.nouns.messages import FileDiff
from bartack.tools.file_operations import FileOperations
from bartack.tools.output import ToolOutput
from bartack.tools.runtime import EditFile, ListFiles, Operation, ReadFile, RunCommand, SearchFiles, WriteFile
from bartack.tools.sandbox import SandboxedDirectory
from bartack.tools.shell import CommandResult, run_command, safe_environment
from bartack.tools.snapshots import GitSnapshots

__all__ = ["LocalRuntime", "command_output"]

_THREADS = 32  # concurrent operations; further ones wait


class LocalRuntime:
    """Files and commands below `root`.

    `forbidden` lists files and directories inside it that are out of reach, such as the session store. `environment` is
    added to the harmless variables that commands get from this process. With `snapshots`, and if `root` is in a git
    work tree, each model call records the state of its files (see `bartack.tools.snapshots`), which takes about as long
    as ``git add``.
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
        snapshots: bool = False,
    ) -> None:
        self.root: Path = Path(root)
        self._forbidden = [Path(path) for path in forbidden]
        self._environment = dict(environment or {})
        self._timeout_ms = timeout_ms
        self._max_output_bytes = max_output_bytes
        self._commands = commands
        self._files: FileOperations | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._stops: set[threading.Event] = set()
        self._snapshots = GitSnapshots(self.root, self._forbidden) if snapshots else None
        self._snapshot_lock = asyncio.Lock()

    async def connect(self) -> None:
        """Open the directory. Raises `ToolError` if that is not possible."""
        if self._files is not None:
            return
        if not hasattr(os, "killpg"):
            raise ToolError("LocalRuntime requires a POSIX system.")
        try:
            directory = SandboxedDirectory(self.root, self._forbidden)
        except OSError as error:
            raise ToolError(f"{str(self.root)!r}: {error.strerror}", cause=error) from None
        self._files = FileOperations(directory, self._max_output_bytes)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bartack-runtime")

    async def close(self) -> None:
        """Stop running operations and release the directory."""
        files, threads = self._files, self._threads
        self._files = self._threads = None
        for stop in self._stops:
            stop.set()
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        if files is not None:
            files.root.close()
        if self._snapshots is not None:
            await asyncio.to_thread(self._snapshots.close)

    @property
    def directory(self) -> SandboxedDirectory:
        """The directory, which decides what may be reached; `ToolError` if it is not open."""
        if self._files is None:
            raise ToolError("The runtime is not connected.")
        return self._files.root

    @property
    def status(self) -> Literal["closed", "connected"]:
        """Whether the runtime can be used now."""
        return "closed" if self._files is None else "connected"

    @property
    def capabilities(self) -> frozenset[str]:
        """The kinds of operation that are supported."""
        kinds = frozenset(str(operation.__struct_config__.tag) for operation in get_args(Operation))
        return kinds if self._commands else kinds - {"run_command"}

    async def get_init_data(self) -> dict[str, Any]:
        """Root, platform and capabilities."""
        root = str(self.root if self._files is None else self._files.root.path)
        return {"root": root, "platform": sys.platform, "capabilities": sorted(self.capabilities)}

    def get_hints(self) -> str:
        """Instructions for the model."""
        hints = "All files are below one working directory; use paths relative to it. Symbolic links are not followed."
        if self._commands:
            hints += (
                f" Commands run there with /bin/sh, with a time limit of {self._timeout_ms / 1000:g} s;"
                " background processes are terminated when a command ends."
            )
        return hints

    async def snapshot(self) -> str | None:
        """The state of the git work tree; None without one, or if snapshots are off."""
        if self._snapshots is None:
            return None
        async with self._snapshot_lock:
            return await asyncio.to_thread(self._snapshots.take)

    async def changes(self, since: str) -> tuple[FileDiff, ...] | None:
        """The files that have changed since a snapshot of this runtime."""
        if self._snapshots is None:
            return None
        async with self._snapshot_lock:
            return await asyncio.to_thread(self._snapshots.changes, since)

    async def execute(self, operation: Operation) -> ToolOutput:
        """Perform an operation in a thread. Cancelling waits until everything it started has been terminated."""
        if self._threads is None:
            raise ToolError("The runtime is not connected.")
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
                work.exception()  # retrieved, so that asyncio does not log it as lost
            raise
        finally:
            self._stops.discard(stop)

    def _perform(self, operation: Operation, stop: threading.Event) -> ToolOutput:
        files = self._files
        if stop.is_set() or files is None:
            raise ToolError("The runtime was stopped.")
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
                return files.search(operation, stop)
            case RunCommand():
                return self._run(files.root, operation, stop)

    def _run(self, root: SandboxedDirectory, operation: RunCommand, stop: threading.Event) -> ToolOutput:
        if not self._commands:
            raise ToolError("Running commands is disabled.")
        if "\0" in operation.command:
            raise ToolError("The command contains a NUL character.")
        timeout_ms = min(operation.timeout_ms or self._timeout_ms, self._timeout_ms)
        names = root.parts(operation.directory)
        with root.directory(names) as fd:
            result = run_command(
                operation.command,
                directory=_path_of(fd, root.path.joinpath(*names)),
                environment={**safe_environment(os.environ), **self._environment},
                timeout_s=timeout_ms / 1000,
                max_output_bytes=self._max_output_bytes,
                stop=stop,
            )
        return command_output(operation, result, timeout_ms)


def _path_of(fd: int, path: Path) -> Path:
    # The directory that was opened, even if its name now leads elsewhere: the child has the descriptor until it execs.
    link = Path(f"/proc/self/fd/{fd}")
    return link if link.exists() else path


def command_output(operation: RunCommand, result: CommandResult, timeout_ms: int) -> ToolOutput:
    """What a command leaves, for the model; `ToolError` if it did not exit by itself."""
    text = result.output.decode("utf-8", "replace")
    newline = "" if not text or text.endswith("\n") else "\n"
    match result.ending:
        case "stopped":
            raise ToolError(f"{text}{newline}[the command was stopped]")
        case "timed_out":
            raise ToolError(
                f"{text}{newline}[timed out after {timeout_ms} ms; the command and its child processes were terminated]"
            )
        case "exited":
            code = result.exit_code
            note = f"{newline}[exit code {code}]" if code >= 0 else f"{newline}[killed by signal {-code}]"
            return ToolOutput(
                text if code == 0 and text else f"{text}{note}",
                title=operation.command[:80],
                metadata={"exit_code": code, "omitted_bytes": result.omitted_bytes},
            )
