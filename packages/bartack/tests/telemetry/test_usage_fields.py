"""Every count of `Usage` is an attribute and a counter; a new one that is forgotten fails here."""

import pytest
from msgspec.structs import replace

from bartack.nouns.deltas import TOKEN_COUNTS, Usage
from bartack.telemetry.conventions import LATEST, V1_41, Conventions

COUNTS = [name for name in TOKEN_COUNTS if name != "total_tokens"]  # the conventions have no total


@pytest.mark.parametrize("conventions", [V1_41, LATEST])
@pytest.mark.parametrize("field", COUNTS)
def test_every_count_is_an_attribute(field: str, conventions: Conventions) -> None:
    assert 7 in conventions.usage(replace(Usage(0, 0), **{field: 7})).values()


def test_every_count_has_a_counter() -> None:
    assert set(LATEST.token_counters) == set(COUNTS)
