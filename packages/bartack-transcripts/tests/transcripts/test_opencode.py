"""What the reader makes of the rows and files of opencode."""

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.nouns.entries import CompactionSummary, Fact, ModelChange, RunEnded, StreamFailed, branch
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import FileRef, Image, Text, Thinking
from bartack_transcripts.disk.files import found_at, read_transcripts
from bartack_transcripts.formats import Transcript, entries_of, exported, session_ids, source_files, with_children
from bartack_transcripts.opencode import OPENCODE_WRITER, read_opencode
from tests.transcripts.samples import NO_SAMPLES, samples_root

Json = dict[str, Any]
SESSION = {
    "id": "ses_1",
    "title": "A title",
    "directory": "/work",
    "version": "1.18",
    "time": {"created": 1, "updated": 2},
}


def user(id: str, *parts: Json, created: int) -> Json:
    return {"info": {"id": id, "role": "user", "time": {"created": created}}, "parts": list(parts)}


def answer(id: str, *parts: Json, created: int, **fields: Any) -> Json:
    info: Json = {
        "id": id,
        "role": "assistant",
        "time": {"created": created, "completed": created + 1},
        "finish": "stop",
    }
    tokens = {"input": 3, "output": 5, "reasoning": 2, "cache": {"read": 10, "write": 4}}
    info |= {"providerID": "anthropic", "modelID": "claude-x", "cost": 0.5, "tokens": tokens}
    return {"info": info | fields, "parts": list(parts)}


def text(text: str, **fields: Any) -> Json:
    return {"type": "text", "text": text, **fields}


def tool(id: str, **state: Any) -> Json:
    return {"type": "tool", "callID": id, "tool": "bash", "state": {"input": {"command": "ls"}, **state}}


def read(*messages: Json, **session: Any) -> Transcript:
    data = json.dumps({"info": SESSION | session, "messages": list(messages)}).encode()
    return read_opencode({"export.json": data})[0]


def facts_of(transcript: Transcript) -> list[Fact]:
    entries = entries_of(transcript)
    return [entry.fact for entry in branch(entries, entries[-1].id)[1:] if entry.fact.kind != "custom"]


def test_an_answer_has_its_model_usage_cost_and_signature() -> None:
    thinking = {"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "c2ln"}}}
    transcript = read(user("msg_1", text("hi"), created=1), answer("msg_2", thinking, text("hello"), created=2))
    prompt, change, reply = facts_of(transcript)
    assert isinstance(prompt, Message)
    assert change == ModelChange(model=ModelRef("anthropic", "claude-x"))
    assert isinstance(reply, Message)
    assert reply.meta is not None
    assert reply.meta.usage is not None
    assert (reply.meta.usage.input_tokens, reply.meta.usage.output_tokens, reply.meta.cost_usd) == (17, 7, 0.5)
    assert isinstance(reply.parts[0], Thinking)
    assert reply.parts[0].continuation is not None
    assert reply.parts[0].continuation.data == {"signature": "c2ln"}
    assert (transcript.session_id, transcript.header.title) == ("opencode:ses_1", "A title")


def test_a_tool_part_is_a_call_and_its_result() -> None:
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}
    parts = [
        tool("c1", status="completed", output="a.txt", title="List", metadata={"sessionId": "ses_2"}),
        tool("c2", status="error", error="no such file"),
        tool("c3", status="running"),
        tool("c4", status="completed", output="seen", attachments=[image]),
    ]
    _, reply, *results = facts_of(read(answer("msg_1", *parts, created=1)))
    assert isinstance(reply, Message)
    assert [call.tool_call_id for call in reply.tool_calls] == ["c1", "c2", "c3", "c4"]
    tool_results = [fact.tool_results[0] for fact in results if isinstance(fact, Message)]
    assert [(result.tool_call_id, result.is_error) for result in tool_results] == [
        ("c1", False),
        ("c2", True),
        ("c4", False),
    ]
    assert tool_results[0].metadata == {"sessionId": "opencode:ses_2"}
    assert tool_results[2].content == (Text("seen"), Image("image/png", data=b"\0\0\0"))


