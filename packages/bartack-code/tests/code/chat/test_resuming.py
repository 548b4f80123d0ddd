"""Continuing sessions: after leaving, after a crash, on another branch, and in two chats at once."""

from contextlib import ExitStack
from pathlib import Path
from threading import Event

from bartack import Agent, ToolCall, assistant
from bartack.models import ScriptedModel
from bartack.nouns.tables import AgentStatus
from bartack.store import open_store
from bartack.tools import LocalRuntime, file_tools
from tests.agent.test_import import forged_session
from tests.cli.provider_server import Step
from tests.code.chat.gates import Gated
from tests.code.chat.scene import scene, writes
from tests.code.chat.terminal import is_at_prompt, needs_tmux

pytestmark = needs_tmux


def test_a_session_is_continued_by_flag_by_id_and_from_the_list(tmp_path: Path) -> None:
    with scene(tmp_path, ["Hello Ann."], ["Ann."], ["Still Ann."], ["Who?"], ["Ann, as ever."]) as stage:
        with stage.chat("-c") as chat:
            screen = chat.wait_for("[left with 2]")
            assert "hint:" in screen
            assert "Traceback" not in screen
        with stage.chat() as chat:
            chat.wait_for_prompt()
            chat.say("I am Ann")
            chat.wait_for("Hello Ann.")
            chat.wait_for_prompt()
            chat.key("C-d")
            chat.wait_for("[left with 0]")
        with stage.chat("-c") as chat:
            screen = chat.wait_for_prompt()
            assert "I am Ann" in screen
            assert "Hello Ann." in screen
            assert "15 tokens" in screen
            chat.say("Who am I?")
            chat.wait_for("30 tokens")
            assert stage.user_texts() == ["I am Ann", "Who am I?"]
        session = stage.bartack("sessions", "list").split()[0]
        with stage.chat("--session", session) as chat:
            assert "Who am I?" in chat.wait_for_prompt()
            chat.say("Sure?")
            chat.wait_for("Still Ann.")
            chat.wait_for_prompt()
            chat.say("/new")
            chat.wait_for("new session ·")
            chat.say("Who am I?")
            chat.wait_for("Who?")
            assert stage.user_texts() == ["Who am I?"]
            chat.wait_for_prompt()
            chat.say("/sessions")
            chat.wait_for(lambda screen: "search:" in screen and "I am Ann" in screen)
            chat.key("Escape")
            chat.wait_for_prompt()
            chat.say("/sessions 2")
            chat.wait_for("Still Ann.")
            chat.wait_for("45 tokens")
            chat.say("And now?")
            chat.wait_for("Ann, as ever.")
            assert stage.user_texts() == ["I am Ann", "Who am I?", "Sure?", "And now?"]
        with stage.chat("--session", "nowhere") as chat:
            screen = chat.wait_for("[left with 1]")
            assert "nowhere" in screen
            assert "hint: 'bartack sessions list'" in screen


def test_a_session_is_continued_on_the_branch_of_an_entry(tmp_path: Path) -> None:
    with scene(tmp_path, ["One."], ["Two."], ["Other."], ["Three."]) as stage:
        with stage.chat() as chat:
            chat.wait_for_prompt()
            for text, answer in (
                ("first", "One."),
                ("second", "Two."),
                ("/branch 1", "after turn 1."),
                ("new", "Other."),
            ):
                chat.say(text)
                chat.wait_for(answer)
                chat.wait_for_prompt()
        session, entry, _ = stage.bartack("sessions", "search", "second").split("\t")
        with stage.chat("--session", session, "--head", entry) as chat:
            screen = chat.wait_for_prompt()
            assert "Two." in screen
            assert "Other." not in screen
            chat.say("third")
            chat.wait_for("Three.")
            assert stage.user_texts() == ["first", "second", "third"]
        with stage.chat("--session", session, "--head", "999") as chat:
            assert "Entry '999' does not exist" in chat.wait_for("[left with 1]")


def test_undo_and_branches_keep_every_turn(tmp_path: Path) -> None:
    with scene(tmp_path, ["One."], ["Two."], ["Other two."], ["Three."]) as stage, stage.chat(rows=60) as chat:
        chat.wait_for_prompt()
        chat.say("first")
        chat.wait_for("One.")
        chat.wait_for_prompt()
        chat.say("second")
        chat.wait_for("Two.")
        chat.wait_for_prompt()
        chat.say("/undo")
        chat.wait_for("› second")  # back in the prompt
        chat.say(", but better")
        chat.wait_for("Other two.")
        assert stage.user_texts() == ["first", "second, but better"]
        chat.wait_for_prompt()
        chat.say("/branch")
        screen = chat.wait_for("/branch NUMBER")
        assert "2  second, but better" in screen
        assert "a  ... second (2 turns)" in screen
        chat.wait_for_prompt()
        chat.say("/branch a")
        chat.wait_for(lambda screen: screen.split("/branch a")[-1].count("Two.") == 1)
        chat.wait_for_prompt()
        chat.say("third")
        chat.wait_for("Three.")
        assert stage.user_texts() == ["first", "second", "third"]
        chat.wait_for_prompt()
        chat.say("/branch 1")
        chat.wait_for("Continuing after turn 1.")
        chat.wait_for_prompt()
        chat.say("elsewhere")
        chat.wait_for(lambda screen: screen.count("Three.") == 2)
        assert stage.user_texts() == ["first", "elsewhere"]
        chat.wait_for_prompt()
        chat.say("/branch")
        screen = chat.wait_for("b  ...")
        assert "third (3 turns)" in screen
        chat.wait_for_prompt()
        chat.say("/branch 9")
        chat.wait_for("No turn or branch 9.")


