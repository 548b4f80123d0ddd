"""What a user brings along to the chat: keys of vi, a program for the status line, fallback models."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.provider_server import Step
from tests.code.chat.scene import Scene, scene, writes
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


@pytest.mark.parametrize(("columns", "rows"), WINDOWS)
def test_a_chat_works_in_a_worktree_of_its_own(columns: int, rows: int, tmp_path: Path) -> None:
    script = ([writes("notes.txt", "theirs\n")], ["Written."], ["Hello again."], ["Unused."])
    with scene(tmp_path, *script) as stage:
        top = stage.project
        git(top, "init", "--quiet", "--initial-branch=main")
        (top / "sub").mkdir()
        (top / "sub" / "notes.txt").write_text("mine\n", encoding="utf-8")
        git(top, "add", ".")
        git(top, "commit", "--quiet", "-m", "begin")
        with stage.chat("--worktree", "--mode", "edit", columns=columns, rows=rows) as chat:
            chat.wait_for("on branch chat-", scrolled=True)
            chat.wait_for_prompt()
            chat.say("write")
            chat.wait_for("Written.")
            chat.wait_for_prompt()
            chat.key("C-d")
            left = chat.wait_for("[left with 0]", scrolled=True)
        (worktree,) = (path for path in (top / ".bartack" / "worktrees").iterdir() if path.is_dir())
        assert f"The work is in {worktree}, on branch {worktree.name}." in left
        assert (worktree / "notes.txt").read_text() == "theirs\n"
        assert not (top / "notes.txt").exists()
        assert git(top, "status", "--porcelain") == ""
        with stage.chat("--worktree", columns=columns, rows=rows) as chat:  # nothing is changed in this one
            chat.wait_for_prompt()
            chat.say("hi")
            chat.wait_for("Hello again.")
            chat.wait_for_prompt()
            chat.key("C-d")
            chat.wait_for("Nothing was changed in the worktree, which is removed.", scrolled=True)
        assert git(top, "branch", "--format=%(refname:short)").split() == [worktree.name, "main"]


def test_a_worktree_needs_a_repository(tmp_path: Path) -> None:
    with scene(tmp_path, ["Never."]) as stage, stage.chat("--worktree") as chat:
        chat.wait_for("--worktree needs a git repository with a commit.")
        chat.wait_for("[left with 2]")


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout
