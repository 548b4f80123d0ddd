"""What the reader makes of files of Qwen Code."""

import json
from typing import Any

from bartack.nouns.entries import CompactionSummary, Fact, ModelChange, RunEnded, StreamFailed, branch, heads
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Text, Thinking
from bartack_transcripts.formats import FORMATS, Transcript, entries_of, recognised_format, source_files
from bartack_transcripts.qwen import read_qwen
from tests.transcripts.test_writing import export, read_back, session

NAME = "6a89f1dd-9a24-4671-91d1-a9092238dd06.jsonl"
Json = dict[str, Any]


class Writer:
    """Writes lines, each after the one before it by default."""

    def __init__(self) -> None:
        self.lines: list[Json] = []
        self.last: str | None = None

    def add(self, type: str, *, parent_id: str | None = "last", **fields: Any) -> str:
        id, parent = f"e{len(self.lines)}", self.last if parent_id == "last" else parent_id
        common = {"sessionId": "6a89", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/work", "version": "0.15"}
        self.lines.append({"uuid": id, "parentUuid": parent, **common, "type": type, **fields})
        self.last = id
        return id

    def user(self, text: str, **fields: Any) -> str:
        return self.add("user", message={"role": "user", "parts": [{"text": text}]}, **fields)

    def answer(self, *parts: Json, **fields: Any) -> str:
        return self.add("assistant", model="qwen-x", message={"role": "model", "parts": list(parts)}, **fields)

    def result(self, call: str, output: str, status: str = "success") -> str:
        response = {"functionResponse": {"id": call, "name": "ls", "response": {"output": output}}}
        result = {"callId": call, "status": status}
        return self.add("tool_result", message={"role": "user", "parts": [response]}, toolCallResult=result)

    def system(self, subtype: str, payload: Any, **fields: Any) -> str:
        return self.add("system", subtype=subtype, systemPayload=payload, **fields)

    def read(self) -> Transcript:
        data = b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)
        (transcript,) = read_qwen({NAME: data})
        assert source_files(entries_of(transcript)) == {NAME: data}
        return transcript

    def facts(self) -> list[Fact]:
        entries = entries_of(self.read())
        return [entry.fact for entry in branch(entries, entries[-1].id)[1:] if entry.fact.kind != "custom"]

    def messages(self) -> list[Message]:
        return [fact for fact in self.facts() if isinstance(fact, Message)]


def call(id: str) -> Json:
    return {"functionCall": {"id": id, "name": "ls", "args": {}}}


def test_parallel_calls_thinking_and_usage() -> None:
    writer = Writer()
    writer.user("hi")
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 7, "thoughtsTokenCount": 5, "totalTokenCount": 17}
    writer.answer({"text": "hm", "thought": True}, {"text": "Listing."}, call("c1"), call("c2"), usageMetadata=usage)
    writer.result("c2", "two", "error")
    writer.result("c1", "one")
    _, answer, first, second = writer.messages()
    assert [part.kind for part in answer.parts] == ["thinking", "text", "tool_call", "tool_call"]
    assert answer.meta is not None
    assert answer.meta.usage is not None
    assert (answer.meta.model, answer.meta.usage.output_tokens) == (ModelRef("qwen", "qwen-x"), 7)
    assert [
        (result_part.tool_call_id, result_part.content, result_part.is_error) for result_part in first.tool_results
    ] == [("c2", "two", True)]
    assert [
        (result_part.tool_call_id, result_part.content, result_part.is_error) for result_part in second.tool_results
    ] == [("c1", "one", False)]


def test_gemini_counts_thoughts_beside_the_answer() -> None:
    writer = Writer()
    writer.system("ui_telemetry", {"uiEvent": {"event.name": "qwen-code.api_response", "auth_type": "gemini"}})
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 7, "thoughtsTokenCount": 5, "totalTokenCount": 22}
    writer.answer({"text": "x"}, usageMetadata=usage)
    (answer,) = writer.messages()
    assert answer.meta is not None
    assert answer.meta.usage is not None
    assert (answer.meta.usage.output_tokens, answer.meta.model) == (12, ModelRef("google", "qwen-x"))


def test_a_rewind_is_a_branch() -> None:
    writer = Writer()
    first = writer.user("one")
    writer.user("two")
    writer.system("rewind", {"truncatedCount": 1}, parent_id=first)
    writer.user("three")
    assert [message.text for message in writer.messages()] == ["one", "three"]
    assert len(heads(entries_of(writer.read()))) == 2
    writer.user("four", parent_id=None)
    assert [message.text for message in writer.messages()] == ["four"]


def test_a_compression_keeps_the_messages_that_it_repeats() -> None:
    writer = Writer()
    writer.user("one")
    writer.answer({"text": "1"})
    writer.user("two")
    writer.system("attribution_snapshot", {})
    writer.answer({"text": "2"})
    head = [{"role": "user", "parts": [{"text": "so far"}]}, {"role": "model", "parts": [{"text": "Got it."}]}]
    kept_contents = [{"role": "user", "parts": [{"text": "two"}]}, {"role": "model", "parts": [{"text": "2"}]}]
    payload = {"info": {"originalTokenCount": 9}, "compressedHistory": head + kept_contents}
    writer.system("chat_compression", payload)
    writer.user("three")
    entries = entries_of(writer.read())
    compaction = next(entry.fact for entry in entries if isinstance(entry.fact, CompactionSummary))
    first = next(entry.fact for entry in entries if entry.id == compaction.first_kept_entry_id)
    assert isinstance(first, Message)
    assert (compaction.summary, compaction.tokens_before, first.text) == ("so far", 9, "two")


