"""The title of a session."""

import pytest

from bartack import Custom, user
from bartack.nouns.entries import Fact, SessionHeader
from bartack.session.title import TITLE, title_from, title_in, title_of
from tests.sample_session import chain


@pytest.mark.parametrize(
    ("fact", "title"),
    [
        (SessionHeader(title="Uploads"), "Uploads"),
        (SessionHeader(), None),
        (Custom(name=TITLE, data={"title": "x" * 200_000}), "x" * 100_000),
        (Custom(name=TITLE, data={"title": 5}), None),
        (Custom(name="note", data={"title": "Uploads"}), None),
        (user("Uploads"), None),
    ],
)
def test_some_facts_give_a_session_its_title(fact: Fact, title: str | None) -> None:
    assert title_of(fact) == title


def test_the_last_title_counts() -> None:
    facts: list[Fact] = [SessionHeader(title="first"), Custom(name=TITLE, data={"title": "second"}), user("Hi")]
    assert title_in(chain(*facts)) == "second"
    assert title_in(chain(SessionHeader(), user("Hi"))) is None


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        (" Will it\nrain? ", "Will it rain?"),
        (" \n", None),
        ("word " * 20, "word " * 10 + "word…"),
        ("x" * 61, "x" * 59 + "…"),
    ],
)
def test_a_prompt_gives_a_session_its_title(prompt: str, title: str | None) -> None:
    assert title_from(prompt) == title
