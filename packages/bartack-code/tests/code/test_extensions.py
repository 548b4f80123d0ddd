"""Custom commands, skills and sub-agents from Markdown files."""

from pathlib import Path
from typing import Any

import pytest

from bartack import Agent, Meta, ToolCall, Usage, assistant
from bartack.models import ScriptedModel
from bartack.tools import LocalRuntime, ToolContext
from bartack_code.workspace.extensions import Extension, Extensions, expanded, load_extensions, skill_text, skill_tool
from bartack_code.workspace.subagents import BUILT_IN, defined_by, extension_tools

NONE = Extensions({}, {}, {})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BARTACK_CONFIG", str(tmp_path / "home/.config/bartack/config.toml"))
    return tmp_path / "home"


def test_files_of_the_project_and_of_the_user_are_found(home: Path) -> None:
    project = home / "project"
    write(project / ".git/HEAD", "")
    write(project / ".bartack/commands/fix.md", "---\ndescription: Fix an issue\n---\nFix $1 in $ARGUMENTS.")
    write(project / ".claude/commands/git/tag.md", "Tag it.")
    write(project / ".claude/commands/fix.md", "Not this one.")
    write(project / ".agents/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: >-\n  Work with\n  PDFs\n---\nUse it.")
    write(project / ".claude/agents/reviewer.md", "---\ntools:\n  - Read\n  - Bash\n---\nReview.")
    write(home / ".claude/commands/mine.md", "# Mine\n\nDo it.")
    write(home / ".config/bartack/skills/own/SKILL.md", "Own.")
    inner = project / "src"
    inner.mkdir()
    extensions = load_extensions(inner, home, project=True)
    assert sorted(extensions.commands) == ["fix", "git:tag", "mine"]
    assert extensions.commands["fix"].description == "Fix an issue"
    assert extensions.commands["mine"].description == "Mine"
    assert {name: skill.description for name, skill in extensions.skills.items()} == {
        "pdf": "Work with PDFs",
        "own": "Own.",
    }
    assert extensions.agents["reviewer"].fields["tools"] == "Read, Bash"
    assert sorted(folder.name for folder in extensions.project_folders) == [".agents", ".bartack", ".claude"]
    untrusted = load_extensions(inner, home, project=False)
    assert (sorted(untrusted.commands), sorted(untrusted.skills), sorted(untrusted.agents)) == (["mine"], ["own"], [])
    assert untrusted.project_folders == extensions.project_folders


def test_the_home_is_no_project(home: Path) -> None:
    write(home / ".claude/commands/mine.md", "Do it.")
    extensions = load_extensions(home, home, project=False)
    assert sorted(extensions.commands) == ["mine"]
    assert extensions.project_folders == ()


def test_links_out_of_the_project_and_odd_names_are_ignored(home: Path) -> None:
    write(home / "secret.md", "hunter2")
    write(home / "project/.claude/commands/a b.md", "odd")
    write(home / "project/.claude/commands/empty.md", "")
    (home / "project/.git").mkdir()
    (home / "project/.claude/commands/leak.md").symlink_to(home / "secret.md")
    assert load_extensions(home / "project", home, project=True) == NONE


def test_arguments_are_put_into_the_text() -> None:
    def command(text: str) -> Extension:
        return Extension("x", Path("x.md"), {}, text)

    assert expanded(command("Fix $1 and $2, not $3: $ARGUMENTS"), "a 'b c'") == "Fix a and b c, not : a 'b c'"
    assert expanded(command("Fix it.\n"), "now") == "Fix it.\n\nnow"
    assert expanded(command("Fix it."), "") == "Fix it."
    assert expanded(command("Say $1"), "it's") == "Say it's"


async def test_a_model_sees_the_list_of_skills_and_reads_one(tmp_path: Path) -> None:
    skills = {"pdf": Extension("pdf", tmp_path / "pdf/SKILL.md", {"description": "Work with PDFs"}, "Use pdftotext.")}
    assert skill_text(skills).endswith("\n- pdf: Work with PDFs")
    assert skill_text({}) == ""
    read = skill_tool(skills).execute
    assert (await read({"name": "pdf"}, ToolContext())).content.startswith("Use pdftotext.\n\n[files of this skill: ")
    missing = await read({"name": "doc"}, ToolContext())
    assert (missing.is_error, missing.content) == (True, "There is no skill 'doc'. Skills: pdf.")


def test_a_file_defines_a_sub_agent() -> None:
    fields = {"name": "tester", "description": "Tests.", "tools": "Read, Bash, mcp__x", "max_turns": "7"}
    definition = defined_by(Extension("file", Path("file.md"), fields, "\nTest it.\n"))
    assert definition == ("tester", "Tests.", "Test it.", ("read_file", "run_command", "mcp__x"), 7)
    assert defined_by(Extension("all", Path("all.md"), {}, "All."))[3:] == (None, 60)


async def test_a_sub_agent_reads_with_the_model_of_its_caller_and_a_budget(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("answer = 42\n")
    runtime = LocalRuntime(tmp_path)

    def asked(call: str, tool: str, **arguments: Any) -> Any:
        return assistant(ToolCall(call, tool, arguments), meta=Meta(usage=Usage(10, 1)))

    unused = ScriptedModel(["never"])
    tools = extension_tools(NONE, model=unused, runtime=runtime, approval=None)
    assert [tool.name for tool in tools] == ["explore", "task"]
    answers = [
        asked("c1", "explore", prompt="Where is the answer?"),
        asked("c2", "search_files", pattern="42"),
        asked("c3", "write_file", path="b", text="x"),  # it has no such tool
        "In a.py:1.",
        "It is in a.py.",
    ]
    model = ScriptedModel(answers)
    async with Agent(unused, tools=tools, runtime=runtime, store="memory:") as agent:
        result = await agent.run("Find it", model=model)
    assert result.output == "It is in a.py."
    assert not unused.calls
    assert sorted(tool.name for tool in model.calls[1].tools) == ["list_files", "read_file", "search_files"]
    assert "a.py:1: answer = 42" in str(model.calls[2].messages[-1])
    assert not (tmp_path / "b").exists()


async def test_a_sub_agent_ends_after_its_turns(tmp_path: Path) -> None:
    agents = {"explore": Extension("explore", Path("e.md"), {"max_turns": "2", "tools": "Glob"}, "Look.")}
    runtime = LocalRuntime(tmp_path)
    (tool, _) = extension_tools(NONE._replace(agents=agents), model=ScriptedModel([""]), runtime=runtime, approval=None)
    looks = [assistant(ToolCall(f"c{number}", "list_files", {"limit": number + 1})) for number in range(2)]
    model = ScriptedModel([assistant(ToolCall("c", "explore", {"prompt": "?"})), *looks, "Done."])
    async with Agent(model, tools=[tool], runtime=runtime, store="memory:") as agent:
        await agent.run("Find it")
    assert "did not complete" in str(model.calls[-1].messages[-1])
    assert len(model.calls) == 4


def test_the_built_in_ones_have_instructions() -> None:
    assert [(agent.name, bool(agent.instructions), agent.tools is None) for agent in BUILT_IN] == [
        ("explore", True, False),
        ("task", True, True),
    ]