def test_a_compaction_keeps_the_tail_that_it_names_and_a_failed_one_nothing() -> None:
    request = user("msg_3", {"type": "compaction", "tail_start_id": "msg_2"}, created=3)
    failed = answer("msg_4", text("half"), created=4, summary=True, error={"name": "UnknownError"})
    done = answer("msg_5", text("so far"), created=5, summary=True)
    messages = [user("msg_1", text("one"), created=1), user("msg_2", text("two"), created=2), request, failed, done]
    entries = entries_of(read(*messages))
    (compaction,) = [entry.fact for entry in entries if isinstance(entry.fact, CompactionSummary)]
    first_kept = next(entry.fact for entry in entries if entry.id == compaction.first_kept_entry_id)
    assert isinstance(first_kept, Message)
    assert (compaction.summary, first_kept.text) == ("so far", "two")


def test_a_summary_that_was_not_finished_compacts_nothing() -> None:
    request = user("msg_1", {"type": "compaction"}, created=1)
    half = answer("msg_2", text("half"), created=2, summary=True, finish=None, time={"created": 2})
    assert not any(isinstance(fact, CompactionSummary) for fact in facts_of(read(request, half)))


def test_an_export_is_in_order_whatever_its_times_and_names_what_a_compaction_keeps() -> None:
    messages = [user("msg_1", text("one"), created=9000), user("msg_2", text("two"), created=10_000)]
    request = user("msg_3", {"type": "compaction", "tail_start_id": "msg_2"}, created=11_000)
    entries = entries_of(read(*messages, request, answer("msg_4", text("so far"), created=12_000, summary=True)))
    moved = [replace(entry, timestamp=entry.timestamp - timedelta(seconds=2 * entry.seq)) for entry in entries]
    files = exported(moved, "opencode", OPENCODE_WRITER, new_id="x", head=moved[-2].id).files
    again = read_opencode(files)[0]
    assert [fact.text for fact in facts_of(again) if isinstance(fact, Message)] == ["one", "two"]
    (compaction,) = [fact for fact in facts_of(again) if isinstance(fact, CompactionSummary)]
    assert [entry.id for entry in entries_of(again) if isinstance(entry.fact, Message)][
        1
    ] == compaction.first_kept_entry_id


def test_errors_and_interruptions_are_facts() -> None:
    error = {"name": "APIError", "data": {"message": "slow down", "statusCode": 429, "isRetryable": True}}
    facts = facts_of(
        read(
            answer("msg_1", created=1, error=error),
            answer("msg_2", text("half"), created=2, error={"name": "MessageAbortedError"}),
        )
    )
    assert isinstance(facts[1], StreamFailed)
    assert (facts[1].error.error_code, facts[1].error.status) == (ErrorCode.RATE_LIMITED, 429)
    assert isinstance(facts[2], Message)
    assert facts[2].meta is not None
    assert facts[2].meta.aborted
    assert facts[3] == RunEnded(status="aborted", reason="user")


def test_reverted_messages_are_on_another_branch() -> None:
    messages = [user("msg_1", text("one"), created=1), user("msg_2", text("two"), created=2)]
    facts = facts_of(read(*messages, revert={"messageID": "msg_2"}))
    assert [fact.text for fact in facts if isinstance(fact, Message)] == ["one"]


def test_files_of_a_prompt_are_kept() -> None:
    parts = [
        {"type": "file", "mime": "application/pdf", "url": "data:application/pdf;base64,AAAA", "filename": "a.pdf"},
        {"type": "file", "mime": "text/plain", "url": "file:///code/b.txt"},
    ]
    (prompt,) = facts_of(read(user("msg_1", *parts, created=1)))
    assert isinstance(prompt, Message)
    first, second = prompt.parts
    assert isinstance(first, FileRef)
    assert isinstance(second, FileRef)
    assert (first.path, first.data, second.path, second.data) == ("a.pdf", b"\0\0\0", "b.txt", None)


def test_files_of_earlier_versions_take_their_ids_from_the_path() -> None:
    files = {
        "session/p/ses_1.json": json.dumps(SESSION | {"id": "stale", "parentID": "ses_0"}).encode(),
        "session/q/ses_1.json": json.dumps(SESSION).encode(),
        "message/ses_1/msg_2.json": json.dumps({"role": "user", "time": {"created": 2}, "id": "stale"}).encode(),
        "message/ses_1/msg_1.json": json.dumps({"role": "user", "time": {"created": 9}}).encode(),
        "part/msg_1/prt_1.json": json.dumps(text("second")).encode(),
        "part/msg_2/prt_1.json": json.dumps(text("first")).encode(),
        "part/msg_2/prt_2.json": b"{broken",
        "todo/ses_1.json": b"[]",
    }
    (transcript,) = read_opencode(files)
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == ["first", "second"]
    assert transcript.header.metadata is not None
    assert transcript.header.metadata["parentSession"] == "opencode:ses_0"
    assert source_files(entries_of(transcript)) == files
    assert [problem.file for problem in transcript.report.problems] == ["part/msg_2/prt_2.json"]


