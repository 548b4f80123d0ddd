"""Answers in the chat: streaming, Markdown, thinking, interrupting, typing ahead, and windows of many sizes."""

import os
import re
import signal
import sys
from pathlib import Path
from threading import Event

import pytest

from tests.cli.provider_server import Step
from tests.code.chat.gates import Gated
from tests.code.chat.scene import scene, writes
from tests.code.chat.terminal import is_asking, is_at_prompt, needs_tmux

pytestmark = needs_tmux


def test_an_answer_is_rendered_as_markdown_while_it_streams(tmp_path: Path) -> None:
    gate = Event()
    answer = Gated(["Here is **bold", " text** and\n\n- a list\n\n", {"gate": gate}, "```python\nx = 1\n```\nThe end."])
    with scene(tmp_path, answer) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("hi")
        assert "The end." not in chat.wait_for("a list")
        gate.set()
        chat.wait_for("The end.")
        screen = chat.wait_for_prompt()
        assert "bold text" in screen
        assert "**" not in screen
        assert "```" not in screen
        assert "openai-compatible:test" in screen.rstrip().splitlines()[-1]
        assert "15 tokens" in screen.rstrip().splitlines()[-1]


def test_a_countdown_ends_with_its_answer(tmp_path: Path) -> None:
    busy = {"status": 529, "error": "busy", "headers": {"Retry-After": "90"}}
    with scene(tmp_path, [busy], ["Hel", {"pause": None}]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("first")
        chat.wait_for(" s · Ctrl-C to stop")
        chat.key("C-c")
        chat.wait_for("Press Ctrl-C again to exit.")
        chat.wait_for_prompt()
        chat.say("second")
        screen = chat.wait_for("Hel")
        assert screen.rstrip().splitlines()[-1].startswith(" Ctrl-C to stop")


def test_an_overloaded_provider_is_waited_out_with_a_countdown(tmp_path: Path) -> None:
    busy: list[list[Step]] = [
        [{"status": 529, "error": "overloaded", "headers": {"Retry-After": seconds}}]
        for seconds in ("5", "1", "1", "1")
    ]
    with scene(tmp_path, *busy, ["At last."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("hi")
        chat.wait_for(lambda screen: re.search(r"retrying in \d s · Ctrl-C to stop", screen) is not None)
        chat.wait_for("At last.")
    assert len(stage.server.requests) == 5


def test_enter_steers_the_run_at_its_next_step(tmp_path: Path) -> None:
    """The command is still running when the messages are typed; the last one is taken back in time."""
    waits: Step = {
        "call": "run_command",
        "arguments": {"command": "echo begun; while ! [ -e go ]; do sleep 0.05; done"},
    }
    with scene(tmp_path, [waits], ["As you wish."], ["And now this."]) as stage:
        (stage.project / "notes.txt").write_text("a note", encoding="utf-8")
        with stage.chat() as chat:
            chat.wait_for_prompt()
            chat.say("work")
            chat.wait_for("[q] stop:")
            chat.say("y")
            chat.wait_for("begun lines=1")  # its output; the question has the word, too
            chat.say("stop after the first @notes.txt")
            chat.type("and tell me")
            chat.key("M-Enter")
            chat.wait_for("  next step: stop after the first @notes.txt\n  queued: and tell me\n")
            chat.say("withdrawn")
            chat.wait_for("  next step: withdrawn\n")
            chat.key("Up")  # the queued one
            chat.wait_for("› and tell me")
            chat.key("C-u")
            chat.key("Up")
            chat.wait_for("› withdrawn")
            chat.key("C-u")
            chat.type("then this")
            chat.key("M-Enter")
            chat.wait_for("  queued: then this\n")
            (stage.project / "go").touch()
            screen = chat.wait_for("And now this.")
            assert screen.index("begun") < screen.index("› stop after the first") < screen.index("As you wish.")
            assert screen.index("As you wish.") < screen.index("› then this")
        roles = [message["role"] for message in stage.server.requests[1]["messages"] if message["role"] != "system"]
        assert roles == ["user", "assistant", "tool", "user"]
        assert "a note" in str(stage.server.requests[1]["messages"][-1]["content"])
        assert "withdrawn" not in str(stage.server.requests[2])


def test_what_is_typed_together_with_a_decision_steers_the_run(tmp_path: Path) -> None:
    waits: Step = {"call": "run_command", "arguments": {"command": "while ! [ -e go ]; do sleep 0.05; done"}}
    with scene(tmp_path, [waits], ["As you wish."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("work")
        chat.wait_for("[q] stop:")
        chat.bytes(b"y\rstop after it\rand")
        chat.wait_for("  next step: stop after it\n")
        chat.wait_for("› and")
        (stage.project / "go").touch()
        chat.wait_for("As you wish.")


def test_a_message_that_cannot_join_a_stopped_run_returns_to_the_prompt(tmp_path: Path) -> None:
    with scene(tmp_path, ["One two", {"pause": None}]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("count")
        chat.wait_for("One two")
        chat.say("faster")
        chat.wait_for("next step: faster")
        chat.key("C-c")
        chat.wait_for("Stopped.")
        chat.wait_for("› faster")
        assert len(stage.server.requests) == 1


def test_text_typed_during_an_answer_is_the_next_message(tmp_path: Path) -> None:
    gate = Event()
    thinking = {"think": "".join(f"Thought {number}.\n" for number in range(1, 10))}
    first = Gated([thinking, {"gate": gate}, "First answer."])
    with scene(tmp_path, first, ["Second answer."], ["Third answer."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("one")
        chat.wait_for("Thought 9.")
        chat.type("two, typed ahead")
        chat.key("M-Enter")
        chat.paste("a line\n" * 30)
        chat.key("M-Enter")
        chat.type("and three")
        chat.key("C-o")  # expands thinking, so the keys before it have arrived
        screen = chat.wait_for("Thought 1.")
        assert "  queued: two, typed ahead\n  queued: [Pasted #1: 30 lines]\n› and three" in screen
        assert screen.rstrip().splitlines()[-1].startswith(" Ctrl-C to stop · openai-compatible:test · ")
        gate.set()
        chat.wait_for("Third answer.")
        assert "two, typed ahead" in chat.wait_for("› and three")
        assert stage.user_texts() == ["one", "two, typed ahead", "a line\n" * 30]


def test_ctrl_c_keeps_the_partial_answer_and_a_second_one_exits(tmp_path: Path) -> None:
    with scene(tmp_path, ["One two", {"pause": None}], ["Three."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("count")
        chat.wait_for("One two")
        chat.key("C-c")
        chat.wait_for("Stopped.")
        chat.wait_for_prompt()
        chat.say("go on")
        chat.wait_for("Three.")
        chat.wait_for_prompt()
        assert [message["content"] for message in stage.messages()] == ["count", "One two", "go on"]
        session = stage.bartack("sessions", "list").split()[0]
        assert "One two" in stage.bartack("show", session)
        chat.key("C-c")
        chat.wait_for("Press Ctrl-C again to exit.")
        chat.key("C-c")
        assert session in chat.wait_for("[left with 0]")


def test_ctrl_c_discards_the_line_first_and_ctrl_d_exits(tmp_path: Path) -> None:
    with scene(tmp_path, ["One two", {"pause": None}]) as stage:
        with stage.chat() as chat:
            chat.wait_for_prompt()
            chat.say("count")
            chat.wait_for("One two")
            chat.key("C-c")
            chat.wait_for("Stopped.")
            chat.wait_for_prompt()
            draft = tmp_path / "written"
            chat.record(draft)
            chat.type("thrown away")
            chat.wait_for("thrown away")
            chat.wait_for(lambda _: b"away" in draft.read_bytes())
            assert b"\x1b[J" not in draft.read_bytes()  # keys change the line without erasing it, which would flicker
            chat.key("C-c")
            chat.wait_for_prompt()
            chat.key("C-c")
            chat.wait_for("[left with 0]")
        with stage.chat() as chat:
            chat.wait_for_prompt()
            chat.key("C-d")
            chat.wait_for("[left with 0]")


def test_thinking_is_folded_and_can_be_expanded(tmp_path: Path) -> None:
    gate = Event()
    thinking = [{"think": "First I weigh the stones. " * 8}, {"think": "Then I count. "}]
    with (
        scene(tmp_path, [*thinking, "Done."], Gated([*thinking, {"gate": gate}, "Again."])) as stage,
        stage.chat() as chat,
    ):
        chat.wait_for_prompt()
        chat.say("think")
        chat.wait_for("Done.")
        assert "weigh the stones" not in chat.wait_for_prompt()
        chat.say("/thinking")
        assert "Thinking is shown in full." in chat.wait_for("weigh the stones")
        chat.wait_for_prompt()
        chat.key("C-o")
        chat.wait_for("Thinking is folded.")
        chat.say("think again")
        chat.wait_for(lambda screen: screen.count("count.") >= 2)  # its end is shown while it lasts
        chat.key("C-o")  # pressed in the middle of the answer
        gate.set()
        chat.wait_for("Again.")
        assert chat.wait_for_prompt().count("First I weigh") >= 2


def test_a_message_can_have_several_lines_and_up_brings_it_back(tmp_path: Path) -> None:
    with scene(tmp_path, ["Yes."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.type("one")
        chat.key("M-Enter")
        chat.type("two\\")
        chat.key("Enter")
        chat.say("three")
        chat.wait_for("Yes.")
        assert stage.user_texts() == ["one\ntwo\nthree"]
        chat.wait_for_prompt()
        chat.key("Up")
        chat.wait_for(lambda screen: screen.count("three") == 2)
        chat.key("Enter")
        chat.wait_for(lambda screen: screen.count("Yes.") == 2)
        assert stage.user_texts() == ["one\ntwo\nthree"] * 2
        chat.wait_for_prompt()
        chat.paste("four\nfive")
        chat.wait_for("five")
        assert len(stage.server.requests) == 2  # pasting does not send
        chat.bytes(b"\xff\xfe")  # not UTF-8
        chat.key("Enter")
        chat.wait_for("45 tokens")
        assert stage.user_texts()[-1] == "four\nfive\ufffd\ufffd"
        chat.wait_for_prompt()
        chat.type("see ")
        chat.paste("".join(f"line {number}\n" for number in range(1, 501)))
        assert "line 500" not in chat.wait_for("› see [Pasted #1: 500 lines]")
        chat.key("C-o")
        chat.wait_for(". line 500\n")
        chat.key("C-c")
        chat.wait_for_prompt()
        chat.paste("/one\n" * 11)
        chat.wait_for("› [Pasted #2: 11 lines]")
        chat.key("Enter")
        chat.wait_for("60 tokens")
        assert stage.user_texts()[-1] == "/one\n" * 11
    assert "+/one" in (tmp_path / "data" / "bartack" / "history").read_text(encoding="utf-8")


def test_every_line_of_a_long_answer_is_printed_once_even_if_the_window_is_resized(tmp_path: Path) -> None:
    gate, end = Event(), Event()
    lines = [f"Line number {number}.\n\n" for number in range(1, 301)]
    answer = Gated([*lines[:100], {"gate": gate}, *lines[100:200], {"gate": end}, *lines[200:]])
    with scene(tmp_path, answer) as stage, stage.chat(rows=20) as chat:
        chat.wait_for_prompt()
        chat.say("count")
        chat.wait_for("Line number 99.")
        chat.resize(50, 12)
        gate.set()
        chat.wait_for("Line number 199.")
        chat.resize(90, 30)
        end.set()
        chat.wait_for("Line number 300.")
        chat.wait_for_prompt()
        scrollback = chat.scrollback()
        assert [scrollback.count(f"Line number {number}.") for number in range(1, 301)] == [1] * 300


def test_an_error_of_the_provider_has_a_hint_and_the_chat_continues(tmp_path: Path) -> None:
    refusal = [{"status": 401, "error": "that key is unknown here"}]
    with scene(tmp_path, refusal, ["Now it works."]) as stage, stage.chat(OPENAI_COMPATIBLE_API_KEY="wrong") as chat:
        chat.wait_for_prompt()
        chat.say("hi")
        screen = chat.wait_for("hint:")
        assert "that key is unknown here" in screen
        assert "OPENAI_COMPATIBLE_API_KEY" in screen
        assert "Traceback" not in screen
        chat.wait_for_prompt()
        chat.say("again")
        chat.wait_for("Now it works.")
        chat.wait_for_prompt()
        stage.project.rmdir()  # its directory is gone as well
        chat.say("once more")
        chat.wait_for("30 tokens")
        assert stage.user_texts()[-1] == "once more"


def test_everything_fits_into_a_narrow_window(tmp_path: Path) -> None:
    answer = ["A sentence that is much too long for a window of forty columns, and so it is wrapped at its words."]
    with scene(tmp_path, answer) as stage, stage.chat(columns=40, rows=60) as chat:
        chat.wait_for_prompt()
        chat.say("a question that is too long as well, and is folded")
        chat.wait_for("its words.")
        chat.wait_for_prompt()
        for command in ("/help", "/tools", "/context", "/branch", "/cost", "/model"):
            chat.say(command)
            chat.wait_for(f"› {command}\n", scrolled=True)  # so that the next prompt is a new one
            screen = chat.wait_for_prompt()
            assert max(map(len, screen.splitlines())) <= 40
        assert "Traceback" not in chat.scrollback()
        chat.resize(60, 40)
        chat.say("again")
        chat.wait_for(lambda screen: "context 15" in screen.rstrip().splitlines()[-1] and is_at_prompt(screen))


def test_a_tiny_window_is_enough(tmp_path: Path) -> None:
    with scene(tmp_path, ["Yes."]) as stage, stage.chat(columns=20, rows=6) as chat:
        chat.wait_for_prompt()
        chat.resize(1, 1)
        chat.resize(30, 8)
        chat.wait_for(":test")  # the status line is complete again
        chat.say("Is it?")
        chat.wait_for("Yes.")
        chat.wait_for_prompt()


def test_a_dumb_terminal_gets_no_control_sequences(tmp_path: Path) -> None:
    with scene(tmp_path, ["Some **bold** words."]) as stage, stage.chat(TERM="dumb") as chat:
        raw = tmp_path / "raw"
        chat.record(raw)
        chat.wait_for("new session")
        chat.say("hi")
        chat.wait_for("15 tokens")
        chat.say("/undo")
        chat.wait_for("> hi")  # the restored prompt is visible
        chat.say(" again")
        chat.wait_for("30 tokens")
        assert stage.user_texts() == ["hi again"]
        chat.key("C-d")
        chat.wait_for("[left with 0]")
        assert b"\x1b" not in raw.read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit the files of another process")
def test_after_a_disk_error_the_chat_continues(tmp_path: Path) -> None:
    from resource import RLIM_INFINITY, RLIMIT_FSIZE, prlimit

    with scene(tmp_path, ["Hello."], ["Again."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("hi")
        chat.wait_for("15 tokens")
        prlimit(chat.pid, RLIMIT_FSIZE, (0, RLIM_INFINITY))  # files cannot grow
        chat.say("and now")
        screen = chat.wait_for("hint:")
        assert "Traceback" not in screen
        chat.wait_for(lambda screen: screen.split("hint:")[-1].count("› and now") == 1)  # the message is not lost
        prlimit(chat.pid, RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
        chat.key("Enter")
        chat.wait_for("Again.")
        assert stage.user_texts() == ["hi", "and now"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_restore_the_terminal(tmp_path: Path, number: signal.Signals) -> None:
    with scene(tmp_path, ["One two", {"pause": None}]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("count")
        chat.wait_for("One two")
        os.kill(chat.pid, number)
        assert "Traceback" not in chat.wait_for(f"[left with {128 + number}]")
        chat.type("echoed again")
        chat.wait_for("echoed again")


def test_closing_the_window_loses_nothing(tmp_path: Path) -> None:
    with scene(tmp_path, ["One two", {"pause": None}]) as stage:
        with stage.chat() as chat:
            chat.wait_for_prompt()
            chat.say("count")
            chat.wait_for("One two")
        (session, *_) = stage.bartack("sessions", "list").split()
        assert "One two" in stage.bartack("show", session)
        assert '"status":"aborted"' in stage.bartack("sessions", "export", session)


def test_after_a_suspension_ctrl_c_is_still_a_key(tmp_path: Path) -> None:
    (tmp_path / "data" / "bartack" / "history").mkdir(parents=True)  # an unusable history file is ignored
    with scene(tmp_path, ["Yes."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.type("thrown")
        chat.wait_for("thrown")
        os.kill(chat.pid, signal.SIGSTOP)
        os.kill(chat.pid, signal.SIGCONT)
        chat.type(" away")
        chat.wait_for("thrown away")
        chat.key("C-c")
        chat.wait_for_prompt()
        chat.say("Is it?")
        chat.wait_for("Yes.")
        assert stage.user_texts() == ["Is it?"]


def test_ctrl_z_leaves_the_terminal_to_the_shell(tmp_path: Path) -> None:
    gate = Event()
    answer = Gated(["One two ", {"gate": gate}, "three."])
    with scene(tmp_path, [writes("f.txt", "x\n")], answer) as stage, stage.shell() as shell:
        shell.wait_for("$")
        shell.say("bartack")
        shell.wait_for_prompt()
        shell.say("write")
        shell.wait_for(is_asking)
        shell.key("C-z")
        assert not is_asking(shell.wait_for("Stopped"))
        shell.say("clear; fg")
        shell.wait_for(is_asking)
        shell.say("y")
        shell.wait_for("One two")
        shell.key("C-z")
        screen = shell.wait_for("Stopped")
        assert "Ctrl-C to stop" not in screen
        assert shell.has_cursor()
        shell.say("clear; fg")
        shell.wait_for("Ctrl-C to stop")
        gate.set()
        shell.wait_for("One two three.")
        shell.wait_for_prompt()


TOOL = """
import time
from pathlib import Path

def shout(text: str) -> str:
    print(text, end="")
    while not Path("go").exists():
        time.sleep(0.02)
    print("!")
    return "shouted"
"""


def test_output_of_tools_is_printed_above_the_live_area(tmp_path: Path) -> None:
    call = {"call": "shout", "arguments": {"text": "I am a tool"}}
    with scene(tmp_path, [call], ["Done."]) as stage:
        (stage.project / "loud.py").write_text(TOOL)
        with stage.chat("--tool", "loud:shout") as chat:
            chat.wait_for_prompt()
            chat.say("/tools")  # the tool has no docstring
            chat.wait_for("shout")
            chat.wait_for_prompt()
            chat.say("go")
            chat.wait_for("shout text=")
            (stage.project / "go").touch()
            chat.wait_for("Done.")
            lines = [line.strip() for line in chat.wait_for_prompt().splitlines()]
            assert lines.count("I am a tool!") == 1
            assert sum("shout text=" in line for line in lines) == 1
