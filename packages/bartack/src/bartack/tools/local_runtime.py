"""`LocalRuntime`: a directory on this machine that an agent can work in.

File operations are confined to the directory (see `bartack.tools.sandbox`). Commands run in it, without the secrets in
this process's environment and with limits on time and output. With a `sandbox` (see `bartack.tools.confinement`), they
write nowhere else, reach no network, and read no credentials. Without one, a shell can reach whatever its user can, and
inspect this process (on Linux through /proc): approval is then the only protection.

The output of a command that is too long for a model goes to a file in a folder of the runtime, which the file tools can
read although it is outside the directory. The folder is deleted with the runtime, which also ends the commands in the
background (see `bartack.tools.jobs`).
"""

import asyncio
import math
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import IO, Any, Literal, TypedDict, get_args

from bartack.nouns.errors import ToolError
from bartack.nouns.messages import FileDiff
from bartack.tools.confinement import CommandSandbox, SandboxName, SandboxPolicy, new_sandbox
from bartack.tools.definition import MAX_OUTPUT_CHARS
from bartack.tools.file_changes import planned_change
from bartack.tools.file_operations import FileOperations
from bartack.tools.jobs import Jobs
from bartack.tools.output import WHOLE_OUTPUT, ToolOutput, valid_text
from bartack.tools.runtime import CheckJob, EditFile, ListFiles, Operation, ReadFile, RunCommand, SearchFiles, WriteFile
from bartack.tools.sandbox import SandboxedDirectory
from bartack.tools.shell import CommandResult, OnOutput, run_command, safe_environment, shell_words
from bartack.tools.snapshots import GitSnapshots

__all__ = ["CommandOptions", "LocalRuntime", "command_output", "command_preview"]

_THREADS = 32  # concurrent operations; further ones wait


class CommandOptions(TypedDict, total=False):
    """The keyword arguments of `LocalRuntime` about commands."""

    environment: Mapping[str, str]
    variables: Sequence[str]
    timeout_ms: int
    max_timeout_ms: int
    max_output_bytes: int
    sandbox: SandboxName
    image: str | None
    network: bool
    writable: Sequence[Path]


