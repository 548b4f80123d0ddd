"""Undo for write_file and edit_file: the previous content of each file is kept so that it can be restored.

`CheckpointRuntime` keeps the old content under its digest in the user's data folder, and stores the digests before and
after with the result of the call. The session itself thus records what was changed, and any later process can undo it.
A change that the user or a command made is never undone: a file that has changed since is left alone, and one that was
changed in between is restored as it was after that.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Unpack

import msgspec

from bartack.app.safe_text import safe_line
from bartack.nouns.entries import Entry
from bartack.nouns.errors import ToolError
from bartack.nouns.messages import Message
from bartack.tools import LocalRuntime
from bartack.tools.file_changes import counts, diff_rows
from bartack.tools.local_runtime import CommandOptions
from bartack.tools.output import ToolOutput
from bartack.tools.runtime import EditFile, Operation, WriteFile
from bartack.tools.sandbox import SandboxedDirectory
from bartack.tools.shell import OnOutput

CHECKPOINT = "checkpoint"  # the key in the metadata of a result
_MAX_BYTES = 10_000_000  # larger files are not kept
_KEPT_DAYS = 30


class Checkpoint(msgspec.Struct, frozen=True):
    """A change of one file: the digest of its content before and after; None where there was no file."""

    path: str
    before: str | None
    after: str | None


class Restored(NamedTuple):
    """The outcome for one file."""

    path: str
    outcome: Literal["restored", "deleted", "unchanged", "in part", "changed since", "no longer kept", "not writable"]


class CheckpointFolder:
    """Contents by their digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, data: bytes) -> str:
        """Store the content and return its digest."""
        digest = sha256(data).hexdigest()
        path = self._folder / digest
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(f".{secrets.token_hex(4)}.new")  # two files of the same content may be kept at once
        draft.write_bytes(data)
        draft.replace(path)
        return digest

    def content(self, digest: str) -> bytes | None:
        """The content with this digest; None if it is not there or damaged."""
        try:
            data = (self._folder / digest).read_bytes()
        except OSError:
            return None
        return data if sha256(data).hexdigest() == digest else None

    def prune(self) -> None:
        """Delete what was kept for longer than a month."""
        oldest = time.time() - _KEPT_DAYS * 86_400
        with suppress(OSError):
            for path in list(self._folder.iterdir()):
                with suppress(OSError):  # another chat may be deleting it, too
                    if path.stat().st_mtime < oldest:
                        path.unlink()


class CheckpointRuntime(LocalRuntime):
    """A directory whose files can be restored."""

    def __init__(
        self,
        root: Path,
        *,
        contents: CheckpointFolder,
        forbidden: Iterable[Path] = (),
        commands: bool = True,
        **options: Unpack[CommandOptions],
    ) -> None:
        super().__init__(root, forbidden=forbidden, commands=commands, **options)
        self._contents = contents

    async def execute(
        self, operation: Operation, *, preview: dict[str, Any] | None = None, on_output: OnOutput | None = None
    ) -> ToolOutput:
        """Perform an operation; what a write or edit replaces is kept first."""
        if not isinstance(operation, WriteFile | EditFile):
            return await super().execute(operation, preview=preview, on_output=on_output)
        try:
            old_content, digest = await asyncio.to_thread(self._kept_content, operation.path)
        except (OSError, ToolError):  # too large, or the disk is full; or the operation itself will fail and report why
            return await super().execute(operation, preview=preview)
        output = await super().execute(operation, preview=preview)
        with suppress(ToolError):  # deleted in the meantime
            new_content = await asyncio.to_thread(_read, self.directory, operation.path)
            metadata = _metadata("/".join(self.directory.parts(operation.path)), old_content, digest, new_content)
            return msgspec.structs.replace(output, metadata={**(output.metadata or {}), **metadata})
        return output

    def _kept_content(self, path: str) -> tuple[bytes | None, str | None]:
        before = _read(self.directory, path)
        return before, None if before is None else self._contents.keep(before)


