"""Compressed transcripts."""

import sys
from pathlib import Path

import pytest
from zstandard import compress

from bartack.nouns.errors import BartackError
from bartack.store import MemoryStore
from bartack_transcripts.disk import compressed
from bartack_transcripts.disk.files import find_transcripts, found_at, read_transcripts
from bartack_transcripts.disk.importing import import_transcript
from tests.transcripts.samples import unexpected

THREAD = "01a1e2a1-302e-7fa0-8a51-42d7b401ecf6"
LINES = (
    b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"x","cwd":"/work"}}\n'
    b'{"timestamp":"2026-01-01T00:00:01Z","type":"response_item","payload":'
    b'{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}}\n'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    folder = tmp_path / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    return folder


async def test_a_file_that_was_compressed_later_is_the_same_session(folder: Path) -> None:
    plain = folder / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl"
    plain.write_bytes(LINES)
    store = MemoryStore()
    (source,) = find_transcripts(["codex"], unexpected)
    first = await import_transcript(store, read_transcripts(source)[0], source.modified)
    plain.unlink()
    plain.with_suffix(".jsonl.zst").write_bytes(compress(LINES))
    (source,) = find_transcripts(["codex"], unexpected)
    second = await import_transcript(store, read_transcripts(source)[0], source.modified)
    assert (first.session_id, first.is_new) == (second.session_id, True)
    assert second.entries == 0
    assert found_at(source.path).format.name == "codex"


def test_a_fork_finds_the_compressed_file_that_it_continues(folder: Path) -> None:
    (folder / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl.zst").write_bytes(compress(LINES))
    base = b'"history_base":{"thread_id":"%b","end_ordinal_exclusive":2}' % THREAD.encode()
    fork = folder / "rollout-2026-01-02T00-00-00-01a1e2a1-302e-7fa0-8a51-000000000000.jsonl"
    fork.write_bytes(LINES.splitlines()[0].replace(b'"cwd"', base + b',"cwd"') + b"\n")
    (transcript,) = read_transcripts(found_at(fork))
    assert transcript.header.title == "hello"
    assert transcript.report.problems == []


def test_a_file_that_cannot_be_decompressed_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "rollout-x.jsonl.zst"
    path.write_bytes(b"not compressed")
    with pytest.raises(BartackError, match=r"rollout-x.jsonl.zst cannot be decompressed"):
        found_at(path)
    path.write_bytes(compress(b"x" * 10_000)[:-2])
    assert len(compressed.file_data(path)) <= 10_000
    path.write_bytes(compress(b"x" * 2_000_000))
    monkeypatch.setattr(compressed, "MAX_SIZE", 1_000_000)
    with pytest.raises(BartackError, match="more than 0 MB"):
        compressed.file_data(path)


def test_a_missing_library_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "rollout-x.jsonl.zst"
    path.write_bytes(compress(LINES))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(BartackError, match="zstandard is not installed") as raised:
        found_at(path)
    assert "pip install" in str(raised.value.__notes__)
