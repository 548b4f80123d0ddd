"""Messages of libraries: what their readers make of them, and what their writers write."""

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.nouns.deltas import Usage
from bartack.nouns.entries import CompactionSummary, Entry, branch, heads
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.disk.files import found_at, read_transcripts
from bartack_transcripts.formats import FORMATS, Transcript, entries_of, recognised_format, source_files
from bartack_transcripts.llm import read_llm
from tests.transcripts.conversation import said
from tests.transcripts.test_writing import CLAUDE, HISTORY, LIBRARIES, export, read_back, session

Json = dict[str, Any]
each_library = pytest.mark.parametrize("target", LIBRARIES)


def messages(transcript: Transcript) -> list[Message]:
    return [entry.fact for entry in entries_of(transcript) if isinstance(entry.fact, Message)]


def read(format: str, items: list[Json]) -> list[Message]:
    data = json.dumps(items).encode()
    assert recognised_format("x.json", data) is FORMATS[format]
    (transcript,) = FORMATS[format].read({"x.json": data})
    assert transcript.report.problems == []
    assert source_files(entries_of(transcript)) == {"x.json": data}
    return messages(transcript)


# -- all of them


@each_library
def test_texts_calls_and_results_are_written_and_read_again(target: str) -> None:
    entries = session(*HISTORY)
    document = export(entries, target)
    texts_read, expected = said(read_back(document, target)), said(entries)
    if target == "chat-jsonl":  # it has no flag for errors, and puts it into the text
        expected[expected.index("/work")] = "Error: /work"
    if target == "ai-sdk":  # an output is JSON, so that of several texts is a list
        expected[expected.index("a\nb")] = '[{"type":"text","text":"a"},{"type":"text","text":"b"}]'
    assert texts_read == expected
    (name, data) = next(iter(document.files.items()))
    assert recognised_format(name, data) is FORMATS[target]


@each_library
def test_what_was_added_to_a_file_is_written_after_it(target: str) -> None:
    (name, data) = next(
        iter(export(session(user("hi"), assistant("hello", meta=Meta(model=CLAUDE))), target).files.items())
    )
    entries = entries_of(FORMATS[target].read({name: data})[0], datetime(2026, 1, 1, tzinfo=UTC))
    assert export(entries, target).files == {name: data}
    last, addition = entries[-1], session(user("more"))[1]
    grown: list[Entry] = [*entries, replace(addition, session_id=last.session_id, parent_id=last.id, seq=last.seq + 1)]
    document = export(grown, target)
    assert said(read_back(document, target)) == ["hi", "hello", "more"]
    if target != "chat-jsonl":
        assert next(iter(document.files.values())).startswith(data.rstrip()[:-1].rstrip())


@each_library
def test_a_compaction_is_a_message_or_left_out(target: str) -> None:
    before = session(user("one"), assistant("1"), user("two"))
    document = export(
        session(
            *[entry.fact for entry in before[1:]], CompactionSummary(summary="so far", first_kept_entry_id=before[3].id)
        ),
        target,
    )
    assert "compaction" in [loss.what for loss in document.losses]
    assert said(read_back(document, target))[0] == "one"


@each_library
def test_a_torn_file_is_read_up_to_there(target: str) -> None:
    (name, data) = next(iter(export(session(user("hi"), assistant("hello")), target).files.items()))
    (transcript, *_) = FORMATS[target].read({name: data[: data.rindex(b"hello")]})
    assert len(transcript.report.problems) == 1
    assert [message.text for message in messages(transcript)] == ([] if target == "chat-jsonl" else ["hi"])


# -- chat completions


def test_each_line_of_a_data_set_is_a_session() -> None:
    lines = [{"messages": [{"role": "user", "content": text}], "tools": []} for text in ("one", "two")]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, {"other": 1}])
    first, second = FORMATS["chat-jsonl"].read({"x.jsonl": data})
    assert [message.text for message in messages(first)] == ["one"]
    assert [message.text for message in messages(second)] == ["two"]
    assert source_files(entries_of(first)) == {"x.jsonl": data}
    assert first.report.total("opaque") == 1
    assert first.session_id != second.session_id


