"""Finding, reading and importing transcripts."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.nouns.entries import Custom, Redaction
from bartack.nouns.errors import BartackError, NotAdopted
from bartack.nouns.messages import Message
from bartack.session.redaction import REDACTED
from bartack.session.title import title_in
from bartack.store import MemoryStore, SessionStore
from bartack.store.foreign import adopt
from bartack.store.maintenance import check
from bartack.store.requests import redact, rename
from bartack.tools import tool
from bartack_transcripts.disk.files import (
    error_text,
    files_of,
    find_transcripts,
    found_at,
    found_below,
    read_transcripts,
)
from bartack_transcripts.disk.importing import import_transcript
from bartack_transcripts.formats import FORMATS, Transcript, entries_of, source_files
from tests.transcripts.samples import unexpected

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
    return [str(message.tool_results[0].content) if message.role == "tool" else message.text for message in messages]


async def test_a_file_that_has_grown_adds_to_its_session() -> None:
    store = MemoryStore()
    first = await import_transcript(store, read(user("1", "one")), NOW)
    assert (first.is_new, first.is_rewritten) == (True, False)
    second = await import_transcript(store, read(user("1", "one"), user("2", "two", "1")), NOW)
    assert (second.entries, second.is_new, second.is_rewritten) == (2, False, False)
    assert await texts(store) == ["one", "two"]
    assert len(await store.heads(ID)) == 1


async def test_a_file_whose_last_answer_has_grown_is_not_rewritten() -> None:
    store = MemoryStore()
    answer = {
        "id": "m-3",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": "Let me see."}],
    }
    lines = [user("1", "go"), line(type="assistant", uuid="2", parentUuid="1", message=answer)]
    for added in (calling("3", "c1", "2"), result("4", "c1", "3")):
        await import_transcript(store, read(*lines), NOW)
        lines.append(added)
        assert not (await import_transcript(store, read(*lines), NOW)).is_rewritten
    assert await texts(store) == ["go", "Let me see.", "done"]


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
    first_head = (await store.tail_of(ID)).entry_id
    lines = [user("1", "go!"), calling("2", "c1", "1"), result("3", "c1", "2", "new")]
    again = await import_transcript(store, read(*lines), NOW)
    assert again.is_rewritten
    assert await texts(store) == ["go!", "", "new"]
    assert await texts(store, first_head) == ["go", "", "old"]
    assert source_files(await store.entries(ID)) == {NAME: b"".join(lines)}
    assert await check(store, ID) == []
    lines += [calling("4", "c2", "3"), result("5", "c2", "4", "more")]
    assert not (await import_transcript(store, read(*lines), NOW)).is_rewritten
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
    with pytest.raises(NotAdopted):
        await agent.resume(ID)
    await adopt(store, ID)
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
    entries_left = await store.load(ID)
    assert "secret" not in repr([entry.fact for entry in entries_left if not isinstance(entry.fact, Redaction)][1:])
    assert not any(isinstance(entry.fact, Custom) and entry.fact.data for entry in entries_left)
    grown = read(user("1", "the secret"), user("2", "two", "1"), user("3", "three", "2"))
    await import_transcript(store, grown, NOW)
    assert "secret" not in repr([entry.fact for entry in await store.load(ID)][1:])
    assert await texts(store) == [REDACTED, "two", "three"]


async def test_entries_without_a_time_get_that_of_the_file() -> None:
    store = MemoryStore()
    await import_transcript(store, read(user("1", "one")), NOW)
    assert {entry.timestamp for entry in await store.entries(ID)} == {NOW}


def titled(title: str) -> bytes:
    return line(type="custom-title", customTitle=title)


async def titles(store: SessionStore) -> list[str | None]:
    """The title in the list, and that of the newest branch."""
    (info,) = (await store.sessions()).items
    return [info.title, title_in(await store.load(ID))]


async def test_a_title_that_the_program_gives_later_becomes_that_of_the_session() -> None:
    store = MemoryStore()
    lines = [user("1", "one")]
    for title in ("Retries", "Uploads", "Retries"):
        await import_transcript(store, read(*lines), NOW)
        assert await titles(store) == [read(*lines).header.title] * 2
        lines += [titled(title), user(title + str(len(lines)), "more", "1")]
    assert (await import_transcript(store, read(*lines), NOW)).entries > 0
    assert (await import_transcript(store, read(*lines), NOW)).entries == 0
    assert await titles(store) == ["Retries"] * 2
    assert source_files(await store.entries(ID)) == {NAME: b"".join(lines)}
    assert await check(store, ID) == []


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_a_title_of_the_user_stays_whatever_the_program_calls_the_session(is_hidden: bool) -> None:
    store = MemoryStore()
    lines = [user("1", "one")]
    await import_transcript(store, read(*lines), NOW)
    title = await rename(store, ID, "Mine")
    if is_hidden:
        await redact(store, ID, title.id)
    lines += [user("2", "two", "1"), titled("Theirs")]
    await import_transcript(store, read(*lines), NOW)
    listed, visible_title = await titles(store)
    assert listed == (None if is_hidden else "Mine")
    assert visible_title != "Theirs"
    assert len(await store.heads(ID)) == 1  # what is new follows the title
    assert await texts(store) == ["one", "two"]


def test_transcripts_are_found_where_the_program_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("KODE_CONFIG_DIR", str(tmp_path / "none"))
    project = tmp_path / "projects" / "-work"
    agents = project / "5b0c" / "subagents"
    agents.mkdir(parents=True)
    (project / NAME).write_bytes(user("1", "one"))
    said = {"role": "user", "content": "two"}
    (agents / "agent-a.jsonl").write_bytes(line(type="user", uuid="1", isSidechain=True, agentId="a", message=said))
    (agents / "agent-a.meta.json").write_bytes(b'{"toolUseId":"c1"}')
    sources = list(find_transcripts(["claude-code", "kode"], unexpected))
    assert [source.name for source in sources] == [NAME, "5b0c/subagents/agent-a.jsonl"]
    assert list(find_transcripts(["kode"], unexpected)) == []
    (child,) = read_transcripts(sources[1])
    assert child.header.metadata is not None
    assert (child.session_id, child.header.metadata["toolCallId"]) == (f"{ID}/agent-a", "c1")
    assert found_at(sources[1].path).name == sources[1].name


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
        ("qwen", "home/projects/-app/subagents/1b2c/agent-x.jsonl", "subagents/1b2c/agent-x.jsonl"),
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


def test_files_of_earlier_versions_of_opencode_are_found_unless_they_were_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    home = tmp_path / "opencode"
    for place in ("project/p/storage/session", "storage"):
        (home / place / "message" / "ses_1").mkdir(parents=True)
        assert [source.path for source in find_transcripts(["opencode"], unexpected)] == [home / place]
    (home / "opencode.db").write_bytes(b"")
    assert [source.path for source in find_transcripts(["opencode"], unexpected)] == [home / "opencode.db"]


def test_a_change_inside_a_folder_or_in_the_log_of_a_database_is_noticed(tmp_path: Path) -> None:
    folder, database = tmp_path / "storage", tmp_path / "opencode.db"
    (folder / "message" / "ses_1").mkdir(parents=True)
    database.write_bytes(b"")
    for path, changed_file in (
        (folder, folder / "message" / "ses_1" / "msg_1.json"),
        (database, tmp_path / "opencode.db-wal"),
    ):
        before = found_at(path, "opencode")
        changed_file.write_bytes(b"{}")
        os.utime(changed_file, (2e9, 2e9))
        changed = found_at(path, "opencode")
        assert changed.size == before.size + 2
        assert changed.modified.timestamp() == 2e9


async def test_a_fact_that_cannot_be_stored_is_left_out() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    transcript = read(user("1", "one"), user("2", "two", "1"))
    bad = Custom(name="deep", data={"value": deep})
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
            if place.unless is not None:
                continue
            path = Path(row.homes[-1]).expanduser() / place.folder.replace("*", "x") / place.file.replace("*", "y")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")
            expected.add((row.name, path.resolve()))
    assert {(source.format.name, source.path.resolve()) for source in find_transcripts((), unexpected)} == expected


def test_what_is_not_a_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(BartackError, match="not a regular file"):
        found_at(tmp_path / "pipe.jsonl")
    path = tmp_path / "fork.jsonl"
    path.write_bytes(line(type="user", uuid="1", timestamp="2026-01-01T00:00:00Z", message={"content": "hi"}))
    (transcript,) = read_transcripts(found_at(path))  # reads the other files of its folder
    assert transcript.header.title == "hi"


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf" + user("1", "hi"), user("1", "hi").replace(b"\n", b"\r\n")])
def test_marks_and_line_ends_of_windows_are_kept_and_read(data: bytes) -> None:
    transcript = read(data)
    assert [fact.text for step in transcript.steps for fact in step.facts if isinstance(fact, Message)] == ["hi"]
    assert transcript.report.total("damaged") == 0
    assert source_files(entries_of(transcript)) == {NAME: data}


def test_blank_lines_are_one_record() -> None:
    data = user("1", "one") + b"\n \r\n" * 100_000 + user("2", "two", "1") + b"\n\n"
    transcript = read(data)
    entries = entries_of(transcript)
    assert len(entries) == 5  # the header, two messages, and two blocks of records
    assert source_files(entries) == {NAME: data}


def test_a_fork_finds_its_origin_in_the_folders_of_codex_only(tmp_path: Path) -> None:
    thread = "01a1e2a1-302e-7fa0-8a51-42d7b401ecf6"
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "before"}]}
    meta = {"id": "x", "history_base": {"thread_id": thread, "end_ordinal_exclusive": 1}}
    base = json.dumps({"type": "response_item", "payload": message}).encode() + b"\n"
    fork = json.dumps({"type": "session_meta", "payload": meta}).encode() + b"\n"
    for folder, origin in (("sessions/2026/01/02", "archived_sessions"), ("other/2026/01/02", "other")):
        for name, data in ((f"{folder}/rollout-x.jsonl", fork), (f"{origin}/rollout-a-{thread}.jsonl", base)):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
    file_sets = [
        files_of(found_at(tmp_path / f"{name}/2026/01/02/rollout-x.jsonl"), unexpected)
        for name in ("sessions", "other")
    ]
    assert [len(files) for files in file_sets] == [2, 1]


async def test_the_last_line_of_a_growing_file_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path, store = tmp_path / NAME, MemoryStore()
    first, second = user("1", "one"), user("2", "two", "1")
    imported = []
    for data in (first[:-5], first + second[:20], first + second):
        path.write_bytes(data)
        for transcript in read_transcripts(found_at(path, "claude-code"), is_growing=True):
            imported.append(await import_transcript(store, transcript, NOW))
    assert [(session.entries, session.is_new, session.is_rewritten) for session in imported] == [
        (3, True, False),
        (2, False, False),
    ]
    assert await texts(store) == ["one", "two"]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can read."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        for path in (folder, *folder.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


@contextmanager
def as_plain_user() -> Iterator[None]:
    """Do something with the rights of a user: nothing is forbidden to root."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)


