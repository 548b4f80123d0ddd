"""Files that may be compressed: Codex compresses transcripts that were not used for a while."""

import os
from pathlib import Path
from typing import Final

from bartack.app.errors import with_hint
from bartack.app.extras import install_command
from bartack.nouns.errors import BartackError, ErrorCode

__all__ = ["COMPRESSED", "file_data"]

COMPRESSED: Final = ".zst"  # the end of the name of a compressed file
MAX_SIZE: Final = 2**30  # bytes of one file, decompressed: memory holds some ten times as much while it is read


def file_data(path: Path, size: int | None = None) -> bytes:
    """The content of a file, or this many bytes of it, decompressed if necessary. One that is cut off ends early.

    Raises `BartackError` if it is too large or cannot be decompressed, and `OSError` if it cannot be read.
    """
    if path.suffix == COMPRESSED:
        return _decompressed(path, size)
    with path.open("rb") as file:
        if size is None and os.fstat(file.fileno()).st_size > MAX_SIZE:
            raise BartackError(f"{path} has more than {MAX_SIZE >> 20} MB.", code=ErrorCode.INVALID_VALUE)
        return file.read(-1 if size is None else size)


def _decompressed(path: Path, size: int | None) -> bytes:
    try:
        from zstandard import ZstdDecompressor, ZstdError  # noqa: PLC0415 - only for such files
    except ModuleNotFoundError as error:
        problem = f"{path} is compressed, and the library zstandard is not installed."
        hint = f"Run: {install_command('zstandard')}"
        raise with_hint(BartackError(problem, code=ErrorCode.INVALID_CONFIG, cause=error), hint) from error
    try:
        with path.open("rb") as file, ZstdDecompressor().stream_reader(file, read_across_frames=True) as reader:
            data = reader.read(MAX_SIZE + 1 if size is None else size)
    except ZstdError as error:
        raise BartackError(
            f"{path} cannot be decompressed: {error}", code=ErrorCode.INVALID_VALUE, cause=error
        ) from error
    if len(data) > MAX_SIZE:
        problem = f"{path} has more than {MAX_SIZE >> 20} MB when it is decompressed."
        raise BartackError(problem, code=ErrorCode.INVALID_VALUE)
    return data
