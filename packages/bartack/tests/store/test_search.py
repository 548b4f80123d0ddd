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


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ("snow_fall RAIN", [(("snow", "fall"), False), (("rain",), False)]),
        ('"of the" rain', [(("of", "the"), False), (("rain",), False)]),
        ('src/ma* "a b"* *', [(("src", "ma"), True), (("a", "b"), True)]),
        ('"not closed', [(("not",), False), (("closed",), False)]),
        ('"" ... *', []),
    ],
)
def test_terms_of_a_query_are_words_quoted_phrases_and_beginnings(query: str, phrases: list[search.Phrase]) -> None:
    assert search.phrases(query) == phrases


def test_a_text_is_more_relevant_the_more_often_it_matches_and_the_shorter_it_is() -> None:
    query = search.phrases("snow fall*")
    scores = [
        search.relevance(search.words(text), query) for text in ("snow falls", "snow falls, snow", "snow falls on")
    ]
    assert scores[1] > scores[0] > scores[2] > 0


def test_a_snippet_is_the_text_around_the_first_match() -> None:
    text = "a " * 100 + "needle\n\n  and" + " b" * 100
    assert search.snippet(text, [search.Phrase(("needle",))]) == "…" + "a " * 30 + "needle and" + " b" * 23 + "…"
    assert search.snippet("snow and snow_fall " + "x" * 60, search.phrases("snow_fall")).startswith(
        "snow and snow_fall"
    )
    assert search.snippet("x " * 60 + "snow falls", search.phrases('"snow fal"*')).endswith("x snow falls")
    assert search.snippet("nothing", search.phrases("snow")) == "nothing"
    assert search.snippet("short", []) == "short"
    assert search.snippet("x" * 60, []) == "x" * 60
    assert search.snippet("x" * 61, []) == "x" * 60 + "…"
