"""Undo for write_file and edit_file: the previous content of each file is kept so that it can be restored.

`CheckpointRuntime` keeps the old content under its digest in the user's data folder, and stores the digests before and
after with the result of the call. The session itself thus records what was changed, and any later process can undo it.
A file that has changed since, by the user or a command, is never overwritten.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from bartack.app.file_changes import counts, diff_rows
from bartack.nouns.entries import Entry
from bartack.nouns.errors import ToolError
from bartack.nouns.messages import Message
from bartack.tools import LocalRuntime
from bartack.tools.output import ToolOutput
from bartack.tools.runtime import EditFile, Operation, WriteFile
from bartack.tools.sandbox import SandboxedDirectory

CHECKPOINT = "checkpoint"  # the key in the metadata of a result
_MAX_BYTES = 10_000_000  # of a file; larger ones are not kept
_KEPT_DAYS = 30


class Checkpoint(msgspec.Struct, frozen=True):
    """A change of one file: the digest of its content before and after; None where there was no file."""

    path: str
    before: str | None
    after: str | None


class Restored(NamedTuple):
    """The outcome for one file."""

    path: str
    outcome: Literal["restored", "deleted", "unchanged", "changed since", "no longer kept"]


class CheckpointFolder:
    """Contents by their digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, data: bytes) -> str:
        """Store the content and return its digest."""
        digest = sha256(data).hexdigest()
        path = self._folder / digest
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(".new")
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
            for path in self._folder.iterdir():
                if path.stat().st_mtime < oldest:
                    path.unlink()


class CheckpointRuntime(LocalRuntime):
    """A directory whose files can be restored."""

    def __init__(self, root: Path, *, kept: CheckpointFolder, forbidden: Iterable[Path] = ()) -> None:
        super().__init__(root, forbidden=forbidden)
        self._kept = kept

    async def execute(self, operation: Operation) -> ToolOutput:
        """Perform an operation; what a write or edit replaces is kept first."""
        if not isinstance(operation, WriteFile | EditFile):
            return await super().execute(operation)
        try:
            before, digest = await asyncio.to_thread(self._kept_content, operation.path)
        except (OSError, ToolError):  # too large, or the disk is full; or the operation itself will fail and report why
            return await super().execute(operation)
        output = await super().execute(operation)
        with suppress(ToolError):  # deleted in the meantime
            after = await asyncio.to_thread(_read, self.directory, operation.path)
            metadata = _metadata("/".join(self.directory.parts(operation.path)), before, digest, after)
            return msgspec.structs.replace(output, metadata={**(output.metadata or {}), **metadata})
        return output

    def _kept_content(self, path: str) -> tuple[bytes | None, str | None]:
        before = _read(self.directory, path)
        return before, None if before is None else self._kept.keep(before)


def _metadata(path: str, before: bytes | None, digest: str | None, after: bytes | None) -> dict[str, Any]:
    """The checkpoint, and how many lines were added and removed."""
    point = Checkpoint(path, digest, None if after is None else sha256(after).hexdigest())
    texts = [(data or b"").decode("utf-8", "replace") for data in (before, after)]
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
    found = []
    for entry in entries:
        if not isinstance(entry.fact, Message):
            continue
        for result in entry.fact.tool_results:
            with suppress(msgspec.ValidationError):  # metadata of another program
                found.append(msgspec.convert((result.metadata or {}).get(CHECKPOINT), Checkpoint))
    return found


def restore(directory: SandboxedDirectory, kept: CheckpointFolder, points: Sequence[Checkpoint]) -> list[Restored]:
    """Give every file the content that it had before the first of these changes."""
    first: dict[str, Checkpoint] = {}
    for point in points:
        known = first.get(point.path, point)
        first[point.path] = Checkpoint(point.path, known.before, point.after)
    return [_restored(directory, kept, point) for point in first.values()]


def _restored(directory: SandboxedDirectory, kept: CheckpointFolder, point: Checkpoint) -> Restored:
    try:
        now = _read(directory, point.path)
    except ToolError:
        return Restored(point.path, "changed since")
    digest = None if now is None else sha256(now).hexdigest()
    if digest == point.before:
        return Restored(point.path, "unchanged")
    if digest != point.after:
        return Restored(point.path, "changed since")
    if point.before is None:
        directory.remove(point.path)
        return Restored(point.path, "deleted")
    data = kept.content(point.before)
    if data is None:
        return Restored(point.path, "no longer kept")
    directory.replace(point.path, data)
    return Restored(point.path, "restored")


def restored_text(found: Sequence[Restored]) -> str:
    """What was restored, in one sentence for each outcome."""
    sentences = {
        "restored": "Restored: {}.",
        "deleted": "Deleted, as they were new: {}.",
        "changed since": "Not restored, as they have been changed since: {}.",
        "no longer kept": "Not restored, as their content is no longer kept: {}.",
    }
    texts = []
    for outcome, sentence in sentences.items():
        paths = [one.path for one in found if one.outcome == outcome]
        if paths:
            texts.append(sentence.format(", ".join(paths)))
    return " ".join(texts)
