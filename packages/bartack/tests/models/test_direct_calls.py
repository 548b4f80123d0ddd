"""Requests that a demo model recognises by their form."""

import pytest

from bartack.app.demo_tools import demo_tools
from bartack.models.local_tools import asks_for_abilities, direct_answer, direct_call
from bartack.nouns.messages import assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult

TOOLS = tuple(tool.spec for tool in demo_tools(files=True))


@pytest.mark.parametrize(
    ("request_text", "expression"),
    [
        ("17*23", "17*23"),
        ("What is 17 * 23?", "17 * 23"),
        ("what's 17 x 23", "17 * 23"),
        ("Please calculate 1,234 times 5.5", "1234 * 5.5"),
        ("how much is 15% of 80?", "15 / 100 * 80"),
        ("the square root of 1764", "sqrt(1764)"),
        ("(2 + 3) ^ 4 =", "(2 + 3) ** 4"),
        ("10 divided by 4 minus 1.", "10 / 4 - 1"),
    ],
)
def test_arithmetic_is_recognised(request_text: str, expression: str) -> None:
    call = direct_call([user("Hi"), assistant("Hello"), user(request_text)], TOOLS)
    assert call is not None
    assert (call.tool.name, call.arguments) == ("calculate", {"expression": expression})


@pytest.mark.parametrize(
    ("request_text", "path"),
    [
        ("How many lines are in README.md?", "README.md"),
        ("count the lines of src/app.py", "src/app.py"),
        ("how many lines does the README have?", "README"),
        ("how many lines are in docs/?", "docs/"),
        ("How many lines of code are there?", "."),
    ],
)
def test_questions_for_lines_are_recognised(request_text: str, path: str) -> None:
    call = direct_call([user(request_text)], TOOLS)
    assert call is not None
    assert (call.tool.name, call.arguments) == ("count_lines", {"path": path})


@pytest.mark.parametrize(
    "request_text",
    ["42", "show me lines 10-20 of a.txt", "what happened on 2026-11-18 in Rome?", "x = 1", "", "how long is a line?"],
)
def test_other_requests_are_not(request_text: str) -> None:
    assert direct_call([user(request_text)], TOOLS) is None


def test_only_the_tools_that_there_are_can_be_called() -> None:
    assert direct_call([user("17*23")], ()) is None
    assert direct_call([], TOOLS) is None
    assert direct_call([user("17*23"), assistant("391")], TOOLS) is None


def test_the_result_of_a_direct_call_is_the_answer() -> None:
    asked = [user("17*23"), assistant(ToolCall("c1", "calculate", {"expression": "17*23"}))]
    assert direct_answer([*asked, tool_message(ToolResult("c1", "17*23 = 391"))]) == "17*23 = 391"
    assert direct_answer(asked) is None
    assert direct_answer([]) is None
    read = [user("read it"), assistant(ToolCall("c1", "read_file", {"path": "a"})), tool_message(ToolResult("c1", "x"))]
    assert direct_answer(read) is None


def test_a_question_for_abilities_is_recognised() -> None:
    assert asks_for_abilities([user("What can you do?")])
    assert asks_for_abilities([user("help")])
    assert not asks_for_abilities([user("help me write a poem")])
    assert not asks_for_abilities([])
