"""Questions about tool calls, and the effect of the answers."""

import re
from pathlib import Path
from threading import Event

from tests.cli.provider_server import Step
from tests.code.chat.gates import Gated
from tests.code.chat.scene import Scene, scene, writes
from tests.code.chat.terminal import Terminal, is_asking, needs_tmux

pytestmark = needs_tmux


def is_offering_rules(screen: str, times: int = 1) -> bool:
    """Whether the chat waits for a rule. While a later question is drawn, an earlier one can be the last line."""
    return screen.rstrip().endswith("to go back:") and screen.count("to go back:") == times


def results(stage: Scene) -> list[str]:
    """The tool results in the last request."""
    return [message["content"] for message in stage.messages() if message["role"] == "tool"]


def answered(chat: Terminal, question: str, answer: str, end: str) -> None:
    """Send a message, answer the question about its tool call, and wait for the end of the answer."""
    chat.say(question)
    chat.wait_for(is_asking)
    chat.say(answer)
    chat.wait_for(end)
    chat.wait_for_prompt()


def test_a_file_is_written_after_yes_but_not_after_no(tmp_path: Path) -> None:
    script: tuple[list[Step], ...] = (
        ["I write.", writes("yes.txt", "hello\n")],
        ["It is there."],
        [writes("no.txt", "hello\n")],
        ["Then not."],
        [writes("why.txt", "hello\n")],
        ["As you wish."],
    )
    with scene(tmp_path, *script) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("write")
        screen = chat.wait_for(is_asking)
        assert "write_file" in screen
        assert "yes.txt" in screen
        assert not (stage.project / "yes.txt").exists()
        chat.say("y")
        chat.wait_for("It is there.")
        assert (stage.project / "yes.txt").read_text() == "hello\n"
        assert "yes.txt" in results(stage)[-1]
        chat.wait_for_prompt()
        answered(chat, "write another", "no", "Then not.")
        assert "denied" in results(stage)[-1]
        answered(chat, "and a third", "n the name is bad", "As you wish.")
        assert "the name is bad" in results(stage)[-1]
        assert [path.name for path in stage.project.iterdir()] == ["yes.txt"]
        above_prompt, _, _ = chat.scrollback().rpartition("›")
        assert "\n\n\n" not in above_prompt  # even if an answer starts with a question


