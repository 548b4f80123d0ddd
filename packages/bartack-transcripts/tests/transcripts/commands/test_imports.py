"""`bartack import` and `bartack show FILE`."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from base64 import b64encode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bartack.cli import entry
from bartack.cli.output import columns, print_table
from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, SessionHeader
from bartack.nouns.messages import Message
from bartack.store import open_store
from bartack_transcripts.commands import imports
from bartack_transcripts.disk.files import found_at
from bartack_transcripts.formats import SOURCE

OUTER = "7c1d0000-0000-4000-8000-000000000000"
SESSION = "5b0c9cde-0000-4000-8000-000000000000"
PROMPT = (
    b'{"type":"user","uuid":"1","parentUuid":null,"sessionId":"' + SESSION.encode() + b'",'
    b'"cwd":"/srv/app","message":{"role":"user","content":"%b"}}\n'
)
Out = pytest.CaptureFixture[str]


def run(words: list[str]) -> int:
    try:
        return entry.run(words)
    except SystemExit as exit:
        return int(exit.code or 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Claude Code with one session, and an empty store."""
    folder = tmp_path / "claude" / "projects" / "-srv-app"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CODEX_HOME", "PI_CODING_AGENT_DIR", "KODE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BARTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BARTACK_STORE", f"sqlite:{tmp_path / 'store.db'}")
    (folder / f"{SESSION}.jsonl").write_bytes(PROMPT % b"hello \\u001b[31mthere")
    return folder


