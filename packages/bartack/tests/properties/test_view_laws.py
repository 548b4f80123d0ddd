"""Laws of the views: every prefix of a session has every view, and reading a view changes nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack import Entry
from bartack.session.redaction import visible
from bartack.session.tool_state import ToolFold, fold_tools
from bartack.views import document, feed, ledger
from bartack.views.fold import Fold
from bartack.views.part_validator import validate_part
from tests.properties.strategies import entries as any_entry
from tests.properties.strategies import sessions

VIEWS: list[tuple[Any, type[Fold]]] = [(ledger, ledger.Ledger), (feed, feed.Feed), (document, document.Document)]
each_view = pytest.mark.parametrize(("view", "fold"), VIEWS, ids=["ledger", "feed", "document"])


def content(dumped: dict[str, Any]) -> Any:
    return dumped.get("messages", dumped.get("entries"))


@each_view
@given(session=sessions())
def test_every_prefix_has_the_view_and_step_by_step_equals_at_once(
    view: Any, fold: type[Fold], session: list[Entry]
) -> None:
    """D-1.1"""
    growing = fold()
    assert growing.dump() == view.dump([])
    for end, entry in enumerate(session, start=1):
        growing.push(entry)
        assert growing.dump() == view.dump(session[:end])


@each_view
@given(session=sessions())
def test_a_view_reads_back_what_it_writes(view: Any, fold: type[Fold], session: list[Entry]) -> None:
    """D-1.5, D-1.6.1, D-1.7.1"""
    dumped = view.dump(session)
    assert content(view.dump(view.load(dumped))) == content(dumped)


@each_view
@given(session=st.lists(any_entry, max_size=4))
def test_entries_in_any_order_have_every_view(view: Any, fold: type[Fold], session: list[Entry]) -> None:
    assert content(view.dump(session)) is not None


@given(sessions())
def test_the_ledger_returns_the_visible_entries(session: list[Entry]) -> None:
    assert ledger.load(ledger.dump(session)) == visible(session)


@given(sessions())
def test_every_part_of_a_document_is_valid(session: list[Entry]) -> None:
    """003-4.3.2, 003-BR-02"""
    for message in document.Document.of(session).messages():
        assert all(validate_part(part).valid for part in message.parts)
        assert len({part.id for part in message.parts}) == len(message.parts)


@given(sessions())
def test_folding_tools_step_by_step_equals_folding_at_once(session: list[Entry]) -> None:
    fold = ToolFold()
    for end, entry in enumerate(session, start=1):
        fold.push(entry)
        assert fold.states == fold_tools(session[:end])