class LocalRuntime:
    """Files and commands below `root`.

    `forbidden` lists files and directories inside it that are out of reach, such as the session store. With
    `snapshots`, and if `root` is in a git work tree, each model call records the state of its files (see
    `bartack.tools.snapshots`), which takes about as long as ``git add``.

    Commands get harmless variables of this process, those whose names match one of `variables` (such as
    ``DATABASE_*``), and `environment`. They end after `timeout_ms`, or after the time that the model asks for, which is
    at most `max_timeout_ms`. With `sandbox`, they are confined: ``auto`` uses the best sandbox that works here, or none
    (see the property `sandbox`); ``podman`` and ``docker`` run each in a new container of `image`. Inside, `network`
    allows access to the network, and `writable` folders are writable beside the root.
    """

    name = "local"

    def __init__(
        self,
        root: str | Path,
        *,
        forbidden: Iterable[str | Path] = (),
        environment: Mapping[str, str] | None = None,
        variables: Sequence[str] = (),
        timeout_ms: int = 120_000,
        max_timeout_ms: int = 3_600_000,
        max_output_bytes: int = 1_000_000,
        commands: bool = True,
        sandbox: SandboxName = "off",
        image: str | None = None,
        network: bool = False,
        writable: Sequence[Path] = (),
        snapshots: bool = False,
    ) -> None:
        self.root: Path = Path(root)
        self._forbidden = [Path(path) for path in forbidden]
        self._environment = dict(environment or {})
        self._variables = tuple(variables)
        self._timeout_ms = timeout_ms
        self._max_timeout_ms = max(timeout_ms, max_timeout_ms)
        self._max_output_bytes = max_output_bytes
        self._commands = commands
        self._sandbox_name: SandboxName = sandbox
        self._image = image
        self._network = network
        self._writable = tuple(writable)
        self._sandbox: CommandSandbox | None = None
        self._files: FileOperations | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._stops: set[threading.Event] = set()
        self._log_numbers = count(1)
        self._jobs = Jobs()
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
        if self._commands and self._sandbox_name != "off":
            self._sandbox = await asyncio.to_thread(new_sandbox, self._policy(directory.path), self._sandbox_name)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bartack-runtime")

    async def close(self) -> None:
        """Stop running operations and release the directory."""
        files, threads = self._files, self._threads
        self._files = self._threads = None
        for stop in self._stops:
            stop.set()
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        await asyncio.to_thread(self._jobs.close)
        if files is not None:
            await asyncio.to_thread(files.close)
        if self._sandbox is not None:
            self._sandbox.close()
        if self._snapshots is not None:
            await asyncio.to_thread(self._snapshots.close)

    def _policy(self, root: Path) -> SandboxPolicy:
        return SandboxPolicy(
            root=root,
            home=Path.home().resolve(),
            network=self._network,
            writable=tuple(path.expanduser().resolve() for path in self._writable),
            hidden=tuple(self._forbidden),
            image=self._image if self._sandbox_name in ("podman", "docker") else None,
        )

    @property
    def sandbox(self) -> CommandSandbox | None:
        """What confines commands; None if nothing does, or before the runtime is connected."""
        return self._sandbox

    @property
    def directory(self) -> SandboxedDirectory:
        """The directory, which decides what may be reached; `ToolError` if it is not open."""
        if self._files is None:
            raise ToolError("The runtime is not connected.")
        return self._files.root

    @property
    def jobs(self) -> Jobs:
        """The commands in the background."""
        return self._jobs

    @property
    def status(self) -> Literal["closed", "connected"]:
        """Whether the runtime can be used now."""
        return "closed" if self._files is None else "connected"

    @property
    def capabilities(self) -> frozenset[str]:
        """The kinds of operation that are supported."""
        kinds = frozenset(str(operation.__struct_config__.tag) for operation in get_args(Operation))
        return kinds if self._commands else kinds - {"run_command", "check_job"}

    async def get_init_data(self) -> dict[str, Any]:
        """Root, platform and capabilities."""
        root = str(self.root if self._files is None else self._files.root.path)
        data = {"root": root, "platform": sys.platform, "capabilities": sorted(self.capabilities)}
        return data if self._sandbox is None else {**data, "sandbox": self._sandbox.name}

    def get_hints(self) -> str:
        """Instructions for the model."""
        hints = "All files are below one working directory; use paths relative to it. Symbolic links are not followed."
        if self._commands:
            hints += (
                f" Commands run there in {Path(shell_words('')[0]).name}, with a time limit of"
                f" {self._timeout_ms / 1000:g} s; timeout_ms raises it to {self._max_timeout_ms / 1000:g} s at most."
            )
        if self._sandbox is not None:
            network = "is available" if self._network else "is not available"
            place = "a sandbox: only the working directory and $TMPDIR are writable"
            if self._sandbox.policy.image is not None:
                place = f"a new container of {self._sandbox.policy.image} each: only the working directory is kept"
            hints += (
                f" They run in {place}, .git is read-only, and the network {network}. Set unsandboxed only for a"
                " command that cannot work there."
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

    async def preview(self, operation: Operation) -> dict[str, Any] | None:
        """The change to a file with its diff, or the command and its directory; None for reading."""
        if self._files is None:
            raise ToolError("The runtime is not connected.")
        return await asyncio.to_thread(self._preview, self._files, operation)

    def _preview(self, files: FileOperations, operation: Operation) -> dict[str, Any] | None:
        match operation:
            case WriteFile() | EditFile():
                return planned_change(operation, files.content(operation)).as_json()
            case RunCommand():
                self.check_command(operation)
                names = files.root.parts(operation.directory)
                with files.root.directory(names):
                    return command_preview(operation, files.root.path.joinpath(*names), self._walls(operation))
            case ReadFile() | ListFiles() | SearchFiles() | CheckJob():
                return None

    async def execute(
        self, operation: Operation, *, preview: dict[str, Any] | None = None, on_output: OnOutput | None = None
    ) -> ToolOutput:
        """Perform an operation in a thread. Cancelling waits until everything it started has been terminated."""
        if self._threads is None:
            raise ToolError("The runtime is not connected.")
        stop = threading.Event()
        self._stops.add(stop)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._perform, operation, preview or {}, on_output, stop)
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

    def _perform(
        self, operation: Operation, preview: dict[str, Any], on_output: OnOutput | None, stop: threading.Event
    ) -> ToolOutput:
        files = self._files
        if stop.is_set() or files is None:
            raise ToolError("The runtime was stopped.")
        match operation:
            case ReadFile():
                return files.read(operation, stop)
            case WriteFile():
                return files.write(operation, preview.get("before"))
            case EditFile():
                return files.edit(operation, preview.get("before"))
            case ListFiles():
                return files.list(operation, stop)
            case SearchFiles():
                return files.search(operation, stop)
            case RunCommand(background=True):
                return self._start_job(files, operation)
            case RunCommand():
                return self._run(files, operation, on_output, stop)
            case CheckJob():
                job = self._jobs.named(operation.job)
                if operation.kill:
                    job.kill()
                return job.check(operation.wait_ms / 1000, self._max_output_bytes, stop)

    def _run(
        self, files: FileOperations, operation: RunCommand, on_output: OnOutput | None, stop: threading.Event
    ) -> ToolOutput:
        self.check_command(operation)
        names = files.root.parts(operation.directory)
        directory = files.root.path.joinpath(*names)
        words, environment = self.command_words(operation, directory)
        log_path = files.output_folder() / f"{next(self._log_numbers)}.txt"
        with files.root.directory(names) as fd, log_path.open("wb") as log:
            result = run_command(
                words,
                directory=_path_of(fd, directory),
                environment=environment,
                timeout_s=self.timeout_ms(operation) / 1000,
                max_output_bytes=self._max_output_bytes,
                stop=stop,
                log=log,
                on_output=on_output,
            )
        if result.total_bytes <= MAX_OUTPUT_CHARS:
            log_path.unlink()
            return command_output(operation, result, self.timeout_ms(operation))
        return command_output(operation, result, self.timeout_ms(operation), log_path)

    def _start_job(self, files: FileOperations, operation: RunCommand) -> ToolOutput:
        self.check_command(operation)
        names = files.root.parts(operation.directory)
        directory = files.root.path.joinpath(*names)
        with files.root.directory(names):  # raises for the caller, not in the job
            words, environment = self.command_words(operation, directory)

        def work(log: IO[bytes], stop: threading.Event) -> CommandResult:
            with files.root.directory(names) as fd:
                return run_command(
                    words,
                    directory=_path_of(fd, directory),
                    environment=environment,
                    timeout_s=math.inf if operation.timeout_ms is None else operation.timeout_ms / 1000,
                    max_output_bytes=0,
                    stop=stop,
                    log=log,
                )

        job = self._jobs.start(operation.command, files.output_folder(), work)
        text = f"Started {job.id}. check_job shows its output, which is also in {job.log}. It ends with this session."
        return ToolOutput(text, title=operation.command[:80], metadata={"job": job.id})

    def command_words(self, operation: RunCommand, directory: Path) -> tuple[list[str], dict[str, str]]:
        """The words and the environment of the process that runs a command, confined if it is to be."""
        words = shell_words(operation.command)
        environment = {**safe_environment(os.environ, self._variables), **self._environment}
        if self._sandbox is None or operation.unsandboxed:
            return words, environment
        return self._sandbox.wrap(words, directory), self._sandbox.environment(environment)

    def timeout_ms(self, operation: RunCommand) -> int:
        """The time limit of a command."""
        return operation.timeout_ms or self._timeout_ms

    def _walls(self, operation: RunCommand) -> str | None:
        if self._sandbox is None:
            return None
        return "none" if operation.unsandboxed else f"{self._sandbox.name}: {self._sandbox.policy.text}"

    def check_command(self, operation: RunCommand) -> None:
        """Raise `ToolError` if the command cannot be run."""
        if not self._commands:
            raise ToolError("Running commands is disabled.")
        if "\0" in operation.command:
            raise ToolError("The command contains a NUL character.")
        if not operation.command.strip():
            raise ToolError("The command is empty.")
        if not 0 < self.timeout_ms(operation) <= self._max_timeout_ms:
            raise ToolError(f"timeout_ms must be between 1 and {self._max_timeout_ms}, got {operation.timeout_ms}.")


