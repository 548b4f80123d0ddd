"""Searching files: this process finds and reads them, a process of its own matches (see `matcher`)."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from bartack.nouns.errors import ToolError
from bartack.tools import matcher
from bartack.tools.confined import ConfinedRoot
from bartack.tools.operations import SearchFiles

__all__ = ["search"]

_MAX_FILE_BYTES = 2_000_000  # larger files are data
_MAX_TOTAL_BYTES = 200_000_000
_LINE_CHARS = 300


def search(root: ConfinedRoot, wish: SearchFiles, *, seconds: float, stop: threading.Event) -> list[str]:
    """The matches as ``path:line: text``; `ToolError` for a bad pattern or when time runs out."""
    pattern = re.escape(wish.pattern) if wish.literal else wish.pattern
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(f"not a regular expression: {error}") from None
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", matcher.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
    ended, late = threading.Event(), threading.Event()
    watch = threading.Thread(target=_kill_late, args=(process, seconds, stop, ended, late), daemon=True)
    watch.start()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _feed(process.stdin, root, wish, pattern, stop)
        output = process.stdout.read()
        process.wait()
    finally:
        ended.set()
        watch.join()
        process.kill()
        process.wait()
        _close(process.stdin)
        process.stdout.close()
    if late.is_set():
        raise ToolError("the search was stopped" if stop.is_set() else f"the search took more than {seconds:g} s")
    return [_written(line) for line in output.decode().splitlines()]


def _kill_late(
    process: "subprocess.Popen[bytes]",
    seconds: float,
    stop: threading.Event,
    ended: threading.Event,
    late: threading.Event,
) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.is_set():
        if ended.wait(0.05):
            return
    late.set()
    process.kill()


def _feed(pipe: IO[bytes], root: ConfinedRoot, wish: SearchFiles, pattern: str, stop: threading.Event) -> None:
    header = {"pattern": pattern, "ignoreCase": wish.ignore_case, "limit": wish.limit, "lineChars": _LINE_CHARS}
    try:
        pipe.write(json.dumps(header).encode() + b"\n")
        for path, data in _texts(root, wish):
            if stop.is_set():
                break
            pipe.write(json.dumps([path, len(data)]).encode() + b"\n" + data)
        pipe.close()
    except BrokenPipeError:
        pass  # it has enough, or was killed


def _texts(root: ConfinedRoot, wish: SearchFiles) -> Iterator[tuple[str, bytes]]:
    total = 0
    for path in _paths(root, wish.path):
        if wish.files is not None and not (fnmatch(path, wish.files) or fnmatch(Path(path).name, wish.files)):
            continue
        try:
            data = _text(root, path)
        except ToolError:
            continue  # gone, unreadable or no file any more
        total += len(data)
        if total > _MAX_TOTAL_BYTES:
            raise ToolError("too much to search; name a directory or a pattern for the files")
        if data:
            yield path, data


def _paths(root: ConfinedRoot, path: str) -> Iterator[str]:
    names = root.parts(path)
    if names and root.is_file(names):
        yield "/".join(names)
        return
    for found in root.walk(path, recursive=True):
        if found.is_file and found.info.st_size <= _MAX_FILE_BYTES:
            yield found.path


def _text(root: ConfinedRoot, path: str) -> bytes:
    with root.file(path) as (fd, _):
        data = os.read(fd, _MAX_FILE_BYTES)
    return b"" if b"\0" in data[:8_192] else data


def _written(line: str) -> str:
    path, number, text = json.loads(line)
    return f"{path}:{number}: {text}"


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        pass
