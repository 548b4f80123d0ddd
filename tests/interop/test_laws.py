"""Laws of every reader, for generated files, and for samples that were cut and changed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.app.transcripts import Found, files_of, import_transcript
from bartack.interop import FORMATS, Files, Transcript, TranscriptFormat, entries_of, source_files
from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, Fact, branch
from bartack.store import MemoryStore
from bartack.store.maintenance import check
from tests.interop import claude_code_files, codex_files, gemini_files, library_files, pi_files, qwen_files
from tests.interop.samples import NO_SAMPLES, samples

GENERATED: dict[str, st.SearchStrategy[bytes]] = {
    "claude-code": claude_code_files.files,
    "kode": claude_code_files.files,
    "codex": codex_files.files,
    "pi": pi_files.files,
    "gemini": gemini_files.files,
    "qwen": qwen_files.files,
    "chat-jsonl": library_files.chats,
    "pydantic-ai": library_files.pydantic_ai,
    "langchain": library_files.langchain,
    "ai-sdk": library_files.ai_sdk,
}
LINE_FORMATS = sorted(GENERATED)
LISTS = ("pydantic-ai", "langchain", "ai-sdk")  # files that are one list


def file_of(name: str) -> str:
    return "s.json" if name in LISTS else "s.jsonl"


FOLDERS = [found for found in samples("opencode", "strands") if found.size < 100_000]
SMALL = [found for found in samples(*LINE_FORMATS) if found.size < 40_000]


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """The data with bytes replaced, lines removed, repeated or moved, and its end cut off."""
    lines = lines_of(data)
    for _ in range(draw(st.integers(0, 4))):
        if not lines:
            break
        place = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "repeat", "move", "bytes", "junk"])):
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
            case _:
                lines.insert(place, draw(st.binary(max_size=40)) + b"\n")
    whole = b"".join(lines)
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


def facts_of(entries: list[Entry] | tuple[Entry, ...]) -> list[Fact]:
    """The facts that people and models see."""
    return [entry.fact for entry in entries if not isinstance(entry.fact, Custom)]


def check_reading(row: TranscriptFormat, files: Files) -> list[Transcript]:
    """Read the files, and check that nothing is lost and everything can be stored."""
    transcripts = row.read(files)
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
    found = data.draw(st.sampled_from(SMALL), label="sample")
    check_reading(found.format, {found.name: data.draw(changed(found.path.read_bytes()))})


@pytest.mark.skipif(not SMALL, reason=NO_SAMPLES)
@pytest.mark.parametrize("found", SMALL, ids=lambda found: found.name[-60:])
def test_every_prefix_of_a_sample_can_be_read(found: Found) -> None:
    lines = lines_of(found.path.read_bytes())
    step = max(1, len(lines) // 20)
    for count in range(0, len(lines), step):
        whole = b"".join(lines[:count])
        check_reading(found.format, {found.name: whole + lines[count][: len(lines[count]) // 2]})


@pytest.mark.skipif(not FOLDERS, reason=NO_SAMPLES)
@settings(max_examples=2 * settings().max_examples)
@given(st.data())
def test_damaged_rows_and_folders_are_returned_byte_for_byte(data: st.DataObject) -> None:
    found = data.draw(st.sampled_from(FOLDERS), label="sample")
    files = dict(data.draw(st.sampled_from([found]).map(files_of)))
    for name in data.draw(st.lists(st.sampled_from(sorted(files)), max_size=4)):
        match data.draw(st.sampled_from(["drop", "change", "rename"])):
            case "drop":
                files.pop(name, None)
            case "change" if name in files:
                files[name] = data.draw(changed(files[name]))
            case "rename" if name in files:
                files[data.draw(st.text(max_size=10)) + name[:20]] = files.pop(name)
            case _:
                pass
    files = {name: content for name, content in files.items() if content}
    kept: dict[str, bytes] = {}
    for transcript in found.format.read(files):
        entries = entries_of(transcript)
        for entry in entries:
            assert wire.decode(Entry, wire.encode(entry)) == entry
        kept |= source_files(entries)
    assert kept == files


async def import_growing(row: TranscriptFormat, name: str, pieces: list[bytes]) -> None:
    """Import a file as it grows, and once when it is complete; both must give the same conversation."""
    store, whole = MemoryStore(), MemoryStore()
    sofar = b""
    time = entries_of(row.read({name: pieces[-1]})[0])[0].timestamp
    for piece in pieces:
        sofar += piece
        for transcript in row.read({name: sofar}):
            await import_transcript(store, transcript, time)
    for transcript in row.read({name: sofar}):
        await import_transcript(whole, transcript, time)
        grown = await store.entries(transcript.session_id)
        complete = await whole.entries(transcript.session_id)
        assert source_files(grown) == source_files(complete)
        last = next(entry.id for entry in reversed(entries_of(transcript, time)))
        on_branch, expected = branch(grown, last), branch(complete, last)
        assert [fact.kind for fact in facts_of(on_branch)] == [fact.kind for fact in facts_of(expected)]
        assert [entry.id for entry in on_branch] == [entry.id for entry in expected]
        assert await check(store, transcript.session_id) == []


@pytest.mark.parametrize("name", LINE_FORMATS)
@given(st.data())
async def test_importing_a_growing_file_equals_importing_the_whole(name: str, data: st.DataObject) -> None:
    whole = data.draw(GENERATED[name])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    await import_growing(FORMATS[name], file_of(name), pieces)


@pytest.mark.skipif(not SMALL, reason=NO_SAMPLES)
@pytest.mark.parametrize("found", SMALL, ids=lambda found: found.name[-60:])
async def test_importing_a_growing_sample_equals_importing_the_whole(found: Found) -> None:
    lines = lines_of(found.path.read_bytes())
    step = max(1, len(lines) // 6)
    pieces = [b"".join(lines[start : start + step]) for start in range(0, len(lines), step)]
    await import_growing(found.format, found.name, pieces)


@given(st.data())
def test_a_generated_file_of_an_old_gemini_is_returned_byte_for_byte(data: st.DataObject) -> None:
    check_reading(FORMATS["gemini"], {"s.json": data.draw(changed(data.draw(gemini_files.old_files)))})
