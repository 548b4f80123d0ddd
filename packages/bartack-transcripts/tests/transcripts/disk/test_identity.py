"""A session is the same wherever its file is and whatever its name: identity comes from the records."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns.entries import heads
from bartack.nouns.errors import BartackError
from bartack.nouns.messages import Message
from bartack.store import MemoryStore, SessionStore
from bartack_transcripts.disk.files import found_below, read_transcripts
from bartack_transcripts.disk.importing import import_transcript
from bartack_transcripts.formats import FORMATS, exported, source_files
from tests.transcripts.samples import unexpected

TIME = "2026-01-01T00:00:00Z"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Json = dict[str, Any]


def jsonl(lines: Sequence[Json]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def texts_of(session: str) -> list[tuple[str, str]]:
    """The messages of a session, each of which names it; the first is the same in all."""
    return [("user", f"{'' if number == 0 else session} {number}") for number in range(4)]


def claude_code(session: str, *, has_id: bool = True) -> bytes:
    common: Json = {"type": "user", "timestamp": TIME} | ({"sessionId": session} if has_id else {})
    said = enumerate(texts_of(session), 1)
    links = ({"uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n > 1 else None} for n in range(1, 5))
    messages = ({"message": {"role": role, "content": text}} for _, (role, text) in said)
    lines = [common | link | message for link, message in zip(links, messages, strict=True)]
    return jsonl([{"type": "mode", "mode": "normal"}, *lines])


def codex(session: str) -> bytes:
    def item(text: str) -> Json:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    items = [{"timestamp": TIME, "type": "response_item", "payload": item(text)} for _, text in texts_of(session)]
    return jsonl([{"timestamp": TIME, "type": "session_meta", "payload": {"id": session, "cwd": "/"}}, *items])


def pi(session: str) -> bytes:
    header = {"type": "session", "version": 3, "id": session, "timestamp": TIME, "cwd": "/"}
    messages = [{"message": {"role": role, "content": text}} for role, text in texts_of(session)]
    links = [{"type": "message", "id": f"e{n}", "parentId": f"e{n - 1}" if n else None} for n in range(4)]
    return jsonl([header, *(link | message for link, message in zip(links, messages, strict=True))])


def gemini(session: str) -> bytes:
    header = {"sessionId": session, "projectHash": "0", "startTime": TIME, "kind": "main"}
    messages = [
        {"id": f"m{n}", "type": "user", "timestamp": TIME, "content": text}
        for n, (_, text) in enumerate(texts_of(session))
    ]
    return jsonl([header, *messages])


def qwen(session: str) -> bytes:
    return jsonl(
        [
            {
                "uuid": f"u{n}",
                "parentUuid": f"u{n - 1}" if n else None,
                "sessionId": session,
                "type": "user",
                "message": {"role": "user", "parts": [{"text": text}]},
            }
            for n, (_, text) in enumerate(texts_of(session))
        ]
    )


def chat(session: str) -> bytes:
    return jsonl([{"role": role, "content": text} for role, text in texts_of(session)])


def langchain(session: str) -> bytes:
    return json.dumps([{"type": "human", "data": {"content": text}} for _, text in texts_of(session)]).encode()


WRITERS: dict[str, Callable[[str], bytes]] = {
    "claude-code": claude_code,
    "codex": codex,
    "pi": pi,
    "gemini": gemini,
    "qwen": qwen,
    "chat-jsonl": chat,
    "langchain": langchain,
    "without an id": partial(claude_code, has_id=False),
}
IDS = [f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc"]


async def import_folder(store: SessionStore, folder: Path) -> int:
    """Import what is in a folder and can be read; return how many entries were new."""
    added = 0
    for source in found_below(folder, None, unexpected):
        try:
            transcripts = read_transcripts(source)
        except BartackError:  # nothing is left of it
            continue
        for transcript in transcripts:
            added += (await import_transcript(store, transcript, NOW)).entries
    return added


async def sessions_in(store: SessionStore) -> dict[str, set[str]]:
    """The source sessions whose messages are in each stored session."""
    sources: dict[str, set[str]] = {}
    for row in (await store.sessions()).items:
        facts = [entry.fact for entry in await store.entries(row.id)]
        texts = [fact.text for fact in facts if isinstance(fact, Message)]
        sources[row.id] = {text.split()[0] for text in texts if len(text.split()) > 1}
    return sources


def change(folder: Path, data: st.DataObject) -> None:
    """Rename, move, copy or cut off one of the files, or merge two folders."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files), label="file")
    target = folder / data.draw(st.sampled_from(["r1", "r2"])) / f"{data.draw(st.integers(0, 9))}{path.suffix}"
    match data.draw(st.sampled_from(["move", "copy", "cut", "merge"])):
        case "move" if not target.exists():
            path.rename(target)
        case "copy" if not target.exists():
            shutil.copy(path, target)
        case "cut":
            path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, path.stat().st_size))])
        case "merge":
            for number, moved in enumerate(sorted((folder / "r1").iterdir())):
                moved.rename(folder / "r2" / f"merged-{number}-{len(files)}{moved.suffix}")


@pytest.mark.parametrize("name", WRITERS)
@given(st.data())
async def test_moving_copying_and_cutting_files_never_merges_or_splits_sessions(name: str, data: st.DataObject) -> None:
    write = WRITERS[name]
    ending = ".json" if name == "langchain" else ".jsonl"
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for place, id in zip(("r1", "r2", "r2/deep"), IDS, strict=True):
            (folder / place).mkdir()
            (folder / place / f"session{ending}").write_bytes(write(id))
        if data.draw(st.booleans(), label="import at first"):
            await import_folder(store, folder)
        for _ in range(data.draw(st.integers(1, 4))):
            change(folder, data)
            if data.draw(st.booleans(), label="import"):
                await import_folder(store, folder)
        await import_folder(store, folder)
        assert await import_folder(store, folder) == 0  # nothing new
    sources = await sessions_in(store)
    assert all(len(several) <= 1 for several in sources.values())  # none is merged
    complete = [id for several in sources.values() for id in several]
    assert len(complete) == len(set(complete))  # none is split


@pytest.mark.parametrize("name", ["claude-code", "codex", "pi", "gemini", "qwen"])
async def test_sessions_in_files_of_one_name_are_exported_apart(name: str, tmp_path: Path) -> None:
    store = MemoryStore()
    for place, id in zip(("r1", "r2"), IDS, strict=False):
        (tmp_path / place).mkdir()
        (tmp_path / place / "session.jsonl").write_bytes(WRITERS[name](id))
    await import_folder(store, tmp_path)
    writer = FORMATS[name].writer
    assert writer is not None
    stored = [await store.entries(row.id) for row in (await store.sessions()).items]
    assert all(len(heads(entries)) == 1 for entries in stored)
    exports = [exported(entries, name, writer, new_id=IDS[2]) for entries in stored]
    assert all(export.is_exact for export in exports)
    assert {next(iter(export.files.values())) for export in exports} == {WRITERS[name](id) for id in IDS[:2]}


async def test_a_file_that_grows_under_another_name_is_one_file(tmp_path: Path) -> None:
    store = MemoryStore()
    whole = claude_code(IDS[0])
    begun = b"".join(whole.splitlines(keepends=True)[:3])
    for name, data in (("old.jsonl", begun), ("new.jsonl", whole)):
        (tmp_path / name).write_bytes(data)
        await import_folder(store, tmp_path)
        (tmp_path / name).unlink()
    (row,) = (await store.sessions()).items
    assert source_files(await store.entries(row.id)) == {"old.jsonl": whole}
