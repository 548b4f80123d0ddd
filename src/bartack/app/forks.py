"""Forks that do not name their origin: `claude --fork-session` copies the records of a session into a new file.

Copied records keep their ids. So a file that begins with the same record as another one in its folder is a fork of it,
if it was begun later: the first record of its own is then newer than the copies after it.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["origin_of"]

_HEAD = 64 * 1024  # bytes in which the first record of the conversation is
_ID = re.compile(rb'"uuid"\s*:\s*"([^"\\]{1,64})"')
_TIME = re.compile(rb'"timestamp"\s*:\s*"([^"\\]{1,40})"')


class _Head(NamedTuple):
    begun: bytes  # the first time in the file, as text that sorts
    path: Path


def origin_of(path: Path) -> str | None:
    """The name of the file, without its ending, that this one was copied from; None if there is none."""
    root = _root_in(path)
    if root is None:
        return None
    begun, siblings = root[1], _heads(path.parent, path.parent.stat().st_mtime_ns).get(root[0], ())
    earlier = [head for head in siblings if head.begun < begun and head.path != path]
    if not earlier:
        return None
    own = _ids_in(path)
    # A fork of a fork shares more with the one that it is from.
    return max(earlier, key=lambda head: (len(own & _ids_in(head.path)), [255 - byte for byte in head.begun])).path.stem


@lru_cache(maxsize=16)
def _heads(folder: Path, changed: int) -> Mapping[bytes, list[_Head]]:
    """The files of a folder by their first record."""
    found: dict[bytes, list[_Head]] = defaultdict(list)
    for path in folder.glob("*.jsonl"):
        root = _root_in(path) if path.is_file() else None  # opening a pipe would wait for its other end
        if root is not None:
            found[root[0]].append(_Head(root[1], path))
    return found


def _root_in(path: Path) -> tuple[bytes, bytes] | None:
    """The id of the first record of the conversation, and the first time in the file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:  # removed meanwhile
        return None
    id, time = _ID.search(head), _TIME.search(head)
    return None if id is None or time is None else (id[1], time[1])


def _ids_in(path: Path) -> set[bytes]:
    try:
        return set(_ID.findall(path.read_bytes()))
    except OSError:
        return set()
