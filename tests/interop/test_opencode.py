"""What the reader makes of the rows and files of opencode."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bartack.app.transcripts import found_at, read_transcripts
from bartack.interop import Transcript, entries_of, exported, source_files
from bartack.interop.opencode import OPENCODE_WRITER, read_opencode
from bartack.nouns.entries import CompactionSummary, Fact, ModelChange, RunEnded, StreamFailed, branch
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import FileRef, Image, Text, Thinking

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
    assert change == ModelChange(ModelRef("anthropic", "claude-x"))
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
    found = [fact.tool_results[0] for fact in results if isinstance(fact, Message)]
    assert [(one.tool_call_id, one.is_error) for one in found] == [("c1", False), ("c2", True), ("c4", False)]
    assert found[0].metadata == {"sessionId": "opencode:ses_2"}
    assert found[2].content == (Text("seen"), Image("image/png", data=b"\0\0\0"))


def test_a_compaction_keeps_the_tail_that_it_names_and_a_failed_one_nothing() -> None:
    asked = user("msg_3", {"type": "compaction", "tail_start_id": "msg_2"}, created=3)
    failed = answer("msg_4", text("half"), created=4, summary=True, error={"name": "UnknownError"})
    done = answer("msg_5", text("so far"), created=5, summary=True)
    messages = [user("msg_1", text("one"), created=1), user("msg_2", text("two"), created=2), asked, failed, done]
    entries = entries_of(read(*messages))
    (compaction,) = [entry.fact for entry in entries if isinstance(entry.fact, CompactionSummary)]
    kept = next(entry.fact for entry in entries if entry.id == compaction.first_kept_entry_id)
    assert isinstance(kept, Message)
    assert (compaction.summary, kept.text) == ("so far", "two")


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
    assert facts[3] == RunEnded("aborted", reason="user")


def test_reverted_messages_are_on_another_branch() -> None:
    messages = [user("msg_1", text("one"), created=1), user("msg_2", text("two"), created=2)]
    facts = facts_of(read(*messages, revert={"messageID": "msg_2"}))
    assert [fact.text for fact in facts if isinstance(fact, Message)] == ["one"]


def test_files_of_a_prompt_are_kept() -> None:
    parts = [
        {"type": "file", "mime": "application/pdf", "url": "data:application/pdf;base64,AAAA", "filename": "a.pdf"},
        {"type": "file", "mime": "text/plain", "url": "file:///work/b.txt"},
    ]
    (prompt,) = facts_of(read(user("msg_1", *parts, created=1)))
    assert isinstance(prompt, Message)
    first, second = prompt.parts
    assert isinstance(first, FileRef)
    assert isinstance(second, FileRef)
    assert (first.path, first.data, second.path, second.data) == ("a.pdf", b"\0\0\0", "b.txt", None)


def test_files_of_earlier_versions_take_their_ids_from_the_path() -> None:
    files = {
        "session/p/ses_1.json": json.dumps(SESSION | {"id": "ses_1", "parentID": "ses_0"}).encode(),
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


def test_a_database_is_read_without_writing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE session (id, parent_id, title, directory, time_created, time_updated)")
    database.execute("CREATE TABLE message (id, session_id, time_created, data)")
    database.execute("CREATE TABLE part (id, message_id, session_id, data)")
    database.execute("INSERT INTO session VALUES ('ses_1', NULL, 'A title', '/work', 1, 2)")
    row = json.dumps({"role": "user", "time": {"created": 1}})
    database.execute("INSERT INTO message VALUES ('msg_1', 'ses_1', 1, ?)", (row,))
    database.execute("INSERT INTO part VALUES ('prt_1', 'msg_1', 'ses_1', ?)", (json.dumps(text("hi")),))
    database.commit()
    database.close()
    (transcript,) = read_transcripts(found_at(path))
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == ["hi"]
    assert json.loads(source_files(entries_of(transcript))["message/msg_1"])["data"] == row
    assert [file.name for file in tmp_path.iterdir()] == ["opencode.db"]
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(BartackError, match="cannot be read"):
        read_transcripts(found_at(path))


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
    made = exported(entries_of(transcript), "opencode", OPENCODE_WRITER, new_id="n")
    assert list(made.files) == ["______x.json"]
