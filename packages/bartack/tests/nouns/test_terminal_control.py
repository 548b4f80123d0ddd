"""Terminal control is removed from text, whole sequences first."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns.terminal_control import without_terminal_control


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("plain", "plain"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]0;unterminated\nb", "a\nb"),
        ("a\x9b2Jb\x1b", "ab"),
        ("one\r\ntwo\rthree\n\tfour\x00", "one\ntwo\nthree\n\tfour"),
    ],
)
def test_sequences_are_removed_whole(text: str, plain: str) -> None:
    assert without_terminal_control(text) == plain


@given(st.text())
def test_nothing_is_left_and_nothing_more_is_removed_the_second_time(text: str) -> None:
    once = without_terminal_control(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", once)
    assert without_terminal_control(once) == once
