"""What tools can do outside the process: operations, the `Runtime` that performs them, and the tools for a model.

An operation is a value, so a runtime on another machine can receive the same ones over a wire. Its docstring and fields
are also the description and parameters of the tool that performs it; `file_tools` returns those tools. Reading, listing
and searching need no approval. Writing, editing and running commands do, and run one at a time, in call order. The
output of a running command is its progress.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, Protocol

from msgspec import Struct

from bartack.nouns.messages import FileDiff
from bartack.tools.definition import ToolDefinition
from bartack.tools.output import ToolOutput
from bartack.tools.shell import OnOutput, OutputBuffer
from bartack.tools.signature import Signature
from bartack.tools.tool_context import ToolContext

__all__ = [
    "CheckJob",
    "EditFile",
    "ListFiles",
    "Operation",
    "ReadFile",
    "Replacement",
    "RunCommand",
    "Runtime",
    "SearchFiles",
    "WriteFile",
    "file_tools",
]

# Ends a command if the runtime hangs; the runtime's own limit normally comes first.
_COMMAND_TIMEOUT_MS = 86_400_000
_PARTIAL_OUTPUT_BYTES = 10_000  # what a model gets of a command that was stopped
_PROGRESS_CHARS = 400
_FIRST_PROGRESS_S, _PROGRESS_GROWTH, _SLOWEST_PROGRESS_S = 0.5, 1.3, 10.0  # progress is stored: less often over time


class _Operation(Struct, frozen=True, kw_only=True, tag_field="kind"):
    pass


class ReadFile(_Operation, frozen=True, kw_only=True, tag="read_file"):
    """Read a text file or the cells of a Jupyter notebook, or view an image.

    Args:
        path: The file, relative to the working directory.
        offset: The first line to read; lines are numbered from 1.
        limit: The maximum number of lines to read.
    """

    path: str
    offset: int = 1
    limit: int = 2_000


class WriteFile(_Operation, frozen=True, kw_only=True, tag="write_file"):
    """Write a file, replacing any existing content. Missing directories are created.

    Args:
        path: The file, relative to the working directory.
        text: The complete new content.
    """

    path: str
    text: str


class Replacement(Struct, frozen=True):
    """A text to replace, what to replace it with, and whether to replace every occurrence."""

    old: str
    new: str
    everywhere: bool = False


class EditFile(_Operation, frozen=True, kw_only=True, tag="edit_file"):
    """Replace text in a file, in one place or, with edits, in several. The text must occur exactly once, unless
    everywhere is true.

    Args:
        path: The file, relative to the working directory.
        old: The text to replace, copied exactly, with enough context to be unique in the file.
        new: The replacement text.
        everywhere: Replace every occurrence.
        edits: Further replacements, made one after the other. All of them are made, or none.
    """

    path: str
    old: str
    new: str
    everywhere: bool = False
    edits: tuple[Replacement, ...] = ()


class ListFiles(_Operation, frozen=True, kw_only=True, tag="list_files"):
    """List the files in a directory.

    Args:
        path: The directory, relative to the working directory.
        recursive: Include subdirectories.
        pattern: List only what matches this glob pattern, for example *.py or src/**/*.{ts,tsx}, which is recursive.
        include_ignored: Include what .gitignore excludes, in a recursive list.
        limit: The maximum number of entries to list.
    """

    path: str = "."
    recursive: bool = False
    pattern: str | None = None
    include_ignored: bool = False
    limit: int = 1_000


class SearchFiles(_Operation, frozen=True, kw_only=True, tag="search_files"):
    """Find lines in text files that match a regular expression.

    Args:
        pattern: A regular expression in Python syntax.
        path: The directory or file to search, relative to the working directory.
        files: Search only files that match this glob pattern, for example *.py or src/**/*.{ts,tsx}.
        literal: Treat the pattern as plain text.
        ignore_case: Ignore the difference between upper and lower case.
        include_ignored: Include files that .gitignore excludes.
        limit: The maximum number of matches to return.
    """

    pattern: str
    path: str = "."
    files: str | None = None
    literal: bool = False
    ignore_case: bool = False
    include_ignored: bool = False
    limit: int = 100


class RunCommand(_Operation, frozen=True, kw_only=True, tag="run_command"):
    """Run a shell command and return its output. It has no input; processes that it leaves behind are terminated. A
    server or a watcher needs background.

    Args:
        command: The command line, for bash, or for /bin/sh where there is no bash.
        directory: Where to run it, relative to the working directory.
        timeout_ms: The time limit in milliseconds, for a command that takes longer than usual.
        unsandboxed: Run it outside the sandbox, if there is one. The user is asked, so only if it cannot work inside.
        background: Return at once with the id of a job, and let the command run; check_job shows its output.
    """

    command: str
    directory: str = "."
    timeout_ms: int | None = None
    unsandboxed: bool = False
    background: bool = False


class CheckJob(_Operation, frozen=True, kw_only=True, tag="check_job"):
    """Show the state of a command in the background and its output since the last check, or kill it.

    Args:
        job: Its id, such as job-1.
        wait_ms: Wait this long for it to end, at most 600000 milliseconds.
        kill: Terminate it and everything it has started.
    """

    job: str
    wait_ms: int = 0
    kill: bool = False


Operation = ReadFile | WriteFile | EditFile | ListFiles | SearchFiles | RunCommand | CheckJob


class Runtime(Protocol):
    """Performs the operations of tools that have ``requires_runtime``."""

    name: str

    async def connect(self) -> None:
        """Make the runtime ready for use. Connecting again has no effect."""

    async def close(self) -> None:
        """Stop running operations and release all resources."""

    @property
    def status(self) -> Literal["closed", "connected"]:
        """Whether the runtime can be used now."""

    @property
    def capabilities(self) -> frozenset[str]:
        """The kinds of operation that are supported."""

    async def preview(self, operation: Operation) -> dict[str, Any] | None:
        """What the operation would do now, as JSON for a person to approve; None if the runtime makes no previews.
        Raises `ToolError` with a text for the model if the operation cannot succeed."""

    async def execute(
        self, operation: Operation, *, preview: dict[str, Any] | None = None, on_output: OnOutput | None = None
    ) -> ToolOutput:
        """Perform an operation; cancelling terminates what it started. Raises `ToolError` with a text for the model,
        and `PreviewChanged` if the operation would not do what its `preview` shows. `on_output` gets the output of a
        command while it runs, in any thread."""

    async def get_init_data(self) -> dict[str, Any]:
        """A description of this runtime as JSON, stored with the session. It is part of the preview of each command,
        so it should name what commands can reach, such as the sandbox."""

    def get_hints(self) -> str:
        """Instructions for the model on how to use this runtime."""

    async def snapshot(self) -> str | None:
        """A name for the files as they are now, the same for the same files; None if the runtime makes none."""

    async def changes(self, since: str) -> tuple[FileDiff, ...] | None:
        """The files that have changed since a snapshot; None if that is not known."""


def file_tools() -> tuple[ToolDefinition, ...]:
    """Tools to read, write, edit, list and search files and to run commands, for an agent that has a runtime."""
    return _FILE_TOOLS


class _LiveOutput:
    """The output of a running command: its end is the progress of the call, and what was printed before the command
    was stopped is kept for the model."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._buffer = OutputBuffer(_PARTIAL_OUTPUT_BYTES)
        self._has_output = asyncio.Event()

    def add(self, data: bytes) -> None:
        """Take a piece of output, in any thread."""
        with suppress(RuntimeError):  # the event loop has been closed
            self._loop.call_soon_threadsafe(self._note, data)

    def _note(self, data: bytes) -> None:
        self._buffer.add(data)
        self._has_output.set()

    @property
    def text(self) -> str:
        return self._buffer.getvalue().decode("utf-8", "replace")

    @asynccontextmanager
    async def reported(self) -> AsyncIterator[None]:
        """Report progress until the command has ended."""
        self._context.partial_output = lambda: self.text
        reporting = asyncio.create_task(self._report())
        try:
            yield
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    async def _report(self) -> None:
        pause_s = _FIRST_PROGRESS_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _PROGRESS_GROWTH, _SLOWEST_PROGRESS_S)
            await self._has_output.wait()
            self._has_output.clear()
            lines = self.text[-_PROGRESS_CHARS:].rstrip().split("\n")
            await self._context.progress("\n".join(lines[-3:]), lines=self._buffer.lines)