def test_lines_can_be_messages() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{"}}
    lines: list[Json] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "no"},
    ]
    (transcript,) = FORMATS["chat-jsonl"].read(
        {"x.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in lines)}
    )
    _, answer, result = messages(transcript)
    assert answer.tool_calls[0].raw_args_text == "{"
    assert result.tool_results[0].content == "no"


# -- pydantic-ai


def test_parts_of_pydantic_ai() -> None:
    returned = {"part_kind": "tool-return", "tool_name": "f", "content": [1, 2], "tool_call_id": "c1"}
    retry = {"part_kind": "retry-prompt", "tool_name": "g", "content": [{"msg": "bad"}], "tool_call_id": "c2"}
    binary = {"kind": "binary", "data": "_-8=", "media_type": "image/png"}
    calls = [
        {"part_kind": "tool-call", "tool_name": "f", "args": '{"a": 1}', "tool_call_id": "c1"},
        {"part_kind": "tool-call", "tool_name": "g", "args": "{", "tool_call_id": "c2"},
        {"part_kind": "builtin-tool-call", "tool_name": "web", "args": {}, "tool_call_id": "b1"},
        {"part_kind": "builtin-tool-return", "tool_name": "web", "content": {"x": 1}, "tool_call_id": "b1"},
    ]
    thinking = [
        {"part_kind": "thinking", "content": "hm", "signature": "c2ln", "provider_name": "anthropic"},
        {"part_kind": "thinking", "content": "", "signature": "enc", "id": "redacted_thinking"},
    ]
    usage = {"input_tokens": 9, "cache_read_tokens": 4, "output_tokens": 3, "details": {"reasoning_tokens": 2}}
    prompt = {"part_kind": "user-prompt", "content": ["see", binary, {"kind": "image-url", "url": "https://x/y.png"}]}
    response = {"kind": "response", "parts": thinking + calls, "usage": usage, "model_name": "claude-x"}
    conversation = read(
        "pydantic-ai",
        [
            {"kind": "request", "parts": [{"part_kind": "system-prompt", "content": "sys"}, prompt]},
            response | {"provider_name": "anthropic", "finish_reason": "tool_call"},
            {"kind": "request", "parts": [returned, retry]},
        ],
    )
    assert [message.role for message in conversation] == ["system", "user", "assistant", "tool"]
    assert conversation[1].parts[1] == Image("image/png", data=b"\xff\xef")
    first, second, call, bad, web = conversation[2].parts
    assert isinstance(first, Thinking)
    assert isinstance(second, Thinking)
    assert first.continuation == Continuation("anthropic", "claude-x", {"signature": "c2ln"})
    assert second.continuation is not None
    assert second.continuation.data == {"type": "redacted_thinking", "data": "enc"}
    assert isinstance(call, ToolCall)
    assert isinstance(bad, ToolCall)
    assert isinstance(web, ToolCall)
    assert (call.arguments, bad.raw_args_text, web.executed_by) == ({"a": 1}, "{", "provider")
    assert web.result is not None
    assert conversation[2].meta is not None
    assert conversation[2].meta.usage == Usage(9, 3, cache_read_tokens=4, reasoning_tokens=2)
    succeeded, two = conversation[3].tool_results
    assert (succeeded.value, succeeded.is_error, two.is_error) == ([1, 2], False, True)


def test_signatures_are_written_for_pydantic_ai() -> None:
    signed = Thinking("hm", continuation=Continuation("anthropic", "claude-x", {"signature": "c2ln"}))
    foreign = Thinking("x", continuation=Continuation("openai", "gpt-5", {"item": 1}))
    searched = ToolCall("s1", "web", {}, executed_by="provider")
    image = tool_message(ToolResult("c1", (Text("a"), Image("image/png", data=b"\0"))))
    call = assistant(signed, foreign, searched, ToolCall("c1", "f", {}), meta=Meta(model=CLAUDE, finish_reason="stop"))
    document = export(session(user(FileRef("a.bin")), call, image), "pydantic-ai")
    parts = json.loads(next(iter(document.files.values())))[1]["parts"]
    assert parts[0]["signature"] == "c2ln"
    assert [loss.what for loss in document.losses] == ["file", "continuation data", "call of web"]
    back = read_back(document, "pydantic-ai")
    (result,) = (result_part for entry in back for result_part in getattr(entry.fact, "tool_results", ()))
    assert result.content == (Text("a"), Image("image/png", data=b"\0"))


# -- LangChain


def test_messages_of_langchain() -> None:
    image = {"type": "image", "base64": "AAAA", "mime_type": "image/png"}
    call = {"name": "f", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
    bad = {"name": "f", "args": "{", "id": "c2", "error": "no JSON"}
    blocks = [
        {"type": "thinking", "thinking": "t", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "e"},
        "x",
    ]
    ai: Json = {"content": blocks, "type": "AIMessageChunk", "tool_calls": [call], "invalid_tool_calls": [bad]}
    ai |= {"response_metadata": {"model": "claude-x", "stop_reason": "tool_use"}}
    ai |= {"usage_metadata": {"input_tokens": 9, "output_tokens": 3, "input_token_details": {"cache_read": 4}}}
    conversation = read(
        "langchain",
        [
            {"type": "human", "data": {"content": ["hi", image], "type": "human"}},
            {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessageChunk"], "kwargs": ai},
            {"type": "tool", "data": {"content": "3", "tool_call_id": "c1", "artifact": {"raw": 3}}},
            {"type": "tool", "data": {"content": [image], "tool_call_id": "c2", "status": "error"}},
        ],
    )
    assert [message.role for message in conversation] == ["user", "assistant", "tool", "tool"]
    answer = conversation[1]
    assert [part.kind for part in answer.parts] == ["thinking", "thinking", "text", "tool_call", "tool_call"]
    assert answer.meta is not None
    assert answer.meta.model == ModelRef("anthropic", "claude-x")
    assert (answer.meta.finish_reason, answer.meta.bad_args) == ("tool_calls", {"c2": "no JSON"})
    assert answer.meta.usage == Usage(9, 3, cache_read_tokens=4)
    assert conversation[2].tool_results[0].metadata == {"artifact": {"raw": 3}}
    assert conversation[3].tool_results[0].is_error
    document = export(session(*conversation), "langchain")
    assert [message.parts for message in read_back_messages(document)] == [message.parts for message in conversation]


def test_reasoning_of_openai_in_langchain_can_be_sent_back() -> None:
    block = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "index": 0}
    metadata = {"model_name": "gpt-5", "model_provider": "openai"}
    ai = {
        "content": [block | {"encrypted_content": "gAAA"}, {"type": "text", "text": "x"}],
        "response_metadata": metadata,
    }
    (answer,) = read("langchain", [{"type": "ai", "data": ai}])
    assert (answer.thinking, answer.text) == ("hm", "x")
    assert answer.parts[0].continuation is not None
    assert answer.parts[0].continuation.data["item"]["encrypted_content"] == "gAAA"


def read_back_messages(document: Any) -> list[Message]:
    return [entry.fact for entry in read_back(document, "langchain") if isinstance(entry.fact, Message)]


# -- AI SDK


def test_a_tool_part_is_a_call_and_its_result() -> None:
    part = {"type": "tool-f", "toolCallId": "c1", "state": "output-available", "input": {"a": 1}, "output": "3"}
    parts = [{"type": "step-start"}, {"type": "reasoning", "text": "hm"}, part, {"type": "step-start"}]
    conversation = read(
        "ai-sdk",
        [
            {"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            {"id": "2", "role": "assistant", "parts": [*parts, {"type": "text", "text": "done"}]},
        ],
    )
    assert [message.role for message in conversation] == ["user", "assistant", "tool", "assistant"]
    assert conversation[1].tool_calls[0].arguments == {"a": 1}
    assert conversation[2].tool_results[0].content == "3"


# -- ATIF


def test_a_trajectory_has_results_in_the_step_of_their_calls() -> None:
    used = Meta(model=CLAUDE, usage=Usage(9, 3, cache_read_tokens=4), cost_usd=0.5)
    calls = assistant(Thinking("hm"), "Looking.", ToolCall("c1", "ls", {"a": 1}), ToolCall("c2", "ls", {}), meta=used)
    results = tool_message(ToolResult("c2", "two"), ToolResult("c1", {"one": 1}))
    facts = [Message("system", (Text("sys"),)), user("hi", Image("image/png", data=b"\0")), calls, results]
    document = export(session(*facts, CompactionSummary(summary="so far", first_kept_entry_id="x")), "atif")
    trajectory = json.loads(next(iter(document.files.values())))
    assert [step["source"] for step in trajectory["steps"]] == ["system", "user", "agent", "user"]
    assert [step["step_id"] for step in trajectory["steps"]] == [1, 2, 3, 4]
    step = trajectory["steps"][2]
    assert (step["message"], step["reasoning_content"]) == ("Looking.", "hm")
    assert [called["function_name"] for called in step["tool_calls"]] == ["ls", "ls"]
    assert step["observation"]["results"][0] == {"source_call_id": "c2", "content": "two"}
    assert step["metrics"] == {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 4, "cost_usd": 0.5}
    assert trajectory["final_metrics"]["total_cost_usd"] == 0.5
    assert trajectory["agent"]["model_name"] == "claude-x"
    assert [loss.what for loss in document.losses] == ["compaction", "image (image/png)"]
    assert FORMATS["atif"].read({"x.json": b"{}"}) == []


# -- llm


def rows(**tables: list[Json]) -> dict[str, bytes]:
    return {
        f"{kind}/{row['id']}": json.dumps(row).encode() for kind, table_rows in tables.items() for row in table_rows
    }


def part(id: int, of: str, kind: str, text: str | None = None, payload: Json | None = None) -> Json:
    data = None if payload is None else json.dumps(payload)
    return {"id": id, "message_hash": of, "position": 0, "type": kind, "text": text, "payload": data}


def test_a_thread_of_llm_is_a_tree() -> None:
    call = {"name": "f", "arguments": {"a": 1}, "tool_call_id": "c1"}
    files = rows(
        thread=[{"id": "t", "name": "Mine", "tip_message_hash": "d", "forked_from": "o"}],
        turn=[
            {"id": "1", "thread_id": "t", "tip_message_hash": "b", "model": "m", "input_tokens": 9, "output_tokens": 3},
            {
                "id": "2",
                "thread_id": "t",
                "tip_message_hash": "d",
                "model": "m",
                "datetime_utc": "2026-01-01T00:00:00Z",
            },
        ],
        message=[
            {"id": "a", "parent_hash": None, "role": "user"},
            {"id": "b", "parent_hash": "a", "role": "assistant"},
            {"id": "c", "parent_hash": "b", "role": "tool"},
            {"id": "d", "parent_hash": "a", "role": "assistant"},
        ],
        part=[
            part(1, "a", "text", "hi"),
            part(2, "b", "tool_call", payload=call),
            part(3, "b", "reasoning", "hm"),
            part(4, "d", "text", "other"),
        ],
    )
    (transcript,) = read_llm(files)
    entries = entries_of(transcript)
    assert len(heads(entries)) == 2
    path = branch(entries, entries[-1].id)
    assert [entry.fact.text for entry in path if isinstance(entry.fact, Message)] == ["hi", "other"]
    (answer,) = (message for message in messages(transcript) if message.tool_calls)
    assert answer.meta is not None
    assert answer.meta.usage == Usage(9, 3)
    assert transcript.header.title == "Mine"
    assert transcript.header.metadata == {"program": "llm", "forkedFrom": "llm:o"}
    assert source_files(entries) == files  # also the message that no turn leads to
    files |= rows(conversation=[{"id": "t"}], response=[{"id": "9", "conversation_id": "t", "prompt": "the same"}])
    (again,) = read_llm(files)
    assert source_files(entries_of(again)) == files


def test_rows_of_llm_without_a_session_are_kept() -> None:
    files = rows(message=[{"id": "a", "parent_hash": None, "role": "user"}], part=[part(1, "a", "text", "hi")])
    (transcript,) = read_llm(files)
    assert source_files(entries_of(transcript)) == files
    assert transcript.report.total("opaque") == 2
    assert read_llm({}) == []


def test_a_conversation_of_an_earlier_llm() -> None:
    files = rows(
        conversation=[{"id": "k", "name": "Old", "model": "m"}],
        response=[
            {"id": "1", "conversation_id": "k", "prompt": "hi", "system": "sys", "response": "calling", "model": "m"},
            {"id": "2", "conversation_id": "k", "prompt": "", "response": "3", "reasoning": "hm"},
        ],
        tool_call=[{"id": 1, "response_id": "1", "name": "f", "arguments": '{"a": 1}', "tool_call_id": "c1"}],
        tool_result=[{"id": 1, "response_id": "2", "output": "no", "exception": "E", "tool_call_id": "c1"}],
        prompt_attachment=[{"id": "1/z", "response_id": "1", "attachment_id": "z"}],
        attachment=[{"id": "z", "type": "image/png", "content": "AAAA"}],
        prompt_fragment=[{"id": "1/0", "response_id": "1", "content": "A file."}],
        system_fragment=[{"id": "1/0", "response_id": "1", "content": "Rules."}],
    )
    (transcript,) = read_llm({**files, "thread/x": b"{"})
    conversation = messages(transcript)
    assert [message.text for message in conversation[:2]] == ["Rules.\nsys", "A file.\nhi"]
    assert [message.role for message in conversation] == ["system", "user", "assistant", "tool", "assistant"]
    assert conversation[1].parts[1] == Image("image/png", data=b"\0\0\0")
    assert conversation[2].tool_calls[0].arguments == {"a": 1}
    assert (conversation[3].tool_results[0].content, conversation[3].tool_results[0].is_error) == ("no", True)
    assert conversation[4].thinking == "hm"
    assert transcript.report.total("damaged") == 1


def test_a_database_without_the_newer_tables_is_read(tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE conversations (id TEXT, name TEXT)")
        database.execute("CREATE TABLE responses (id TEXT, conversation_id TEXT, prompt TEXT, response TEXT)")
        database.execute("INSERT INTO conversations VALUES ('k', 'Old')")
        database.execute("INSERT INTO responses VALUES ('1', 'k', 'hi', 'hello')")
    (transcript,) = read_transcripts(found_at(path))
    assert [message.text for message in messages(transcript)] == ["hi", "hello"]
