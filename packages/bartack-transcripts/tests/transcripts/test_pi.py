"""What the reader makes of the lines of pi."""

import json
from typing import Any

from bartack.formats import encode
from bartack.nouns.config import ModelConfig
from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Fact,
    ModelChange,
    RunEnded,
    StreamFailed,
    ThinkingLevelChange,
    branch,
    heads,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Image, Text, Thinking
from bartack.nouns.requests import ModelRequest
from bartack_transcripts.formats import Transcript, entries_of, exported
from bartack_transcripts.pi import PI_WRITER, read_pi

NAME = "2026-11-16T04-38-43-250Z_01a1e2a6.jsonl"
Json = dict[str, Any]


class Writer:
    """Writes entries, each after the one before it by default."""

    def __init__(self, **header: Any) -> None:
        self.lines: list[Json] = [{"type": "session", "version": 3, "id": "01a1e2a6", "cwd": "/work", **header}]
        self.last: str | None = None

    def add(self, type: str, *, parent_id: str | None = "last", **fields: Any) -> str:
        id, parent = f"e{len(self.lines)}", self.last if parent_id == "last" else parent_id
        time = "2026-01-01T00:00:00Z"
        self.lines.append({"type": type, "id": id, "parentId": parent, "timestamp": time, **fields})
        self.last = id
        return id

    def user(self, content: Any, **fields: Any) -> str:
        return self.add("message", message={"role": "user", "content": content}, **fields)

    def answer(self, *content: Json, **fields: Any) -> str:
        message: Json = {
            "role": "assistant",
            "content": list(content),
            "api": "anthropic-messages",
            "provider": "anthropic",
        }
        usage = {"input": 3, "output": 5, "cacheRead": 10, "cacheWrite": 4, "cost": {"total": 0.25}}
        message |= {"model": "claude-x", "stopReason": "stop", "usage": usage, "responseId": "m1"}
        return self.add("message", message=message | fields)

    def result(self, call: str, content: Any, **fields: Any) -> str:
        return self.add("message", message={"role": "toolResult", "toolCallId": call, "content": content, **fields})

    def read(self) -> Transcript:
        data = b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)
        return read_pi({NAME: data})[0]

    def facts(self) -> list[Fact]:
        entries = entries_of(self.read())
        return [entry.fact for entry in branch(entries, entries[-1].id)[1:] if entry.fact.kind != "custom"]

    def messages(self) -> list[Message]:
        return [fact for fact in self.facts() if isinstance(fact, Message)]


def text(text: str) -> Json:
    return {"type": "text", "text": text}


def call(id: str) -> Json:
    return {"type": "toolCall", "id": id, "name": "bash", "arguments": {"command": "ls"}}


