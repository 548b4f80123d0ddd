"""The ledger view: everything, in canonical JSON."""

import pytest

from bartack import PartValidationError, Redaction, user
from bartack.nouns import wire
from bartack.session.redaction import visible
from bartack.views import ledger
from tests.sample_session import SESSION, chain


def test_the_ledger_represents_everything_and_reads_back() -> None:
    """D-1.5, D-1.1"""
    view = ledger.dump(SESSION)
    assert (view["view"], view["sessionId"], view["omitted"]) == ("ledger", "s", {})
    assert view["entries"] == [wire.dump(entry) for entry in SESSION]
    assert ledger.load(view) == tuple(SESSION)


def test_parts_in_the_ledger_are_kind_and_payload_in_camel_case() -> None:
    """D-1.5"""
    part = ledger.dump(SESSION)["entries"][4]["payload"]["parts"][2]
    assert part == {
        "kind": "tool_call",
        "payload": {"toolCallId": "c1", "toolName": "weather", "arguments": {"city": "Paris"}},
    }


def test_redacted_content_is_not_shown() -> None:
    """D-5.6"""
    entries = chain(user("secret"), Redaction(entry_id="e0"))
    assert ledger.load(ledger.dump(entries)) == visible(entries)


def test_another_view_is_not_a_ledger() -> None:
    with pytest.raises(PartValidationError, match="expected a ledger") as caught:
        ledger.load({"view": "feed", "sessionId": "s", "entries": []})
    assert caught.value.path == "$.view"


def test_an_invalid_entry_is_rejected_with_its_path() -> None:
    view = ledger.dump(SESSION)
    view["entries"][3]["payload"]["parts"][0]["payload"]["text"] = 5
    with pytest.raises(PartValidationError) as caught:
        ledger.load(view)
    assert caught.value.path == "$.entries[3].payload.parts[0].payload.text"


def test_no_entries_give_an_empty_ledger() -> None:
    assert ledger.load(ledger.dump([])) == ()


def test_an_incomplete_ledger_is_logged_and_gives_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """003-6.1.3, D-7.5"""
    assert ledger.try_load({"view": "ledger", "entries": []}) is None
    assert "$.sessionId" in caplog.text
    assert ledger.try_load(ledger.dump(SESSION)) == ledger.load(ledger.dump(SESSION))
