"""`try_load`: every noun, complete and incomplete."""

from typing import Any

import pytest

from bartack import Message, user
from bartack.nouns.logs import logger
from bartack.nouns.schema import NOUNS
from bartack.nouns.wire import dump, try_load


@pytest.mark.parametrize("name", [name for name in NOUNS if isinstance(NOUNS[name], type)])
def test_an_incomplete_noun_is_logged_and_gives_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """003-6.1.3, D-7.5"""
    noun: Any = NOUNS[name]
    loaded = try_load(noun, {})
    if loaded is None:
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("bartack.views", "WARNING")
        assert record.getMessage().startswith(f"{noun.__name__} is incomplete: nothing at $.")
    else:  # it has no required field
        assert not caplog.records


@pytest.mark.parametrize("name", list(NOUNS))
@pytest.mark.parametrize("data", [None, 3, "text", [], True])
def test_an_invalid_noun_is_logged_and_gives_nothing(name: str, data: Any, caplog: pytest.LogCaptureFixture) -> None:
    """D-7.5"""
    noun: Any = NOUNS[name]
    assert try_load(noun, data) is None
    (record,) = caplog.records
    assert record.getMessage().endswith("is invalid at $.")


def test_a_complete_noun_is_loaded_and_the_log_shows_no_values(caplog: pytest.LogCaptureFixture) -> None:
    """D-7.5"""
    assert try_load(Message, dump(user("hi"))) == user("hi")
    assert try_load(Message, {"role": "dream", "parts": []}) is None
    assert [record.getMessage() for record in caplog.records] == ["Message is invalid at $.role."]


def test_bartack_prints_nothing_by_itself() -> None:
    """004-agent-config.1"""
    parent = logger("views").parent
    assert parent is not None
    assert parent.name == "bartack"
    assert {type(handler).__name__ for handler in parent.handlers} == {"NullHandler"}
