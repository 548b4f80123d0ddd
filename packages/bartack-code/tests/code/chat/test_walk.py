"""A working day in a terminal: one chat uses every feature, in windows of different sizes and kinds."""

import re
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.code.chat.gates import Gated
from tests.code.chat.scene import Scene, scene
from tests.code.chat.terminal import Terminal, is_asking, needs_tmux

pytestmark = needs_tmux

WINDOWS = {
    "wide": {"columns": 120, "rows": 35},
    "usual": {"columns": 80, "rows": 24},
    "narrow": {"columns": 60, "rows": 24},
    "no color": {"columns": 80, "rows": 24, "NO_COLOR": "1"},
    "dumb": {"columns": 80, "rows": 24, "TERM": "dumb"},
}


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
        [calls("run_command", command="git log -2"), calls("run_command", command="git log -3; touch done")],
        ["Not twice."],
        Gated(["Some ", "words.", {"gate": gate}, " The end."]),
        ["Second answer."],
    )
    with scene(tmp_path, *script) as stage:
        (stage.project / "numbers.txt").write_text("".join(f"{n}\n" for n in range(1, 41)))
        with stage.chat(**WINDOWS[window]) as chat:  # type: ignore[arg-type]
            chat.say("early bird")  # typed before there is a prompt
            chat.wait_for("You are early.", scrolled=True)
            chat.wait_for_prompt()
            assert stage.user_texts() == ["early bird"]
            _diffs(chat, stage)
            _commands(chat, stage)
            if window != "dumb":
                _queue(chat, stage, gate)


def _diffs(chat: Terminal, stage: Scene) -> None:
    chat.say("edit it")
    screen_text = chat.wait_for(is_asking)
    assert "numbers.txt  +1 -1" in screen_text
    assert "\n  19   19\n  20 - 20\n  20 + twenty\n  21   21\n" in screen_text
    chat.say("y")
    chat.wait_for("Edited.")
    chat.wait_for_prompt()
    assert "twenty" in (stage.project / "numbers.txt").read_text()
    chat.say("write it")
    chat.wait_for(is_asking)
    scrollback = chat.scrollback()
    assert "new.txt  new file, 300 lines" in scrollback
    assert "\n    1 + row 0\n" in scrollback
    assert "of 302 lines" in scrollback
    assert "300 + row 299" not in scrollback
    chat.say("v")
    if chat.is_dumb:
        chat.wait_for(lambda screen: chat.scrollback().count("+ row 299") == 1)
    else:
        chat.wait_for(lambda screen: "q: back" in screen and "    1 + row 0" in screen)
        chat.key("G")
        chat.wait_for("300 + row 299")
        chat.key("q")
    chat.wait_for(is_asking)
    chat.say("n")
    chat.wait_for("Not written.")
    chat.wait_for_prompt()


def _commands(chat: Terminal, stage: Scene) -> None:
    chat.say("count")
    chat.wait_for(is_asking)
    chat.say("y")
    chat.wait_for(lambda screen: is_asking(screen) and "git log -1" in screen)
    screen_text = chat.scrollback()
    assert "exit code 3" in screen_text
    assert "1099" in screen_text
    assert "1050" not in screen_text
    chat.say("a")
    chat.wait_for("1  this exact command: git log -1")
    chat.wait_for("2  git log with harmless options")
    chat.wait_for("3  every call of run_command")
    chat.say("2p")
    screen_text = chat.wait_for(lambda screen: is_asking(screen) and "touch done" in screen)
    assert "git log -2" not in screen_text.rpartition("git log -3; touch done")[2]
    chat.say("n")
    chat.wait_for("Not twice.")
    chat.wait_for_prompt()
    (rules_file,) = Path(stage.env["XDG_CONFIG_HOME"], "bartack", "permissions").iterdir()
    assert 'families = ["git log"]' in rules_file.read_text()
    if chat.is_dumb:
        chat.say("/transcript")
        chat.wait_for("1050", scrolled=True)
    else:
        chat.key("C-t")
        chat.wait_for("q: back")
        chat.key("g")
        chat.wait_for("early bird")
        chat.key("q")
        chat.wait_for_prompt()


def _queue(chat: Terminal, stage: Scene, gate: Event) -> None:
    chat.say("speak")
    chat.wait_for("Some words.")
    assert "Ctrl-C to stop" in chat.wait_for("Ctrl-C to stop").rstrip().splitlines()[-1]
    chat.type("queued message")
    chat.key("M-Enter")
    chat.wait_for("queued: queued message")
    chat.key("Up")
    chat.wait_for("› queued message")
    chat.type(", edited")
    chat.wait_for("› queued message, edited")
    chat.key("M-Enter")
    chat.wait_for("queued: queued message, edited")
    gate.set()
    chat.wait_for("Second answer.")
    chat.wait_for_prompt()
    assert stage.user_texts()[-1] == "queued message, edited"


PLAN = [{"text": "Look around", "status": "done"}, {"text": "Change it", "status": "doing"}, {"text": "Test"}]


