"""What is typed while an answer arrives."""

import re
from pathlib import Path

import pytest
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from rich.segment import SegmentLines

from bartack_code.chat.draft import Draft
from bartack_code.chat.pastes import Pastes
from tests.code.terminal.event_builders import console_of, written

LEFT, UP, HOME, DELETE = "\x1b[D", "\x1b[A", "\x1b[H", "\x1b[3~"


def new_draft() -> Draft:
    return Draft(Pastes(Path(__file__).parent))


def typed(keys: str) -> Draft:
    presses: list[KeyPress] = []
    Vt100Parser(presses.append).feed_and_flush(keys)
    draft = new_draft()
    draft.press(presses)
    return draft


def shown(draft: Draft, width: int = 40) -> str:
    console = console_of(width)
    console.print(SegmentLines(draft.lines(console), new_lines=True), crop=False)
    return re.sub(r"\x1b\[[0-9;]*m", "", written(console))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("helo" + LEFT + "l", "hello"),
        ("one two\x17three", "one three"),
        ("abc\x15d", "d"),
        ("abc" + HOME + "x", "xabc"),
        ("abc" + LEFT + LEFT + "\x0b", "a"),
        ("abc\x01" + DELETE + "\x05d", "bcd"),
        ("a\x0ab\\\rc", "a\nb\nc"),
        ("a\nb" + UP + "x", "ax\nb"),
        ("\x1b[200~x\r\ny\x1b[201~", "x\ny"),
        ("ab\x7f\x7f\x7fc", "c"),
        ("\x1b[1;5R\x1bOPa", "a"),
        ("a\x04b", "ab"),
        ("👩\u200d💻\x9b", "👩\u200d💻"),
        ("a👩\u200d💻\x7f", "a"),
    ],
)
def test_keys_edit_the_text(keys: str, text: str) -> None:
    draft = typed(keys)
    assert draft.text == text
    assert not draft.is_closed
    assert draft.queued == []


def test_without_a_run_enter_queues_the_text_and_up_brings_it_back() -> None:
    draft = typed("one\r\r\rtwo\rthr")
    assert draft.queued == ["one", "two"]
    assert draft.text == "thr"
    assert draft.take() == "one"
    assert typed("one\rtwo\r" + UP + "!").text == "two!"
    assert typed("one\rtwo\r" + UP + "!").queued == ["one"]
    assert new_draft().take() is None


def test_everything_can_be_taken_to_be_edited() -> None:
    draft = typed("one\rtwo\rthree")
    assert draft.take_all() == "one\ntwo\nthree"
    assert (draft.text, draft.queued, draft.take_all()) == ("", [], "")


def test_ctrl_d_in_an_empty_text_closes_it() -> None:
    assert typed("one\r\x04").is_closed


def test_the_queue_and_the_text_are_shown() -> None:
    assert shown(new_draft()) == ""


def test_files_that_are_dropped_on_an_answer_are_mentioned() -> None:
    assert typed(f"see \x1b[200~{__file__} \x1b[201~please").take_text() == "see @test_draft.py please"
    assert shown(typed("one\r")) == "  queued: one\n  Up: edit the last one\n"
    assert shown(typed("one\rtw")).rstrip() == "  queued: one\n› tw"
    crowded = shown(typed("".join(f"{n}\r" for n in range(9))))
    assert "  … 6 more waiting\n" in crowded
    assert shown(typed("a\nb\nc")).splitlines()[:2] == ["› a", "  b"]
    assert len(shown(typed("\n".join("abcdefghi"))).splitlines()) == 6


@pytest.mark.parametrize("width", [10, 40])
def test_it_fits_and_the_cursor_stays_visible(width: int) -> None:
    draft = typed("日本語 " * 30 + "end")
    lines = shown(draft, width).splitlines()
    assert len(lines) == 1
    assert "end" in lines[0]
    assert len(shown(typed("word " * 30 + "\r"), width).splitlines()) == 2


def test_a_long_paste_is_folded_and_deleted_as_one_character() -> None:
    pastes = Pastes(Path(__file__).parent)
    lines = "".join(f"line {number}\n" for number in range(500))
    placeholder = pastes.fold(lines)
    assert placeholder == "[Pasted #1: 500 lines]"
    assert pastes.fold("x" * 5_000) == "[Pasted #2: 5,000 characters]"
    assert pastes.fold(lines) == "[Pasted #3: 500 lines]"
    assert pastes.fold("\n" * 9 + "short") == "\n" * 9 + "short"
    assert pastes.unfold(f"See {placeholder}: [Pasted #9: 500 lines]") == f"See {lines}: [Pasted #9: 500 lines]"
    quoted = pastes.fold(f"{placeholder}\n" * 20)
    assert pastes.unfold(quoted) == f"{placeholder}\n" * 20  # what was pasted is not unfolded again
    paste = f"\x1b[200~{lines}\x1b[201~"
    assert typed(f"see {paste}").text == "see [Pasted #1: 500 lines]"
    assert typed(f"see {paste}\x7f!").text == "see !"
    assert typed(f"see {paste}!\x7f\x7f\x7f").text == "see"


def test_control_characters_are_not_shown() -> None:
    assert "\x1b]" not in shown(typed("\x1b[200~\x1b]2;owned\x07x\x1b[201~"))
