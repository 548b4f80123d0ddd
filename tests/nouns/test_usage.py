"""Every field of `Usage` is counted everywhere. A new field that is forgotten somewhere fails here."""

import pytest
from msgspec.structs import replace

from bartack.nouns.deltas import TOKEN_COUNTS, Usage

FIELDS = [name for name in Usage.__struct_fields__ if name != "extra"]


def usage(**counts: int) -> Usage:
    return replace(Usage(0, 0, 0), **counts)


def test_every_field_is_a_token_count_or_the_cost() -> None:
    assert set(FIELDS) == {*TOKEN_COUNTS, "cost"}


@pytest.mark.parametrize("field", FIELDS)
def test_addition_adds_every_field(field: str) -> None:
    assert getattr(usage(**{field: 3}) + usage(**{field: 4}), field) == 7


@pytest.mark.parametrize("field", ["cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cost"])
def test_a_count_that_only_one_reports_is_kept(field: str) -> None:
    assert getattr(usage() + usage(**{field: 4}), field) == 4
    assert getattr(usage(**{field: 4}) + usage(), field) == 4
    assert getattr(usage() + usage(), field) is None


def test_addition_keeps_a_total_that_is_not_the_sum() -> None:
    assert (Usage(1, 1, 5) + Usage(1, 1)).total_tokens == 7
