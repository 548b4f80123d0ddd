"""Finding, reading and importing transcripts."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bartack.agent import Agent
from bartack.app.transcripts import find_transcripts, found_at, import_transcript, read_transcripts
from bartack.interop import FORMATS, Transcript, source_files
from bartack.models import ScriptedModel
from bartack.nouns.entries import Custom, Redaction
from bartack.nouns.errors import BartackError
from bartack.nouns.messages import Message
from bartack.store import MemoryStore, SessionStore
from bartack.store.maintenance import check
from bartack.store.requests import redact
from bartack.tools import tool

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "5b0c.jsonl"
ID = "claude-code:5b0c"


def user(uuid: str, content: Any, parent: str | None = None) -> bytes:
    return line(type="user", uuid=uuid, parentUuid=parent, message={"role": "user", "content": content})


def calling(uuid: str, call: str, parent: str) -> bytes:
    block = {"type": "tool_use", "id": call, "name": "dangerous", "input": {}}
    message = {"id": f"m-{uuid}", "role": "assistant", "model": "claude-x", "content": [block]}
    return line(type="assistant", uuid=uuid, parentUuid=parent, message=message)


def result(uuid: str, call: str, parent: str, text: str = "done") -> bytes:
    return user(uuid, [{"type": "tool_result", "tool_use_id": call, "content": text}], parent)


def line(**fields: Any) -> bytes:
    return json.dumps({**fields, "sessionId": "5b0c", "cwd": "/work"}).encode() + b"\n"


def read(*lines: bytes) -> Transcript:
    return FORMATS["claude-code"].read({NAME: b"".join(lines)})[0]


async def texts(store: SessionStore, head: str | None = None) -> list[str]:
    messages = [entry.fact for entry in await store.load(ID, head=head) if isinstance(entry.fact, Message)]
    return [str(one.tool_results[0].content) if one.role == "tool" else one.text for one in messages]


async def test_a_file_that_has_grown_adds_to_its_session() -> None:
    store = MemoryStore()
    first = await import_transcript(store, read(user("1", "one")), NOW)
    assert (first.is_new, first.is_rewritten) == (True, False)
    second = await import_transcript(store, read(user("1", "one"), user("2", "two", "1")), NOW)
    assert (second.entries, second.is_new, second.is_rewritten) == (2, False, False)
    assert await texts(store) == ["one", "two"]
    assert len(await store.heads(ID)) == 1


async def test_a_result_that_arrives_later_joins_the_call_that_was_imported() -> None:
    store = MemoryStore()
    lines = [user("1", "go"), calling("2", "c1", "1")]
    await import_transcript(store, read(*lines), NOW)
    assert await check(store, ID) == []
    await import_transcript(store, read(*lines, result("3", "c1", "2")), NOW)
    assert await texts(store) == ["go", "", "done"]
    assert len(await store.heads(ID)) == 1


async def test_a_rewritten_file_adds_a_branch_with_calls_of_its_own() -> None:
    store = MemoryStore()
    await import_transcript(store, read(user("1", "go"), calling("2", "c1", "1"), result("3", "c1", "2", "old")), NOW)
    old = (await store.tail_of(ID)).entry_id
    lines = [user("1", "go!"), calling("2", "c1", "1"), result("3", "c1", "2", "new")]
    again = await import_transcript(store, read(*lines), NOW)
    assert again.is_rewritten
    assert await texts(store) == ["go!", "", "new"]
    assert await texts(store, old) == ["go", "", "old"]
    assert source_files(await store.entries(ID)) == {NAME: b"".join(lines)}
    assert await check(store, ID) == []
    await import_transcript(store, read(*lines, calling("4", "c2", "3"), result("5", "c2", "4", "more")), NOW)
    assert (await texts(store))[-1] == "more"
    assert len(await store.heads(ID)) == 2


async def test_a_file_that_became_shorter_is_exported_as_it_is_now() -> None:
    store = MemoryStore()
    await import_transcript(store, read(user("1", "one"), user("2", "two", "1"), user("3", "three", "2")), NOW)
    lines = [user("1", "one"), user("2", "other", "1")]
    await import_transcript(store, read(*lines), NOW)
    assert source_files(await store.entries(ID)) == {NAME: b"".join(lines)}


async def test_calls_of_a_transcript_are_never_executed_and_are_closed_by_the_next_run() -> None:
    done: list[str] = []

    @tool
    def dangerous() -> str:
        """Do something that cannot be undone."""
        done.append("it")
        return "done"

    store = MemoryStore()
    await import_transcript(store, read(user("1", "go"), calling("2", "c1", "1")), NOW)
    agent = Agent(ScriptedModel(["Nothing was done.", "Hello."]), tools=[dangerous], store=store)
    await agent.resume(ID)
    await agent.run("Hello?", session=ID)
    assert done == []
    assert (await texts(store))[-1] == "Hello."
    late = read(user("1", "go"), calling("2", "c1", "1"), result("3", "c1", "2"), user("4", "next", "3"))
    await import_transcript(store, late, NOW)
    assert (await texts(store))[-1] == "next"
    assert await check(store, ID) == []


async def test_redacting_an_entry_redacts_the_records_that_it_came_from() -> None:
    store = MemoryStore()
    await import_transcript(store, read(user("1", "the secret"), user("2", "two", "1")), NOW)
    entries = await store.entries(ID)
    secret = next(entry for entry in entries if isinstance(entry.fact, Message))
    await redact(store, ID, secret.id)
    shown = await store.load(ID)
    assert "secret" not in repr([entry.fact for entry in shown if not isinstance(entry.fact, Redaction)][1:])
    assert sum(isinstance(entry.fact, Custom) and bool(entry.fact.data) for entry in shown) == 1


async def test_entries_without_a_time_get_that_of_the_file() -> None:
    store = MemoryStore()
    await import_transcript(store, read(user("1", "one")), NOW)
    assert {entry.timestamp for entry in await store.entries(ID)} == {NOW}


def test_transcripts_are_found_where_the_program_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("KODE_CONFIG_DIR", str(tmp_path / "none"))
    project = tmp_path / "projects" / "-work"
    agents = project / "5b0c" / "subagents"
    agents.mkdir(parents=True)
    (project / NAME).write_bytes(user("1", "one"))
    (agents / "agent-a.jsonl").write_bytes(line(type="user", uuid="1", isSidechain=True))
    (agents / "agent-a.meta.json").write_bytes(b'{"toolUseId":"c1"}')
    found = list(find_transcripts(["claude-code", "kode"]))
    assert [one.name for one in found] == [NAME, "5b0c/subagents/agent-a.jsonl"]
    assert list(find_transcripts(["kode"])) == []
    (child,) = read_transcripts(found[1])
    assert child.header.metadata is not None
    assert (child.session_id, child.header.metadata["toolCallId"]) == (f"{ID}/agent-a", "c1")
    assert found_at(found[1].path).name == found[1].name


def test_a_file_that_is_no_transcript_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"hello\n")
    with pytest.raises(BartackError, match="not a transcript"):
        found_at(path)
    with pytest.raises(BartackError, match="no records of Claude Code"):
        read_transcripts(found_at(path, "claude-code"))


@pytest.mark.parametrize(
    ("agent", "path", "name"),
    [
        ("gemini", "home/tmp/app/chats/session-1.jsonl", "session-1.jsonl"),
        ("gemini", "home/tmp/app/chats/1b2c/a.jsonl", "1b2c/a.jsonl"),
        ("gemini", "home/tmp/chats/chats/session-1.jsonl", "session-1.jsonl"),
        ("gemini", "elsewhere/session-1.jsonl", "session-1.jsonl"),
        ("qwen", "home/projects/-app/subagents/1b2c/agent-x.jsonl", "1b2c/agent-x.jsonl"),
        ("qwen", "elsewhere/1b2c/agent-x.jsonl", "agent-x.jsonl"),
        ("claude-code", "elsewhere/1b2c/subagents/agent-x.jsonl", "1b2c/subagents/agent-x.jsonl"),
        ("claude-code", "home/projects/-app/agent-x.jsonl", "agent-x.jsonl"),
        ("codex", "copy.jsonl", "copy.jsonl"),
    ],
)
def test_a_file_has_the_same_name_however_it_is_found(agent: str, path: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"{}\n")
    assert found_at(file, agent).name == name


async def test_a_fact_that_cannot_be_stored_is_left_out() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    transcript = read(user("1", "one"), user("2", "two", "1"))
    bad = Custom("deep", {"value": deep})
    transcript.steps[1] = transcript.steps[1]._replace(facts=(bad,))
    store = MemoryStore()
    imported = await import_transcript(store, transcript, NOW)
    assert await texts(store) == ["one"]
    assert "cannot be stored" in transcript.report.problems[0].what
    assert source_files(await store.entries(imported.session_id)) == {NAME: user("1", "one") + user("2", "two", "1")}
    assert (await import_transcript(store, transcript, NOW)).entries == 0


def test_the_transcripts_of_every_program_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = set()
    for row in FORMATS.values():
        for home in row.homes[:-1]:
            monkeypatch.delenv(home[1:].partition("/")[0], raising=False)
        for place in row.places:
            path = Path(row.homes[-1]).expanduser() / place.folder.replace("*", "x") / place.file.replace("*", "y")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")
            expected.add((row.name, path.resolve()))
    assert {(found.format.name, found.path.resolve()) for found in find_transcripts()} == expected
