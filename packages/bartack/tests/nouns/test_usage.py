"""Every field of `Usage` is counted everywhere. A new field that is forgotten somewhere fails here."""

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import force_setattr, replace

import bartack
from bartack.formats.usage import PART_OF, consistent
from bartack.nouns.deltas import TOKEN_COUNTS, MessageDelta, Start, Usage
from bartack.nouns.errors import StreamError
from bartack.protocols import ag_ui
from bartack.stream.contract import Contract

NOW = datetime(2026, 1, 1, tzinfo=UTC)
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


@pytest.mark.parametrize("field", TOKEN_COUNTS)
def test_the_contract_rejects_a_negative_count(field: str) -> None:
    """000-4.9"""
    contract = Contract()
    contract.admit(MessageDelta("run", 0, Start("m", "r"), NOW))
    bad = usage()
    force_setattr(bad, field, -1)
    with pytest.raises(StreamError, match=field):
        contract.admit(MessageDelta("run", 1, bad, NOW))
    contract.admit(MessageDelta("run", 1, usage(**{field: 1}), NOW))


@pytest.mark.parametrize("field", sorted(set(TOKEN_COUNTS) - {"input_tokens", "output_tokens", "total_tokens"}))
def test_a_breakdown_never_exceeds_its_whole(field: str) -> None:
    """D-3.4"""
    assert getattr(consistent(usage(**{PART_OF[field]: 3, field: 4})), field) == 3


def test_every_count_is_written_to_ag_ui_clients() -> None:
    assert set(ag_ui._USAGE.values()) == set(TOKEN_COUNTS)


def test_every_field_is_reported_by_some_decoder() -> None:
    reported: set[str] = set()
    texts = [path.read_text(encoding="utf-8") for path in (Path(bartack.__file__).parent / "formats").rglob("*.py")]
    for text in texts:
        for node in ast.walk(ast.parse(text)) if "Usage(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Usage":
                reported |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                reported |= {name for name, _ in zip(Usage.__match_args__, node.args, strict=False)}
    assert reported >= set(FIELDS)
