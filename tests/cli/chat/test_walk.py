"""A working day in a terminal: one chat uses every feature, in windows of different sizes and kinds."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.cli.chat.gates import Gated
from tests.cli.chat.scene import Scene, scene
from tests.cli.chat.terminal import Terminal, needs_tmux

pytestmark = needs_tmux

WINDOWS = {
    "wide": {"columns": 120, "rows": 35},
    "usual": {"columns": 80, "rows": 24},
    "narrow": {"columns": 60, "rows": 24},
    "no color": {"columns": 80, "rows": 24, "NO_COLOR": "1"},
    "dumb": {"columns": 80, "rows": 24, "TERM": "dumb"},
}


def is_asking(screen: str) -> bool:
    return screen.rstrip().endswith("[q] stop:")


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_approved_and_what_happened_is_seen(window: str, tmp_path: Path) -> None:
    gate = Event()
    script = (
        ["You are early."],
        [calls("edit_file", path="numbers.txt", old="20\n", new="twenty\n")],
        ["Edited."],
        [calls("write_file", path="new.txt", text="".join(f"row {n}\n" for n in range(300)))],
        ["Not written."],
        [calls("run_command", command="seq 1000 1099 && exit 3")],
        [calls("run_command", command="git log -1")],
        [calls("run_command", command="git log -2"), calls("run_command", command="git log -3; echo done")],
        ["Not twice."],
        Gated(["Some ", "words.", {"gate": gate}, " The end."]),
        ["Second answer."],
    )
    with scene(tmp_path, *script) as here:
        (here.project / "numbers.txt").write_text("".join(f"{n}\n" for n in range(1, 41)))
        with here.chat(**WINDOWS[window]) as chat:  # type: ignore[arg-type]
            chat.say("early bird")  # before there is a prompt
            chat.wait_for("You are early.", whole=True)
            chat.wait_for_prompt()
            assert here.user_texts() == ["early bird"]
            _diffs(chat, here)
            _commands(chat, here)
            if window != "dumb":
                _queue(chat, here, gate)


def _diffs(chat: Terminal, here: Scene) -> None:
    chat.say("edit it")
    seen = chat.wait_for(is_asking)
    assert "numbers.txt  +1 -1" in seen
    assert "\n  19   19\n  20 - 20\n  20 + twenty\n  21   21\n" in seen
    chat.say("y")
    chat.wait_for("Edited.")
    chat.wait_for_prompt()
    assert "twenty" in (here.project / "numbers.txt").read_text()
    chat.say("write it")
    chat.wait_for(is_asking)
    whole = chat.scrollback()
    assert "new.txt  new file, 300 lines" in whole
    assert "\n    1 + row 0\n" in whole
    assert "\n  300 + row 299\n" in whole
    chat.say("v")
    if chat.is_dumb:
        chat.wait_for(lambda screen: chat.scrollback().count("+ row 299") == 2)
    else:
        chat.wait_for(lambda screen: "q: back" in screen and "    1 + row 0" in screen)
        chat.key("G")
        chat.wait_for("300 + row 299")
        chat.key("q")
    chat.wait_for(is_asking)
    chat.say("n")
    chat.wait_for("Not written.")
    chat.wait_for_prompt()


def _commands(chat: Terminal, here: Scene) -> None:
    chat.say("count")
    chat.wait_for(is_asking)
    chat.say("y")
    chat.wait_for(lambda screen: is_asking(screen) and "git log -1" in screen)
    seen = chat.scrollback()
    assert "exit code 3" in seen
    assert "1099" in seen
    assert "1050" not in seen
    chat.say("a")
    chat.wait_for("1  this exact command: git log -1")
    chat.wait_for("2  commands that start with: git log")
    chat.wait_for("3  every call of run_command")
    chat.say("2p")
    seen = chat.wait_for(lambda screen: is_asking(screen) and "echo done" in screen)
    assert "git log -2" not in seen.rpartition("git log -3; echo done")[2]
    chat.say("n")
    chat.wait_for("Not twice.")
    chat.wait_for_prompt()
    (kept,) = Path(here.env["XDG_CONFIG_HOME"], "bartack", "permissions").iterdir()
    assert 'prefix = "git log"' in kept.read_text()
    if chat.is_dumb:
        chat.say("/transcript")
        chat.wait_for("1050", whole=True)
    else:
        chat.key("C-t")
        chat.wait_for("q: back")
        chat.key("g")
        chat.wait_for("early bird")
        chat.key("q")
        chat.wait_for_prompt()


def _queue(chat: Terminal, here: Scene, gate: Event) -> None:
    chat.say("speak")
    chat.wait_for("Some words.")
    assert "Ctrl-C to stop" in chat.wait_for("Ctrl-C to stop").rstrip().splitlines()[-1]
    chat.say("queued message")
    chat.wait_for("queued: queued message")
    chat.key("Up")
    chat.wait_for("› queued message")
    chat.type(", edited")
    chat.wait_for("› queued message, edited")
    chat.key("Enter")
    chat.wait_for("queued: queued message, edited")
    gate.set()
    chat.wait_for("Second answer.")
    chat.wait_for_prompt()
    assert here.user_texts()[-1] == "queued message, edited"
