"""`bartack chat` in a real terminal (tmux): keys in, screen out.

Home and all folders for data, configuration and cache are temporary. Waiting polls with a generous limit; the message
of a timeout contains the screen.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

__all__ = ["Terminal", "bartack", "chat_environment", "is_asking", "needs_tmux"]

LIMIT = 300.0  # seconds; only a hang takes this long
POLL = 0.03

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def chat_environment(folder: Path, base_url: str, **variables: str) -> dict[str, str]:
    """The environment of the commands: every folder is below `folder`, the provider is at `base_url`."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    return {
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "BARTACK_CACHE": str(folder / "cache"),
        "BARTACK_MODEL": "openai-compatible:test",
        "OPENAI_COMPATIBLE_BASE_URL": base_url,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "LANG": "C.UTF-8",
        "TERM": "tmux-256color",
        **variables,
    }


def bartack(*words: str, env: Mapping[str, str]) -> str:
    """The output of another command in the same project."""
    done = subprocess.run(
        [sys.executable, "-m", "bartack.cli", *words],
        env=dict(env),
        cwd=Path(env["HOME"], "project"),
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    return done.stdout


CHAT = (sys.executable, "-m", "bartack.cli", "chat")


class Terminal:
    """A tmux server with one window that runs `bartack chat`, or another program. Leaving the context ends both."""

    def __init__(
        self,
        env: Mapping[str, str],
        *words: str,
        columns: int = 100,
        rows: int = 40,
        program: Sequence[str] = CHAT,
    ) -> None:
        self._name = f"bartack-{uuid.uuid4().hex[:12]}"
        self.is_dumb = env["TERM"] == "dumb"
        self._pid_file = Path(env["HOME"], f"{self._name}.pid")
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
        command = shlex.join([*program, *words])
        inner = shlex.quote(f"echo $$ > {shlex.quote(str(self._pid_file))}; exec {command}")
        line = f'env -i {settings} sh -c {inner}; echo "[left with $?]"; exec sleep 1000'
        size = "-x", str(columns), "-y", str(rows)
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(Path(env["HOME"], "project")), line)
        self._tmux("set-option", "-g", "history-limit", "20000")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        socket = Path(self._tmux("display-message", "-p", "#{socket_path}").strip())
        self._tmux("kill-server")
        socket.unlink(missing_ok=True)  # tmux does not remove it
        deadline = time.monotonic() + LIMIT
        while self.is_alive():  # it still stores its end after SIGHUP
            assert time.monotonic() < deadline, "the chat is still running without a window"
            time.sleep(POLL)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, *words], capture_output=True, text=True, check=True, timeout=LIMIT
        )
        return done.stdout

    # -- typing

    def type(self, text: str) -> None:
        """Type the text, without Enter."""
        self._tmux("send-keys", "-l", "--", text)

    def key(self, *names: str) -> None:
        """Press keys, by tmux's names: Enter, Up, C-c, M-Enter."""
        self._tmux("send-keys", *names)

    def say(self, text: str) -> None:
        """Type the text and press Enter."""
        self.type(text)
        self.key("Enter")

    def paste(self, text: str) -> None:
        """Paste the text, with bracketed paste if the program enabled it."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-p")

    def bytes(self, data: bytes) -> None:
        """Send these bytes."""
        self._tmux("send-keys", "-H", *(f"{byte:x}" for byte in data))

    # -- the screen

    def screen(self) -> str:
        """The visible text."""
        return self._tmux("capture-pane", "-p", "-J")

    def colors(self) -> str:
        """The visible text with its escape sequences for colors."""
        return self._tmux("capture-pane", "-p", "-e")

    def scrollback(self) -> str:
        """The visible text and the scrollback, with wrapped lines joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def title(self) -> str:
        """The title of the window, which programs can change."""
        return self._tmux("display-message", "-p", "#{pane_title}").strip()

    def has_cursor(self) -> bool:
        """Whether the cursor is visible."""
        return self._tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"

    def wait_for(self, expected: str | Callable[[str], bool], *, scrolled: bool = False) -> str:
        """The screen (or the scrollback too) once it contains the text or satisfies the function."""
        deadline = time.monotonic() + LIMIT
        while True:
            text = self.scrollback() if scrolled else self.screen()
            if expected in text if isinstance(expected, str) else expected(text):
                return text
            if time.monotonic() > deadline:
                raise AssertionError(f"waited for {expected!r}; the screen is:\n{text}")
            time.sleep(POLL)

    def wait_for_prompt(self) -> str:
        """The screen once it shows an empty prompt."""
        return self.wait_for(is_at_prompt)

    def resize(self, columns: int, rows: int) -> None:
        """Resize the window."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def record(self, path: Path) -> None:
        """Record the bytes sent to the window from now on in a file."""
        self._tmux("pipe-pane", f"cat > {shlex.quote(str(path))}")

    # -- the process

    @property
    def pid(self) -> int:
        """The process id of the chat."""
        return int(self._pid_file.read_text())

    def is_alive(self) -> bool:
        """Whether the chat is running; a zombie is not."""
        try:
            words = ["ps", "-o", "state=", "-p", str(self.pid)]
        except (FileNotFoundError, ValueError):  # it was ended before it started
            return False
        state = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT).stdout.strip()
        return state not in {"", "Z"}

    def kill(self) -> None:
        """End the chat with SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_for("[left with 137]")


def is_asking(screen: str) -> bool:
    """Whether the chat waits for a decision about a tool call."""
    return screen.rstrip().endswith("[q] stop:")


def is_at_prompt(screen: str) -> bool:
    """Whether the line above the status line is an empty prompt; in plain text, the line below it."""
    lines = [line for line in screen.splitlines() if line.strip()]
    return len(lines) >= 2 and (
        lines[-2].rstrip() in {"›", ">"} or (lines[-1].rstrip() in {">", "You:"} and lines[-2].startswith("["))
    )