def test_the_first_versions_have_another_name_for_the_folder_of_sessions() -> None:
    files = {
        "info/ses_1.json": json.dumps(SESSION).encode(),
        "message/ses_1/msg_1.json": json.dumps({"role": "user", "time": {"created": 1}}).encode(),
        "part/ses_1/msg_1/prt_1.json": json.dumps(text("hi")).encode(),
    }
    (transcript,) = read_opencode(files)
    assert (transcript.id, transcript.header.title) == ("ses_1", "A title")
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == ["hi"]
    assert source_files(entries_of(transcript)) == files


def test_the_sessions_of_sub_agents_are_exported_with_the_one_that_called_them() -> None:
    state = {"status": "completed", "input": {}, "output": "done", "metadata": {"sessionId": "ses_2"}}
    part = {"type": "tool", "callID": "c1", "tool": "task", "state": state}
    files = {
        "session/p/ses_1.json": b'{"id": "ses_1"}',
        "message/ses_1/msg_1.json": b'{"role": "assistant", "time": {"created": 1}}',
        "part/msg_1/prt_1.json": json.dumps(part).encode(),
        "session/p/ses_2.json": b'{"id": "ses_2", "parentID": "ses_1"}',
        "message/ses_2/msg_2.json": b'{"role": "user", "time": {"created": 2}}',
        "part/msg_2/prt_2.json": json.dumps(text("look")).encode(),
    }
    outer, inner = map(entries_of, read_opencode(files))
    assert session_ids(outer) == [inner[0].session_id]
    export = exported(outer, "opencode", OPENCODE_WRITER, new_id="0b0e7b9c-4c3f-4b7e-9c52-1a2b3c4d5e6f")
    export = with_children(export, "opencode", OPENCODE_WRITER, outer, [inner])
    assert [*export.files] == ["ses_1.json", "ses_2.json"]
    assert export.losses == ()
    (again,) = read_opencode({"ses_2.json": export.files["ses_2.json"]})
    assert again.header.metadata is not None
    assert again.header.metadata["parentSession"] == "opencode:ses_1"


def database(path: Path, mode: str) -> sqlite3.Connection:
    """A database with one session, that is left open."""
    opened = sqlite3.connect(path)
    opened.execute(f"PRAGMA journal_mode={mode}")
    opened.execute("CREATE TABLE session (id, parent_id, title, directory, time_created, time_updated)")
    opened.execute("CREATE TABLE message (id, session_id, time_created, data)")
    opened.execute("CREATE TABLE part (id, message_id, session_id, data)")
    opened.execute("INSERT INTO session VALUES ('ses_1', NULL, 'A title', '/work', 1, 2)")
    add_row(opened, "1", "hi")
    opened.commit()
    return opened


def add_row(opened: sqlite3.Connection, id: str, words: str) -> None:
    row = json.dumps({"role": "user", "time": {"created": 1}})
    opened.execute("INSERT INTO message VALUES (?, 'ses_1', 1, ?)", (f"msg_{id}", row))
    opened.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", (f"prt_{id}", f"msg_{id}", json.dumps(text(words))))


def texts_in(path: Path) -> list[str]:
    (transcript,) = read_transcripts(found_at(path))
    return [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)]


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_a_database_is_read_without_writing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    database(path, "delete").close()
    (transcript,) = read_transcripts(found_at(path))
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == ["hi"]
    assert json.loads(json.loads(source_files(entries_of(transcript))["message/msg_1"])["data"])["role"] == "user"
    assert [file.name for file in tmp_path.iterdir()] == ["opencode.db"]
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(BartackError, match="malformed"):
        read_transcripts(found_at(path))


