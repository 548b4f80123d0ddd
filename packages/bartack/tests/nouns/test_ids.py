"""Ids: created from a given time and given bits, or derived from other ids."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns.ids import as_uuid, derived_id, is_uuid, uuid7

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@given(st.integers(0, 2**74 - 1), st.integers(0, 2**40))
def test_an_id_contains_its_time_and_all_its_random_bits(random: int, ms: int) -> None:
    """D-1.4"""
    identifier = UUID(uuid7(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms), random))
    assert (identifier.version, identifier.variant) == (7, "specified in RFC 4122")
    assert identifier.int >> 80 == ms
    assert (identifier.int >> 64 & 0xFFF) << 62 | identifier.int & (1 << 62) - 1 == random


@given(st.integers(0, 2**74 - 1), st.integers(0, 2**74 - 1), st.integers(1, 10**9))
def test_a_later_id_sorts_later_as_text(random: int, later_random: int, ms: int) -> None:
    assert uuid7(NOON, random) < uuid7(NOON + timedelta(milliseconds=ms), later_random)


def test_the_example_in_the_rfc_is_reproduced() -> None:
    """RFC 9562, appendix A.6."""
    timestamp = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
    assert uuid7(timestamp, 0xCC3 << 62 | 0x18C4DC0C0C07398F) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


def test_a_uuid_is_kept_and_other_ids_map_to_stable_uuids() -> None:
    text = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    assert as_uuid(text) == text
    foreign = as_uuid("msg_abc")
    assert foreign == as_uuid("msg_abc") != as_uuid("msg_abd")
    assert UUID(foreign).version == 5


@pytest.mark.parametrize("parent", ["msg_abc", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"])
def test_a_derived_id_depends_on_its_parent_and_its_place(parent: str) -> None:
    ids = {derived_id(parent, 0), derived_id(parent, 1), derived_id(parent, "x"), derived_id("other", 0)}
    assert len(ids) == 4
    assert derived_id(parent, 0) == derived_id(parent, "0")


def test_a_uuid_is_recognised_in_its_usual_form_only() -> None:
    text = uuid7(NOON, 1)
    assert [is_uuid(other) for other in (text, text.upper(), text.replace("-", ""), f"{text}/{text}", "", "trip")] == [
        True,
        *[False] * 5,
    ]