@pytest.mark.parametrize("window", ["wide", "narrow", "no color", "dumb"])
def test_a_day_of_work(window: str, tmp_path: Path) -> None:
    script = (
        ["I have read it. 👩‍💻"],
        [calls("update_plan", steps=PLAN)],
        [calls("write_file", path="notes.txt", text="theirs\n"), calls("write_file", path="new.txt", text="new\n")],
        ["Written."],
        ["Hello again."],
    )
    with scene(tmp_path, *script) as stage:
        (stage.project / "AGENTS.md").write_text("Always use tabs.\n")
        (stage.project / "notes.txt").write_text("mine\n")
        with stage.chat(**WINDOWS[window], OWN="mine") as chat:  # type: ignore[arg-type]
            chat.wait_for("from now on? [y/N]")
            chat.say("y")
            assert "AGENTS.md · /help" in chat.wait_for_prompt()
            _mention(chat, stage)
            _undo(chat, stage)
            _look(chat, stage)
        arguments = ["-c"] if chat.is_dumb else ["--pick"]
        with stage.chat(*arguments, **WINDOWS[window], BARTACK_MODEL="openai-compatible:other") as chat:  # type: ignore[arg-type]
            if not chat.is_dumb:
                chat.wait_for("search:")
                chat.wait_for("I have read it.")  # the preview
                chat.type("what is")
                chat.wait_for("search: what is")
                chat.key("Enter")
            chat.wait_for("Continuing with openai-compatible:test", scrolled=True)
            chat.wait_for_prompt()
            chat.say("hello")
            chat.wait_for("Hello again.")
            assert stage.server.requests[-1]["model"] == "test"


def _mention(chat: Terminal, stage: Scene) -> None:
    chat.say("!echo from the shell $OWN; until test -e go; do sleep 0.1; done; exit 4")
    chat.wait_for("from the shell mine")
    (stage.project / "go").touch()
    chat.wait_for("added to your next message")
    assert "[exit code 4]" in chat.screen()
    chat.wait_for_prompt()
    if chat.is_dumb:
        chat.type("What is in @notes.txt")
    else:
        chat.type("What is in @not")
        chat.wait_for("notes.txt")
        chat.key("Tab")
        chat.wait_for("@notes.txt")
    chat.say(":1-1?")
    chat.wait_for("Attached: notes.txt:1-1")
    chat.wait_for("👩‍💻")  # whole
    chat.wait_for_prompt()
    request = stage.server.requests[-1]
    system = request["messages"][0]["content"]
    for words in ("Always use tabs.", str(stage.project), "Platform:", "Date:", "Git: not a repository"):
        assert words in system
    request_text = str(request["messages"][-1]["content"])
    assert "notes.txt:1-1:\nmine" in request_text
    assert "done; exit 4:\nfrom the shell mine\n[exit code 4]" in request_text


def _undo(chat: Terminal, stage: Scene) -> None:
    chat.say("write")
    screen_text = chat.wait_for(is_asking)
    steps = ["[x] Look around", "[>] Change it", "[ ] Test"] if chat.is_dumb else ["☑ Look", "▶ Change", "☐ Test"]
    assert [step in screen_text for step in steps] == [True] * 3
    chat.say("y")
    chat.wait_for(lambda screen: is_asking(screen) and "new.txt" in screen)
    chat.say("y")
    chat.wait_for("Written.")
    chat.wait_for_prompt()
    assert (stage.project / "notes.txt").read_text() == "theirs\n"
    chat.say("/restore")
    chat.wait_for("notes.txt, new.txt" if not chat.is_dumb else "/restore NUMBER")
    chat.wait_for_prompt()
    chat.say("/undo")
    chat.wait_for("Restored: notes.txt.")
    chat.wait_for("new.txt.")
    assert (stage.project / "notes.txt").read_text() == "mine\n"
    assert not (stage.project / "new.txt").exists()
    chat.key("C-u", "C-u")
    chat.key("C-c")
    chat.wait_for("write")


def _look(chat: Terminal, stage: Scene) -> None:
    chat.wait_for_prompt()
    chat.say("/context")
    chat.wait_for("instructions")
    chat.wait_for("/compact makes room")
    chat.wait_for_prompt()
    chat.say("/permissions")
    chat.wait_for("Nothing is allowed without asking.")
    chat.wait_for_prompt()
    chat.say("/theme mono")
    chat.wait_for("Theme: mono.")
    chat.wait_for_prompt()
    assert not re.search(r"\x1b\[[0-9;]*3[1-7]m", chat.colors().rstrip().rpartition("Theme: mono.")[2])
    chat.say("/model")
    chat.wait_for("Model: openai-compatible:test")
    if not chat.is_dumb:
        chat.wait_for_prompt()
        chat.type("/effort hi")
        chat.wait_for(lambda screen: "high" in screen.rpartition("/effort hi")[2])
        chat.key("Tab")
        chat.wait_for("› /effort high")
        chat.key("Enter")
        chat.wait_for("Thinking level: high.")
        chat.wait_for_prompt()
        chat.say("/sessions")
        chat.wait_for("search:")
        chat.key("Escape")
    chat.wait_for_prompt()