def _metadata(path: str, old_content: bytes | None, digest: str | None, new_content: bytes | None) -> dict[str, Any]:
    """The checkpoint, and how many lines were added and removed."""
    point = Checkpoint(path, digest, None if new_content is None else sha256(new_content).hexdigest())
    texts = [(data or b"").decode("utf-8", "replace") for data in (old_content, new_content)]
    added, removed = counts(diff_rows(texts[0], texts[1], 0))
    return {CHECKPOINT: msgspec.to_builtins(point), "additions": added, "deletions": removed}


def _read(directory: SandboxedDirectory, path: str) -> bytes | None:
    """The content of a file; None if there is none. Raises `ToolError` if it cannot be read, or is too large."""
    try:
        with directory.file(path) as (fd, info):
            if info.st_size > _MAX_BYTES:
                raise ToolError(f"{path!r} is too large to be kept.")
            with open(fd, "rb", closefd=False) as file:
                return file.read()
    except ToolError as error:
        if isinstance(error.cause, FileNotFoundError):
            return None
        raise


# -- restoring


def checkpoints_in(entries: Iterable[Entry]) -> list[Checkpoint]:
    """The changes that these entries record, in order."""
    checkpoints = []
    for entry in entries:
        if not isinstance(entry.fact, Message):
            continue
        for result in entry.fact.tool_results:
            with suppress(msgspec.ValidationError):  # metadata of another program
                checkpoints.append(msgspec.convert((result.metadata or {}).get(CHECKPOINT), Checkpoint))
    return checkpoints


def restore(directory: SandboxedDirectory, contents: CheckpointFolder, points: Sequence[Checkpoint]) -> list[Restored]:
    """Give every file the content that it had before the first of these changes, or after the last change between them
    that someone else made."""
    spans: dict[str, _Span] = {}
    for point in points:
        earlier = spans.get(point.path)
        if earlier is None:
            spans[point.path] = _Span(point, is_whole=True)
        elif point.before == earlier.point.after:
            spans[point.path] = _Span(Checkpoint(point.path, earlier.point.before, point.after), earlier.is_whole)
        else:
            spans[point.path] = _Span(point, is_whole=False)
    return [_restore_file(directory, contents, span) for span in spans.values()]


class _Span(NamedTuple):
    """Successive changes of a file as one, and whether they are all that there were."""

    point: Checkpoint
    is_whole: bool


def _restore_file(directory: SandboxedDirectory, contents: CheckpointFolder, span: _Span) -> Restored:
    point = span.point
    try:
        current = _read(directory, point.path)
    except ToolError:
        return Restored(point.path, "changed since")
    digest = None if current is None else sha256(current).hexdigest()
    if digest == point.before:
        return Restored(point.path, "unchanged" if span.is_whole else "in part")
    if digest != point.after:
        return Restored(point.path, "changed since")
    data = None if point.before is None else contents.content(point.before)
    if point.before is not None and data is None:
        return Restored(point.path, "no longer kept")
    try:
        if data is None:
            directory.remove(point.path)
        else:
            directory.replace(point.path, data)
    except ToolError:
        return Restored(point.path, "not writable")
    if not span.is_whole:
        return Restored(point.path, "in part")
    return Restored(point.path, "deleted" if data is None else "restored")


def restored_text(files: Sequence[Restored]) -> str:
    """What was restored, in one sentence for each outcome."""
    sentences = {
        "restored": "Restored: {}.",
        "deleted": "Deleted, as they were new: {}.",
        "in part": "Restored as of the last change that write_file and edit_file did not make: {}.",
        "changed since": "Not restored, as they have been changed since: {}.",
        "no longer kept": "Not restored, as their content is no longer kept: {}.",
        "not writable": "Not restored, as they cannot be written: {}.",
    }
    texts = []
    for outcome, sentence in sentences.items():
        paths = [safe_line(file.path) for file in files if file.outcome == outcome]
        if paths:
            texts.append(sentence.format(", ".join(paths)))
    return " ".join(texts)
