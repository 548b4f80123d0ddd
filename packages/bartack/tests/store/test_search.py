"""The words of a text, and snippets."""

import pytest

from bartack.store import search


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't snow_fall 3.5%", ["don", "t", "snow", "fall", "3", "5"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("今日は rain", ["今", "日", "は", "rain"]),
        ("ꆈꌠ ሰላም", ["ꆈꌠ", "ሰላም"]),  # between Han and Hangul, but written with spaces
        ("", []),
    ],
)
def test_words_are_case_folded_letters_and_digits(text: str, words: list[str]) -> None:
    assert search.words(text) == words


def test_a_snippet_is_the_text_around_the_first_match() -> None:
    text = "a " * 100 + "needle\n\n  and" + " b" * 100
    assert search.snippet(text, [["needle"]]) == "…" + "a " * 30 + "needle and" + " b" * 23 + "…"
    assert search.snippet("short", []) == "short"
    assert search.snippet("x" * 60, []) == "x" * 60
    assert search.snippet("x" * 61, []) == "x" * 60 + "…"
