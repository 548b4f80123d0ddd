"""Ready tools for working in a directory: `file_tools()` for an agent that has a runtime.

Reading, listing and searching need nobody's leave; writing, editing and commands need approval. What changes things
runs one at a time, in the order of the calls.
"""

from bartack.tools.definition import ToolDefinition, tool
from bartack.tools.operations import EditFile, ListFiles, ReadFile, RunCommand, SearchFiles, WriteFile
from bartack.tools.output import ToolOutput
from bartack.tools.tool_context import ToolContext

__all__ = ["edit_file", "file_tools", "list_files", "read_file", "run_command", "search_files", "write_file"]

_COMMAND_TIMEOUT_MS = 3_600_000  # the runtime's own limit comes first; this one is for a runtime that hangs


@tool(requires_runtime=True, idempotent=True, max_output_chars=60_000)
async def read_file(path: str, ctx: ToolContext, offset: int = 1, limit: int = 2_000) -> ToolOutput:
    """Read a text file, or look at a picture.

    Args:
        path: The file, relative to the working directory.
        offset: The first line to read; 1 is the first of the file.
        limit: How many lines to read.
    """
    output: ToolOutput = await ctx.runtime.execute(ReadFile(path=path, offset=offset, limit=limit))
    return output


@tool(requires_runtime=True, requires_approval=True, sequential=True)
async def write_file(path: str, text: str, ctx: ToolContext) -> ToolOutput:
    """Write a file, replacing what was there; missing directories are made.

    Args:
        path: The file, relative to the working directory.
        text: The whole new content.
    """
    output: ToolOutput = await ctx.runtime.execute(WriteFile(path=path, text=text))
    return output


@tool(requires_runtime=True, requires_approval=True, sequential=True)
async def edit_file(path: str, old: str, new: str, ctx: ToolContext, everywhere: bool = False) -> ToolOutput:
    """Replace a piece of text in a file. The text must stand in the file exactly once, unless everywhere is true.

    Args:
        path: The file, relative to the working directory.
        old: The text to replace, copied exactly, with enough around it to be the only such place.
        new: The text to put there.
        everywhere: Replace every place.
    """
    output: ToolOutput = await ctx.runtime.execute(EditFile(path=path, old=old, new=new, everywhere=everywhere))
    return output


@tool(requires_runtime=True, idempotent=True)
async def list_files(
    ctx: ToolContext, path: str = ".", recursive: bool = False, pattern: str | None = None, limit: int = 1_000
) -> ToolOutput:
    """List the files of a directory.

    Args:
        path: The directory, relative to the working directory.
        recursive: List what is below it too.
        pattern: Only names or paths like this, for example *.py.
        limit: How many to list at most.
    """
    wish = ListFiles(path=path, recursive=recursive, pattern=pattern, limit=limit)
    output: ToolOutput = await ctx.runtime.execute(wish)
    return output


@tool(requires_runtime=True, idempotent=True)
async def search_files(
    pattern: str,
    ctx: ToolContext,
    *,
    path: str = ".",
    files: str | None = None,
    literal: bool = False,
    ignore_case: bool = False,
    limit: int = 100,
) -> ToolOutput:
    """Find the lines of text files that match a regular expression.

    Args:
        pattern: A regular expression in Python's syntax.
        path: The directory or file to search, relative to the working directory.
        files: Only files with names or paths like this, for example *.py.
        literal: Take the pattern as plain text.
        ignore_case: Take capital and small letters as the same.
        limit: How many matches to give at most.
    """
    wish = SearchFiles(pattern=pattern, path=path, files=files, literal=literal, ignore_case=ignore_case, limit=limit)
    output: ToolOutput = await ctx.runtime.execute(wish)
    return output


@tool(requires_runtime=True, requires_approval=True, sequential=True, timeout_ms=_COMMAND_TIMEOUT_MS)
async def run_command(
    command: str, ctx: ToolContext, directory: str = ".", timeout_ms: int | None = None
) -> ToolOutput:
    """Run a shell command and give what it prints. It gets no input; what it leaves in the background is ended.

    Args:
        command: The command, for /bin/sh.
        directory: Where to run it, relative to the working directory.
        timeout_ms: How long it may take, in milliseconds.
    """
    wish = RunCommand(command=command, directory=directory, timeout_ms=timeout_ms)
    output: ToolOutput = await ctx.runtime.execute(wish)
    return output


def file_tools() -> tuple[ToolDefinition, ...]:
    """All of them."""
    return (read_file, write_file, edit_file, list_files, search_files, run_command)
