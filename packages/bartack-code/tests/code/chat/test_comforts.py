"""What a user brings along to the chat: keys of vi, a program for the status line, fallback models."""

import json
from pathlib import Path

import pytest

from tests.cli.provider_server import Step
from tests.code.chat.scene import Scene, scene
from tests.code.chat.terminal import needs_tmux

pytestmark = needs_tmux

WINDOWS = [(120, 35), (80, 24), (60, 24)]


def configure(stage: Scene, text: str) -> None:
    folder = Path(stage.env["XDG_CONFIG_HOME"], "bartack")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("columns", "rows"), WINDOWS)
def test_the_prompt_can_have_the_keys_of_vi(columns: int, rows: int, tmp_path: Path) -> None:
    with scene(tmp_path, ["Read."]) as stage:
        configure(stage, 'keys = "vi"\n')
        with stage.chat(columns=columns, rows=rows) as chat:
            chat.wait_for_prompt()
            chat.type("one two three")
            chat.key("Escape")
            chat.type("0dwA")
            chat.wait_for("› two three")
            chat.type(" four")
            chat.key("Escape", "BSpace")  # moves to the left, as in vi
            chat.type("xa")
            chat.wait_for("› two three for")
            chat.key("Enter")
            chat.wait_for("Read.")
            chat.wait_for_prompt()
            assert stage.user_texts() == ["two three for"]
            chat.key("Escape")
            chat.type("k")
            chat.wait_for(lambda screen: screen.count("› two three for") == 2)
            chat.key("Enter")
            chat.wait_for(lambda screen: screen.count("Read.") == 2)


@pytest.mark.parametrize(("columns", "rows"), WINDOWS)
def test_a_program_writes_the_status_line(columns: int, rows: int, tmp_path: Path) -> None:
    with scene(tmp_path, ["Hello."]) as stage:
        configure(stage, f"status_line = '''cat > {tmp_path}/state; printf \"\\033[31mmine\\n\"; wc -l < log'''\n")
        (stage.project / "log").write_text("", encoding="utf-8")
        with stage.chat("--mode", "edit", columns=columns, rows=rows) as chat:
            chat.wait_for(lambda screen: screen.rstrip().endswith("edit mode · mine · /help"))
            first = json.loads((tmp_path / "state").read_text())
            assert first["sessionId"] is None
            (tmp_path / "state").unlink()
            chat.say("hi")
            chat.wait_for("Hello.")
            chat.wait_for_prompt()
            chat.wait_for(lambda _: (tmp_path / "state").exists() and bool((tmp_path / "state").read_text()))
        state = json.loads((tmp_path / "state").read_text())
        assert state.pop("sessionId")
        assert state == {
            "model": "openai-compatible:test",
            "directory": str(stage.project),
            "mode": "edit",
            "contextTokens": 15,
            "contextWindow": None,
            "inputTokens": 10,
            "outputTokens": 5,
            "costUsd": 0.0,
        }


def test_a_failing_program_for_the_status_line_is_named_there(tmp_path: Path) -> None:
    with scene(tmp_path, ["Hello."]) as stage:
        configure(stage, 'status_line = "exit 3"\n')
        with stage.chat() as chat:
            chat.wait_for("status_line failed with exit code 3")
            chat.say("hi")
            chat.wait_for("Hello.")


def test_a_fallback_model_answers_when_the_model_has_failed(tmp_path: Path) -> None:
    busy: list[Step] = [{"status": 529, "error": "overloaded", "headers": {"Retry-After": "0"}}]
    with scene(tmp_path, busy, busy, ["From the other."]) as stage:
        configure(stage, 'busy_retries = 1\nfallback = ["openai-compatible:other"]\n')
        with stage.chat() as chat:
            chat.wait_for_prompt()
            chat.say("hi")
            chat.wait_for("From the other.")
            screen = chat.wait_for_prompt()
            assert "openai-compatible:other" in screen
        assert [request["model"] for request in stage.server.requests] == ["test", "test", "other"]
        answer = stage.bartack("run", "again")
        assert answer == "From the other.\n"
