"""No control character is left in a safe text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.app.safe_text import encodable, safe_line, safe_text

any_text = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b[]0;m\x07\\\r\n\x9b\u202e\ud800")))


def is_harmless(text: str) -> bool:
    return all(unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in text.replace("\n", ""))


@given(any_text)
def test_only_visible_characters_and_line_breaks_remain(text: str) -> None:
    assert is_harmless(safe_text(text))
    assert "\n" not in safe_line(text)


@given(any_text)
def test_safe_text_is_idempotent(text: str) -> None:
    assert safe_text(safe_text(text)) == safe_text(text)


@pytest.mark.parametrize(
    ("text", "cleaned"),
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
def test_escape_sequences_are_removed_completely(text: str, cleaned: str) -> None:
    assert safe_text(text) == cleaned


def test_characters_that_the_encoding_lacks_become_question_marks() -> None:
    assert encodable("✓ é", "ascii") == "? ?"
    assert encodable("✓ é", "latin-1") == "? é"
    assert encodable("\ud800", "utf-8") == "?"