def test_a_database_is_read_while_a_program_writes_and_after_it_was_killed(tmp_path: Path) -> None:
    live, killed = tmp_path / "live", tmp_path / "killed"
    live.mkdir()
    with closing(database(live / "opencode.db", "wal")) as opened:
        add_row(opened, "2", "committed")
        opened.commit()
        opened.execute("BEGIN IMMEDIATE")
        add_row(opened, "3", "not committed")
        before = state_of(live)
        assert texts_in(live / "opencode.db") == ["hi", "committed"]
        assert state_of(live) == before
        shutil.copytree(live, killed, ignore=shutil.ignore_patterns("*-shm"))
    before = state_of(killed)
    assert sorted(before) == ["opencode.db", "opencode.db-wal"]
    assert texts_in(killed / "opencode.db") == ["hi", "committed"]
    assert state_of(killed) == before


def test_changes_that_a_killed_program_did_not_commit_are_not_read(tmp_path: Path) -> None:
    live, killed = tmp_path / "live", tmp_path / "killed"
    live.mkdir()
    with closing(database(live / "opencode.db", "delete")) as opened:
        opened.execute("PRAGMA cache_size=1")  # pages are written before the end of the transaction
        for number in range(50):
            add_row(opened, f"x{number}", "not committed" * 100)
        shutil.copytree(live, killed)
    before = state_of(killed)
    assert before["opencode.db-journal"][1] != b""
    assert texts_in(killed / "opencode.db") == ["hi"]
    assert state_of(killed) == before


def test_text_that_is_not_utf_8_does_not_stop_the_import(tmp_path: Path) -> None:
    with closing(database(tmp_path / "opencode.db", "delete")) as opened:
        opened.execute("UPDATE session SET title = CAST(x'ff41' AS TEXT)")
        opened.commit()
    (transcript,) = read_transcripts(found_at(tmp_path / "opencode.db"))
    assert transcript.header.title == "\ufffdA"


def test_parts_without_their_message_are_kept() -> None:
    row = {"id": "prt_1", "message_id": "msg_gone", "session_id": "ses_1", "data": json.dumps(text("x"))}
    files = {
        "session/ses_1": json.dumps({"id": "ses_1", "time_created": 1}).encode(),
        "part/prt_1": json.dumps(row).encode(),
        "part/prt_2": json.dumps(row | {"session_id": "ses_gone"}).encode(),
    }
    (transcript,) = read_opencode(files)
    assert source_files(entries_of(transcript)) == files
    assert transcript.report.counts["part without a message", "opaque"] == 2
    assert source_files(entries_of(read_opencode({"part/prt_1": b"{", "message/m": b"["})[0])) != {}


def test_the_id_of_a_session_cannot_make_its_export_a_file_elsewhere() -> None:
    files = {"session/x": json.dumps({"id": "../../x", "time_created": 1}).encode()}
    (transcript,) = read_opencode(files)
    export = exported(entries_of(transcript), "opencode", OPENCODE_WRITER, new_id="n")
    assert list(export.files) == ["______x.json"]


def test_a_row_of_a_session_has_json_in_its_columns_and_records_of_its_own() -> None:
    row = {"id": "ses_1", "title": "New session - 2026-11-16T05:03:11.645Z", "time_created": 1, "time_updated": 2}
    row |= {"revert": '{"messageID":"msg_2"}', "permission": "[1]", "model": "{broken", "tokens_input": 7}
    message = {"role": "user", "time": {"created": 1}}
    files = {"session/ses_1": json.dumps(row).encode(), "todo/ses_1/0": b"{}", "session/ses_0": b'{"time_created":0}'}
    for id, created in (("msg_1", 1), ("msg_2", 2)):
        data = json.dumps(message | {"time": {"created": created}})
        files[f"message/{id}"] = json.dumps({"id": id, "session_id": "ses_1", "data": data}).encode()
        part = {"id": f"p{id}", "session_id": "ses_1", "message_id": id, "data": json.dumps(text(f"text of {id}"))}
        files[f"part/p{id}"] = json.dumps(part).encode()
    newer_row = json.dumps({"id": "sm_1", "session_id": "ses_1", "data": "{}"}).encode()
    files["session_message/sm_1"] = newer_row
    transcript = read_opencode(files)[0]
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == ["text of msg_1"]
    assert transcript.header.title == "text of msg_1"
    assert transcript.report.counts["todo", "opaque"] == transcript.report.counts["session_message", "opaque"] == 1
    export = exported(entries_of(transcript), "opencode", OPENCODE_WRITER, new_id="x")
    info = json.loads(export.files["ses_1.json"])["info"]
    assert (info["revert"], info["permission"], "model" in info) == ({"messageID": "msg_2"}, [1], False)
    assert info["tokens"]["input"] == 7


