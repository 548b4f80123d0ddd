"""`PlainScreen` only appends, without escape sequences."""

import re

from bartack.display.changes import SubagentChanged
from bartack.nouns.deltas import Done, TextDelta, ThinkingDelta, ToolCallStart
from bartack_code.terminal.screen import PlainScreen
from tests.code.terminal.event_builders import (
    Clock,
    answer,
    completed,
    console_of,
    errored,
    pending,
    plain_console,
    present,
    running,
    written,
)
from tests.code.terminal.scripted_run import MARKDOWN, play


async def test_a_run_is_readable_without_cursor_movement() -> None:
    console = console_of(_environ={"TERM": "dumb"}, color_system=None)  # as rich detects for such a terminal
    await play("tools", console)
    text = written(console)
    assert "\x1b" not in text
    assert "\r" not in text
    lines = text.split("\n")
    assert re.fullmatch(r"\[thought for \d+ s \(48 words\)\]", lines[0])
    assert lines[1] == "Let me look at **both**."
    assert '[read_file path="README.md" ...]' in lines
    assert any(line.startswith('[read_file path="README.md" ok, ') and line.endswith("120 lines]") for line in lines)
    failed = r'\[fails reason="no such table: things" error(, [\d.]+ s)?: ValueError: no such table: things\]'
    assert any(re.fullmatch(failed, line) for line in lines)
    assert '[write_file path="src/new.py" text=(3 lines) error, not run: The call was denied: not today]' in lines
    assert "[rate_limited: too many requests; retrying in 0.5 s (attempt 2)]" in lines
    assert lines[-2:] == ["All **done**.", ""]


def test_text_is_printed_verbatim() -> None:
    console = plain_console()
    screen = PlainScreen(console)
    for at in range(0, len(MARKDOWN), 9):
        for event in answer(TextDelta(MARKDOWN[at : at + 9])):
            present(screen, event)
        assert written(console) == MARKDOWN[: at + 9]


def test_an_emoji_that_arrives_in_pieces_stays_whole() -> None:
    console = plain_console()
    screen = PlainScreen(console)
    for event in answer(TextDelta("Hi 👩\u200d"), TextDelta("💻 and 👨\u200d"), TextDelta(""), Done("stop")):
        present(screen, event)
    assert written(console) == "Hi 👩\u200d💻 and 👨\n"


def test_a_failed_command_a_plan_and_a_sub_agent_are_shown() -> None:
    console = plain_console()
    screen = PlainScreen(console)
    steps = {"steps": [{"text": "look", "status": "done"}, {"text": "write"}]}
    present(screen, completed("c1", "update_plan", steps, "1 of 2"))
    present(screen, completed("c2", "run_command", {"command": "x"}, "1\n[exit code 2]", exit_code=2))
    present(screen, running("c3", "helper", {}))
    present(screen, SubagentChanged("c3", "helper", "helper", running("i1", "look", {})))
    present(screen, SubagentChanged("c3", "helper", "helper", completed("i1", "look", {"at": "it"}, "seen")))
    present(screen, SubagentChanged("gone", "helper", "helper", completed("i2", "look", {}, "seen")))
    text = written(console)
    assert "\n  ☑ look\n  ☐ write\n" in text
    assert '[run_command command="x" failed, exit code 2, 0.1 s, 2 lines]\n  1\n  [exit code 2]\n' in text
    assert '\n  [helper: look at="it" ok]\n' in text
    assert text.count("helper:") == 1


def test_thinking_can_be_shown_in_full() -> None:
    console = plain_console()
    screen = PlainScreen(console, clock=Clock())
    assert screen.toggle_thinking()
    for event in answer(
        ThinkingDelta("one\ntwo"), ThinkingDelta("three", new_part=True), TextDelta("Hi"), Done("stop")
    ):
        present(screen, event)
    assert written(console) == "[thought for 1 s (3 words)]\none\ntwo\n\nthree\nHi\n"
    assert screen.last_thinking() == "one\ntwo\n\nthree"


def test_what_finishes_during_a_question_is_printed_afterwards() -> None:
    console = plain_console()
    screen = PlainScreen(console)
    for event in [*answer(TextDelta("Text")), *pending("c1", "look", {}), running("c1", "look", {})]:
        present(screen, event)
    screen.suspend()
    before = written(console)
    present(screen, completed("c1", "look", {}, "seen"))
    assert written(console) == before == "Text\n[look ...]\n\n"  # a blank line before the question
    screen.resume()
    assert written(console) == f"{before}[look ok, 0.1 s]\n"


def test_a_call_running_at_the_end_was_stopped() -> None:
    console = plain_console()
    screen = PlainScreen(console)
    present(screen, running("c1", "look", {}))
    screen.close()
    assert written(console) == "[look ...]\n[look stopped]\n"


def test_output_of_tools_has_lines_of_its_own() -> None:
    console = plain_console()
    screen = PlainScreen(console)
    screen.suspend()  # it is the first output, so there is no blank line
    screen.print("one\x1b[2J\ntwo")
    assert written(console) == ""
    screen.resume()
    assert written(console) == "one\ntwo\n"


def test_control_characters_are_never_printed() -> None:
    console = plain_console()
    screen = PlainScreen(console, thinking=True)
    nasty = "a\x1b]52;c;aGk=\x07\x9b2J\u202eb\x00\rc"
    for event in answer(*(TextDelta(sign) for sign in nasty), ThinkingDelta(nasty), ToolCallStart("c0", nasty)):
        present(screen, event)
    present(screen, errored("c1", nasty, {nasty: nasty}, nasty))
    screen.close()
    assert written(console).replace("\n", "").isprintable()
    assert "not run]" in written(console)
