"""Forks that do not name their origin: `claude --fork-session` copies the records of a session into a new file.

Copied records keep their ids. So a file that begins with the same record as another one in its folder is a fork of it,
if it was begun later: the first record of its own is then newer than the copies after it. Of a session that was
compacted, only what follows the compaction is copied, so the first record can be anywhere in the other file.
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
_BOUNDARY = re.compile(rb'"subtype"\s*:\s*"compact_boundary"')
_TIME = re.compile(rb'"timestamp"\s*:\s*"([^"\\]{1,40})"')


class _Root(NamedTuple):
    id: bytes  # the id of the first record of the conversation
    started: bytes  # the first time in the file, as text that sorts
    is_compacted: bool  # whether the record is the beginning of a compaction


class _Head(NamedTuple):
    started: bytes
    path: Path


def origin_of(path: Path) -> Path | None:
    """The file that this one was copied from; None if there is none."""
    root = _root_in(path)
    if root is None:
        return None
    heads = _heads(path.parent, path.parent.stat().st_mtime_ns)
    siblings = [head for group in heads.values() for head in group] if root.is_compacted else heads.get(root.id, ())
    earlier = [head for head in siblings if head.started < root.started and head.path != path]
    if root.is_compacted:
        earlier = [head for head in earlier if root.id in _ids_in(head.path)]
    if not earlier:
        return None
    own = _ids_in(path)
    # A fork of a fork shares more with the one that it is from.
    return max(earlier, key=lambda head: (len(own & _ids_in(head.path)), [255 - byte for byte in head.started])).path


@lru_cache(maxsize=16)
def _heads(folder: Path, changed: int) -> Mapping[bytes, list[_Head]]:
    """The files of a folder by their first record."""
    heads: dict[bytes, list[_Head]] = defaultdict(list)
    for path in folder.glob("*.jsonl"):
        root = _root_in(path) if path.is_file() else None  # opening a pipe would wait for its other end
        if root is not None:
            heads[root.id].append(_Head(root.started, path))
    return heads


def _root_in(path: Path) -> _Root | None:
    """What the beginning of a file says about its conversation."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:  # removed meanwhile
        return None
    id, time = _ID.search(head), _TIME.search(head)
    if id is None or time is None:
        return None
    line = head[head.rfind(b"\n", 0, id.start()) + 1 :].partition(b"\n")[0]
    return _Root(id[1], time[1], _BOUNDARY.search(line) is not None)


def _ids_in(path: Path) -> set[bytes]:
    try:
        return set(_ID.findall(path.read_bytes()))
    except OSError:
        return set()
