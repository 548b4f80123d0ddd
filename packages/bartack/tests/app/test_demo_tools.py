"""The calculator and the line counter of the demo model, as an agent uses them."""

from pathlib import Path

import pytest

from bartack import Agent
from bartack.app.demo_tools import calculate, demo_tools
from bartack.models import LocalModel
from bartack.nouns.errors import ToolError
from bartack.tools import LocalRuntime, file_tools
from tests.models.scripted_engine import ScriptedEngine


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("17 * 23", "= 391"),
        ("0.1 + 0.2", "= 0.3"),
        ("1 / 3", "≈ 0.333333333333"),
        ("-(2 - 5) ** 3 % 4 // 1", "= 3"),
        ("sqrt(1764)", "= 42"),
        ("sqrt(2)", "≈ 1.41421356237"),
        ("2 ** -2", "= 0.25"),
        ("123456789 ** 9", f"= {123456789**9}"),
    ],
)
def test_arithmetic_is_exact(expression: str, result: str) -> None:
    assert calculate(expression) == f"{expression} {result}"


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1 / 0", "divides by zero"),
        ("2 +", "not an arithmetic expression"),
        ("open('x')", "Only numbers"),
        ("True + 1", "Only numbers"),
        ("9 ** 9 ** 9", "whole number up to 1000"),
        ("(9 ** 999) ** 999", "too large"),
        ("sqrt(-1)", "no real square root"),
        ("1" + "+1" * 200, "longer than 200"),
    ],
)
def test_what_cannot_be_calculated_is_explained(expression: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem.replace("*", r"\*")):
        calculate(expression)


async def test_the_demo_model_calculates_and_counts_lines_without_a_generation(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\n\n[three]", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("built\n", encoding="utf-8")
    (tmp_path / "built").write_text("x\n" * 10, encoding="utf-8")
    engine = ScriptedEngine()
    agent = Agent(
        LocalModel(engine=engine), tools=(*file_tools(), *demo_tools(files=True)), runtime=LocalRuntime(tmp_path)
    )
    async with agent:
        assert (await agent.run("What is 17 * 23?")).output == "17 * 23 = 391"
        assert (await agent.run("How many lines are in notes.txt?")).output == "notes.txt has 3 lines."
        everything = (await agent.run("how many lines are there?")).output
        assert everything.startswith("The files here have 4 lines.\n[ignored by .gitignore")
        assert "count lines" in (await agent.run("What can you do?")).output
    assert engine.bodies == []
