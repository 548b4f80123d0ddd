"""Laws of every reader, for generated files, and for samples that were cut and changed."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.nouns import wire
from bartack.nouns.entries import CompactionSummary, Custom, Entry, Fact, branch, heads
from bartack.session.outline import SOURCE
from bartack.session.title import TITLE, title_in
from bartack.store import MemoryStore
from bartack.store.maintenance import check
from bartack_transcripts.disk.files import FoundTranscript, files_of
from bartack_transcripts.disk.importing import import_transcript
from bartack_transcripts.formats import FORMATS, Files, Transcript, TranscriptFormat, entries_of, exported, source_files
from tests.transcripts import (
    claude_code_files,
    codex_files,
    copilot_files,
    gemini_files,
    library_files,
    pi_files,
    qwen_files,
    store_files,
)
from tests.transcripts.conversation import said
from tests.transcripts.json_strategies import values
from tests.transcripts.samples import NO_SAMPLES, samples, unexpected

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEW_ID = "0b0e7b9c-4c3f-4b7e-9c52-1a2b3c4d5e6f"
GENERATED: dict[str, st.SearchStrategy[bytes]] = {
    "claude-code": claude_code_files.files,  # Kode has the same reader
    "codex": codex_files.files,
    "pi": pi_files.files,
    "gemini": gemini_files.files,
    "qwen": qwen_files.files,
    "copilot": copilot_files.files,
    "chat-jsonl": library_files.chats,
    "pydantic-ai": library_files.pydantic_ai,
    "langchain": library_files.langchain,
    "ai-sdk": library_files.ai_sdk,
    "cline": library_files.anthropic,  # Roo Code and Kilo Code have the same reader
    "amp": library_files.amp,
    "cursor": library_files.cursor,
    "swe-agent": library_files.swe_agent,
}
LINE_FORMATS = sorted(GENERATED)
LISTS = ("pydantic-ai", "langchain", "ai-sdk", "cline", "amp", "swe-agent")  # files that are one list


def file_of(name: str) -> str:
    return "s.json" if name in LISTS else "s.jsonl"


FOLDERS = [sample for sample in samples("opencode", "strands") if sample.size < 100_000]
SMALL = [sample for sample in samples(*LINE_FORMATS) if sample.size < 40_000]


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


@st.composite
def with_other_value(draw: st.DrawFn, line: bytes) -> bytes:
    """The line with any JSON in place of one of its values, or without it."""
    try:
        inner = document = json.loads(line)
    except ValueError:
        return line
    while isinstance(inner, dict | list) and inner:
        key: Any = draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        if draw(st.booleans()) or not isinstance(inner[key], dict | list) or not inner[key]:
            if draw(st.booleans()):
                inner[key] = draw(values)
            else:
                del inner[key]
            break
        inner = inner[key]
    return json.dumps(document).encode() + b"\n"


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """The data with bytes replaced, lines removed, repeated or moved, and its end cut off."""
    lines = lines_of(data)
    for _ in range(draw(st.integers(0, 4))):
        if not lines:
            break
        place = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "repeat", "move", "bytes", "junk", "value", "value"])):
            case "drop":
                del lines[place]
            case "repeat":
                lines.insert(place, lines[place])
            case "move":
                lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(place))
            case "bytes":
                line = bytearray(lines[place])
                for _ in range(draw(st.integers(1, 5))):
                    line[draw(st.integers(0, len(line) - 1))] = draw(st.integers(0, 255))
                lines[place] = bytes(line)
            case "value":
                lines[place] = draw(with_other_value(lines[place]))
            case _:
                lines.insert(place, draw(st.binary(max_size=40)) + b"\n")
    changed_data = b"".join(lines)
    return changed_data[: draw(st.integers(0, len(changed_data)))] if draw(st.booleans()) else changed_data


def facts_of(entries: list[Entry] | tuple[Entry, ...]) -> list[Fact]:
    """The facts that people and models see."""
    return [entry.fact for entry in entries if not isinstance(entry.fact, Custom)]


def conversation_ids(entries: Iterable[Entry]) -> list[str]:
    """The ids of the entries, without records, and titles that the source got later, which are in no file."""
    notes = (SOURCE, TITLE)
    return [entry.id for entry in entries if not (isinstance(entry.fact, Custom) and entry.fact.name in notes)]


def check_reading(row: TranscriptFormat, files: Files) -> list[Transcript]:
    """Read the files, and check that nothing is lost and everything can be stored."""
    transcripts = row.read(files)
    assert len({transcript.session_id for transcript in transcripts}) == len(transcripts)
    for transcript in transcripts:
        for entry in entries_of(transcript):
            assert wire.decode(Entry, wire.encode(entry)) == entry
    assert source_files(entries_of(transcripts[0])) == {name: data for name, data in files.items() if data}
    return transcripts


@pytest.mark.parametrize("name", LINE_FORMATS)
@given(st.data())
def test_a_generated_file_is_returned_byte_for_byte(name: str, data: st.DataObject) -> None:
    check_reading(FORMATS[name], {file_of(name): data.draw(GENERATED[name])})


@pytest.mark.parametrize("name", LINE_FORMATS)
@given(st.data())
def test_a_damaged_file_is_returned_byte_for_byte(name: str, data: st.DataObject) -> None:
    check_reading(FORMATS[name], {file_of(name): data.draw(changed(data.draw(GENERATED[name])))})


@pytest.mark.parametrize("name", LINE_FORMATS)
@given(st.binary(max_size=200))
def test_any_bytes_are_returned(name: str, data: bytes) -> None:
    check_reading(FORMATS[name], {file_of(name): data})


@pytest.mark.skipif(not SMALL, reason=NO_SAMPLES)
@settings(max_examples=2 * settings().max_examples)
@given(st.data())
def test_a_damaged_sample_is_returned_byte_for_byte(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SMALL), label="sample")
    check_reading(sample.format, {sample.name: data.draw(changed(sample.path.read_bytes()))})


@pytest.mark.skipif(not SMALL, reason=NO_SAMPLES)
@pytest.mark.parametrize("sample", SMALL, ids=lambda sample: sample.name[-60:])
def test_every_prefix_of_a_sample_can_be_read(sample: FoundTranscript) -> None:
    lines = lines_of(sample.path.read_bytes())
    step = max(1, len(lines) // 20)
    for count in range(0, len(lines), step):
        prefix = b"".join(lines[:count])
        check_reading(sample.format, {sample.name: prefix + lines[count][: len(lines[count]) // 2]})


STORED = {
    "opencode": store_files.opencode | store_files.opencode_exports,
    "strands": store_files.strands | store_files.strands_snapshots,
    "llm": store_files.llm,
}


@st.composite
def damaged(draw: st.DrawFn, files: Files) -> Files:
    """The rows or files with some of them removed, changed or renamed."""
    damaged_files = dict(files)
    for name in draw(st.lists(st.sampled_from(sorted(files)), max_size=4)) if files else ():
        match draw(st.sampled_from(["drop", "change", "rename"])):
            case "drop":
                damaged_files.pop(name, None)
            case "change" if name in damaged_files:
                damaged_files[name] = draw(changed(damaged_files[name]))
            case "rename" if name in damaged_files:
                damaged_files[draw(st.text(max_size=10)) + name[:20]] = damaged_files.pop(name)
            case _:
                pass
    return {name: content for name, content in damaged_files.items() if content}


def check_stored(row: TranscriptFormat, files: Files) -> None:
    """Read rows or files, and check that nothing is lost, if any of it is a session at all."""
    returned: dict[str, bytes] = {}
    transcripts = row.read(files)
    for transcript in transcripts:
        entries = entries_of(transcript)
        for entry in entries:
            assert wire.decode(Entry, wire.encode(entry)) == entry
        returned |= source_files(entries)
    assert returned == (files if transcripts else {})


@pytest.mark.parametrize("name", STORED)
@given(st.data())
def test_generated_rows_and_folders_are_returned_byte_for_byte(name: str, data: st.DataObject) -> None:
    files = data.draw(STORED[name])
    check_stored(FORMATS[name], files)
    check_stored(FORMATS[name], data.draw(damaged(files)))


@pytest.mark.skipif(not FOLDERS, reason=NO_SAMPLES)
@given(st.data())
def test_damaged_rows_and_folders_are_returned_byte_for_byte(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(FOLDERS), label="sample")
    check_stored(sample.format, data.draw(damaged(files_of(sample, unexpected))))


@pytest.mark.parametrize("name", STORED)
@given(st.data())
async def test_rows_that_are_added_belong_to_the_same_sessions(name: str, data: st.DataObject) -> None:
    files_at_end = data.draw(STORED[name])
    some = {file: files_at_end[file] for file in sorted(files_at_end)[: data.draw(st.integers(0, len(files_at_end)))]}
    store = MemoryStore()
    for files in (some, files_at_end):
        for transcript in FORMATS[name].read(files):
            imported = await import_transcript(store, transcript, NOW)
            entries = await store.entries(transcript.session_id)
            if not imported.entries:  # it has the same rows, perhaps in another order
                assert source_files(entries_of(transcript, NOW)).items() <= source_files(entries).items()
                continue
            last = conversation_ids(entries_of(transcript, NOW))[-1]
            expected = conversation_ids(branch(entries_of(transcript, NOW), last))
            assert conversation_ids(branch(entries, last)) == expected
            assert title_in(entries) == (transcript.header.title or title_in(entries))
            assert await check(store, transcript.session_id) == []


@pytest.mark.parametrize("name", [*LINE_FORMATS, *STORED])
@given(st.data())
def test_a_generated_session_can_be_written_for_every_program(name: str, data: st.DataObject) -> None:
    files = data.draw(STORED[name]) if name in STORED else {file_of(name): data.draw(GENERATED[name])}
    for transcript in FORMATS[name].read(files)[:1]:
        entries = entries_of(transcript, NOW)
        target = data.draw(st.sampled_from([row for row in FORMATS.values() if row.writer is not None]), label="to")
        assert target.writer is not None
        head = data.draw(st.sampled_from(heads(entries)))
        keeps = data.draw(st.booleans())
        export = exported(entries, target.name, target.writer, head=head, new_id=NEW_ID, may_keep_id=keeps)
        for reread in target.read(export.files):
            entries_of(reread)


@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "explore",
    reason="finds texts of odd sessions that some programs keep in another form; run with HYPOTHESIS_PROFILE=explore",
)
@pytest.mark.parametrize("target", sorted(row.name for row in FORMATS.values() if row.writer and row.name != "atif"))
@settings(max_examples=2 * settings().max_examples)
@given(st.data())
def test_a_mutated_session_that_is_written_for_a_program_is_read_back_as_it_was(
    target: str, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([*LINE_FORMATS, *STORED]), label="from")
    files: Files = {}
    if name in STORED:
        files = data.draw(damaged(data.draw(STORED[name])))
    else:
        files = {file_of(name): data.draw(changed(data.draw(GENERATED[name])))}
    writer = FORMATS[target].writer
    assert writer is not None
    for transcript in FORMATS[name].read(files)[:1]:
        entries = entries_of(transcript, NOW)
        head = data.draw(st.sampled_from(heads(entries)), label="head")
        export = exported(entries, target, writer, head=head, new_id=NEW_ID, may_keep_id=data.draw(st.booleans()))
        losses = {loss.what for loss in export.losses}
        # In Strands, a summary is in the state of the agent; a chat of the AI SDK has none.
        has_summaries = target != "strands" and "compaction" not in losses
        summaries = [entry.fact.summary for entry in entries if isinstance(entry.fact, CompactionSummary)]
        expected = [item for item in said(branch(entries, head)) if has_summaries or item not in summaries]
        written = [entries_of(read) for read in FORMATS[target].read(export.files)]
        actual = said(written[0]) if written else []
        if target == "gemini":  # an answer is one text
            expected = [item for item in expected if not _is_in(item, actual)]
        missing = Counter(map(repr, expected)) - Counter(map(repr, actual))
        assert not missing or "injected context" in losses


def _is_in(item: Any, spoken: list[Any]) -> bool:
    """Whether a text is part of one that was said."""
    return isinstance(item, str) and any(isinstance(other, str) and item in other for other in spoken)


async def import_growing(row: TranscriptFormat, name: str, pieces: list[bytes]) -> None:
    """Import a file as it grows, and once when it is complete; both must give the same conversation."""
    store, complete_store = MemoryStore(), MemoryStore()
    sofar = b""
    time = entries_of(row.read({name: pieces[-1]})[0])[0].timestamp
    for piece in pieces:
        sofar += piece
        for transcript in row.read({name: sofar}):
            await import_transcript(store, transcript, time)
    for transcript in row.read({name: sofar}):
        await import_transcript(complete_store, transcript, time)
        grown = await store.entries(transcript.session_id)
        complete = await complete_store.entries(transcript.session_id)
        assert source_files(grown) == source_files(complete)
        last = conversation_ids(entries_of(transcript, time))[-1]
        on_branch, expected = branch(grown, last), branch(complete, last)
        assert [fact.kind for fact in facts_of(on_branch)] == [fact.kind for fact in facts_of(expected)]
        assert conversation_ids(on_branch) == conversation_ids(expected)
        assert title_in(grown) == (title_in(complete) or title_in(grown))  # a title stays if the source has none now
        assert await check(store, transcript.session_id) == []


@pytest.mark.parametrize("name", LINE_FORMATS)
@given(st.data())
async def test_importing_a_growing_file_equals_importing_the_whole(name: str, data: st.DataObject) -> None:
    generated = data.draw(GENERATED[name])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(generated)), max_size=3)))
    pieces = [generated[start:end] for start, end in zip([0, *cuts], [*cuts, len(generated)], strict=True)]
    await import_growing(FORMATS[name], file_of(name), pieces)


@pytest.mark.skipif(not SMALL, reason=NO_SAMPLES)
@pytest.mark.parametrize("sample", SMALL, ids=lambda sample: sample.name[-60:])
async def test_importing_a_growing_sample_equals_importing_the_whole(sample: FoundTranscript) -> None:
    lines = lines_of(sample.path.read_bytes())
    step = max(1, len(lines) // 6)
    pieces = [b"".join(lines[start : start + step]) for start in range(0, len(lines), step)]
    await import_growing(sample.format, sample.name, pieces)


@given(st.data())
def test_a_generated_file_of_an_old_gemini_is_returned_byte_for_byte(data: st.DataObject) -> None:
    check_reading(FORMATS["gemini"], {"s.json": data.draw(changed(data.draw(gemini_files.old_files)))})
