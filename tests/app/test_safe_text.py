"""No control character is left in a safe text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.app.safe_text import encodable, safe_line, safe_text, visible_blanks, visible_text

any_text = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b[]0;m\x07\\\r\n\x9b\u202e\ud800")))


def is_harmless(text: str) -> bool:
    return all(unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in text.replace("\n", ""))


@given(any_text)
def test_only_visible_characters_and_line_breaks_remain(text: str) -> None:
    assert is_harmless(safe_text(text))
    assert is_harmless(visible_text(text))
    assert "\n" not in safe_line(text)


@given(any_text)
def test_safe_text_is_idempotent(text: str) -> None:
    assert safe_text(safe_text(text)) == safe_text(text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("a\x1b]52;c;aGk=\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("a\x1b]0;open\nnext", "a\nnext"),
        ("a\x9b2Jb", "ab"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("50%\r100%\r\ndone", "50%\n100%\ndone"),
        ("a\tb", "a    b"),
        ("\u202eevil\u202c", "evil"),
        ("日本 é 🙂", "日本 é 🙂"),
        ("👩‍💻 👨🏽‍👩🏽‍👧 ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👩‍💻 👨🏽‍👩🏽‍👧 ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿"),
        ("a\u200db 👩\u200d x \u200d👩 👩\u200d\u200d👩", "ab 👩 x 👩 👩👩"),
        ("a\u3164b\U000e0100c", "abc"),
        ("⠋\u2800⠙ ❤️", "⠋\u2800⠙ ❤️"),
        ("caf\udce9.txt", "caf\ufffd.txt"),  # a file name that is not UTF-8
        ("🏴\U000e0061\U000e0062\U000e007f", "🏴"),
    ],
)
def test_escape_sequences_are_removed_completely(text: str, left: str) -> None:
    assert safe_text(text) == left


def test_visible_text_escapes_invisible_characters() -> None:
    assert visible_text("rm\x1b[8m -rf\r\u202e /") == "rm\\x1b[8m -rf\\r\\u202e /"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -rf /\u00a0tmp", "rm -rf /\\xa0tmp"),  # blank, but not a space
        ("a\u3164b\u2800c\u115f", "a\\u3164b\\u2800c\\u115f"),
        ("a\ufe0fb\U000e0100", "a\\ufe0fb\\U000e0100"),  # variation selectors without an emoji can hide text
        ("❤️ 1️⃣ 👩\u200d💻", "❤️ 1️⃣ 👩\u200d💻"),
        ("全角\u3000空白", "全角\u3000空白"),
        ("a\tb", "a    b"),
    ],
)
def test_visible_text_escapes_what_looks_like_a_space_or_nothing(text: str, shown: str) -> None:
    assert visible_text(text) == shown


def test_visible_blanks_escapes_tabs_and_spaces_at_the_end() -> None:
    assert visible_blanks("\ta b  ") == "\\ta b\\x20\\x20"


def test_characters_that_the_encoding_lacks_become_question_marks() -> None:
    assert encodable("✓ é", "ascii") == "? ?"
    assert encodable("✓ é", "latin-1") == "? é"
    assert encodable("\ud800", "utf-8") == "?"
