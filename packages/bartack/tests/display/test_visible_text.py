"""Everything in a visible text can be seen."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.display.visible_text import visible_blanks, visible_text, without_fillers

any_text = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b[]0;m\x07\\\r\n\x9b\u202e\ud800")))


@given(any_text)
def test_only_visible_characters_and_line_breaks_remain(text: str) -> None:
    signs = visible_text(text).replace("\n", "")
    assert not {unicodedata.category(sign) for sign in signs} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_visible_text_escapes_invisible_characters() -> None:
    assert visible_text("rm\x1b[8m -rf\r\u202e /") == "rm\\x1b[8m -rf\\r\\u202e /"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("rm -rf /\u00a0tmp", "rm -rf /\\xa0tmp"),  # blank, but not a space
        ("a\u3164b\u2800c\u115f", "a\\u3164b\\u2800c\\u115f"),
        ("a\ufe0fb\U000e0100", "a\\ufe0fb\\U000e0100"),  # variation selectors without an emoji can hide text
        ("❤️ 1️⃣ 👩\u200d💻", "❤️ 1️⃣ 👩\u200d💻"),
        ("全角\u3000空白", "全角\u3000空白"),
        ("a\tb", "a    b"),
    ],
)
def test_visible_text_escapes_what_looks_like_a_space_or_nothing(text: str, escaped: str) -> None:
    assert visible_text(text) == escaped


def test_fillers_are_removed() -> None:
    assert without_fillers("rm -rf") == "rm -rf"
    assert without_fillers("a\u3164\ufe0f\ufe0eb\U000e0158 ❤\ufe0f\ufe0f") == "ab ❤\ufe0f"


def test_visible_blanks_escapes_tabs_and_spaces_at_the_end() -> None:
    assert visible_blanks("\ta b  ") == "\\ta b\\x20\\x20"