def test_the_command_shows_what_it_finds_and_imports_it_on_request(home: Path, capsys: Out) -> None:
    assert run(["import", "--json"]) == 0
    (agent,) = json.loads(capsys.readouterr().out)["agents"]
    assert (agent["agent"], agent["transcripts"]) == ("claude-code", 1)
    assert run(["import"]) == 0
    assert capsys.readouterr().out.startswith("Claude Code\t1\t0.0\t")
    assert run(["import", "--all"]) == 0
    assert capsys.readouterr().out == f"claude-code:{SESSION}\n"
    assert run(["import", "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"imported": [], "sessions": 1, "failures": []}
    assert run(["show", f"claude-code:{SESSION}"]) == 0
    assert capsys.readouterr().out == "-- user\nhello there\n"


def test_the_summaries_of_a_file_are_shown(tmp_path: Path, capsys: Out) -> None:
    entries = [
        {"type": "session", "version": 3, "id": "s", "cwd": "/srv/app"},
        {"type": "branch_summary", "id": "a", "parentId": None, "fromId": "root", "summary": "They tried."},
        {"type": "compaction", "id": "b", "parentId": "a", "summary": "They went\non.", "firstKeptEntryId": "b"},
        {"type": "message", "id": "c", "parentId": "b", "message": {"role": "user", "content": "Hi"}},
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert run(["show", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "-- summary of another branch, for the model",
        "They tried.",
        "-- summary of everything above, for the model",
        "They went",
        "on.",
        "-- user",
        "Hi",
    ]


def test_one_project_can_be_chosen(home: Path, capsys: Out) -> None:
    assert run(["import", "--project", "/srv/other", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"] == 0
    assert run(["import", "--project", "/srv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"] == 1


def test_check_reports_what_is_understood_and_imports_nothing(home: Path, capsys: Out) -> None:
    path = home / f"{SESSION}.jsonl"
    path.write_bytes(path.read_bytes() + b'{"type":"mode"}\n{broken\n')
    assert run(["import", "--check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (transcript,) = report["transcripts"]
    assert [transcript[key] for key in ("read", "opaque", "damaged")] == [1, 1, 1]
    assert transcript["problems"][0]["record"] == 3
    assert {"agent": "claude-code", "record": "mode", "outcome": "opaque", "count": 1} in report["records"]
    assert run(["import", "--check"]) == 0
    assert "record 3: not JSON" in capsys.readouterr().err
    assert not (home.parents[2] / "store.db").exists()


def test_a_file_that_cannot_be_read_does_not_stop_the_others(home: Path, capsys: Out) -> None:
    (home / "a.jsonl").write_bytes(b"junk\n")
    assert run(["import", "--all"]) == 1
    captured = capsys.readouterr()
    assert captured.out == f"claude-code:{SESSION}\n"
    assert "no records of Claude Code" in captured.err


def test_every_file_that_cannot_be_read_is_named(home: Path, capsys: Out) -> None:
    assert run(["import", "c", "d"]) == 1  # letters of "directory"
    assert capsys.readouterr().err.splitlines()[:2] == [f"{name}: No such file or directory" for name in "cd"]


def test_sessions_can_be_listed_and_searched_by_agent_and_project(home: Path, capsys: Out) -> None:
    assert run(["import", "--all"]) == 0
    capsys.readouterr()
    for words in (["list"], ["search", "hello"]):
        for options, is_found in (
            (["--agent", "claude-code"], True),
            (["--agent", "bartack"], False),
            (["--project", "/srv"], True),
            (["--project", "/other"], False),
            (["--agent", "claude-code", "--project", "/srv/app"], True),
        ):
            assert run(["sessions", *words, *options, "--json"]) == 0
            assert bool(json.loads(capsys.readouterr().out)["items"]) == is_found


def test_a_file_that_was_imported_is_read_again_only_if_it_changed_or_its_session_is_gone(
    home: Path, capsys: Out
) -> None:
    path = home / f"{SESSION}.jsonl"
    assert run(["import", "--all"]) == 0
    capsys.readouterr()
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"hello", b"hullo"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(["import", "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == []
    assert run(["sessions", "purge", f"claude-code:{SESSION}", "--everything", "--yes"]) == 0
    capsys.readouterr()
    assert run(["import", "--all", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["imported"]) == 1


def test_follow_imports_what_an_agent_adds(home: Path) -> None:
    path = home / f"{SESSION}.jsonl"
    command = [sys.executable, "-m", "bartack.cli", "import", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        added = PROMPT.replace(b'"uuid":"1","parentUuid":null', b'"uuid":"2","parentUuid":"1"') % b"more"
        with path.open("ab") as file:
            file.write(added)
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.wait()
    assert first["imported"][0]["is_new"]
    assert (second["imported"][0]["entries"], second["imported"][0]["is_new"]) == (2, False)


def test_an_answer_that_is_still_being_written_is_imported_once_it_is_whole(home: Path) -> None:
    """Claude Code writes each block of an answer as a line of its own."""

    def line(kind: str, uuid: int, content: Any, **message: Any) -> bytes:
        timestamp = datetime.now(UTC).isoformat()
        links = {"uuid": str(uuid), "parentUuid": str(uuid - 1) if uuid > 1 else None}
        record = {
            "type": kind,
            **links,
            "sessionId": SESSION,
            "timestamp": timestamp,
            "message": {"role": kind, "content": content, **message},
        }
        return json.dumps(record).encode() + b"\n"

    def block(uuid: int, text: str) -> bytes:
        return line("assistant", uuid, [{"type": "text", "text": text}], id="m1", model="m")

    path = home / f"{SESSION}.jsonl"
    path.write_bytes(line("user", 1, "Hi") + block(2, "Half"))
    an_hour_from_now = time.time() + 3600  # However long the command takes to start, the file has just been written.
    os.utime(path, (an_hour_from_now, an_hour_from_now))
    command = [sys.executable, "-m", "bartack.cli", "import", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with path.open("ab") as file:
            file.write(block(3, "whole") + line("user", 4, "Thanks"))
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.wait()

    async def stored() -> tuple[int, list[str]]:
        store = await open_store(os.environ["BARTACK_STORE"])
        session_id = f"claude-code:{SESSION}"
        messages = [entry.fact for entry in await store.load(session_id) if isinstance(entry.fact, Message)]
        heads = await store.heads(session_id)
        await store.close()
        return len(heads), [message.text for message in messages]

    heads, texts = asyncio.run(stored())
    assert (heads, texts) == (1, ["Hi", "Halfwhole", "Thanks"])


def test_a_file_that_grew_after_it_was_found_is_not_taken_for_complete(home: Path) -> None:
    """Thousands of files are found before the first of them is read."""
    path = home / f"{SESSION}.jsonl"
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Half"}], "id": "m1", "model": "m"}
    links = {"uuid": "2", "parentUuid": "1", "timestamp": datetime.now(UTC).isoformat()}
    found = found_at(path)._replace(modified=datetime.now(UTC) - timedelta(minutes=1))
    with path.open("ab") as file:
        file.write(json.dumps({"type": "assistant", **links, "message": answer}).encode() + b"\n")
    work = imports._ImportRun([found], None, imports._Failures(), skips_copies=True)
    work.is_following = True
    ((_, transcript),) = work.read_all("importing")
    assert [fact.text for step in transcript.steps for fact in step.facts if isinstance(fact, Message)] == [
        "hello \x1b[31mthere"
    ]
    assert work.unfinished == {path}


def test_an_empty_file_is_no_failure(home: Path, capsys: Out) -> None:
    (home / f"{OUTER}.jsonl").write_bytes(b"")
    assert run(["import", "--all"]) == 0
    assert capsys.readouterr().out == f"claude-code:{SESSION}\n"


def test_a_rewritten_file_is_reported(home: Path, capsys: Out) -> None:
    assert run(["import", "--all"]) == 0
    (home / f"{SESSION}.jsonl").write_bytes(PROMPT % b"other")
    assert run(["import", "--all"]) == 0
    assert "rewritten" in capsys.readouterr().err


def test_a_transcript_is_shown_without_importing_it(home: Path, capsys: Out) -> None:
    path = home / f"{SESSION}.jsonl"
    assert run(["show", str(path)]) == 0
    assert capsys.readouterr().out == "-- user\nhello there\n"
    assert run(["show", str(path), "--as", "feed"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert not (home.parents[2] / "store.db").exists()
    notes = home / "notes.txt"
    notes.write_text("hello")
    assert run(["show", str(notes)]) == 1
    assert "not a transcript" in capsys.readouterr().err


def test_an_imported_session_is_exported_byte_for_byte(home: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["import", "--all"]) == 0
    capfdbinary.readouterr()
    assert run(["export", f"claude-code:{SESSION}", "--to", "claude-code"]) == 0
    assert capfdbinary.readouterr().out == (home / f"{SESSION}.jsonl").read_bytes()


def test_an_export_is_written_to_a_new_file_only(home: Path, tmp_path: Path, capsys: Out) -> None:
    assert run(["import", "--all"]) == 0
    session, out = f"claude-code:{SESSION}", tmp_path / "out.jsonl"
    assert run(["export", session, "--to", "pi", "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["files"], report["exact"], report["losses"]) == ([str(out)], False, [])
    before = out.read_bytes()
    assert run(["export", session, "--to", "codex", "--out", str(out)]) == 2
    assert out.read_bytes() == before
    folder = tmp_path / "folder"
    folder.mkdir()
    assert run(["export", session, "--to", "codex", "--out", str(folder)]) == 0
    assert len(list(folder.iterdir())) == 1
    assert run(["export", session, "--to", "markdown", "--out", str(tmp_path / "x.md")]) == 0
    assert "hello" in (tmp_path / "x.md").read_text()
    assert run(["export", session, "--to", "nothing"]) == 2
    assert run(["export", session, "--to", "markdown", "--install"]) == 2


def test_an_export_is_installed_where_the_agent_finds_it(home: Path, tmp_path: Path, capsys: Out) -> None:
    assert run(["import", "--all"]) == 0
    session = f"claude-code:{SESSION}"
    capsys.readouterr()
    before = (home / f"{SESSION}.jsonl").read_bytes()
    assert run(["export", session, "--to", "claude-code", "--install", "--yes"]) == 0
    command = capsys.readouterr().out.split()
    assert command[:2] == ["claude", "--resume"]
    assert command[2] != SESSION  # the file is there, and is not overwritten
    assert (home / f"{SESSION}.jsonl").read_bytes() == before
    assert (home / f"{command[2]}.jsonl").exists()
    assert run(["export", session, "--to", "codex", "--install", "--yes"]) == 1
    assert "Codex has no folder" in capsys.readouterr().err
    (tmp_path / ".codex").mkdir()
    assert run(["export", session, "--to", "codex", "--install", "--yes"]) == 0
    assert len(list((tmp_path / ".codex").rglob("rollout-*.jsonl"))) == 1
    assert run(["export", session, "--to", "pi", "--install"]) != 0
    assert not (tmp_path / ".pi").exists()


def test_an_export_is_installed_with_its_sub_agents(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    def line(id: str, parent: str | None, role: str, *parts: Any, **fields: Any) -> str:
        message = {"message": {"role": role, "parts": parts}}
        common = {"sessionId": SESSION, "cwd": "/srv/app", "timestamp": "2026-01-01T00:00:00Z"}
        return json.dumps({"uuid": id, "parentUuid": parent, "type": "user", **common, **message, **fields}) + "\n"

    for name in ("old", "new"):
        (tmp_path / name / "projects" / "-srv-app" / "chats").mkdir(parents=True)
    project = tmp_path / "old" / "projects" / "-srv-app"
    call = {"functionCall": {"id": "c1", "name": "agent", "args": {}}}
    result = {"functionResponse": {"id": "c1", "name": "agent", "response": {"output": "done"}}}
    result_info = {"toolCallResult": {"callId": "c1", "resultDisplay": {"subagentName": "helper"}}}
    lines = [line("1", None, "user", {"text": "go"}), line("2", "1", "model", call, type="assistant")]
    (project / "chats" / f"{SESSION}.jsonl").write_text(
        "".join([*lines, line("3", "2", "user", result, **result_info)])
    )
    agents = project / "subagents" / SESSION
    agents.mkdir(parents=True)
    (agents / "agent-helper-c1.jsonl").write_text(line("4", None, "user", {"text": "help"}, agentId="helper-c1"))
    (agents / "agent-helper-c1.meta.json").write_text(json.dumps({"agentType": "helper", "parentSessionId": SESSION}))
    monkeypatch.setenv("QWEN_RUNTIME_DIR", str(tmp_path / "old"))
    assert run(["import", "--all", "--agent", "qwen"]) == 0
    monkeypatch.setenv("QWEN_RUNTIME_DIR", str(tmp_path / "new"))
    before = {path.relative_to(tmp_path / "old"): path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert run(["export", f"qwen:{SESSION}", "--to", "qwen", "--install", "--yes"]) == 0
    root = tmp_path / "new"
    assert {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    # Under another id, the sub-agents are those of the new session.
    capsys.readouterr()
    assert run(["export", f"qwen:{SESSION}", "--to", "qwen", "--install", "--yes"]) == 0
    id = capsys.readouterr().out.split()[-1]
    copied = (root / "projects" / "-srv-app" / "subagents" / id / "agent-helper-c1.meta.json").read_text()
    assert json.loads(copied)["parentSessionId"] == id
    # An export that was not continued is not imported again.
    assert run(["import", "--all", "--agent", "qwen", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == []


@pytest.mark.parametrize("name", ["../../evil.jsonl", "/tmp/evil.jsonl", "a\\..\\b", "\x1b]0;x\x07.jsonl", "a\0b"])
def test_a_forged_session_cannot_name_a_file_elsewhere(name: str, home: Path, tmp_path: Path, capsys: Out) -> None:
    header = SessionHeader(origin="claude-code", metadata={"sourceId": "x; touch pwned"})
    content = {"zlib": b64encode(zlib.compress(b"{}\n")).decode()}
    record = Custom(name=SOURCE, data={"entries": [], "steps": [[0, 1]], "files": [[name, 1, 0, [3]]], **content})
    common: dict[str, Any] = {"session_id": "forged", "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}
    entries = [
        Entry(id="1", parent_id=None, seq=1, fact=header, **common),
        Entry(id="2", parent_id="1", seq=2, fact=record, **common),
    ]
    path = tmp_path / "forged.jsonl"
    path.write_bytes(b"".join(wire.encode(entry) + b"\n" for entry in entries))
    assert run(["sessions", "import", str(path)]) == 0
    before = sorted(tmp_path.rglob("*"))
    for where in (["--install", "--yes"], ["--out", str(home)]):
        assert run(["export", "forged", "--to", "claude-code", *where]) == 1
        error = capsys.readouterr().err
        assert "not safe to write" in error
        assert "\x1b" not in error
    assert [path for path in sorted(tmp_path.rglob("*")) if "store.db" not in path.name] == [
        path for path in before if "store.db" not in path.name
    ]


def test_the_command_that_continues_a_session_is_quoted(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    (home / "x; touch pwned.jsonl").write_bytes(PROMPT.replace(SESSION.encode(), b"x; touch pwned") % b"hello")
    (home.parents[1] / "other").mkdir()
    assert run(["import", "--all"]) == 0
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.parents[1] / "other"))
    capsys.readouterr()
    assert run(["export", "claude-code:x; touch pwned", "--to", "claude-code", "--install", "--yes"]) == 0
    output = capsys.readouterr()
    assert output.out == "claude --resume 'x; touch pwned'\n"
    assert "Continue it in /srv/app with:" in output.err


def test_an_unknown_agent_is_a_usage_error(home: Path, capsys: Out) -> None:
    assert run(["import", "--agent", "nobody"]) == 2
    assert "unknown agent" in capsys.readouterr().err


def test_the_records_of_the_source_are_not_listed(home: Path, capsys: Out) -> None:
    assert run(["import", "--all"]) == 0
    capsys.readouterr()
    assert run(["sessions", "show", f"claude-code:{SESSION}"]) == 0
    output = capsys.readouterr().out
    assert "hello there" in output
    assert "custom" not in output


def test_a_table_leaves_out_columns_and_cuts_titles_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    header, row = columns("session title~ entries# updated?"), ("claude-code:" + "x" * 36, "a title " * 8, "7", "today")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for width, has_all in ((80, False), (140, True)):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(header, [row])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 2
        assert row[0] in lines[1]
        assert ("today" in lines[1]) is has_all
        assert ("…" in lines[1]) is not has_all


def test_an_installed_export_is_imported_only_if_it_was_continued(home: Path, tmp_path: Path, capsys: Out) -> None:
    assert run(["import", "--all"]) == 0
    (tmp_path / ".codex").mkdir()
    for target in ("codex", "claude-code"):
        assert run(["export", f"claude-code:{SESSION}", "--to", target, "--install", "--yes"]) == 0
    capsys.readouterr()
    assert run(["import", "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == []
    (path,) = (tmp_path / ".codex").rglob("rollout-*.jsonl")
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "More."}]}
    with path.open("ab") as file:
        file.write(json.dumps({"type": "response_item", "payload": message}).encode() + b"\n")
    assert run(["import", "--all", "--json"]) == 0
    (imported,) = json.loads(capsys.readouterr().out)["imported"]
    assert run(["show", imported["session_id"], "--as", "ledger", "--json"]) == 0
    output = capsys.readouterr().out
    assert f'"forkedFrom":"claude-code:{SESSION}"' in output.replace(" ", "")
    assert "More." in output


def test_the_sub_agents_of_a_session_are_exported_with_it(home: Path, tmp_path: Path, capsys: Out) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Agent", "input": {"prompt": "Look."}}
    call_line: dict[str, Any] = {"type": "assistant", "uuid": "a", "parentUuid": None}
    call_line["message"] = {"id": "m", "content": [call]}
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "Seen."}
    done = {"type": "user", "uuid": "b", "parentUuid": "a", "message": {"role": "user", "content": [block]}}
    outer = home / f"{OUTER}.jsonl"
    lines = [call_line, done | {"toolUseResult": {"agentId": "x"}}]
    outer.write_bytes(b"".join(json.dumps(line | {"sessionId": OUTER}).encode() + b"\n" for line in lines))
    inner = home / OUTER / "subagents" / "agent-x.jsonl"
    inner.parent.mkdir(parents=True)
    prompt = PROMPT.replace(SESSION.encode(), OUTER.encode()) % b"Look."
    inner.write_bytes(prompt.replace(b'"type"', b'"isSidechain":true,"agentId":"x","type"', 1))
    inner.with_name("agent-x.meta.json").write_text('{"toolUseId": "c1"}')
    assert run(["import", "--all"]) == 0
    (folder := tmp_path / "out").mkdir()
    assert run(["export", f"claude-code:{OUTER}", "--to", "claude-code", "--out", str(folder)]) == 0
    for path in (outer, inner, inner.with_name("agent-x.meta.json")):
        assert (folder / path.relative_to(home)).read_bytes() == path.read_bytes()
    capsys.readouterr()
    assert run(["export", f"claude-code:{OUTER}", "--to", "claude-code", "--install", "--yes"]) == 0
    id = capsys.readouterr().out.split()[-1]
    assert sorted(path.name for path in (home / id / "subagents").iterdir()) == ["agent-x.jsonl", "agent-x.meta.json"]
    assert run(["export", f"claude-code:{OUTER}", "--to", "pi", "--out", str(folder / "x.jsonl")]) == 0
    assert f"export claude-code:{OUTER}/agent-x as well" in capsys.readouterr().err


def test_a_fork_is_exported_with_the_session_that_it_continues_or_as_a_whole(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    def write(id: str, first: int, text: str, **meta: Any) -> Path:
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        lines = [{"type": "session_meta", "payload": {"id": id, **meta}}, {"type": "response_item", "payload": message}]
        path = tmp_path / "codex" / "sessions" / "2026" / "01" / "01" / f"rollout-2026-01-01T00-00-00-{id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            b"".join(
                json.dumps(line | {"ordinal": ordinal}).encode() + b"\n" for ordinal, line in enumerate(lines, first)
            )
        )
        return path

    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    base = write(OUTER, 0, "first")
    history_base = {"thread_id": OUTER, "end_ordinal_exclusive": 2}
    fork = write(SESSION, 2, "second", history_base=history_base, forked_from_id=OUTER)
    assert run(["import", "--all", "--agent", "codex"]) == 0
    (folder := tmp_path / "out").mkdir()
    words = ["export", f"codex:{SESSION}", "--to", "codex", "--out"]
    assert run([*words, str(folder)]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in (base, fork)
    }
    assert run([*words, str(tmp_path / "alone.jsonl")]) == 0
    assert (tmp_path / "alone.jsonl").read_bytes() == fork.read_bytes()
    assert run(["sessions", "delete", f"codex:{OUTER}", "--yes"]) == 0
    (copies := tmp_path / "other").mkdir()
    assert run([*words, str(copies)]) == 0
    (copy_path,) = copies.iterdir()
    assert b"history_base" not in copy_path.read_bytes()
    capsys.readouterr()
    assert run(["show", str(copy_path)]) == 0
    assert capsys.readouterr().out == "-- user\nfirst\n-- user\nsecond\n"


def test_sub_agents_that_are_sessions_of_their_own_are_exported_with_links_to_each_other(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    outer, inner = (f"01a1e2a4-0000-7000-8000-00000000000{number}" for number in (1, 2))
    called = {"type": "function_call", "name": "spawn_agent", "arguments": "{}", "call_id": "c1"}
    ended = {"type": "function_call_output", "call_id": "c1", "output": json.dumps({"agent_id": inner})}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
    lines: dict[str, list[tuple[str, Any]]] = {
        outer: [("session_meta", {"id": outer}), ("response_item", called), ("response_item", ended)],
        inner: [("session_meta", {"id": inner, "parent_thread_id": outer}), ("response_item", said)],
    }
    (folder := tmp_path / "codex" / "sessions" / "2026" / "01" / "02").mkdir(parents=True)
    files = {f"rollout-2026-01-02T00-00-00-{id}.jsonl": codex_lines(payloads) for id, payloads in lines.items()}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    assert run(["import", "--agent", "codex"]) == 0
    (out := tmp_path / "out").mkdir()
    assert run(["export", f"codex:{outer}", "--to", "codex", "--out", str(out)]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files
    assert run(["export", f"codex:{outer}", "--to", "codex", "--install", "--yes", "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    copies = [Path(file) for file in report["files"]]
    copy_ids = [copy.stem[-36:] for copy in copies]
    assert copy_ids[0] == report["id"]
    assert not {outer, inner} & set(copy_ids)
    for copy, (name, data) in zip(copies, files.items(), strict=True):
        assert '"bartackExport":"codex:01a1e2a4-' in copy.read_text()
        text = copy.read_text().replace(f'"codex:{outer}"', "").replace(f'"codex:{inner}"', "")  # without that mark
        assert outer not in text
        assert inner not in text
        assert name not in report["files"]
        assert (copy_ids[0] in text, copy_ids[1] in text) == (outer.encode() in data, inner.encode() in data)

    assert run(["import", "--agent", "codex", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == []  # both are known


def codex_lines(payloads: list[tuple[str, Any]]) -> bytes:
    lines = ({"timestamp": "2026-01-02T00:00:00Z", "type": kind, "payload": payload} for kind, payload in payloads)
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_folders_can_be_named_and_other_files_in_them_do_not_matter(home: Path, tmp_path: Path, capsys: Out) -> None:
    (home / "notes.txt").write_text("no transcript")
    session_folder = tmp_path / "other" / "session_x"
    session_folder.mkdir(parents=True)
    (session_folder / "session.json").write_text('{"session_id": "x", "session_type": "AGENT"}')
    messages = session_folder / "agents" / "agent_default" / "messages"
    messages.mkdir(parents=True)
    (messages / "message_0.json").write_text('{"message": {"role": "user", "content": [{"text": "hi"}]}}')
    assert run(["import", str(home.parent), str(tmp_path / "other"), str(home / "notes.txt"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [session["session_id"] for session in report["imported"]] == [f"claude-code:{SESSION}", "strands:x"]
    assert [failure["file"] for failure in report["failures"]] == [str(home / "notes.txt")]
    (tmp_path / "empty").mkdir()
    assert run(["import", str(tmp_path / "empty")]) == 1
    assert "not a transcript" in capsys.readouterr().err


OTHER_PROGRAMS: dict[str, list[dict[str, Any]]] = {
    "grok": [{"type": "user", "content": "hi", "sessionId": "s"}, {"type": "assistant", "content": "hello"}],
    "kimi": [
        {"type": "metadata", "protocol_version": "1.1", "sessionId": "s"},
        {"timestamp": 1.0, "message": {"type": "TurnBegin", "payload": {"user_input": "hi"}}},
    ],
    "droid": [
        {"type": "session_start", "id": "s", "title": "hi", "sessionId": "s"},
        {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": "hi"}},
    ],
}


@pytest.mark.parametrize("program", OTHER_PROGRAMS)
def test_files_of_unknown_programs_are_refused(program: str, home: Path, tmp_path: Path, capsys: Out) -> None:
    lines = OTHER_PROGRAMS[program]
    path = tmp_path / "session.jsonl"
    for several in (lines, lines[1:]):
        path.write_text("".join(json.dumps(line) + "\n" for line in several))
        assert run(["import", str(path)]) == 1
        error = capsys.readouterr().err
        assert "is not a transcript of a known program" in error
        assert "Known programs: " in error


def test_a_file_without_messages_is_refused_if_it_was_named_and_skipped_otherwise(home: Path, capsys: Out) -> None:
    path = home / f"{OUTER}.jsonl"
    path.write_text(json.dumps({"type": "mode", "mode": "normal", "sessionId": OUTER}) + "\n")
    assert run(["import", str(path)]) == 1
    assert "has no messages of Claude Code" in capsys.readouterr().err
    assert run(["import", "--all"]) == 0
    assert capsys.readouterr().out == f"claude-code:{SESSION}\n"


def test_the_content_of_a_failed_answer_is_shown_found_and_counted(home: Path, tmp_path: Path, capsys: Out) -> None:
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}
    usage = {"input": 3, "output": 2, "cacheRead": 37652, "cacheWrite": 0, "cost": {"total": 0.25}}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Half an elephant"}, call], "usage": usage}
    answer |= {"provider": "p", "model": "m", "stopReason": "error", "errorMessage": "529 overloaded"}
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": "s", "cwd": "/srv/app"},
        {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "Hi"}},
        {"type": "message", "id": "b", "parentId": "a", "message": answer},
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(["import", str(path)]) == 0
    capsys.readouterr()
    assert run(["show", "pi:s"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[2:] == ["-- failed: 529 overloaded", "Half an elephant", '[call bash {"command":"ls"}]']
    assert run(["sessions", "search", "elephant", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == 1

    async def totals() -> Any:
        store = await open_store(os.environ["BARTACK_STORE"])
        sums = (await store.totals("pi:s")).spend
        await store.close()
        return sums

    spend = asyncio.run(totals())
    assert (spend.input_tokens, spend.cache_read_tokens, spend.cost_usd) == (37655, 37652, 0.25)


def test_exports_of_one_minute_and_documents_of_several_sessions_have_names_of_their_own(
    home: Path, tmp_path: Path
) -> None:
    (home / f"{OUTER}.jsonl").write_bytes(PROMPT.replace(SESSION.encode(), OUTER.encode()) % b"hello")
    assert run(["import", "--all"]) == 0
    (out := tmp_path / "out").mkdir()
    for target in ("gemini", "markdown"):
        for id in (OUTER, SESSION):
            assert run(["export", f"claude-code:{id}", "--to", target, "--out", str(out)]) == 0
    assert len(list(out.glob("session-*.jsonl"))) == 2
    assert sorted(path.name for path in out.glob("*.md")) == [f"claude-code-{id}.md" for id in (SESSION, OUTER)]


def test_a_database_without_sessions_is_no_failure(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path = tmp_path / "data" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE session (id TEXT PRIMARY KEY, time_created INTEGER)")
        database.execute("CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT)")
        database.commit()
    assert run(["import", "--all"]) == 0
    assert capsys.readouterr().out == f"claude-code:{SESSION}\n"
    assert run(["show", str(path)]) == 1
    assert "has no sessions" in capsys.readouterr().err


@pytest.mark.parametrize(("look_s", "pause_s"), [(0.0, 1.0), (0.001, 1.0), (0.08, 4.0)])
def test_waiting_for_changes_costs_a_fiftieth_of_a_core_at_most(look_s: float, pause_s: float) -> None:
    assert imports.pause_after(look_s) == pytest.approx(pause_s)