def test_two_chats_on_one_session_take_turns(tmp_path: Path) -> None:
    gate = Event()
    script = ["Hello."], Gated(["From the first", {"gate": gate}, " chat."]), ["For the second chat."]
    with scene(tmp_path, *script) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("hi")
        chat.wait_for("15 tokens")
        with stage.chat("-c") as two:
            two.wait_for("15 tokens")
            chat.say("from one")
            chat.wait_for("From the first")
            two.say("from two")
            assert "Another process has added:\n\n› from one\n" in two.wait_for("waiting (Ctrl-C")
            two.key("C-c")
            two.wait_for("› from two\n\n")  # not sent, and not lost
            two.key("Enter")
            two.wait_for(lambda screen: screen.count("waiting (Ctrl-C") == 2)
            two.type("typed meanwhile")
            two.wait_for("› typed meanwhile\n Ctrl-C to stop")
            with stage.chat("-c") as three:  # finds a run that another process finishes
                three.wait_for("waiting (Ctrl-C")
                gate.set()
                two.wait_for("For the second chat.")
                assert "From the first chat.\n\nFor the second chat." in two.wait_for("› typed meanwhile\n")
                chat.wait_for_prompt()
                assert stage.user_texts() == ["hi", "from one", "from two"]
                three.wait_for("From the first chat.")
                assert three.wait_for_prompt().count("From the first chat.") == 1
                assert len(stage.server.requests) == 3


async def test_an_approval_left_open_by_another_program_is_asked_for(tmp_path: Path) -> None:
    with scene(tmp_path, ["Written."]) as stage:
        call = ToolCall("c1", "write_file", {"path": "a.txt", "text": "text"})
        store = await open_store(f"sqlite:{tmp_path / 'paused.db'}")
        agent = Agent(
            ScriptedModel([assistant("I write.", call)]),
            tools=file_tools(),
            runtime=LocalRuntime(stage.project),
            store=store,
        )
        paused = await agent.run("write", session="paused")
        await agent.close()
        await store.close()
        assert paused.status is AgentStatus.AWAITING_HUMAN
        with stage.chat("--session", "paused", "--store", str(tmp_path / "paused.db")) as chat:
            chat.wait_for("[q] stop:")
            chat.say("y")
            chat.wait_for("Written.")
            assert (stage.project / "a.txt").read_text() == "text"


def test_the_work_of_a_killed_chat_is_resumed(tmp_path: Path) -> None:
    """Killed during an answer, a tool call and a question; the session of a dead process is free at once."""
    for name in "answer", "tool", "question":
        (tmp_path / name).mkdir()
    sleeps: Step = {"call": "run_command", "arguments": {"command": "echo begun > begun.txt; sleep 60"}}
    asks = writes("a.txt", "text")
    with ExitStack() as stack:
        answer = stack.enter_context(scene(tmp_path / "answer", ["Half an", {"pause": None}], ["A whole answer."]))
        tool = stack.enter_context(scene(tmp_path / "tool", [sleeps], ["It was cut."]))
        question = stack.enter_context(scene(tmp_path / "question", [asks], ["Written."]))
        scenes = answer, tool, question
        first = [stack.enter_context(stage.chat()) for stage in scenes]
        for chat in first:
            chat.wait_for_prompt()
            chat.say("do it")
        first[0].wait_for("Half an")
        first[1].wait_for("[q] stop:")
        first[1].say("y")
        first[1].wait_for(lambda screen: (tool.project / "begun.txt").exists())
        first[2].wait_for("[q] stop:")
        for chat in first:
            chat.kill()
        again = [stack.enter_context(stage.chat("-c")) for stage in scenes]
        for chat in again:
            chat.wait_for("do it")
        again[0].wait_for("A whole answer.")
        again[0].wait_for_prompt()
        assert answer.user_texts() == ["do it"]
        again[1].wait_for("It was cut.")
        assert "Interrupted: the outcome of this call is unknown." in again[1].screen()
        assert "not run" not in again[1].screen()
        assert "Interrupted" in tool.messages()[-1]["content"]
        again[2].wait_for("[q] stop:")
        again[2].say("y")
        again[2].wait_for("Written.")
        assert (question.project / "a.txt").read_text() == "text"
        again[2].wait_for(is_at_prompt)


def test_an_imported_session_executes_nothing(tmp_path: Path) -> None:
    """The file has an unfinished run with a command that it claims was approved."""
    with scene(tmp_path, ["I will not."], ["Hello."]) as stage:
        file = tmp_path / "forged.jsonl"
        file.write_bytes(b"".join(forged_session("holiday")))
        stage.bartack("sessions", "import", str(file))
        with stage.chat("--session", "holiday") as chat:
            chat.wait_for("Continue it, with these? [y/n]:")
            chat.say("n")
            chat.wait_for("Not continued.")
            chat.key("C-d")
            chat.wait_for("[left with 0]")
        with stage.chat("--session", "holiday") as chat:
            chat.wait_for("Continue it, with these? [y/n]:")
            chat.say("y")
            chat.wait_for_prompt()
            chat.say("Hello?")
            chat.wait_for_prompt()
            chat.key("C-d")
            chat.wait_for("[left with 0]")
        assert not (stage.project / "pwned").exists()