def test_what_cannot_be_read_is_reported_and_passed_over(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(shared))
    open_folder, locked = shared / "projects" / "-open", shared / "projects" / "-locked"
    for folder in (open_folder, locked):
        folder.mkdir(parents=True)
        (folder / "good.jsonl").write_bytes(user("1", "hi"))
    (open_folder / "secret.jsonl").write_bytes(user("1", "hi"))
    (open_folder / "folder.jsonl").mkdir()
    (open_folder / "gone.jsonl").symlink_to("nowhere")
    (open_folder / "loop.jsonl").symlink_to("loop.jsonl")
    (open_folder / "cycle").symlink_to(shared)
    os.mkfifo(open_folder / "pipe.jsonl")
    (open_folder / "secret.jsonl").chmod(0)
    locked.chmod(0)
    errors: list[tuple[str, str]] = []

    def on_error(path: Path, error: OSError) -> None:
        errors.append((path.name, error_text(error)))

    with as_plain_user():
        sources = list(find_transcripts(["claude-code"], on_error))
        assert [source.path.name for source in sources] == ["good.jsonl", "secret.jsonl"]
        assert [transcript.header.title for transcript in read_transcripts(sources[0])] == ["hi"]
        with pytest.raises(PermissionError):
            read_transcripts(sources[1])
        below = list(found_below(shared, None, on_error))
    assert [source.path.name for source in below] == ["good.jsonl"]
    assert errors[:3] == [
        ("-locked", "Permission denied"),
        ("loop.jsonl", "Too many levels of symbolic links"),
        ("pipe.jsonl", "Not a regular file"),
    ]
    assert {name for name, _ in errors[3:]} == {"-locked", "loop.jsonl", "secret.jsonl"}  # not what is no transcript


