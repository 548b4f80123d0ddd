"""Stored messages, and requests for approval."""

import re
from typing import Any

import pytest

from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, assistant, system, tool_message, user
from bartack.nouns.parts import FileRef, Image, Thinking, ToolCall, ToolResult
from bartack.tools.file_changes import planned_change
from bartack.tools.file_operations import FileContent, content_of
from bartack.tools.runtime import WriteFile
from bartack.tools.sandbox import ABSENT
from bartack_code.terminal.messages import show_message, show_request
from tests.code.terminal.event_builders import console_of, plain_console, written


def shown(message: Message, **settings: Any) -> str:
    console = plain_console()
    show_message(console, message, **settings)
    return written(console)


def request_text(name: str, arguments: dict[str, Any], *, width: int = 60, **fields: Any) -> str:
    console = console_of(width)
    show_request(console, ApprovalRequired(tool_call_id="c1", tool_name=name, arguments=arguments, **fields))
    return re.sub(r"\x1b\[[0-9;]*m", "", written(console))


def test_a_prompt_is_shown_with_its_attachments() -> None:
    text = shown(user("one\ntwo", Image("image/png", data=b"x"), FileRef("notes.txt")))
    assert text == "› one\n  two\n  [image image/png]\n  [file notes.txt]\n\n"


def test_an_answer_is_rendered_with_its_thinking_folded() -> None:
    message = assistant(Thinking("deep and long"), "Some **bold**\n\n- item", ToolCall("c1", "look", {"at": "it"}))
    assert shown(message) == 'thought (3 words)\n\nSome bold\n\n • item\n\n→ look at="it"\n'
    assert "deep and long" in shown(message, thinking=True)


def test_a_stopped_answer_is_marked() -> None:
    assert shown(assistant("Half", meta=Meta(aborted=True))) == "Half\n\nStopped. The partial answer is kept.\n\n"


def test_results_are_shortened() -> None:
    lines = "\n".join(f"line {n}" for n in range(9))
    bad = ToolResult("c2", "it broke", is_error=True, error_code=ErrorCode.TOOL_FAILED)
    text = shown(tool_message(ToolResult("c1", lines), bad, ToolResult("c3", "")))
    assert (
        text
        == "✓ line 0\n  line 1\n  … 4 more lines (Ctrl-T)\n  line 6\n  line 7\n  line 8\n✗ it broke\n✓ no output\n\n"
    )
    assert lines.replace("\n", "\n  ") in shown(tool_message(ToolResult("c1", lines)), unfolded=True)


def test_a_command_that_failed_is_marked_and_its_end_is_shown() -> None:
    output = "\n".join(f"line {n}" for n in range(100)) + "\n[exit code 2]"
    text = shown(tool_message(ToolResult("c1", output, metadata={"exit_code": 2})))
    assert text.startswith("✗ exit code 2\n  line 0\n  line 1\n  … 91 more lines (Ctrl-T)\n  line 93\n")
    assert text.endswith("  line 99\n  [exit code 2]\n\n")
    killed = shown(tool_message(ToolResult("c1", "", metadata={"exit_code": -9})))
    assert killed == "✗ killed by signal 9\n\n"
    assert shown(tool_message(ToolResult("c1", "fine", metadata={"exit_code": 0}))) == "✓ fine\n\n"


def test_a_provider_executed_call_has_its_result() -> None:
    call = ToolCall("c1", "search", {"q": "x"}, executed_by="provider", result=ToolResult("c1", "found"))
    assert shown(assistant(call)) == '→ search q="x"\n✓ found\n'


def test_system_messages_are_not_shown() -> None:
    assert shown(system("You are.")) == ""


def changing(
    path: str, before: str | None, after: str, note: str | None = None, arguments: dict[str, Any] | None = None
) -> ApprovalRequired:
    content = FileContent(ABSENT) if before is None else content_of(before.encode())._replace(note=note)
    change = planned_change(WriteFile(path=path, text=after), content)
    return ApprovalRequired(
        tool_call_id="c1",
        tool_name="write_file",
        arguments={"path": path, "text": "", **(arguments or {})},
        preview=change.as_json(),
    )


def change_text(request: ApprovalRequired, **settings: Any) -> str:
    console = plain_console()
    show_request(console, request, **settings)
    return written(console)


def test_a_new_file_is_marked_and_shown_whole() -> None:
    text = change_text(changing("a.py", None, "".join(f"n = {n}\n" for n in range(300))), in_full=True)
    lines = text.strip().split("\n")
    assert lines[:3] == ["? write_file", "  a.py  new file, 300 lines", "    1 + n = 0"]
    assert lines[-1] == "  300 + n = 299"
    assert len(lines) == 302


def test_an_overwritten_file_is_shown_as_a_diff_with_context() -> None:
    before = "".join(f"{n}\n" for n in range(1, 21))
    text = change_text(changing("a.txt", before, before.replace("10\n", "ten\x1b[2J\n"), arguments={"mode": 3}))
    assert "  a.txt  overwrites the file, +1 -1\n" in text
    assert "   …   6 unchanged lines\n   7   7\n" in text
    assert "   9   9\n  10 - 10\n  10 + ten\\x1b[2J\n  11   11\n" in text
    assert "  13   13\n   …   7 unchanged lines\n" in text
    assert '"mode": 3' in text


def test_a_file_that_cannot_be_compared_is_marked() -> None:
    text = change_text(changing("a.txt", "x\n", "x\n", "the existing file is not UTF-8 text"))
    assert "  a.txt\n  the existing file is not UTF-8 text\n" in text
    assert "no change" in change_text(changing("a.txt", "x\n", "x\n"))


