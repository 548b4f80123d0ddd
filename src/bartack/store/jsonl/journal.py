"""The journal of a session in a JSONL store: one file of lines, started again with each generation's first batch."""

import os
from pathlib import Path

from bartack.nouns import wire
from bartack.nouns.entries import MessageDeltaBatch
from bartack.store.files import write_file, write_synced
from bartack.store.live import read_batches

__all__ = ["read_journal", "write_journal"]


def write_journal(path: Path, batch: MessageDeltaBatch | None) -> None:
    """Add a batch, or remove the journal. The caller holds the folder's lock."""
    if batch is None:
        path.unlink(missing_ok=True)
        return
    line = wire.encode(batch) + b"\n"
    if batch.number == 0:
        write_file(path, line)
        return
    write_synced(path, line, os.O_APPEND)


def read_journal(path: Path, generation: int, after: int) -> list[bytes]:
    """The batches as JSON; a line that a crash left incomplete ends them."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    batches = zip(read_batches(lines), lines, strict=False)
    return [line for batch, line in batches if batch.generation != generation or batch.number > after]
