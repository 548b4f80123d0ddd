"""Runs a command of the user in a terminal of its own, which the terminal of the chat shows and feeds.

The command gets a pseudo-terminal as its controlling terminal, so editors, pagers, password prompts and colors work,
and Ctrl-C reaches it as in a shell. Meanwhile keys are passed on as raw bytes. What it prints is shown as it arrives,
and the beginning and the end are kept for the model, as text.
"""

import fcntl
import os
import pty
import select
import subprocess
import termios
import threading
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bartack.nouns.terminal_control import without_terminal_control
from bartack.tools.shell import OutputBuffer, shell_words

__all__ = ["OwnCommand", "run_own_command"]

_KEPT_BYTES = 100_000  # the part of the output that the model gets
_POLL_S = 0.1  # how often the end of the command and the size of the window are checked
_READ_BYTES = 65_536
_FULL_SCREEN = b"\x1b[?1049h"  # switches to the alternate screen, which is not text
_NORMAL_TEXT = b"\x1b[0m\x1b[?25h"  # no colors, and a visible cursor, however the command has left them
# A session leader gets the first terminal that it opens as its controlling terminal.
_TAKE_TERMINAL = 'exec 0<>"$0" 1>&0 2>&0; exec "$@"'


class OwnCommand(NamedTuple):
    """What a command has left."""

    text: str  # its output without escape sequences, and how it ended if it failed
    exit_code: int
    was_full_screen: bool  # it was an editor or a pager, and its output is not text


def run_own_command(
    command: str, *, directory: Path, environment: Mapping[str, str], terminal: tuple[int, int], stop: threading.Event
) -> OwnCommand:
    """Run a command until it exits, or until `stop` is set. `terminal` has the descriptors of the user's terminal, to
    read keys from and to print on."""
    keys, screen = terminal
    master, slave = pty.openpty()
    try:
        _copy_size(screen, slave)
        process = subprocess.Popen(
            ["/bin/sh", "-c", _TAKE_TERMINAL, os.ttyname(slave), *shell_words(command)],
            cwd=directory,
            env=dict(environment),
            start_new_session=True,
        )
        output = OutputBuffer(_KEPT_BYTES)
        with _raw(keys):
            _pass_on(process, master, (keys, screen), output, stop)
        process.kill()  # no effect if it has exited
        exit_code = process.wait()
    finally:
        os.close(slave)
        os.close(master)  # what still runs in this terminal gets SIGHUP
    data = output.getvalue()
    if data and not data.endswith(b"\n"):
        os.write(screen, b"\r\n")
    os.write(screen, _NORMAL_TEXT)
    ending = (
        "" if exit_code == 0 else f"[exit code {exit_code}]" if exit_code > 0 else f"[killed by signal {-exit_code}]"
    )
    return OwnCommand("\n".join(filter(None, (_as_text(data), ending))), exit_code, _FULL_SCREEN in data)


def _pass_on(
    process: "subprocess.Popen[bytes]",
    master: int,
    terminal: tuple[int, int],
    output: OutputBuffer,
    stop: threading.Event,
) -> None:
    """Pass keys to the command and its output to the screen until it has exited."""
    keys, screen = terminal
    sources = [master, keys]
    while not stop.is_set():
        has_exited = process.poll() is not None
        _copy_size(screen, master)
        readable, _, _ = select.select(sources, [], [], 0 if has_exited else _POLL_S)
        if master in readable:
            data = _read(master)
            output.add(data)
            _write(screen, data)
        elif has_exited:
            return
        if keys in readable and not has_exited:
            typed = _read(keys)
            if not typed:  # the window was closed
                sources.remove(keys)
            _write(master, typed)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:  # Linux reports the end of a terminal as an error
        return b""


def _write(descriptor: int, data: bytes) -> None:
    with suppress(OSError):  # the other end was closed
        while data:
            data = data[os.write(descriptor, data) :]


def _copy_size(source: int, target: int) -> None:
    """Give a terminal the size of another one, which tells its programs if that is a change."""
    with suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(8))
        if size != fcntl.ioctl(target, termios.TIOCGWINSZ, bytes(8)):
            fcntl.ioctl(target, termios.TIOCSWINSZ, size)


@contextmanager
def _raw(keys: int) -> Iterator[None]:
    """Pass every key on, also Ctrl-C, and echo none."""
    before = termios.tcgetattr(keys)
    tty.setraw(keys, termios.TCSADRAIN)
    try:
        yield
    finally:
        with suppress(termios.error):  # the window was closed
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _as_text(data: bytes) -> str:
    """The output as lines. Of a line that was overwritten, such as a progress bar, the last version remains."""
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n").split("\n")
    return "\n".join(without_terminal_control(line.rstrip("\r").rpartition("\r")[2]) for line in lines)
