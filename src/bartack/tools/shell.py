"""Runs one shell command with a time limit and bounded output, and terminates everything it started.

The command leads its own session and process group. When it exits, times out or is stopped, the whole group is
terminated: SIGTERM first, then SIGKILL. The leader is reaped only after that, so that the group id cannot have been
reused by an unrelated process. A process that starts its own session leaves the group. Only approval protects
against that, and against what a command does to files outside its directory.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

__all__ = ["CommandResult", "run_command", "safe_environment"]

# Variables that commands need. Any other variable may hold a secret and is not passed on.
_SAFE_VARIABLES = {
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
}  # fmt: skip
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_POLL_MS = 50  # how often the deadline and the stop event are checked
_READ_BYTES = 65_536

Ending = Literal["exited", "timed_out", "stopped"]


class CommandResult(Struct, frozen=True, kw_only=True):
    """How a command ended, and its output."""

    ending: Ending
    exit_code: int  # negative: the number of the signal that killed it
    output: bytes
    omitted_bytes: int  # dropped between the beginning and the end of the output


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment reduced to variables that hold no secrets."""
    kept = {name: value for name, value in environment.items() if name in _SAFE_VARIABLES or name.startswith("LC_")}
    return {"PATH": _DEFAULT_PATH, **kept}


def run_command(
    command: str,
    *,
    directory: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    max_output_bytes: int,
    stop: threading.Event,
    grace_s: float = 1.0,
) -> CommandResult:
    """Run a command until it exits, times out, or `stop` is set. `grace_s` is the time between SIGTERM and SIGKILL."""
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
        output = _OutputBuffer(max_output_bytes)
        ending = _wait(process, pipe.fileno(), output, time.monotonic() + timeout_s, stop)
        if ending != "exited":
            _signal_group(process, signal.SIGTERM)
            _wait(process, pipe.fileno(), output, time.monotonic() + grace_s, threading.Event())
        _signal_group(process, signal.SIGKILL)
        process.wait()
        _read(pipe.fileno(), output)
    data = output.getvalue()
    return CommandResult(ending=ending, exit_code=process.returncode, output=data, omitted_bytes=output.omitted)


def _wait(
    process: "subprocess.Popen[bytes]", pipe: int, output: "_OutputBuffer", deadline: float, stop: threading.Event
) -> Ending:
    """Collect output until the process exits, the deadline passes, or `stop` is set."""
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
        if poll.poll(min(_POLL_MS, left * 1000)) and not _read(pipe, output, once=True):
            poll.unregister(pipe)  # the pipe is closed but the command still runs: from now on poll() only sleeps


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the leader has exited; checked without reaping it where the platform supports that."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # no process is left; macOS raises the second for zombies
        os.killpg(process.pid, number)


def _read(pipe: int, output: "_OutputBuffer", *, once: bool = False) -> bool:
    """Read what is available; False at the end of the pipe."""
    while True:
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        output.add(data)
        if once:
            return True


class _OutputBuffer:
    """Keeps the beginning and the end of the output, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.omitted = 0

    def add(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room < len(data) else b""
        if len(self._tail) > 2 * self._tail_limit + _READ_BYTES:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            self.omitted += excess
            del self._tail[:excess]

    def getvalue(self) -> bytes:
        self._trim()
        note = f"\n[... {self.omitted} bytes omitted ...]\n".encode() if self.omitted else b""
        return bytes(self._head) + note + bytes(self._tail)
