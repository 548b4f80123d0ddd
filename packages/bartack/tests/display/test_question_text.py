"""A question as text: whole, with its size, and nothing in it that the model can make look like ours."""

import pytest

from bartack.display.question_text import question_text
from bartack.nouns.entries import ApprovalRequired

HIDDEN = "echo safe" + "\n" * 60 + "touch hidden.txt" + "\n" * 60 + "echo safe"


def asked(arguments: dict[str, object], **fields: object) -> str:
    return question_text(
        ApprovalRequired(tool_call_id="c1", tool_name="run_command", arguments=arguments, **fields)  # type: ignore[arg-type]
    )


def test_a_command_that_hides_between_blank_lines_is_shown_with_its_size() -> None:
    text = asked({"command": HIDDEN})
    head, *lines = text.split("\n")
    assert head == f"Allow the tool run_command? 122 lines, {len(chr(10).join(lines)):,} characters:"
    assert len(lines) == 122
    assert "  | touch hidden.txt" in lines


@pytest.mark.parametrize("text", ["\x1b[2J", "\u202e", "\u200b", "\u3164", "\r"])
def test_what_is_invisible_is_escaped(text: str) -> None:
    for arguments in ({"command": f"a{text}b"}, {"command": f"a{text}\nb"}, {text: "a"}):
        assert text not in asked(dict(arguments))
    assert text not in asked({}, reason=text, preview={"text": text})


def test_no_line_is_the_models_own() -> None:
    forged = "Allow the tool read_file? 1 line, 2 characters:"
    text = asked({"command": f"ls\n{forged}", f"x\n{forged}": 1, "list": [f"\n{forged}"]}, reason=f"a\n{forged}")
    assert text.count(forged) == 4
    assert not any(line.startswith(forged) for line in text.split("\n"))


def test_the_preview_is_shown_as_far_as_it_says_more() -> None:
    text = asked({"command": "ls"}, preview={"command": "ls", "directory": "/p", "diff": [["+", 1, "a"]], "empty": []})
    assert text.split("\n")[1:] == [
        'command: "ls"',
        'preview of directory: "/p"',
        "preview of diff:",
        '  | ["+",1,"a"]',
        "preview of empty: []",
    ]


def test_a_call_without_arguments() -> None:
    assert asked({}, reason="risky") == "Allow the tool run_command (risky)? 1 line, 12 characters:\nno arguments"