def command_preview(operation: RunCommand, directory: Path, sandbox: str | None = None) -> dict[str, Any]:
    """The preview of a command. `sandbox` says what it may reach, and is None on a runtime that has none."""
    preview: dict[str, Any] = {"kind": "command", "command": valid_text(operation.command)}
    preview["directory"] = valid_text(str(directory))
    if operation.timeout_ms is not None:
        preview["timeout_ms"] = operation.timeout_ms
    if operation.background:
        preview["background"] = True
    return preview if sandbox is None else {**preview, "sandbox": valid_text(sandbox)}


def _path_of(fd: int, path: Path) -> Path:
    # The directory that was opened, even if its name now leads elsewhere: the child has the descriptor until it execs.
    link = Path(f"/proc/self/fd/{fd}")
    return link if link.exists() else path


def command_output(
    operation: RunCommand, result: CommandResult, timeout_ms: int, log: Path | None = None
) -> ToolOutput:
    """What a command leaves, for the model; an error if it did not exit by itself. `log` has all of the output."""
    text = result.output.decode("utf-8", "replace")
    newline = "" if not text or text.endswith("\n") else "\n"
    code = result.exit_code
    match result.ending:
        case "stopped":
            note = "[the command was stopped]"
        case "timed_out":
            note = f"[timed out after {timeout_ms} ms; the command and its child processes were terminated]"
        case "exited":
            note = f"[exit code {code}]" if code >= 0 else f"[killed by signal {-code}]"
    whole = (
        {} if log is None else {WHOLE_OUTPUT: {"file": str(log), "lines": result.lines, "bytes": result.total_bytes}}
    )
    is_error = result.ending != "exited"
    return ToolOutput(
        text if code == 0 and text and not is_error else f"{text}{newline}{note}",
        title=operation.command[:80],
        metadata={"exit_code": code, "lines": result.lines, "omitted_bytes": result.omitted_bytes, **whole},
        is_error=is_error,
    )