def test_a_request_larger_than_the_window_is_cut_but_not_in_the_pager() -> None:
    change = changing("a.txt", None, "line\n" * 5_000)
    limit = plain_console().height - 4
    note = rf"\n  showing {limit} of 5,002 lines \([\d,]+ characters\); v shows all\n"
    assert re.search(note, change_text(change))
    assert change_text(change, in_full=True).count("+ line") == 5_000


def test_an_edit_is_shown_as_a_diff_with_all_its_arguments() -> None:
    text = request_text("edit_file", {"path": "a.py", "old": "x = 1\ny = 2", "new": "x = 3", "everywhere": True})
    assert "  a.py\n  - x = 1\n  - y = 2\n  + x = 3\n" in text
    assert '"everywhere": true' in text


def test_a_command_is_shown_in_full() -> None:
    command = "echo " + "word " * 40 + "; rm -rf /"
    text = request_text("run_command", {"command": command, "directory": "."}, width=40)
    assert " ".join(text.replace("…", "").split()).endswith("word ; rm -rf /")
    assert "directory" not in text
    assert max(map(len, text.split("\n"))) <= 40


def test_a_command_is_shown_with_its_place() -> None:
    preview = {"kind": "command", "command": "ls", "directory": "/p/sub\n", "runtime": {"name": "local"}}
    text = request_text("run_command", {"command": "ls", "directory": "sub"}, preview=preview)
    assert text.endswith("  $ ls\n  in /p/sub\\n (local)\n")


def test_no_line_of_a_command_looks_like_its_place() -> None:
    """The sandbox is stated below the command; the model could write such a line, or have one made by folding."""
    place = "in the sandbox (bubblewrap)"
    preview = {"kind": "command", "command": "x", "directory": "/p", "runtime": {"name": "local"}, "sandbox": "none"}
    for command in (f"ls\n{place}", "x" * 36 + place):
        text = request_text("run_command", {"command": command}, preview=preview, width=40)
        assert place in text
        assert f"  {place}" not in text.split("\n")
        assert "  outside the sandbox" in text.split("\n")


def test_the_preview_of_any_other_tool_is_shown() -> None:
    text = request_text("deploy", {"to": "prod"}, preview={"to": "prod", "text": "drops users\u202e\n  }\nand more"})
    assert text.endswith(
        '    "to": "prod"\n  }\n  preview of text:\n    | drops users\\u202e\n    |   }\n    | and more\n'
    )
    preview = {"kind": "command", "command": "ls", "directory": "/p", "sandbox": "none", "host": "elsewhere"}
    text = request_text("run_command", {"command": "ls"}, preview=preview)
    assert text.endswith(
        '  $ ls\n  outside the sandbox\n  preview of directory: "/p"\n  preview of host: "elsewhere"\n'
    )


def test_no_value_looks_like_a_line_of_ours_where_it_is_folded() -> None:
    place = "in the sandbox (bubblewrap)"
    text = request_text("run_command", {"command": "ls", "note": "x" * 25 + place}, width=40)
    assert "\n  … " in text
    assert not any(line.startswith("  in the") for line in text.split("\n"))


def test_a_command_or_value_of_many_lines_is_shown_in_full_or_announced() -> None:
    command = "echo 1\n" * 13 + "rm -rf important"
    assert request_text("run_command", {"command": command}).endswith("  > rm -rf important\n")
    hidden = request_text("run_command", {"command": "echo safe" + "\n" * 60 + "touch hidden"})
    assert "showing 16 of 62 lines (" in hidden
    assert "showing 16 of 31 lines (" in request_text("run", {"commands": [*["ls"] * 25, "rm important"]})


def test_a_request_hides_nothing() -> None:
    text = request_text("run_command", {"command": "ls\x1b[8m; rm x\r\u202e", "timeout_ms": 5})
    assert "$ ls\\x1b[8m; rm x\\r\\u202e" in text
    assert '"timeout_ms": 5' in text
    odd = request_text("write_file", {"path": 3, "text": ["\x1b[2J"]})
    assert '"path": 3' in odd
    assert "\x1b" not in odd


def test_the_arguments_of_other_tools_are_shown_as_json() -> None:
    assert request_text("book", {"city": "Paris", "days": [1, 2]}).startswith('? book\n  {\n    "city": "Paris",\n')


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_symbols_that_the_output_cannot_encode_are_replaced(encoding: str, tmp_path: Any) -> None:
    from rich.console import Console

    with (tmp_path / "out").open("w", encoding=encoding) as file:
        console = Console(file=file, width=60)
        show_message(
            console, assistant("Ünï 日本\n\n- item\n\n| a |\n|---|\n| b |\n", ToolCall("c1", "look", {"é": "✓"}))
        )
        show_request(console, ApprovalRequired(tool_call_id="c1", tool_name="look", arguments={"é": "✓"}))
    assert "- item" in (tmp_path / "out").read_text(encoding=encoding)


def test_a_change_of_nothing_but_white_space_is_visible() -> None:
    text = change_text(changing("Makefile", "all:\n        make\n\trm x\nend\n", "all:\n\tmake\n\trm y\nend  \n"))
    assert "2 -         make\n" in text
    assert "2 + \\tmake\n" in text
    assert "3 -     rm x\n" in text  # the text differs too
    assert "4 - end\n" in text
    assert "4 + end\\x20\\x20\n" in text


def test_the_rest_of_a_long_line_cannot_be_taken_for_another_row() -> None:
    long = "x" * 34 + "  3 - not a row"
    console = console_of(40)
    show_request(console, changing("a.txt", "one\n", f"one\n{long}\n"))
    text = re.sub(r"\x1b\[[0-9;]*m", "", written(console))
    assert text.endswith(f"  2 + {long[:34]}\n      {long[34:]}\n")
