"""What a runtime can be asked to do, and `Runtime` itself: the place where tools touch the world.

Operations are values, so a runtime on another machine takes the same ones over a wire.
"""

from typing import Any, Literal, Protocol

from msgspec import Struct

from bartack.tools.output import ToolOutput

__all__ = ["EditFile", "ListFiles", "Operation", "ReadFile", "RunCommand", "Runtime", "SearchFiles", "WriteFile"]


class _Operation(Struct, frozen=True, kw_only=True, tag_field="kind"):
    pass


class ReadFile(_Operation, frozen=True, kw_only=True, tag="read_file"):
    """Lines of a text file from `offset` (1 is the first), or a picture."""

    path: str
    offset: int = 1
    limit: int = 2_000


class WriteFile(_Operation, frozen=True, kw_only=True, tag="write_file"):
    """A file with this text, in place of what was there."""

    path: str
    text: str


class EditFile(_Operation, frozen=True, kw_only=True, tag="edit_file"):
    """`old` replaced by `new`: it must stand in the file once, or `everywhere` is said."""

    path: str
    old: str
    new: str
    everywhere: bool = False


class ListFiles(_Operation, frozen=True, kw_only=True, tag="list_files"):
    """The names in a directory, or in all below it."""

    path: str = "."
    recursive: bool = False
    pattern: str | None = None
    limit: int = 1_000


class SearchFiles(_Operation, frozen=True, kw_only=True, tag="search_files"):
    """The lines that match a regular expression (or hold a text, with `literal`)."""

    pattern: str
    path: str = "."
    files: str | None = None
    literal: bool = False
    ignore_case: bool = False
    limit: int = 100


class RunCommand(_Operation, frozen=True, kw_only=True, tag="run_command"):
    """A shell command and what it prints."""

    command: str
    directory: str = "."
    timeout_ms: int | None = None


Operation = ReadFile | WriteFile | EditFile | ListFiles | SearchFiles | RunCommand


class Runtime(Protocol):
    """Where tools with ``requires_runtime`` do their work."""

    name: str

    async def connect(self) -> None:
        """Get ready; doing it twice changes nothing."""
        ...

    async def close(self) -> None:
        """End what runs and give everything back."""
        ...

    @property
    def status(self) -> Literal["closed", "connected"]:
        """Whether it can be used now."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """The kinds of operation it takes."""
        ...

    async def execute(self, operation: Operation) -> ToolOutput:
        """Do it; `ToolError` says why not. Cancelling it ends what it started."""
        ...

    async def get_init_data(self) -> dict[str, Any]:
        """What a session should know about this runtime, as JSON."""
        ...

    def get_hints(self) -> str:
        """What a model should know to use it well."""
        ...