def test_failed_and_cancelled_calls_of_the_conversation_itself() -> None:
    writer = Writer()
    error = {"event.name": "qwen-code.api_error", "error_message": "slow", "status_code": 429, "model": "m"}
    writer.system("ui_telemetry", {"uiEvent": error})
    writer.system("ui_telemetry", {"uiEvent": error | {"subagent_name": "memory"}})
    writer.system("ui_telemetry", {"uiEvent": {"event.name": "api_cancel"}})
    failed, aborted = writer.facts()
    assert isinstance(failed, StreamFailed)
    assert (failed.error.error_code, failed.error.status) == (ErrorCode.RATE_LIMITED, 429)
    assert aborted == RunEnded(status="aborted", reason="user")


def test_prompts_of_the_program_are_synthetic() -> None:
    writer = Writer()
    writer.user("done", subtype="notification")
    writer.user("<system-reminder>x</system-reminder>")
    writer.user("mine")
    texts = [part for message in writer.messages() for part in message.parts if isinstance(part, Text)]
    assert [(part.synthetic, part.ignored) for part in texts] == [(True, False), (True, True), (False, False)]
    assert writer.read().header.title == "mine"


def test_the_header_has_the_title_and_the_session_that_was_forked() -> None:
    writer = Writer()
    writer.user("prompt", forkedFrom={"sessionId": "other"}, gitBranch="main")
    writer.system("custom_title", {"customTitle": "Mine"})
    header = writer.read().header
    assert header.title == "Mine"
    assert header.metadata == {
        "program": "qwen",
        "directory": "/work",
        "gitBranch": "main",
        "version": "0.15",
        "forkedFrom": "qwen:other",
    }
    data = json.dumps(writer.lines[0] | {"agentId": "x", "isSidechain": True}).encode() + b"\n"
    name = "6a89/agent-x.jsonl"
    (agent,) = read_qwen({name: data, "6a89/agent-x.meta.json": b"{}"})
    assert agent.header.metadata is not None
    assert agent.header.metadata["parentSession"] == "qwen:6a89"
    assert source_files(entries_of(agent)) == {name: data, "6a89/agent-x.meta.json": b"{}"}
    assert recognised_format(name, data) is FORMATS["qwen"]


def test_thinking_of_qwen_goes_back_to_qwen() -> None:
    writer = Writer()
    writer.answer({"text": "hm", "thought": True}, {"text": "x"})
    (answer,) = writer.messages()
    back = read_back(export(session(Message("user", (Text("?"),)), answer), "qwen"), "qwen")
    parts = [part for entry in back for part in getattr(entry.fact, "parts", ())]
    assert [part.text for part in parts if isinstance(part, Thinking)] == ["hm"]


def test_the_model_and_the_outer_session_of_newer_versions() -> None:
    writer = Writer()
    writer.system("parent_session", {"parentSessionId": "p1"})
    writer.user("hi")
    writer.system("session_model", {"modelId": "qwen-y", "authType": "openai"})
    assert ModelChange(model=ModelRef("qwen", "qwen-y")) in writer.facts()
    assert (writer.read().header.metadata or {})["parentSession"] == "qwen:p1"


def test_a_sub_agent_names_its_call() -> None:
    line: Json = {"uuid": "1", "parentUuid": None, "type": "user", "sessionId": "s1"}
    line["message"] = {"role": "user", "parts": [{"text": "x"}]}
    agent_info = {"toolUseId": "c1", "agentType": "explore", "description": "Look"}
    files = {"s1/agent-a.jsonl": json.dumps(line).encode(), "s1/agent-a.meta.json": json.dumps(agent_info).encode()}
    (transcript,) = read_qwen(files)
    expected = {"program": "qwen", "parentSession": "qwen:s1", "toolCallId": "c1", "agent": "explore", "task": "Look"}
    assert transcript.header.metadata == expected
    assert transcript.session_id == "qwen:s1/agent-explore-c1"
    assert source_files(entries_of(transcript)) == files
    unnamed = read_qwen({"x.jsonl": json.dumps(line | {"isSidechain": True}).encode()})[0].session_id
    assert unnamed.startswith("qwen:s1/agent-")
    nested = {**files, "s1/agent-a.meta.json": json.dumps({"parentAgentId": "explore-c 0"}).encode()}
    assert (read_qwen(nested)[0].header.metadata or {})["parentSession"] == "qwen:s1/agent-explore-c_0"


def test_the_result_of_a_sub_agent_names_its_session() -> None:
    writer = Writer()
    writer.answer(call("c1"))
    writer.result("c1", "done")
    writer.lines[-1]["toolCallResult"]["resultDisplay"] = {"type": "task_execution", "subagentName": "explore"}
    assert writer.messages()[-1].tool_results[0].metadata == {"sessionId": "qwen:6a89/agent-explore-c1"}


def test_a_sub_agent_that_continues_the_conversation_begins_with_it() -> None:
    writer = Writer()
    history = [{"role": "user", "parts": [{"text": "one"}]}, {"role": "model", "parts": [{"text": "1"}]}]
    writer.system("agent_bootstrap", {"kind": "fork", "history": history})
    writer.user("two")
    assert [message.text for message in writer.messages()] == ["one", "1", "two"]


def test_the_usage_of_a_sub_agent_is_on_an_empty_line_before_its_answer() -> None:
    writer = Writer()
    writer.user("go")
    writer.answer(usageMetadata={"promptTokenCount": 7, "candidatesTokenCount": 3})
    writer.answer(call("c1"))
    writer.result("c1", "a.txt")
    writer.answer({"text": "done"})
    answers = [message for message in writer.messages() if message.role == "assistant"]
    used = [
        None if message.meta is None or message.meta.usage is None else message.meta.usage.input_tokens
        for message in answers
    ]
    assert used == [7, None]
    assert writer.read().report.total("opaque") == 0
