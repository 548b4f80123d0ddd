"""Scrolling in a text that is longer than the window."""

from rich.console import Console

from bartack_code.chat.pager import Pager, recorded
from tests.code.terminal.event_builders import console_of, plain_console

LINES = [f"line {number}" for number in range(1, 101)]


def test_it_scrolls_as_far_as_there_are_lines() -> None:
    pager = Pager(LINES, "diff")
    assert pager.visible(10) == LINES[:10]
    pager.scroll(9, 10)
    assert pager.visible(10)[0] == "line 10"
    pager.scroll(1_000, 10)
    assert pager.visible(10) == LINES[-10:]
    pager.scroll(-2_000, 10)
    assert pager.visible(10) == LINES[:10]
    pager.scroll(5, 200)
    assert pager.visible(200) == LINES


def test_it_can_start_at_the_end() -> None:
    pager = Pager(LINES, "transcript", at_end=True)
    assert pager.visible(10) == LINES[-10:]
    pager.scroll(-1, 10)
    assert pager.visible(10)[0] == "line 90"


def test_its_status_fits() -> None:
    for width in (20, 60, 120):
        assert len(Pager(LINES, "transcript").status(width, 10)) <= width
    assert "10 of 100 lines" in Pager(LINES, "diff").status(120, 10)


def test_what_is_printed_is_recorded_with_its_colors() -> None:
    def draw(console: Console) -> None:
        console.print("red", style="red")
        console.print()

    assert recorded(console_of(40), draw) == ["\x1b[31mred\x1b[0m"]
    assert recorded(plain_console(), draw) == ["red"]