def test_an_answer_keeps_signatures_usage_and_cost() -> None:
    writer = Writer()
    writer.answer({"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}, text("hello"))
    (answer,) = writer.messages()
    thinking = answer.parts[0]
    assert isinstance(thinking, Thinking)
    assert thinking.continuation is not None
    assert thinking.continuation.data == {"signature": "c2ln"}
    assert answer.meta is not None
    assert answer.meta.usage is not None
    assert (answer.meta.usage.input_tokens, answer.meta.cost_usd, answer.meta.response_id) == (17, 0.25, "m1")


def test_thinking_of_the_responses_api_is_a_whole_item() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    block = {"type": "thinking", "thinking": "", "thinkingSignature": json.dumps(item)}
    writer = Writer()
    writer.answer(block, api="openai-responses", provider="openai", model="gpt-5")
    writer.answer(block | {"thinkingSignature": "{"}, api="openai-responses")
    writer.answer({"type": "thinking", "thinking": "x", "thinkingSignature": "s", "redacted": True})
    first, second, third = (message.parts[0] for message in writer.messages())
    assert isinstance(first, Thinking)
    assert "gAAA" in repr(first.continuation)
    assert isinstance(second, Thinking)
    assert isinstance(third, Thinking)
    assert third.continuation is not None
    assert third.continuation.data == {"type": "redacted_thinking", "data": "s"}


def test_calls_and_results_are_joined_within_their_turn() -> None:
    writer = Writer()
    for number in ("1", "2"):
        writer.answer(call("call_1"))
        writer.result("call_1", [text(number)])
    turns = writer.messages()
    assert [message.tool_calls[0].tool_call_id for message in turns[::2]] == ["call_1", "call_1~2"]
    assert [message.tool_results[0].content for message in turns[1::2]] == ["1", "2"]


def test_a_result_with_an_image_and_an_error_flag() -> None:
    writer = Writer()
    writer.answer(call("c1"))
    writer.result("c1", [text("see"), {"type": "image", "data": "AAAA", "mimeType": "image/png"}], isError=True)
    result = writer.messages()[-1].tool_results[0]
    assert result.is_error
    assert result.content == (Text("see"), Image("image/png", data=b"\0\0\0"))


def test_an_entry_that_follows_an_older_one_begins_a_branch() -> None:
    writer = Writer()
    first = writer.user("one")
    writer.user("two")
    writer.add("branch_summary", summary="left", fromId="e2", parent_id=first)
    writer.user("three")
    assert [message.text for message in writer.messages()] == ["one", "three"]
    entries = entries_of(writer.read())
    assert len(heads(entries)) == 2
    summary = next(entry.fact for entry in entries if isinstance(entry.fact, BranchSummary))
    assert summary.from_entry_id == heads(entries)[0]


def test_a_compaction_names_the_first_entry_that_is_kept() -> None:
    writer = Writer()
    writer.user("one")
    kept_id = writer.user("two")
    writer.add("compaction", summary="sum", firstKeptEntryId=kept_id, tokensBefore=7)
    entries = entries_of(writer.read())
    compaction = next(entry.fact for entry in entries if isinstance(entry.fact, CompactionSummary))
    first = next(entry for entry in entries if entry.id == compaction.first_kept_entry_id)
    assert isinstance(first.fact, Message)
    assert (first.fact.text, compaction.tokens_before) == ("two", 7)


def test_settings_errors_and_interruptions_are_facts() -> None:
    writer = Writer()
    writer.add("model_change", provider="p", modelId="m")
    writer.add("thinking_level_change", thinkingLevel="off")
    writer.answer(stopReason="error", errorMessage="429 slow down", provider="p", model="m")
    writer.answer(text("half"), stopReason="aborted", provider="p", model="m")
    facts = writer.facts()
    assert facts[:2] == [ModelChange(model=ModelRef("p", "m")), ThinkingLevelChange(level="none")]
    assert isinstance(facts[2], StreamFailed)
    assert (facts[2].error.error_code, facts[2].error.status) == (ErrorCode.RATE_LIMITED, 429)
    assert isinstance(facts[3], Message)
    assert facts[3].meta is not None
    assert facts[3].meta.aborted
    assert facts[4] == RunEnded(status="aborted", reason="user")


def test_commands_of_the_user_and_messages_of_extensions_are_synthetic() -> None:
    writer = Writer()
    writer.add("message", message={"role": "bashExecution", "command": "ls", "output": "a", "excludeFromContext": True})
    writer.add("custom_message", content="from an extension", display=False)
    parts = [part for message in writer.messages() for part in message.parts if isinstance(part, Text)]
    assert [(part.synthetic, part.ignored) for part in parts] == [(True, True), (True, False)]


def test_the_title_is_what_the_user_typed_after_files() -> None:
    writer = Writer()
    writer.user('<file name="a.txt">\nx\n</file>\nExplain it')
    assert writer.read().header.title == "Explain it"


def test_the_header_has_the_name_the_directory_and_the_session_that_was_forked() -> None:
    writer = Writer(parentSession="/x/2026_abc.jsonl")
    writer.user("prompt")
    assert writer.read().header.title == "prompt"
    writer.add("session_info", name="Mine")
    transcript = writer.read()
    assert (transcript.session_id, transcript.header.title) == ("pi:01a1e2a6", "Mine")
    assert transcript.header.metadata == {"program": "pi", "directory": "/work", "forkedFrom": "pi:abc"}


def test_version_1_has_no_ids() -> None:
    header = {"type": "session", "id": "x", "provider": "p", "modelId": "m"}
    lines = [header, *({"type": "message", "message": {"role": "user", "content": name}} for name in ("one", "two"))]
    lines.append({"type": "compaction", "summary": "sum", "firstKeptEntryIndex": 2})  # counting the header
    (transcript,) = read_pi({NAME: b"".join(json.dumps(line).encode() + b"\n" for line in lines)})
    entries = entries_of(transcript)
    assert len(heads(entries)) == 1
    compaction = next(entry.fact for entry in entries if isinstance(entry.fact, CompactionSummary))
    first_kept = next(entry.fact for entry in entries if entry.id == compaction.first_kept_entry_id)
    assert isinstance(first_kept, Message)
    assert first_kept.text == "two"


def test_signatures_of_google_stay_on_texts_calls_and_thinking() -> None:
    writer = Writer()
    writer.user("hi")
    writer.answer(
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "s1"},
        {"type": "text", "text": "look", "textSignature": "s2"},
        {"type": "toolCall", "id": "c1", "name": "ls", "arguments": {}, "thoughtSignature": "s3"},
        api="google-generative-ai",
        provider="google",
        model="gemini-3",
    )
    answer = next(fact for fact in writer.facts() if isinstance(fact, Message) and fact.role == "assistant")
    continuations = [part.continuation.data for part in answer.parts if part.continuation is not None]
    assert continuations == [
        {"thought": True, "thoughtSignature": "s1"},
        {"thoughtSignature": "s2"},
        {"thoughtSignature": "s3"},
    ]
    request = ModelRequest(messages=(answer,), config=ModelConfig("gemini-3"), provider="google")
    contents = encode("gemini-generate", request).body["contents"]
    sent_parts = next(content["parts"] for content in contents if content["role"] == "model")
    assert [part["thoughtSignature"] for part in sent_parts] == ["s1", "s2", "s3"]
    entries = entries_of(writer.read())
    export = exported(entries, "gemini", PI_WRITER, new_id="01a1e2a6-0000-4000-8000-000000000000")
    line = json.loads(next(iter(export.files.values())).splitlines()[3])
    names = ("thinkingSignature", "textSignature", "thoughtSignature")
    assert [block[name] for block, name in zip(line["message"]["content"], names, strict=True)] == ["s1", "s2", "s3"]


def test_an_answer_of_an_unknown_provider_is_written_with_its_api() -> None:
    item = json.dumps({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"})
    apis = ("anthropic-messages", "google-generative-ai", "openai-responses", "openai-completions")
    writer = Writer()
    writer.user("go")
    for api, signature in zip(apis, ("c2ln", "c2ln", item, "reasoning_content"), strict=True):
        thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": signature}
        writer.answer(thinking, text("hello"), api=api, provider="mine")
    export = exported(entries_of(writer.read()), "pi", PI_WRITER, new_id="0" * 32, may_keep_records=False)
    answers = [json.loads(line).get("message", {}) for data in export.files.values() for line in data.splitlines()]
    assert [answer["api"] for answer in answers if answer.get("role") == "assistant"] == [*apis]
