"""`EditorRuntime`: the files and commands of a directory, accessed through the editor if it supports that.

Reads include unsaved changes, writes go to the editor's buffers, and commands run in its terminals. Which paths are
accessible is decided here, as in `LocalRuntime`.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from acp import Client, RequestError
from acp.schema import ClientCapabilities, EnvVariable

from bartack.nouns.errors import ToolError
from bartack.tools import LocalRuntime
from bartack.tools.file_changes import planned_change
from bartack.tools.file_operations import FileContent, changed_text, content_of, stored_content
from bartack.tools.local_runtime import CommandOptions, command_output
from bartack.tools.notebooks import is_notebook
from bartack.tools.output import ToolOutput
from bartack.tools.preview import PreviewChanged
from bartack.tools.runtime import EditFile, Operation, ReadFile, RunCommand, WriteFile
from bartack.tools.sandbox import ABSENT
from bartack.tools.shell import CommandResult, OnOutput

__all__ = ["EditorRuntime"]

_MAX_OUTPUT_BYTES = 1_000_000


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
        **commands: Unpack[CommandOptions],
    ) -> None:
        super().__init__(root, forbidden=forbidden, **commands)
        self._editor = editor
        self._session_id = session_id
        files = None if offers is None else offers.fs
        self._reads = bool(files and files.read_text_file)
        self._writes = bool(files and files.write_text_file)
        self._terminal = bool(offers and offers.terminal)

    async def preview(self, operation: Operation) -> dict[str, Any] | None:
        """What the operation would do; for a change, to the file as it is in the editor."""
        try:
            match operation:
                case WriteFile() | EditFile() if self._changes(operation):
                    return planned_change(operation, await self._content(operation.path)).as_json()
                case _:
                    return await super().preview(operation)
        except RequestError as error:
            raise ToolError(f"The editor refused: {error}") from None

    async def execute(
        self, operation: Operation, *, preview: dict[str, Any] | None = None, on_output: OnOutput | None = None
    ) -> ToolOutput:
        """Perform an operation."""
        try:
            match operation:
                case ReadFile() if self._reads:
                    return await self._read(operation)
                case WriteFile() | EditFile() if self._changes(operation):
                    return await self._change(operation, preview)
                case RunCommand(background=False) if self._terminal:
                    return await self._run_in_terminal(operation)
                case _:
                    return await super().execute(operation, preview=preview, on_output=on_output)
        except RequestError as error:
            raise ToolError(f"The editor refused: {error}") from None

    async def _read(self, operation: ReadFile) -> ToolOutput:
        stored = await super().execute(operation)  # checks the path, and reads images
        if not isinstance(stored.content, str) or is_notebook(operation.path):
            return stored
        path = str(self._path(operation.path))
        response = await self._editor.read_text_file(
            session_id=self._session_id, path=path, line=operation.offset, limit=operation.limit
        )
        return ToolOutput(response.content)

    def _changes(self, operation: WriteFile | EditFile) -> bool:
        """Whether the editor can make this change."""
        return self._writes and (self._reads or isinstance(operation, WriteFile))

    async def _change(self, operation: WriteFile | EditFile, preview: dict[str, Any] | None) -> ToolOutput:
        content = await self._content(operation.path)
        if preview is not None and preview["before"] != content.digest:
            raise PreviewChanged(f"{operation.path!r} has changed since the call was approved. Read it again.")
        text, message = changed_text(operation, content)
        path = str(await asyncio.to_thread(self._writable_path, operation.path))
        await self._editor.write_text_file(session_id=self._session_id, path=path, content=text)
        return ToolOutput(message, title=operation.path)

    async def _content(self, path: str) -> FileContent:
        """The content of a file as the editor has it, with unsaved changes."""
        stored = await asyncio.to_thread(stored_content, self.directory, path)
        if stored.digest == ABSENT or not self._reads:
            return stored
        editor_path = str(self._path(path))
        response = await self._editor.read_text_file(session_id=self._session_id, path=editor_path)
        return content_of(response.content.encode())

    async def _run_in_terminal(self, operation: RunCommand) -> ToolOutput:
        self.check_command(operation)
        directory, timeout_ms = self._path(operation.directory), self.timeout_ms(operation)
        (program, *arguments), variables = self.command_words(operation, directory)
        is_confined = self.sandbox is not None and not operation.unsandboxed
        creation = self._editor.create_terminal(
            session_id=self._session_id,
            command=program,
            args=arguments,
            cwd=str(directory),
            # A terminal of the editor has the user's environment, so that a confined command is given its own.
            env=[EnvVariable(name=name, value=value) for name, value in variables.items()] if is_confined else None,
            output_byte_limit=_MAX_OUTPUT_BYTES,
        )
        creating = asyncio.ensure_future(creation)
        try:
            terminal = await asyncio.shield(creating)
        except asyncio.CancelledError:  # the editor may create it nevertheless, and nobody else knows its id
            with suppress(RequestError):
                created = await creating
                await self._editor.release_terminal(session_id=self._session_id, terminal_id=created.terminal_id)
            raise
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
        text = output.output.encode()
        result = CommandResult(
            ending="timed_out" if is_late else "exited",
            exit_code=code,
            output=text,
            omitted_bytes=0,
            total_bytes=len(text),
            lines=len(text.splitlines()),
        )
        return command_output(operation, result, timeout_ms)

    # -- what may be reached

    def _path(self, path: str) -> Path:
        root = self.directory
        return root.path.joinpath(*root.parts(path))

    def _writable_path(self, path: str) -> Path:
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
