"""Entries are decoded on access."""

import pytest

from bartack.store import Entries


def test_entries_behave_like_a_sequence() -> None:
    entries = Entries("s", [], [])
    assert list(entries) == []
    assert entries == []
    assert entries != "s"
    assert (entries == 5) is False
    with pytest.raises(IndexError):
        entries[0]
    with pytest.raises(TypeError):
        hash(entries)
