"""The slash commands, and the arguments of `bartack chat`."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bartack.models.weights import known_models
from bartack.store import open_store
from tests.code.chat.scene import scene
from tests.code.chat.terminal import chat_environment, needs_tmux


@needs_tmux
def test_every_command_gives_an_answer(tmp_path: Path) -> None:
    with scene(tmp_path, ["Hello."]) as stage, stage.chat(rows=50) as chat:
        chat.wait_for_prompt()
        for command, answer in {
            "/cost": "Nothing used yet.",
            "/export": "Nothing to export.",
            "/compact": "Nothing to compact.",
            "/undo": "Nothing to undo.",
            "/branch": "No turns yet.",
            "/recap a": "/recap LETTER",
            "/system Be kind.": "Send a message first",
            "/effort": "none, minimal, low",
            "/sessions": "No sessions yet.",
            "/nonsense": "Unknown command /nonsense. Type /help for a list.",
            "/sessions nowhere": "'nowhere'",
            "/tools": "search_files",
        }.items():
            chat.say(command)
            chat.wait_for(answer)
            chat.wait_for_prompt()
        chat.say("/etc/hosts is a file, is it not?")  # a path is not a command
        chat.wait_for("Hello.")
        chat.wait_for_prompt()
        chat.say("/help")
        screen = chat.wait_for("Ctrl-O")
        for name in [
            "model",
            "effort",
            "system",
            "tools",
            "sessions",
            "branch",
            "recap",
            "undo",
            "compact",
            "cost",
            "export",
            "thinking",
            "help",
        ]:
            assert f"/{name}" in screen
        chat.wait_for_prompt()
        chat.say("/cost")
        chat.wait_for("Total: 15 tokens")
        chat.wait_for_prompt()
        chat.say("/quit")
        assert "Traceback" not in chat.wait_for("[left with 0]")


@needs_tmux
def test_tab_completes_a_command(tmp_path: Path) -> None:
    with scene(tmp_path, ["Hello."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.type("/se")
        chat.wait_for("Choose a session")
        chat.key("Tab")
        chat.wait_for("› /sessions")
        chat.key("Enter")
        chat.wait_for("No sessions yet.")


@needs_tmux
def test_model_switches_the_model(tmp_path: Path) -> None:
    with scene(tmp_path, ["Hello."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("/model")
        chat.wait_for("Model: openai-compatible:test")
        chat.wait_for_prompt()
        chat.say("hi")
        chat.wait_for("15 tokens")
        chat.say("/model nobody:knows")
        chat.wait_for("nobody")
        chat.wait_for_prompt()
        chat.say("/model openai-compatible:other")
        chat.wait_for("Switched to openai-compatible:other.")
        chat.say("hi again")
        chat.wait_for("30 tokens")
        assert [request["model"] for request in stage.server.requests] == ["test", "other"]
        assert "openai-compatible:other" in chat.screen().rstrip().splitlines()[-1]


@needs_tmux
def test_export_saves_the_session_and_overwrites_nothing(tmp_path: Path) -> None:
    with scene(tmp_path, ["Some **bold** words."]) as stage, stage.chat() as chat:
        chat.wait_for_prompt()
        chat.say("hi")
        chat.wait_for("15 tokens")
        for name in ("notes.md", "notes.json", "notes.jsonl"):
            chat.say(f"/export {name}")
            chat.wait_for(f"Saved to {name}\n")
        chat.wait_for_prompt()
        (stage.project / "mine.md").write_text("mine")
        chat.say("/export mine.md")
        chat.wait_for("mine.md already exists")
        assert (stage.project / "mine.md").read_text() == "mine"
        chat.say("/export nowhere/notes.md")
        chat.wait_for("No such file or directory")
        chat.say("/export notes.txt")
        chat.wait_for(".md, .json or .jsonl")
        assert "Some **bold** words." in (stage.project / "notes.md").read_text()
        assert "bold" in json.dumps(json.loads((stage.project / "notes.json").read_bytes()))
        lines = (stage.project / "notes.jsonl").read_text().splitlines()
        assert len(lines) > 3
        assert all(json.loads(line) for line in lines)


@needs_tmux
async def test_a_session_with_a_hostile_name_can_be_shown_and_exported(tmp_path: Path) -> None:
    name = "../x y\x1b]2;owned\x07"
    with scene(tmp_path, ["Hello."]) as stage:
        store = await open_store(f"sqlite:{tmp_path / 'odd.db'}")
        await store.create_session(name)
        await store.close()
        with stage.chat("--session", name, "--store", str(tmp_path / "odd.db")) as chat:
            chat.wait_for_prompt()
            chat.say("/export")
            chat.wait_for("Saved to x-y-2-owned.md")
            assert (stage.project / "x-y-2-owned.md").is_file()
            chat.wait_for_prompt()
            chat.key("C-d")
            screen = chat.wait_for("[left with 0]")
            assert "odd.db --session '../x y'" in screen  # the hint names the store
            assert chat.title() != "owned"


@needs_tmux
def test_a_model_that_uses_tools_gets_them_after_one_that_does_not(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    tiny_model = known_models()["smollm2-135m"]
    with scene(tmp_path, ["Hello."]) as stage:
        weights = tmp_path / "cache" / "models" / tiny_model.file
        weights.parent.mkdir(parents=True)
        with weights.open("wb") as file:
            file.truncate(tiny_model.size)  # it is never loaded
        with stage.chat("-m", "local:smollm2-135m", columns=80) as chat:
            screen = chat.wait_for_prompt()
            assert screen.startswith(f"bartack {version('bartack')} · local:smollm2-135m · /help\n")
            chat.say("/model openai-compatible:other")
            chat.wait_for("Switched to openai-compatible:other.")
            chat.say("hi")
            chat.wait_for("Hello.")
            assert "read_file" in [tool["function"]["name"] for tool in stage.server.requests[0]["tools"]]


@needs_tmux
def test_older_turns_are_compacted(tmp_path: Path) -> None:
    long = ["A long answer. " * 400]
    with scene(tmp_path, long, long, long, ["A short summary."], ["Good."]) as stage, stage.chat() as chat:
        for turn in range(3):
            chat.wait_for_prompt()
            chat.say(f"turn {turn}")
            chat.wait_for(f"{15 * (turn + 1)} tokens")
        chat.say("/compact")
        chat.wait_for("as a summary")
        chat.wait_for_prompt()
        chat.say("continue")
        chat.wait_for("Good.")
        assert "A short summary." in json.dumps(stage.messages())
        assert "turn 0" not in stage.user_texts()


@needs_tmux
def test_the_session_keeps_its_settings_and_learns_from_another_branch(tmp_path: Path) -> None:
    answers = [["One."], ["Two."], ["A dead end."], ["Three."]]
    with scene(tmp_path, *answers) as stage, stage.chat() as chat:
        for number, text in enumerate(["first", "second"], 1):
            chat.wait_for_prompt()
            chat.say(text)
            chat.wait_for(f"{15 * number} tokens")
        chat.say("/branch 1")
        chat.wait_for("Continuing after turn 1")
        chat.say("/system Speak like a pirate.")
        chat.wait_for("System prompt replaced.")
        chat.say("/effort high")
        chat.wait_for("Thinking level: high.")
        chat.say("/recap a")
        chat.wait_for("45 tokens")
        chat.wait_for_prompt()
        chat.say("third")
        chat.wait_for("Three.")
        request_text = json.dumps(stage.server.requests[-1])
        assert "Speak like a pirate." in request_text
        assert "A dead end." in request_text
        assert "Two." not in request_text
        assert stage.server.requests[-1]["reasoning_effort"] == "high"
        chat.wait_for_prompt()
        chat.say("/system -")
        chat.wait_for("System prompt restored.")


def test_chat_needs_a_terminal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bartack.cli", "chat"],
        env=chat_environment(tmp_path, "http://127.0.0.1:9/v1"),
        cwd=tmp_path,
        input="hi\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "bartack: This command needs a terminal.",
        "hint: Use 'bartack run' in scripts and pipes.",
    ]