def test_arguments_can_be_edited(tmp_path: Path) -> None:
    with scene(tmp_path, [writes("a.txt", "theirs\u202e")], ["Edited."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("write")
        chat.wait_for(is_asking)
        chat.say("e")
        chat.wait_for('"text": "theirs\\u202e"')  # invisible characters are escaped
        chat.key("C-c")  # back to the question
        chat.wait_for(is_asking)
        chat.say("e")
        chat.wait_for(lambda screen: screen.rstrip().endswith("}") and screen.count("Ctrl-C: back") == 2)
        chat.key("BSpace")
        chat.key("Enter")
        chat.wait_for("Not a valid JSON object")
        chat.wait_for(lambda screen: screen.split("JSON object")[-1].count("theirs") == 1)
        chat.key("BSpace", "C-u")
        chat.say('  "text": 3}')
        chat.wait_for("Invalid arguments:")
        chat.wait_for(lambda screen: screen.split("Invalid arguments:")[-1].count('"text": 3}') == 1)
        chat.key("BSpace", "BSpace")
        chat.say('"mine"}')
        chat.wait_for("Edited.")
        assert (stage.project / "a.txt").read_text() == "mine"


def test_always_allows_changes_in_the_project_without_asking_again(tmp_path: Path) -> None:
    first, second = writes("1.txt", "one"), writes("2.txt", "two")
    script = [first, second], [writes("3.txt", "three")], ["All three."]
    with scene(tmp_path, *script) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("write")
        chat.wait_for(is_asking)
        chat.say("a")
        offered = chat.wait_for(is_offering_rules)
        assert "1  write_file in 1.txt, except" in offered
        assert "2  write_file in this project, except" in offered
        chat.key("Enter")  # back
        chat.wait_for(is_asking)
        chat.say("a")
        chat.wait_for(lambda screen: is_offering_rules(screen, times=2))
        chat.say("2")
        chat.wait_for("All three.")
        chat.wait_for_prompt()
        assert sorted(path.name for path in stage.project.iterdir()) == ["1.txt", "2.txt", "3.txt"]
        chat.say("/tools")
        chat.wait_for(lambda screen: "\n\n›" in screen.partition("run_command")[2])  # all of the list
        lines = chat.screen().splitlines()
        assert "asks first" in next(line for line in lines if line.startswith("run_command"))


def test_files_that_programs_execute_are_asked_about_whatever_is_allowed(tmp_path: Path) -> None:
    script = [writes("1.txt", "one")], [writes(".envrc", "touch hidden")], ["Done."]
    with scene(tmp_path, *script) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("write")
        chat.wait_for(is_asking)
        chat.say("a")
        chat.wait_for(is_offering_rules)
        chat.say("2")
        chat.wait_for(lambda screen: is_asking(screen) and ".envrc" in screen)
        chat.say("a")
        chat.wait_for("This is always asked about")
        chat.say("n")
        chat.wait_for("Done.")
        assert not (stage.project / ".envrc").exists()


def test_q_ctrl_c_and_esc_stop_the_answer_and_all_its_calls(tmp_path: Path) -> None:
    calls = [writes("1.txt", "one"), writes("2.txt", "two")]
    with scene(tmp_path, calls, calls, calls, ["Fine."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        answered(chat, "write", "q", "Stopped.")
        chat.say("write again")
        chat.wait_for(is_asking)
        chat.key("C-c")
        chat.wait_for(lambda screen: screen.count("Stopped.") == 2)
        chat.wait_for_prompt()
        chat.say("and again")
        chat.wait_for(is_asking)
        chat.say("a")
        chat.wait_for(is_offering_rules)
        chat.key("Escape")  # back to the question
        chat.wait_for(is_asking)
        chat.key("Escape")
        chat.wait_for(lambda screen: screen.count("Stopped.") == 3, scrolled=True)
        chat.wait_for_prompt()
        chat.say("never mind")
        chat.wait_for("Fine.")
        assert list(stage.project.iterdir()) == []
        assert len(results(stage)) == 6  # every call has a result, as providers require


def test_only_an_answer_to_the_question_counts(tmp_path: Path) -> None:
    """Not a word that only starts with the letter, nor anything typed before the question was visible."""
    gate = Event()
    thinking = {"think": "".join(f"Thought {number}.\n" for number in range(1, 10))}
    script = Gated([thinking, {"gate": gate}, writes("a.txt", "text")]), ["You said yes, and no."]
    with scene(tmp_path, *script) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.bytes(b"write\ryes")  # arrives in one piece
        chat.wait_for("Thought 9.")
        chat.say(", yes")
        chat.key("C-o")  # expands thinking, so the keys before it have arrived
        chat.wait_for("Thought 1.")
        gate.set()
        chat.wait_for(is_asking)
        chat.say("abolish it")
        chat.wait_for("y: run it, n: deny it")
        chat.wait_for(is_asking)
        chat.say("n")
        chat.wait_for("You said yes, and no.")  # what was typed before the question steers the answer
        assert list(stage.project.iterdir()) == []
        assert stage.user_texts() == ["write", "yes, yes"]


def test_a_question_waits_for_the_changes_before_it(tmp_path: Path) -> None:
    """The second diff is what the second call does after the first one."""
    calls = [writes("a.txt", "one\n"), writes("a.txt", "two\n")]
    with scene(tmp_path, calls, ["Both."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("write")
        assert "a.txt  new file" in chat.wait_for(is_asking)
        chat.say("y")
        screen = chat.wait_for(lambda text: is_asking(text) and text.count("stop:") == 2)
        assert "Created a.txt" in screen
        assert "overwrites the file, +1 -1" in screen
        chat.say("n")
        chat.wait_for("Both.")
        assert (stage.project / "a.txt").read_text() == "one\n"


def test_a_question_waits_for_a_command_that_runs_without_asking(tmp_path: Path) -> None:
    command: Step = {"call": "run_command", "arguments": {"command": "echo generated > a.txt"}}
    script: tuple[list[Step], ...] = ([command], ["First."], [command, writes("a.txt", "mine\n")], ["Second."])
    with scene(tmp_path, *script) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("run it")
        chat.wait_for(is_asking)
        chat.say("a")
        chat.wait_for(is_offering_rules)
        chat.say("1")
        chat.wait_for("First.")
        chat.wait_for_prompt()
        (stage.project / "a.txt").unlink()
        chat.say("again, and write")
        assert "- generated" in chat.wait_for(lambda screen: is_asking(screen) and "write_file" in screen)
        chat.say("y")
        chat.wait_for("Second.")
        assert (stage.project / "a.txt").read_text() == "mine\n"


def test_what_does_not_fit_the_window_is_approved_only_after_it_was_viewed(tmp_path: Path) -> None:
    command = "echo safe" + "\n" * 60 + "touch hidden.txt" + "\n" * 59 + "echo safe"
    call: Step = {"call": "run_command", "arguments": {"command": command}}
    with scene(tmp_path, [call], ["Done."]) as stage, stage.chat(columns=80, rows=24) as chat:
        chat.wait_for_prompt()
        chat.say("run it")
        assert re.search(r"showing 20 of 12\d lines \(", chat.wait_for(is_asking))
        chat.say("y")
        chat.wait_for(lambda screen: "Press v to view it in full first." in screen and is_asking(screen))
        assert not (stage.project / "hidden.txt").exists()
        chat.say("v")
        assert re.search(r"of 12\d lines", chat.wait_for("q: back"))
        chat.key("q")
        chat.wait_for(is_asking)
        chat.say("y")
        chat.wait_for("Done.")
        assert (stage.project / "hidden.txt").exists()


def test_a_file_that_is_saved_while_the_question_is_open_is_asked_about_again(tmp_path: Path) -> None:
    with scene(tmp_path, [writes("a.txt", "mine\n")], ["Not written."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("write")
        assert "a.txt  new file" in chat.wait_for(is_asking)
        (stage.project / "a.txt").write_text("saved meanwhile\n")
        chat.say("y")
        screen = chat.wait_for(lambda text: is_asking(text) and text.count("stop:") == 2)
        assert "- saved meanwhile" in screen
        chat.say("n")
        chat.wait_for("Not written.")
        assert (stage.project / "a.txt").read_text() == "saved meanwhile\n"


def test_a_mode_decides_what_is_asked_and_is_shown(tmp_path: Path) -> None:
    script: tuple[list[Step], ...] = (
        [writes("plan.txt", "x\n")],
        ["First a, then b."],
        [writes("edit.txt", "hello\n")],
        ["Written."],
    )
    with scene(tmp_path, *script) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.key("BTab")
        chat.wait_for("plan mode")
        chat.say("write it")
        chat.wait_for("First a, then b.")
        chat.wait_for_prompt()
        assert "Plan mode: nothing may be changed" in results(stage)[-1]
        assert not (stage.project / "plan.txt").exists()
        chat.say("/mode edit keep")
        chat.wait_for("Mode: edit")
        chat.wait_for_prompt()
        chat.say("write it")
        chat.wait_for("Written.")
        assert (stage.project / "edit.txt").read_text() == "hello\n"
    with stage.chat() as chat:
        chat.wait_for("edit mode")


def test_the_memory_of_a_project_is_asked_about_where_other_edits_are_free(tmp_path: Path) -> None:
    script: tuple[list[Step], ...] = (
        [writes("notes.txt", "free\n")],
        [writes("AGENTS.md", "Use tabs.\n")],
        ["Remembered."],
    )
    with scene(tmp_path, *script) as stage, stage.chat("--mode", "sandbox", columns=60, rows=24) as chat:
        chat.wait_for_prompt()
        chat.say("remember: tabs")
        screen = chat.wait_for(is_asking)
        assert "AGENTS.md" in screen
        assert "Use tabs." in screen
        assert (stage.project / "notes.txt").exists()
        assert not (stage.project / "AGENTS.md").exists()
        chat.say("y")
        chat.wait_for("Remembered.")
        chat.wait_for_prompt()
        assert (stage.project / "AGENTS.md").read_text() == "Use tabs.\n"
