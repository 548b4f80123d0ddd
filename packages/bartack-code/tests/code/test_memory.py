"""The user's memory for all projects, and the tool that changes it."""

from datetime import date
from pathlib import Path

import pytest

from bartack import Agent, ScriptedModel, ToolCall, ToolError, assistant
from bartack.app.modes import ModePolicy
from bartack.app.permissions import MEMORY_TOOL, RuledCall, choices_for
from bartack.nouns.entries import ApprovalRequired
from bartack.session.decisions import Decision
from bartack.tools.file_changes import FileChange, change_in
from bartack_code.workspace.memory import edit_memory, user_memory
from bartack_code.workspace.project import project_instructions


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BARTACK_CONFIG", str(tmp_path / "settings/config.toml"))
    return tmp_path / "settings/AGENTS.md"


def test_the_memory_is_a_part_of_the_instructions(path: Path, tmp_path: Path) -> None:
    assert user_memory() == []
    path.parent.mkdir()
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles/AGENTS.md").write_text("Answer in German.\n")
    path.symlink_to(tmp_path / "dotfiles/AGENTS.md")
    text = project_instructions("Be brief.", tmp_path, user_memory(), date(2026, 1, 31))
    assert text.endswith(f"Instructions of the user for all projects, from {path}:\n\nAnswer in German.")


class Answers:
    """Approves or denies, and keeps the questions."""

    def __init__(self, *, approve: bool) -> None:
        self._approve = approve
        self.questions: list[ApprovalRequired] = []

    async def decide(self, request: ApprovalRequired) -> Decision:
        self.questions.append(request)
        return Decision("approve" if self._approve else "deny")


def ask_for(old: str, new: str, *, approve: bool = True) -> FileChange:
    """Let a model call the tool; the change that the user was asked about."""
    answers = Answers(approve=approve)
    call = ToolCall("c1", MEMORY_TOOL, {"old": old, "new": new})
    model = ScriptedModel([assistant(call), "done"])
    Agent(model, tools=[edit_memory], approver=answers).run_sync("remember it")
    change = change_in(answers.questions[0])
    assert change is not None
    return change


def test_the_model_proposes_changes(path: Path) -> None:
    denied = ask_for("", "Answer in German.", approve=False)
    assert (denied.path, denied.before) == (str(path), "absent")
    assert not path.exists()
    ask_for("", "Answer in German.")
    ask_for("", "Use tabs.")
    assert path.read_text() == "Answer in German.\nUse tabs.\n"
    change = ask_for("German", "French")
    assert [row.text for row in change.diff if row.kind != " "] == ["Answer in German.", "Answer in French."]
    assert path.read_text() == "Answer in French.\nUse tabs.\n"


def test_no_rule_and_no_mode_but_yes_covers_a_change() -> None:
    call = RuledCall(MEMORY_TOOL, {"old": "", "new": "x"})
    assert choices_for(call) == []
    for mode in ("ask", "edit", "sandbox"):
        assert ModePolicy(mode, is_confined=lambda: True).needs_approval(call, declared=True)


def test_a_change_of_text_that_is_not_there_is_an_error(path: Path) -> None:
    assert edit_memory.preview is not None
    with pytest.raises(ToolError):
        edit_memory.preview({"old": "gone", "new": "x"})
    assert not path.exists()
