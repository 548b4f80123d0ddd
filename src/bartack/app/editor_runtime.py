"""`EditorRuntime`: the files and commands of a directory, accessed through the editor if it supports that.

Reads include unsaved changes, writes go to the editor's buffers, and commands run in its terminals. Which paths are
accessible is decided here, as in `LocalRuntime`.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from acp import Client, RequestError
from acp.schema import ClientCapabilities

from bartack.app.file_changes import FileChange, planned_change
from bartack.nouns.errors import ToolError
from bartack.tools import LocalRuntime
from bartack.tools.file_operations import edited
from bartack.tools.local_runtime import command_output
from bartack.tools.output import ToolOutput
from bartack.tools.runtime import EditFile, Operation, ReadFile, RunCommand, WriteFile
from bartack.tools.shell import CommandResult

__all__ = ["EditorRuntime"]

_MAX_OUTPUT_BYTES = 1_000_000
_TIMEOUT_MS = 120_000


class EditorRuntime(LocalRuntime):
    """A directory that is open in an editor."""

    name = "editor"

    def __init__(
        self,
        root: Path,
        *,
        editor: Client,
        session_id: str,
        offers: ClientCapabilities | None,
        forbidden: Iterable[str | Path] = (),
    ) -> None:
        super().__init__(root, forbidden=forbidden)
        self._editor = editor
        self._session_id = session_id
        files = None if offers is None else offers.fs
        self._reads = bool(files and files.read_text_file)
        self._writes = bool(files and files.write_text_file)
        self._terminal = bool(offers and offers.terminal)

    async def execute(self, operation: Operation) -> ToolOutput:
        """Perform an operation."""
        try:
            match operation:
                case ReadFile() if self._reads:
                    return await self._read(operation)
                case WriteFile() if self._writes:
                    return await self._write(operation)
                case EditFile() if self._reads and self._writes:
                    return await self._edit(operation)
                case RunCommand() if self._terminal:
                    return await self._run_in_terminal(operation)
                case _:
                    return await super().execute(operation)
        except RequestError as error:
            raise ToolError(f"The editor refused: {error}") from None

    async def _read(self, operation: ReadFile) -> ToolOutput:
        stored = await super().execute(operation)  # checks the path, and reads images
        if not isinstance(stored.content, str):
            return stored
        path = str(self._path(operation.path))
        found = await self._editor.read_text_file(
            session_id=self._session_id, path=path, line=operation.offset, limit=operation.limit
        )
        return ToolOutput(found.content)

    async def _write(self, operation: WriteFile) -> ToolOutput:
        path = await asyncio.to_thread(self._writable, operation.path)
        await self._editor.write_text_file(session_id=self._session_id, path=str(path), content=operation.text)
        return ToolOutput(f"Wrote {operation.path} ({len(operation.text.encode())} bytes).", title=operation.path)

    async def _edit(self, operation: EditFile) -> ToolOutput:
        path = str(await asyncio.to_thread(self._writable, operation.path))
        text = (await self._editor.read_text_file(session_id=self._session_id, path=path)).content
        changed, message = edited(text, operation)
        await self._editor.write_text_file(session_id=self._session_id, path=path, content=changed)
        return ToolOutput(message, title=operation.path)

    async def _run_in_terminal(self, operation: RunCommand) -> ToolOutput:
        directory = self._path(operation.directory)
        timeout_ms = min(operation.timeout_ms or _TIMEOUT_MS, _TIMEOUT_MS)
        terminal = await self._editor.create_terminal(
            session_id=self._session_id,
            command="/bin/sh",
            args=["-c", operation.command],
            cwd=str(directory),
            output_byte_limit=_MAX_OUTPUT_BYTES,
        )
        ids = {"session_id": self._session_id, "terminal_id": terminal.terminal_id}
        code, is_late = 0, False
        try:
            ended = await asyncio.wait_for(self._editor.wait_for_terminal_exit(**ids), timeout_ms / 1000)
            code = ended.exit_code if ended.exit_code is not None else -1
        except TimeoutError:
            is_late = True
            await self._editor.kill_terminal(**ids)
        finally:
            output = await self._editor.terminal_output(**ids)
            await self._editor.release_terminal(**ids)
        result = CommandResult(
            ending="timed_out" if is_late else "exited", exit_code=code, output=output.output.encode(), omitted_bytes=0
        )
        return command_output(operation, result, timeout_ms)

    async def planned_change(self, tool: str, arguments: Mapping[str, Any]) -> FileChange | None:
        """What a call would do to a file as it is in the editor; None if that is not known."""
        change = await asyncio.to_thread(planned_change, self.directory, tool, arguments)
        if change is not None and change.before is not None and self._reads:
            path = str(self._path(change.path))
            with suppress(RequestError):
                found = await self._editor.read_text_file(session_id=self._session_id, path=path)
                change = planned_change(self.directory, tool, arguments, unsaved=found.content)
        return None if change is None or change.problem is not None else change

    # -- what may be reached

    def _path(self, path: str) -> Path:
        root = self.directory
        return root.path.joinpath(*root.parts(path))

    def _writable(self, path: str) -> Path:
        """The path, if it is inside the directory and leads through no link; missing directories are created."""
        root = self.directory
        names = root.parts(path)
        with root.directory(names[:-1], create=True):
            pass
        try:
            with root.file(path):
                pass
        except ToolError as error:
            if not isinstance(error.cause, FileNotFoundError):
                raise
        return root.path.joinpath(*names)
