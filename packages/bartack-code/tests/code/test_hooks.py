"""Hooks: what a program gets on stdin, what its exit status means, and whose programs run."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack import Agent, BartackError, ToolCall, assistant, tool
from bartack.app.settings import HookSettings
from bartack.models import ScriptedModel
from bartack_code.workspace.hooks import HookRunner, find_hook_file

DECLARED = '[[hooks]]\nevent = "before_tool"\ntools = ["touch*"]\ncommand = "true"\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BARTACK_CONFIG", str(tmp_path / "config/config.toml"))
    return tmp_path


def declare(folder: Path, text: str) -> None:
    (folder / ".bartack").mkdir(parents=True, exist_ok=True)
    (folder / ".bartack/hooks.toml").write_text(text)


async def answered(tmp_path: Path, *hooks: HookSettings) -> tuple[str, list[str], bool]:
    """What the model gets of a call, what the user sees, and whether the tool ran."""
    reported: list[str] = []
    runner = HookRunner(hooks, tmp_path, reported.append)
    ran: list[str] = []

    @tool
    async def touch(name: str) -> str:
        ran.append(name)
        return "touched"

    model = ScriptedModel([assistant(ToolCall("c1", "touch", {"name": "a"})), "Done."])
    async with Agent(model, tools=[touch], hooks=runner.for_agent(), store="memory:") as agent:
        result = await agent.run("go")
    await runner.end_turn(result.session_id)
    (part,) = model.calls[1].messages[-1].parts
    return str(getattr(part, "content", "")), reported, bool(ran)


def hook(event: Any, command: str, **options: Any) -> HookSettings:
    return HookSettings(event=event, command=command, **options)


async def test_a_hook_refuses_a_call_with_a_reason(tmp_path: Path) -> None:
    text, reported, ran = await answered(tmp_path, hook("before_tool", "echo not today >&2; exit 2"))
    assert (text, reported, ran) == ("A hook refused this call: not today", [], False)


async def test_a_hook_sees_the_call_and_the_result_and_adds_to_it(tmp_path: Path) -> None:
    save = "cat > {}.json"
    text, reported, ran = await answered(
        tmp_path,
        hook("before_tool", save.format("before")),
        hook("after_tool", f"{save.format('after')}; echo lint failed >&2; exit 2"),
        hook("end_of_turn", save.format("end")),
    )
    assert (text, reported, ran) == ("touched\n[hook: lint failed]", [], True)
    call = {"tool": "touch", "toolCallId": "c1", "arguments": {"name": "a"}, "directory": str(tmp_path)}
    before, after, end = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("before", "after", "end"))
    assert before == {"event": "before_tool", **call}
    assert after == {"event": "after_tool", **call, "result": "touched", "isError": False}
    assert end["event"] == "end_of_turn"
    assert end["sessionId"]


async def test_a_hook_that_fails_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    text, reported, ran = await answered(
        tmp_path,
        hook("before_tool", "echo broken >&2; exit 3"),
        hook("before_tool", "sleep 600", timeout_s=0.2),
        hook("before_tool", "exit 2", tools=("other", "read_*")),
        hook("end_of_turn", "echo remember >&2; exit 2"),
    )
    assert (text, ran) == ("touched", True)
    assert reported == [
        "A hook (echo broken >&2; exit 3) failed with exit code 3: broken",
        "A hook (sleep 600) did not end within 0.2 s.",
        "remember",
    ]


def test_hooks_of_a_project_are_trusted_in_one_version(home: Path) -> None:
    project = home / "project"
    (project / ".git").mkdir(parents=True)
    declare(project, DECLARED)
    (project / "src").mkdir()
    file = find_hook_file(project / "src", home)
    assert file is not None
    assert file.hooks == (hook("before_tool", "true", tools=("touch*",)),)
    assert not file.is_trusted
    file.trust()
    again = find_hook_file(project, home)
    assert again is not None
    assert again.is_trusted
    declare(project, DECLARED.replace("true", "rm -rf ."))
    changed = find_hook_file(project, home)
    assert changed is not None
    assert not changed.is_trusted


def test_a_project_may_have_no_hooks_or_invalid_ones(home: Path) -> None:
    assert find_hook_file(home, home) is None
    declare(home, "[[hooks]]\nevent = 'sometimes'\ncommand = 'true'\n")
    with pytest.raises(BartackError, match=r"hooks\.toml is invalid"):
        find_hook_file(home, home)
