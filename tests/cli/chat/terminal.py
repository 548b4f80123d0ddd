"""`bartack chat` as a user has it: in a real terminal (tmux), with keys going in and a screen coming out.

Home and every folder for data, configuration and cache are temporary. Waits are polls with a generous limit; when one
runs out, the screen is in the message.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import pytest

__all__ = ["Terminal", "bartack", "needs_tmux", "place"]

LIMIT = 60.0  # seconds; a busy machine may be slow
POLL = 0.03

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux, which these tests type into, is not here")


def place(folder: Path, base_url: str, **more: str) -> dict[str, str]:
    """The whole environment of the commands: every folder is below `folder`, the provider is at `base_url`."""
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
        **more,
    }


def bartack(*words: str, env: Mapping[str, str]) -> str:
    """What another command prints, in the same project."""
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


class Terminal:
    """A tmux server of its own with one window in which `bartack chat` runs; leaving the context ends both."""

    def __init__(self, env: Mapping[str, str], *words: str, columns: int = 100, rows: int = 40) -> None:
        self._name = f"bartack-{uuid.uuid4().hex[:12]}"
        self._pid_file = Path(env["HOME"], f"{self._name}.pid")
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
        command = shlex.join([sys.executable, "-m", "bartack.cli", "chat", *words])
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
        socket.unlink(missing_ok=True)  # tmux leaves it behind
        deadline = time.monotonic() + LIMIT
        while self.is_alive():  # it hangs up, and has its end to write down
            assert time.monotonic() < deadline, "the chat goes on without a window"
            time.sleep(POLL)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, *words], capture_output=True, text=True, check=True, timeout=60
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
        """Paste the text, as terminals do that tell pasting from typing."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-p")

    def bytes(self, data: bytes) -> None:
        """Send these bytes."""
        self._tmux("send-keys", "-H", *(f"{byte:x}" for byte in data))

    # -- looking

    def screen(self) -> str:
        """What the window shows."""
        return self._tmux("capture-pane", "-p", "-J")

    def scrollback(self) -> str:
        """What the window shows and what has scrolled away, wrapped lines joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def title(self) -> str:
        """The title of the window, which programs can change."""
        return self._tmux("display-message", "-p", "#{pane_title}").strip()

    def wait_for(self, wish: str | Callable[[str], bool], *, whole: bool = False) -> str:
        """The screen (or all of the scrollback) once it holds the text, or as the function wants it."""
        deadline = time.monotonic() + LIMIT
        while True:
            seen = self.scrollback() if whole else self.screen()
            if wish in seen if isinstance(wish, str) else wish(seen):
                return seen
            if time.monotonic() > deadline:
                raise AssertionError(f"waited for {wish!r}; the screen is:\n{seen}")
            time.sleep(POLL)

    def wait_for_prompt(self) -> str:
        """The screen once it waits for the user with an empty prompt."""
        return self.wait_for(is_at_prompt)

    def resize(self, columns: int, rows: int) -> None:
        """Make the window another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def record(self, path: Path) -> None:
        """Write the bytes that the window gets from here on to a file."""
        self._tmux("pipe-pane", f"cat > {shlex.quote(str(path))}")

    # -- the process

    @property
    def pid(self) -> int:
        """Of the chat."""
        return int(self._pid_file.read_text())

    def is_alive(self) -> bool:
        """Whether the chat runs; one that is dead and was not buried yet does not."""
        try:
            words = ["ps", "-o", "state=", "-p", str(self.pid)]
        except (FileNotFoundError, ValueError):  # it was ended before it began
            return False
        state = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
        return state not in {"", "Z"}

    def kill(self) -> None:
        """End the chat as a crash does."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_for("[left with 137]")


def is_at_prompt(screen: str) -> bool:
    """Whether the last line but the status line is an empty prompt."""
    lines = [line for line in screen.splitlines() if line.strip()]
    return len(lines) >= 2 and lines[-2].rstrip() in {"›", ">"}