def test_the_readable_files_of_a_folder_are_a_session(shared: Path) -> None:
    session = shared / "session_1"
    messages = session / "agents" / "agent_a" / "messages"
    messages.mkdir(parents=True)
    (session / "session.json").write_text('{"session_id": "1", "session_type": "AGENT"}')
    for number in range(3):
        message = {"role": "user", "content": [{"text": f"message {number}"}]}
        (messages / f"message_{number}.json").write_text(json.dumps({"message": message, "message_id": number}))
    (messages / "message_1.json").chmod(0)
    with as_plain_user():
        (transcript,) = read_transcripts(found_at(session))
    (problem,) = transcript.report.problems
    assert (problem.file, problem.what) == ("agents/agent_a/messages/message_1.json", "Permission denied")
    said_texts = [fact.text for step in transcript.steps for fact in step.facts if isinstance(fact, Message)]
    assert said_texts == ["message 0", "message 2"]


def test_a_database_that_nobody_may_write_is_read(shared: Path) -> None:
    path = shared / "opencode.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("PRAGMA journal_mode = wal")
        opened.execute("CREATE TABLE session (id, title, directory, time_created)")
        opened.execute("INSERT INTO session VALUES ('ses_1', 'A title', '/work', 1)")
        opened.commit()
        for file in shared.iterdir():
            file.chmod(0o444)
        shared.chmod(0o555)
        with as_plain_user():
            (transcript,) = read_transcripts(found_at(path))
        shared.chmod(0o755)
    assert transcript.header.title == "A title"


async def test_a_file_that_is_cut_off_or_replaced_while_it_is_imported_loses_nothing(tmp_path: Path) -> None:
    path, store = tmp_path / NAME, MemoryStore()
    path.write_bytes(user("1", "one") + user("2", "two", "1"))
    source = found_at(path)
    path.write_bytes(user("1", "one")[:-5])  # after it was found
    with pytest.raises(BartackError, match="no records"):
        read_transcripts(source)
    path.write_bytes(user("1", "one") + user("2", "two", "1"))
    await import_transcript(store, read_transcripts(source)[0], NOW)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_transcripts(source)
    path.write_bytes(user("1", "one") + user("2", "2", "1") + user("3", "three", "2"))
    assert (await import_transcript(store, read_transcripts(source)[0], NOW)).is_rewritten
    assert await texts(store) == ["one", "2", "three"]
    assert await check(store, ID) == []


def test_a_session_without_a_prompt_is_named_after_its_first_message(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    answer = {"role": "assistant", "id": "m", "model": "m", "content": [{"type": "text", "text": "Hello, I am ready."}]}
    path.write_bytes(line(type="assistant", uuid="1", parentUuid=None, message=answer))
    assert read_transcripts(found_at(path))[0].header.title == "Hello, I am ready."
