"""In a real terminal (tmux), the scrollback contains every line once, whatever the size of the window."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.repository import import_path
from tests.code.terminal.scripted_run import MANY

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

PROGRAM = Path(__file__).with_name("scripted_run.py")
LIMIT = 300  # seconds; only a hang takes this long


class Terminal:
    """A tmux server with one window."""

    def __init__(self, home: Path) -> None:
        self._home = home  # the socket is there too, so no other server is affected

    def start(self, case: str, *, width: int, pause: float = 0.0) -> None:
        program = f"'{sys.executable}' '{PROGRAM}' {case} {pause}; sleep 600"
        size = ("-x", str(width), "-y", "20")
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "sleep 600")
        self._tmux("set-option", "-g", "history-limit", "10000")
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        self._tmux("new-window", "-k", "-t", "0", program)

    def resize(self, width: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", "20")

    def text(self) -> str:
        """The scrollback and the screen, with wrapped lines joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def wait_for(self, condition: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + LIMIT
        while not condition(text := self.text()):
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        return text

    def end(self) -> str:
        """The text at the end of the program."""
        return self.wait_for(lambda text: "END OF RUN" in text)

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "TMUX_TMPDIR": str(self._home),
            "PYTHONPATH": import_path(),
            "LC_ALL": "C.UTF-8",
        }
        command = ["tmux", "-L", "w", *words]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, encoding="utf-8")
        return done.stdout


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    opened = Terminal(tmp_path_factory.mktemp("t"))
    try:
        yield opened
    finally:
        opened.close()


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


@pytest.mark.parametrize("width", [40, 60])
def test_code_longer_than_the_window_is_printed_completely_and_once(terminal: Terminal, width: int) -> None:
    terminal.start("code", width=width)
    code = [f"  line_{n:03} = {n}" for n in range(MANY)]
    assert lines(terminal.end()) == ["Here it is:", "", *code, "", "Done with it.", "END OF RUN"]


def test_text_longer_than_the_window_is_printed_completely_and_once(terminal: Terminal) -> None:
    terminal.start("text", width=60)
    expected = [line for n in range(60) for line in (f"Paragraph {n:03} says something and ends.", "")]
    assert lines(terminal.end()) == [*expected[:-1], "END OF RUN"]


def test_only_the_results_of_tool_calls_remain(terminal: Terminal) -> None:
    terminal.start("tools", width=100)
    shown = lines(terminal.end())
    assert sum(line.startswith(("✓", "✗")) for line in shown) == 4
    assert sum("read_file" in line for line in shown) == 1
    assert shown[-3:] == ["", "All done.", "END OF RUN"]
    assert not any("thinking" in line or "awaiting" in line for line in shown)


def test_the_window_can_be_resized_during_an_answer(terminal: Terminal) -> None:
    terminal.start("text", width=80, pause=0.002)
    for place, width in ((5, 50), (20, 42), (35, 90)):
        terminal.wait_for(lambda text, place=place: f"Paragraph {place:03}" in text)  # type: ignore[misc]
        terminal.resize(width)
    shown = [line for line in lines(terminal.end()) if line]
    assert [line for line in shown if line.endswith("and ends.")] == [
        f"Paragraph {n:03} says something and ends." for n in range(60)
    ]