DATABASE = samples_root() / "opencode" / "gen-1.18.33"


@pytest.mark.skipif(not DATABASE.exists(), reason=NO_SAMPLES)
def test_the_rows_of_a_session_become_the_file_that_opencode_exports() -> None:
    by_id = {transcript.id: transcript for transcript in read_transcripts(found_at(DATABASE / "opencode.db"))}
    exports = sorted((DATABASE / "exports").iterdir())
    for path in exports:
        document = json.loads(path.read_text())
        entries = entries_of(by_id[document["info"]["id"]])
        export = exported(entries, "opencode", OPENCODE_WRITER, new_id="x")
        assert json.loads(next(iter(export.files.values()))) == document
    assert exports


@pytest.mark.parametrize(
    ("metadata", "data"),
    [
        ({"anthropic": {"redactedData": "cg=="}}, {"type": "redacted_thinking", "data": "cg=="}),
        ({"google": {"thoughtSignature": "s"}}, {"thought": True, "thoughtSignature": "s"}),
        (
            {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAA"}},
            {
                "item": {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA"},
                "field": "summary",
                "nth": 0,
                "part": {"type": "summary_text"},
            },
        ),
    ],
)
def test_thinking_keeps_what_its_provider_needs(metadata: Json, data: Json) -> None:
    transcript = read(answer("msg_1", {"type": "reasoning", "text": "hm", "metadata": metadata}, created=1))
    reply = next(fact for fact in facts_of(transcript) if isinstance(fact, Message))
    assert reply.parts[0].continuation is not None
    assert reply.parts[0].continuation.data == data
    moved = exported(entries_of(transcript), "other", OPENCODE_WRITER, new_id="x")
    (message,) = json.loads(next(iter(moved.files.values())))["messages"]
    assert message["parts"][0]["metadata"] == metadata
    assert moved.losses == ()


def test_a_call_that_was_not_complete_has_its_arguments_as_text() -> None:
    parts = [tool(id, status="pending", input={}, raw=raw) for id, raw in (("c1", '{"a": 1}'), ("c2", '{"a"'))]
    reply = next(fact for fact in facts_of(read(answer("msg_1", *parts, created=1))) if isinstance(fact, Message))
    assert [(call.arguments, call.raw_args_text) for call in reply.tool_calls] == [({"a": 1}, None), ({}, '{"a"')]


def test_a_fork_names_the_session_it_was_copied_from_and_a_sub_agent_its_call() -> None:
    def session(id: str, created: int, **fields: Any) -> bytes:
        return json.dumps({"id": id, "time": {"created": created}, **fields}).encode()

    def said(created: int) -> bytes:
        return json.dumps({"role": "user", "time": {"created": created}}).encode()

    state = {"status": "completed", "input": {}, "output": "done", "metadata": {"sessionId": "ses_inner"}}
    call = {"type": "tool", "callID": "c1", "tool": "task", "state": state}
    transcripts = read_opencode(
        {
            "session/p/ses_first.json": session("ses_first", 1),
            "session/p/ses_fork.json": session("ses_fork", 10),
            "session/p/ses_again.json": session("ses_again", 20),
            "session/p/ses_inner.json": session("ses_inner", 4, parentID="ses_first"),
            "session/p/ses_other.json": session("ses_other", 2),
            "message/ses_first/msg_a.json": said(2),
            "message/ses_first/msg_b.json": b'{"role": "assistant", "time": {"created": 3}}',
            "part/msg_b/prt_1.json": json.dumps(call).encode(),
            "message/ses_fork/msg_c.json": said(2),
            "message/ses_fork/msg_d.json": said(11),
            "message/ses_again/msg_e.json": said(2),
            "message/ses_again/msg_f.json": said(11),
            "message/ses_inner/msg_g.json": said(4),
            "message/ses_other/msg_h.json": said(2),
        }
    )
    metadata = {transcript.id: transcript.header.metadata or {} for transcript in transcripts}
    assert {id: fields.get("forkedFrom") for id, fields in metadata.items()} == {
        "ses_first": None,
        "ses_fork": "opencode:ses_first",
        "ses_again": "opencode:ses_fork",
        "ses_inner": None,
        "ses_other": None,
    }
    assert metadata["ses_inner"]["toolCallId"] == "c1"
    assert "toolCallId" not in metadata["ses_first"]
