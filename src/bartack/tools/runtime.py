"""What tools can do outside the process: operations, the `Runtime` that performs them, and the tools for a model.

An operation is a value, so a runtime on another machine can receive the same ones over a wire. Its docstring and fields
are also the description and parameters of the tool that performs it; `file_tools` returns those tools. Reading, listing
and searching need no approval. Writing, editing and running commands do, and run one at a time, in call order.
"""

from typing import Any, Literal, Protocol

from msgspec import Struct

from bartack.nouns.messages import FileDiff
from bartack.tools.definition import ToolDefinition
from bartack.tools.output import ToolOutput
from bartack.tools.signature import Signature
from bartack.tools.tool_context import ToolContext

__all__ = [
    "EditFile",
    "ListFiles",
    "Operation",
    "ReadFile",
    "RunCommand",
    "Runtime",
    "SearchFiles",
    "WriteFile",
    "file_tools",
]

_COMMAND_TIMEOUT_MS = 3_600_000  # for a runtime that hangs; its own limit normally comes first


class _Operation(Struct, frozen=True, kw_only=True, tag_field="kind"):
    pass


class ReadFile(_Operation, frozen=True, kw_only=True, tag="read_file"):
    """Read a text file, or view an image.

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


class EditFile(_Operation, frozen=True, kw_only=True, tag="edit_file"):
    """Replace text in a file. The text must occur exactly once, unless everywhere is true.

    Args:
        path: The file, relative to the working directory.
        old: The text to replace, copied exactly, with enough context to be unique in the file.
        new: The replacement text.
        everywhere: Replace every occurrence.
    """

    path: str
    old: str
    new: str
    everywhere: bool = False


class ListFiles(_Operation, frozen=True, kw_only=True, tag="list_files"):
    """List the files in a directory.

    Args:
        path: The directory, relative to the working directory.
        recursive: Include subdirectories.
        pattern: List only names or paths that match this glob pattern, for example *.py.
        limit: The maximum number of entries to list.
    """

    path: str = "."
    recursive: bool = False
    pattern: str | None = None
    limit: int = 1_000


class SearchFiles(_Operation, frozen=True, kw_only=True, tag="search_files"):
    """Find lines in text files that match a regular expression.

    Args:
        pattern: A regular expression in Python syntax.
        path: The directory or file to search, relative to the working directory.
        files: Search only files whose name or path matches this glob pattern, for example *.py.
        literal: Treat the pattern as plain text.
        ignore_case: Ignore the difference between upper and lower case.
        limit: The maximum number of matches to return.
    """

    pattern: str
    path: str = "."
    files: str | None = None
    literal: bool = False
    ignore_case: bool = False
    limit: int = 100


class RunCommand(_Operation, frozen=True, kw_only=True, tag="run_command"):
    """Run a shell command and return its output. It has no input; background processes are terminated when it ends.

    Args:
        command: The command, for /bin/sh.
        directory: Where to run it, relative to the working directory.
        timeout_ms: The time limit in milliseconds.
    """

    command: str
    directory: str = "."
    timeout_ms: int | None = None


Operation = ReadFile | WriteFile | EditFile | ListFiles | SearchFiles | RunCommand


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

    async def execute(self, operation: Operation) -> ToolOutput:
        """Perform an operation; cancelling terminates what it started. Raises `ToolError` with a text for the model."""

    async def get_init_data(self) -> dict[str, Any]:
        """A description of this runtime as JSON, stored with the session."""

    def get_hints(self) -> str:
        """Instructions for the model on how to use this runtime."""

    async def snapshot(self) -> str | None:
        """A name for the files as they are now, the same for the same files; None if the runtime makes none."""

    async def changes(self, since: str) -> tuple[FileDiff, ...] | None:
        """The files that have changed since a snapshot; None if that is not known."""


def file_tools() -> tuple[ToolDefinition, ...]:
    """Tools to read, write, edit, list and search files and to run commands, for an agent that has a runtime."""
    return _FILE_TOOLS


def _runtime_tool(operation: type[Operation], **options: Any) -> ToolDefinition:
    signature = Signature(operation)

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        output: ToolOutput = await context.runtime.execute(operation(**arguments))
        return output

    return ToolDefinition(
        name=str(operation.__struct_config__.tag),
        description=signature.description,
        parameter_schema=signature.schema,
        execute=execute,
        read=signature.read,
        requires_runtime=True,
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
)
