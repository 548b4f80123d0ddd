"""A stored message as history, and what a human is asked."""

import re
from typing import Any

import pytest

from bartack.cli.terminal.screen import show_message, show_request
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, assistant, system, tool_message, user
from bartack.nouns.parts import FileRef, Image, Thinking, ToolCall, ToolResult
from tests.cli.terminal.telling import console_of, plain_console, written


def shown(message: Message, **settings: Any) -> str:
    console = plain_console()
    show_message(console, message, **settings)
    return written(console)


def asked(name: str, arguments: dict[str, Any], reason: str | None = None, width: int = 60) -> str:
    console = console_of(width)
    show_request(console, ApprovalRequired("c1", name, arguments, reason=reason))
    return re.sub(r"\x1b\[[0-9;]*m", "", written(console))


def test_a_prompt_has_its_mark_and_its_attachments() -> None:
    text = shown(user("one\ntwo", Image("image/png", data=b"x"), FileRef("notes.txt")))
    assert text == "› one\n  two\n  [image image/png]\n  [file notes.txt]\n\n"


def test_an_answer_is_rendered_and_its_thinking_folded() -> None:
    message = assistant(Thinking("deep and long"), "Some **bold**\n\n- item", ToolCall("c1", "look", {"at": "it"}))
    assert shown(message) == 'thought (3 words)\n\nSome bold\n\n • item\n\n→ look at="it"\n'
    assert "deep and long" in shown(message, thinking=True)


def test_a_stopped_answer_says_so() -> None:
    assert shown(assistant("Half", meta=Meta(aborted=True))) == "Half\n\nstopped; what was said is kept\n\n"


def test_results_show_how_they_begin() -> None:
    lines = "\n".join(f"line {n}" for n in range(9))
    bad = ToolResult("c2", "it broke", is_error=True, error_code=ErrorCode.TOOL_FAILED)
    text = shown(tool_message(ToolResult("c1", lines), bad, ToolResult("c3", "")))
    assert text == "✓ line 0\n  line 1\n  line 2\n  … 6 more lines\n✗ it broke\n✓ no output\n\n"


def test_a_call_of_the_provider_comes_with_its_result() -> None:
    call = ToolCall("c1", "search", {"q": "x"}, executed_by="provider", result=ToolResult("c1", "found"))
    assert shown(assistant(call)) == '→ search q="x"\n✓ found\n'


def test_a_system_message_is_not_for_people() -> None:
    assert shown(system("You are.")) == ""


def test_a_file_to_be_written_is_shown_shortened() -> None:
    text = asked("write_file", {"path": "a.py", "text": "".join(f"n = {n}\n" for n in range(50))}, "it writes")
    lines = text.strip().split("\n")
    assert lines[:3] == ["? write_file  it writes", "  a.py", "  n = 0"]
    assert lines[-1] == "  … 30 more lines"
    assert len(lines) == 23


def test_an_edit_is_shown_as_a_difference_with_all_its_arguments() -> None:
    text = asked("edit_file", {"path": "a.py", "old": "x = 1\ny = 2", "new": "x = 3", "everywhere": True})
    assert "  a.py\n  - x = 1\n  - y = 2\n  + x = 3\n" in text
    assert '"everywhere": true' in text


def test_a_command_is_shown_whole() -> None:
    command = "echo " + "word " * 40 + "; rm -rf /"
    text = asked("run_command", {"command": command, "directory": "."}, width=40)
    assert " ".join(text.split()).endswith("word ; rm -rf /")
    assert "directory" not in text
    assert max(map(len, text.split("\n"))) <= 40


def test_a_command_or_value_of_many_lines_is_shown_to_its_end() -> None:
    command = "echo 1\n" * 25 + "rm -rf important"
    assert asked("run_command", {"command": command}).endswith("  rm -rf important\n")
    assert '"rm important"' in asked("run", {"commands": [*["ls"] * 25, "rm important"]})


def test_nothing_hides_in_what_is_asked() -> None:
    text = asked("run_command", {"command": "ls\x1b[8m; rm x\r\u202e", "timeout_ms": 5})
    assert "$ ls\\x1b[8m; rm x\\r\\u202e" in text
    assert '"timeout_ms": 5' in text
    odd = asked("write_file", {"path": 3, "text": ["\x1b[2J"]})
    assert '"path": 3' in odd
    assert "\x1b" not in odd


def test_any_other_tool_is_asked_about_as_json() -> None:
    assert asked("book", {"city": "Paris", "days": [1, 2]}).startswith('? book\n  {\n    "city": "Paris",\n')


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_output_that_cannot_hold_a_sign_gets_another(encoding: str, tmp_path: Any) -> None:
    from rich.console import Console

    with (tmp_path / "out").open("w", encoding=encoding) as file:
        console = Console(file=file, width=60)
        show_message(
            console, assistant("Ünï 日本\n\n- item\n\n| a |\n|---|\n| b |\n", ToolCall("c1", "look", {"é": "✓"}))
        )
        show_request(console, ApprovalRequired("c1", "look", {"é": "✓"}))
    assert "- item" in (tmp_path / "out").read_text(encoding=encoding)
