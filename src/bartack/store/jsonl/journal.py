"""The journal of a session in a JSONL store: one file of lines, started again with each generation's first batch.

Each line has a checksum. A line that a crash left incomplete, or that is damaged, ends the journal.
"""

import os
from itertools import takewhile
from pathlib import Path

from bartack.nouns import wire
from bartack.nouns.entries import MessageDeltaBatch
from bartack.store.checksums import seal, unseal
from bartack.store.files import write_file, write_synced
from bartack.store.live import read_batches

__all__ = ["is_damaged", "read_journal", "write_journal"]


def write_journal(path: Path, batch: MessageDeltaBatch | None) -> None:
    """Add a batch, or remove the journal. The caller holds the folder's lock."""
    if batch is None:
        path.unlink(missing_ok=True)
        return
    line = seal(wire.encode(batch)) + b"\n"
    if batch.number == 0:
        write_file(path, line)
        return
    write_synced(path, line, os.O_APPEND)


def read_journal(path: Path, generation: int, after: int) -> list[MessageDeltaBatch]:
    """The batches of another generation, or after this one."""
    texts = [text for text in takewhile(lambda text: text is not None, _texts(path)) if text is not None]
    return [batch for batch in read_batches(texts) if batch.generation != generation or batch.number > after]


def is_damaged(path: Path) -> bool:
    """Whether a complete line does not match its checksum, or one that must be complete is not."""
    return None in _texts(path)


def _texts(path: Path) -> list[bytes | None]:
    """The batches as JSON, None in place of those that are damaged. An incomplete last line does not count."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    texts = [unseal(line) for line in lines]
    if lines[-1] == b"" or _is_cut_off(lines[-1]):
        texts.pop()
    return texts


def _is_cut_off(line: bytes) -> bool:
    """Whether the line is the beginning of one, as after a crash: a whole one would end in its checksum."""
    return not line.rstrip().endswith(b'"}')
