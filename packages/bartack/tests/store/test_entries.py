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


def test_only_entries_whose_text_has_a_word_are_decoded() -> None:
    envelope = '{"id": "e%d", "sessionId": "s", "seq": %d, "timestamp": "2026-01-01T00:00:00Z", "kind": "custom", '
    payload = '"payload": {"name": "%s", "data": {}}}'
    texts = [(envelope % (seq, seq) + payload % name).encode() for seq, name in ((1, "a.title"), (2, "other"))]
    entries = Entries("s", [1, 2], texts)
    assert [entry.id for entry in entries.naming("a.title", "absent")] == ["e1"]
