"""One shell command: run in a session of its own, read up to a limit, ended with everything it started.

The command leads a process group. When it ends, runs out of time or is stopped, the whole group is ended: first asked
(SIGTERM), then killed. Its leader is collected only after that, so the group's number cannot have gone to a stranger.
A process that starts a session of its own leaves the group; against that, and against what a command does to files
outside of its directory, only approval helps.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

__all__ = ["Finished", "run_command", "scrubbed"]

# What a command needs to find its way. Everything else may be a secret and stays here.
_HARMLESS = {
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
}  # fmt: skip
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_LOOK_MS = 50  # how often the clock and the word to stop are looked at
_CHUNK = 65_536


class Finished(Struct, frozen=True, kw_only=True):
    """What came of a command."""

    how: Literal["exited", "timed_out", "stopped"]
    exit_code: int  # negative: the signal that ended it
    output: bytes
    left_out: int  # bytes between the beginning and the end that were not kept


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that no secret is in: a short list of known ones."""
    kept = {name: value for name, value in environment.items() if name in _HARMLESS or name.startswith("LC_")}
    return {"PATH": _DEFAULT_PATH, **kept}


def run_command(
    command: str,
    *,
    directory: Path,
    environment: Mapping[str, str],
    seconds: float,
    max_output_bytes: int,
    stop: threading.Event,
    grace_seconds: float = 1.0,
) -> Finished:
    """Run it to its end, its time limit or `stop`."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as pipe:
        os.set_blocking(pipe.fileno(), False)
        output = _Bounded(max_output_bytes)
        how = _watch(process, pipe.fileno(), output, time.monotonic() + seconds, stop)
        if how != "exited":
            _signal_group(process, signal.SIGTERM)
            _watch(process, pipe.fileno(), output, time.monotonic() + grace_seconds, threading.Event())
        _signal_group(process, signal.SIGKILL)
        process.wait()
        _read(pipe.fileno(), output)
    return Finished(how=how, exit_code=process.returncode, output=output.joined(), left_out=output.left_out)


def _watch(
    process: "subprocess.Popen[bytes]", pipe: int, output: "_Bounded", deadline: float, stop: threading.Event
) -> Literal["exited", "timed_out", "stopped"]:
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        if _has_exited(process):
            return "exited"
        if stop.is_set():
            return "stopped"
        left = deadline - time.monotonic()
        if left <= 0:
            return "timed_out"
        if poll.poll(min(_LOOK_MS, left * 1000)) and not _read(pipe, output, once=True):
            poll.unregister(pipe)  # everyone closed it, and the command still runs: poll only waits from here on


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the leader has ended; where the system can, without collecting it."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # nobody left; macOS says the second about ended ones
        pass


def _read(pipe: int, output: "_Bounded", *, once: bool = False) -> bool:
    """Take what is there; whether more may come."""
    while True:
        try:
            piece = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        if not piece:
            return False
        output.add(piece)
        if once:
            return True


class _Bounded:
    """The beginning and the end of what was printed."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0

    def add(self, piece: bytes) -> None:
        room = self._head_limit - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room < len(piece) else b""
        if len(self._tail) > 2 * self._tail_limit + _CHUNK:
            self._trim()

    def _trim(self) -> None:
        over = len(self._tail) - self._tail_limit
        if over > 0:
            self.left_out += over
            del self._tail[:over]

    def joined(self) -> bytes:
        self._trim()
        note = f"\n[... {self.left_out} bytes left out ...]\n".encode() if self.left_out else b""
        return bytes(self._head) + note + bytes(self._tail)