def _runtime_tool(operation: type[Operation], **options: Any) -> ToolDefinition:
    signature = Signature(operation)

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        live = _LiveOutput(context)
        async with live.reported():
            output: ToolOutput = await context.runtime.execute(
                operation(**arguments), preview=context.preview, on_output=live.add
            )
        return output

    async def preview(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any] | None:
        runtime: Runtime = context.runtime
        description = await runtime.preview(operation(**signature.read(arguments)))
        if description is None or operation is not RunCommand:
            return description
        # What a command can reach depends on where it runs: approved in one sandbox, it is asked about in another.
        return {**description, "runtime": {"name": runtime.name, **await runtime.get_init_data()}}

    return ToolDefinition(
        name=str(operation.__struct_config__.tag),
        description=signature.description,
        parameter_schema=signature.schema,
        execute=execute,
        read=signature.read,
        requires_runtime=True,
        preview=preview,
        **options,
    )


_READS: dict[str, Any] = {"idempotent": True}
_CHANGES: dict[str, Any] = {"requires_approval": True, "sequential": True}
_FILE_TOOLS = (
    _runtime_tool(ReadFile, max_output_chars=60_000, **_READS),
    _runtime_tool(WriteFile, **_CHANGES),
    _runtime_tool(EditFile, **_CHANGES),
    _runtime_tool(ListFiles, **_READS),
    _runtime_tool(SearchFiles, **_READS),
    _runtime_tool(RunCommand, timeout_ms=_COMMAND_TIMEOUT_MS, **_CHANGES),
    _runtime_tool(CheckJob, timeout_ms=_COMMAND_TIMEOUT_MS),
)
