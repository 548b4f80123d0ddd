"""Runs one command with a time limit and bounded output, and terminates everything it started.

The beginning and the end of the output are kept in memory. All of it goes to a log, as far as that may grow, from which
the rest can be read later.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from shutil import which
from typing import IO, Literal

from msgspec import Struct

__all__ = [
    "MACHINE_VARIABLES",
    "CommandResult",
    "OnOutput",
    "OutputBuffer",
    "run_command",
    "safe_environment",
    "shell_words",
]

# Variables that commands need. Any other variable may hold a secret and is passed on only if its name is given.
_SAFE_VARIABLES = frozenset(["LANG", "LANGUAGE", "LC_*", "TERM", "TZ", "COLORTERM", "NO_COLOR"])
MACHINE_VARIABLES = frozenset(
    """
    HOME LOGNAME PATH SHELL TMPDIR USER VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYENV_ROOT PYENV_VERSION NVM_DIR
    NVM_BIN VOLTA_HOME GOPATH GOROOT GOBIN CARGO_HOME RUSTUP_HOME JAVA_HOME ANDROID_HOME SDKMAN_DIR DOTNET_ROOT
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
    """.split()  # noqa: SIM905 - a list of words
)
"""Those of them that describe this machine and its user."""
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_POLL_MS = 50  # how often the deadline and the stop event are checked
_READ_BYTES = 65_536
_MAX_LOG_BYTES = 200_000_000

Ending = Literal["exited", "timed_out", "stopped"]


class CommandResult(Struct, frozen=True, kw_only=True):
    """How a command ended, and its output."""

    ending: Ending
    exit_code: int  # negative: the number of the signal that killed it
    output: bytes
    omitted_bytes: int  # dropped between the beginning and the end of the output
    total_bytes: int
    lines: int


OnOutput = Callable[[bytes], None]


def safe_environment(environment: Mapping[str, str], also: Sequence[str] = ()) -> dict[str, str]:
    """The environment reduced to variables that hold no secrets, and to those whose names match one of `also`."""
    names = (*_SAFE_VARIABLES, *MACHINE_VARIABLES, *also)
    variables = {
        name: value for name, value in environment.items() if any(fnmatchcase(name, pattern) for pattern in names)
    }
    return {"PATH": _DEFAULT_PATH, **variables}


@cache
def _shell() -> str:
    return which("bash", path=f"{_DEFAULT_PATH}:/opt/homebrew/bin") or "/bin/sh"


def shell_words(command: str) -> list[str]:
    """The words that run a command line: in bash, which models write for, or else in /bin/sh."""
    return [_shell(), "-c", command]


def run_command(
    words: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    max_output_bytes: int,
    stop: threading.Event,
    log: IO[bytes] | None = None,
    on_output: OnOutput | None = None,
    grace_s: float = 1.0,
) -> CommandResult:
    """Run a command until it exits, times out, or `stop` is set. `grace_s` is the time between SIGTERM and SIGKILL.

    All output goes to `log`, and to `on_output` while the command runs, in this thread.
    """
    process = subprocess.Popen(
        words,
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
        output = OutputBuffer(max_output_bytes, log, on_output)
        ending = _wait(process, pipe.fileno(), output, time.monotonic() + timeout_s, stop)
        if ending != "exited":
            _signal_group(process, signal.SIGTERM)
            _wait(process, pipe.fileno(), output, time.monotonic() + grace_s, threading.Event())
        _signal_group(process, signal.SIGKILL)
        process.wait()
        _read(pipe.fileno(), output)
    data = output.getvalue()
    return CommandResult(
        ending=ending,
        exit_code=process.returncode,
        output=data,
        omitted_bytes=output.omitted,
        total_bytes=output.total,
        lines=output.lines,
    )


def _wait(
    process: "subprocess.Popen[bytes]", pipe: int, output: "OutputBuffer", deadline: float, stop: threading.Event
) -> Ending:
    """Collect output until the process exits, the deadline passes, or `stop` is set."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        if _has_exited(process):
            return "exited"
        if stop.is_set():
            return "stopped"
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return "timed_out"
        if poll.poll(min(_POLL_MS, remaining_s * 1000)) and not _read(pipe, output, once=True):
            poll.unregister(pipe)  # the pipe is closed but the command still runs: from now on poll() only sleeps


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the leader has exited; checked without reaping it where the platform supports that."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # no process is left; macOS raises the second for zombies
        os.killpg(process.pid, number)


def _read(pipe: int, output: "OutputBuffer", *, once: bool = False) -> bool:
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


class OutputBuffer:
    """Keeps the beginning and the end of the output, up to a limit, and passes all of it on."""

    def __init__(self, limit: int, log: IO[bytes] | None = None, on_output: OnOutput | None = None) -> None:
        self._log = log
        self._log_room = _MAX_LOG_BYTES
        self._on_output = on_output
        self._ends_in_line = False
        self._newlines = 0
        self.total = 0
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.omitted = 0

    @property
    def lines(self) -> int:
        """The number of lines, also if the last one has no line feed."""
        return self._newlines + self._ends_in_line

    def add(self, data: bytes) -> None:
        """Take a piece of output."""
        self.total += len(data)
        self._newlines += data.count(b"\n")
        self._ends_in_line = not data.endswith(b"\n")
        if self._log is not None and self._log_room > 0:
            with suppress(OSError):  # the disk is full: the command can still be finished
                self._log.write(data[: self._log_room])
            self._log_room -= len(data)
        if self._on_output is not None:
            self._on_output(data)
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
        """The output, with a note in the place of what was dropped."""
        self._trim()
        note = f"\n[... {self.omitted} bytes omitted ...]\n".encode() if self.omitted else b""
        return bytes(self._head) + note + bytes(self._tail)
