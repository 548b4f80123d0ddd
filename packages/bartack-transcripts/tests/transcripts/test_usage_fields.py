"""Every count of `Usage` survives an export to programs that have a place for it; a new one must be added here."""

from typing import Any

import pytest

from bartack.nouns.deltas import TOKEN_COUNTS, Usage
from bartack.nouns.entries import SessionHeader
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, user
from bartack.store import next_entries
from bartack_transcripts.formats import FORMATS, entries_of, exported
from tests.agent.kit import counting_environment

COUNTS: dict[str, Any] = {
    "input_tokens": 100,
    "output_tokens": 40,
    "cache_read_tokens": 30,
    "cache_write_tokens": 20,
    "reasoning_tokens": 10,
}
# The formats whose answers have usage, and the counts that they have no place for.
WITHOUT: dict[str, set[str]] = {
    "claude-code": {"reasoning_tokens"},
    "gemini": {"cache_write_tokens"},
    "kode": {"reasoning_tokens"},
    "langchain": set(),
    "opencode": set(),
    "pi": {"reasoning_tokens"},
    "pydantic-ai": set(),
    "qwen": {"cache_write_tokens"},
}


def test_every_count_is_tried() -> None:
    assert set(COUNTS) == set(TOKEN_COUNTS) - {"total_tokens"}


@pytest.mark.parametrize("target", WITHOUT)
def test_counts_survive_an_export_and_an_import(target: str) -> None:
    meta = Meta(model=ModelRef("anthropic", "claude-x"), usage=Usage(**COUNTS))
    entries = next_entries(
        "s", None, [SessionHeader(), user("Hi"), assistant("Yes.", meta=meta)], counting_environment()
    )
    writer = FORMATS[target].writer
    assert writer is not None
    files = exported(list(entries), target, writer, new_id="aaaaaaaa-1111-4111-8111-111111111111").files
    (transcript,) = FORMATS[target].read(files)
    (answer,) = [e.fact for e in entries_of(transcript) if isinstance(e.fact, Message) and e.fact.role == "assistant"]
    assert answer.meta is not None
    assert answer.meta.usage == Usage(**{name: COUNTS[name] for name in COUNTS if name not in WITHOUT[target]})
