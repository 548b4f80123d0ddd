"""What the reader makes of files of Gemini CLI."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.nouns.entries import CompactionSummary, Entry, Fact, ModelChange, RunEnded, StreamFailed, branch, heads
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, Thinking
from bartack_transcripts.disk.files import found_at, read_transcripts
from bartack_transcripts.formats import FORMATS, Transcript, entries_of, recognised_format, source_files
from bartack_transcripts.gemini import read_gemini
from tests.transcripts.test_writing import export, session

NAME = "session-2026-11-16T04-42-8cb7f799.jsonl"
Json = dict[str, Any]
HEADER: Json = {"sessionId": "8cb7f799-18fc", "projectHash": "05", "startTime": "2026-01-01T00:00:00Z", "kind": "main"}


def line(id: str, type: str, content: Any, **fields: Any) -> Json:
    return {"id": id, "timestamp": "2026-01-01T00:00:01Z", "type": type, "content": content, **fields}


def call(id: str, output: Any, status: str = "success") -> Json:
    response = {"functionResponse": {"id": id, "name": "ls", "response": output}}
    return {"id": id, "name": "ls", "args": {"path": id}, "result": [response], "status": status}


def read(*lines: Json, name: str = NAME) -> Transcript:
    data = b"".join(json.dumps(record).encode() + b"\n" for record in (HEADER, *lines))
    (transcript,) = read_gemini({name: data})
    assert source_files(entries_of(transcript)) == {name: data}
    return transcript


def facts(transcript: Transcript) -> list[Fact]:
    entries = entries_of(transcript)
    return [entry.fact for entry in branch(entries, entries[-1].id)[1:] if entry.fact.kind != "custom"]


def messages(transcript: Transcript) -> list[Message]:
    return [fact for fact in facts(transcript) if isinstance(fact, Message)]


ANSWER = line("a", "gemini", "Listing.", model="gemini-x", tokens={"input": 9, "output": 2, "thoughts": 3, "cached": 4})


def test_an_answer_that_is_written_again_with_its_calls_is_one_message() -> None:
    full = {**ANSWER, "toolCalls": [call("c1", {"output": "one"}), call("c2", {"error": "no"}, "error")]}
    full["thoughts"] = [{"subject": "Plan", "description": "look"}]
    again = line("u2", "user", [full["toolCalls"][0]["result"][0], full["toolCalls"][1]["result"][0]])
    read_facts = facts(read(line("u", "user", "hi"), ANSWER, {"$set": {"lastUpdated": "x"}}, full, again))
    assert [fact.kind for fact in read_facts] == ["message", "model_change", "message", "message"]
    answer, results = read_facts[2], read_facts[3]
    assert isinstance(answer, Message)
    assert isinstance(results, Message)
    assert [part.kind for part in answer.parts] == ["thinking", "text", "tool_call", "tool_call"]
    assert answer.thinking == "**Plan** look"
    assert answer.meta is not None
    assert answer.meta.usage is not None
    assert (answer.meta.usage.input_tokens, answer.meta.usage.output_tokens) == (9, 5)
    assert [(result.content, result.is_error) for result in results.tool_results] == [("one", False), ("no", True)]
    assert len(heads(entries_of(read(ANSWER, full)))) == 1


def test_a_list_with_the_same_messages_changes_nothing() -> None:
    full = {**ANSWER, "toolCalls": [call("c1", {"output": "one"}), call("c2", {"output": "two"})]}
    calls = [{"functionCall": {"id": id, "name": "ls", "args": {"path": id}}} for id in ("c1", "c2")]
    all_results = [part for called in full["toolCalls"] for part in called["result"]]
    resumed = {**full, "content": [{"text": "Listing."}, *calls]}
    resumed["toolCalls"] = [{**called, "result": all_results} for called in full["toolCalls"]]
    transcript = read(
        line("u", "user", "hi"), full, {"$set": {"messages": [line("u", "user", [{"text": "hi"}]), resumed]}}
    )
    assert len(heads(entries_of(transcript))) == 1
    assert [message.role for message in messages(transcript)] == ["user", "assistant", "tool"]


def test_a_rewind_and_a_changed_message_begin_a_branch() -> None:
    start = [line("u", "user", "one"), line("a", "gemini", "1"), line("v", "user", "two"), line("b", "gemini", "2")]
    transcript = read(*start, {"$rewindTo": "v"}, line("w", "user", "three"))
    assert [message.text for message in messages(transcript)] == ["one", "1", "three"]
    transcript = read(*start, line("v", "user", "changed"))
    assert [message.text for message in messages(transcript)] == ["one", "1", "changed", "2"]
    assert len(heads(entries_of(transcript))) == 2
    assert messages(read(*start, {"$rewindTo": "unknown"})) == []


def test_a_compressed_list_is_a_compaction() -> None:
    start = [line("u", "user", "one"), line("a", "gemini", "1"), line("v", "user", "two"), line("b", "gemini", "2")]
    summary = line("s", "user", [{"text": "<state_snapshot>\nso far\n</state_snapshot>"}])
    compressed = [summary, line("t", "gemini", "Got it."), *start[2:]]
    transcript = read(*start, {"$set": {"messages": compressed}}, line("w", "user", "three"))
    entries = entries_of(transcript)
    assert len(heads(entries)) == 1
    compaction = next(entry.fact for entry in entries if isinstance(entry.fact, CompactionSummary))
    first_kept = next(entry.fact for entry in entries if entry.id == compaction.first_kept_entry_id)
    assert isinstance(first_kept, Message)
    assert (compaction.summary, first_kept.text) == ("so far", "two")


def test_commands_errors_and_interruptions() -> None:
    read_facts = facts(
        read(
            line("u", "user", [{"text": "/help"}]),
            line("e", "error", "[API Error: 429 quota]"),
            line("i", "info", "Request cancelled."),
            line("x", "warning", "careful"),
        )
    )
    assert [fact.kind for fact in read_facts] == ["message", "stream_failed", "run_ended"]
    assert isinstance(read_facts[0], Message)
    assert isinstance(read_facts[0].parts[0], Text)
    assert read_facts[0].parts[0].ignored
    assert isinstance(read_facts[1], StreamFailed)
    assert read_facts[2] == RunEnded(status="aborted", reason="user")


def test_the_header_has_the_directory_the_title_and_the_outer_session() -> None:
    context = "<session_context>\n- **Workspace Directories:**\n  - /code/app\n</session_context>"
    transcript = read(line("c", "user", context), line("u", "user", "prompt"), name=f"parent/{NAME}")
    assert transcript.session_id == "gemini:2026-01-01T00-00-8cb7f799-18fc"
    assert transcript.header.title == "prompt"
    assert transcript.header.metadata == {
        "program": "gemini",
        "directory": "/code/app",
        "sourceId": "8cb7f799-18fc",
        "parentSession": "gemini:parent",
    }
    assert read({"$set": {"summary": "Mine"}}).header.title == "Mine"


def test_a_sub_agent_and_the_session_that_called_it_name_each_other(tmp_path: Path) -> None:
    agent = "0d1c2b3a-0000-4000-8000-000000000000"
    called = line("a", "gemini", "", toolCalls=[{**call("c1", {"output": "done"}), "agentId": agent}, call("c2", {})])
    results = [result for message in messages(read(called)) for result in message.tool_results]
    assert [result.metadata for result in results] == [{"sessionId": f"gemini:{agent}"}, None]
    child = tmp_path / "chats" / "8cb7f799-18fc" / f"{agent}.jsonl"
    child.parent.mkdir(parents=True)
    (tmp_path / "chats" / NAME).write_text(json.dumps(HEADER) + "\n")
    lines = {**HEADER, "sessionId": agent, "kind": "subagent"}, line("u", "user", "go")
    child.write_text("".join(json.dumps(record) + "\n" for record in lines))
    (transcript,) = read_transcripts(found_at(child))
    assert transcript.session_id == f"gemini:{agent}"
    assert (transcript.header.metadata or {})["parentSession"] == "gemini:2026-01-01T00-00-8cb7f799-18fc"


@pytest.mark.parametrize("indent", [None, 2])
def test_old_versions_wrote_one_object(indent: int | None) -> None:
    document = {
        **HEADER,
        "messages": [line("u", "user", "hi"), line("a", "gemini", "hello", model="m")],
        "summary": "T",
    }
    data = json.dumps(document, indent=indent).encode()
    (transcript,) = read_gemini({"session-x.json": data})
    assert [message.text for message in messages(transcript)] == ["hi", "hello"]
    assert (transcript.header.title, transcript.id) == ("T", "2026-01-01T00-00-8cb7f799-18fc.json")
    assert source_files(entries_of(transcript)) == {"session-x.json": data}
    assert transcript.report.problems == []
    torn = data[: data.index(b"hello")]
    (transcript,) = read_gemini({"session-x.json": torn})
    assert [message.text for message in messages(transcript)] == ["hi"]
    assert [problem.what for problem in transcript.report.problems] == ["torn at the end of the file"]


def test_an_old_file_that_was_continued_is_written_as_lines() -> None:
    document = {**HEADER, "messages": [line("u", "user", "hi"), line("a", "gemini", "hello", model="m")]}
    (transcript,) = read_gemini({"session-x.json": json.dumps(document).encode()})
    entries = entries_of(transcript)
    added = session(Message("user", (Text("more"),)))[1]
    exported_files = export([*entries, _after(entries, added)], "gemini")
    assert [name.endswith(".jsonl") for name in exported_files.files] == [True]
    assert [message.text for message in messages(read_gemini(exported_files.files)[0])] == ["hi", "hello", "more"]


def _after(entries: list[Entry], entry: Entry) -> Entry:
    last = entries[-1]
    return replace(entry, session_id=last.session_id, parent_id=last.id, seq=last.seq + 1)


def test_thoughts_go_back_to_gemini_only_and_prompts_are_no_commands() -> None:
    source = read(line("u", "user", "hi"), {**ANSWER, "thoughts": [{"subject": "S", "description": "d"}]})
    (answer,) = (message for message in messages(source) if message.role == "assistant")
    assert isinstance(answer.parts[0], Thinking)
    exported_files = export(session(Message("user", (Text("/etc/hosts?"),)), answer), "gemini")
    lines = [json.loads(text_line) for text_line in next(iter(exported_files.files.values())).splitlines()]
    assert lines[1]["content"] == [{"text": "\u200b/etc/hosts?"}]
    assert (lines[2]["thoughts"][0]["subject"], lines[2]["thoughts"][0]["description"]) == ("S", "d")
    assert lines[2]["tokens"] == {"input": 9, "output": 2, "cached": 4, "thoughts": 3, "tool": 0, "total": 14}
    assert [loss.action for loss in exported_files.losses] == ["added"]


def test_files_are_recognised() -> None:
    lines = json.dumps(HEADER).encode() + b"\n"
    assert recognised_format(NAME, lines) is FORMATS["gemini"]
    assert recognised_format("session-x.json", lines) is FORMATS["gemini"]
    assert facts(read({"id": "x", "type": "new"})) == []
    assert not any(isinstance(fact, ModelChange) for fact in facts(read(line("a", "gemini", "x"))))


def test_a_session_that_the_program_continued_goes_on_where_it_ended() -> None:
    full = {**ANSWER, "toolCalls": [call("c1", {"output": "one"}), call("c2", {"output": "two"})]}
    results = [part for called in full["toolCalls"] for part in called["result"]]
    start = [line("u", "user", "hi"), full, line("r", "user", results), line("c", "user", "/stats")]
    injected = line("i", "user", "<session_context>\nThis is the Gemini CLI.")
    calls = [
        {"functionCall": {"id": called["id"], "name": "ls", "args": called["args"]}} for called in full["toolCalls"]
    ]
    again = [
        injected,
        line("1", "user", [{"text": "hi"}]),
        line("2", "gemini", [{"text": "Listing."}, *calls]),
        line("3", "user", results),
        line("4", "user", results),
    ]
    emptied, filled = {"$set": {"messages": [injected]}}, {"$set": {"messages": again}}
    for before in ([], [emptied]):
        transcript = read(*start, {"$set": {"lastUpdated": "x"}}, *before, filled, line("w", "user", "go on"))
        conversation = messages(transcript)
        assert [message.role for message in conversation] == ["user", "assistant", "tool", "user", "user"]
        assert conversation[1].meta is not None
        assert conversation[1].meta.usage is not None
        assert conversation[-1].text == "go on"
    assert messages(read(*start, emptied)) == []
    refilled = {"$set": {"messages": [line("1", "user", "other")]}}
    assert [message.text for message in messages(read(*start, emptied, refilled))] == ["other"]
