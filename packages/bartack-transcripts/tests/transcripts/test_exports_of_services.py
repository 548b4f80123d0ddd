"""Data exports of ChatGPT and Claude.ai."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns import wire
from bartack.nouns.entries import Entry
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Text, Thinking, ToolCall, ToolResult
from bartack.store import MemoryStore
from bartack.store.maintenance import check
from bartack_transcripts.disk.files import found_at, read_transcripts
from bartack_transcripts.disk.importing import import_transcript
from bartack_transcripts.formats import FORMATS, Transcript, entries_of
from tests.transcripts.json_strategies import values

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(id: str, parent: str | None, message: dict[str, Any] | None, *children: str) -> dict[str, Any]:
    return {"id": id, "message": message, "parent": parent, "children": list(children)}


def said(role: str, text: str, **fields: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    return {"author": {"role": role, "name": None}, "create_time": 1700000000.5, "content": content, **fields}


def chatgpt(*, more: bool = False) -> list[dict[str, Any]]:
    """An export with an edited prompt, a call and its result, thoughts and an image; later there is `more` of it."""
    call = {"content_type": "code", "language": "python", "text": "print(6 * 7)"}
    output = {"content_type": "execution_output", "text": "42"}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Sums", "content": "Six times seven."}]}
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1", "width": 1}
    picture = {"content_type": "multimodal_text", "parts": [image, "What is this?"]}
    model = {"metadata": {"model_slug": "gpt-5"}}
    mapping = {
        "root": node("root", None, None, "sys"),
        "sys": node("sys", "root", said("system", ""), "u2", "u1"),
        "u2": node("u2", "sys", said("user", "How much is 6 * 7?"), "t"),
        "t": node("t", "u2", said("assistant", "", content=thoughts, **model), "c"),
        "c": node("c", "t", said("assistant", "", content=call, recipient="python", **model), "r"),
        "r": node("r", "c", {"author": {"role": "tool", "name": "python"}, "content": output}, "a2"),
        "a2": node("a2", "r", said("assistant", "It is 42.", recipient="all", **model), *(["u3"] if more else [])),
        "u1": node("u1", "sys", said("user", "How much is 6 * 8?"), "a1"),
        "a1": node("a1", "u1", said("assistant", "48.")),
    }
    if more:
        mapping["u3"] = node("u3", "a2", said("user", "", content=picture))
    conversation = {"title": "Sums", "create_time": 1700000000.0, "mapping": mapping, "conversation_id": "abc"}
    other = {
        "title": "Other",
        "mapping": {"x": node("x", None, said("user", "hello"))},
        "id": "other",
        "current_node": "x",
    }
    return [other, {**conversation, "current_node": "u3" if more else "a2", "update_time": 2.0 if more else 1.0}]


def claude_ai(*, more: bool = False) -> list[dict[str, Any]]:
    blocks = [
        {"type": "thinking", "thinking": "Look it up."},
        {"type": "tool_use", "id": "toolu_1", "name": "web_search", "input": {"query": "Oslo"}},
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{"type": "text", "text": "rain"}],
            "is_error": True,
        },
        {"type": "text", "text": "It rains."},
    ]
    pasted = {"file_name": "", "extracted_content": "a long text"}
    messages: list[dict[str, Any]] = [
        {
            "uuid": "m1",
            "sender": "human",
            "text": "Oslo?",
            "content": [{"type": "text", "text": "Oslo?"}],
            "attachments": [pasted],
        },
        {
            "uuid": "m2",
            "sender": "assistant",
            "text": "It rains.",
            "content": blocks,
            "created_at": "2026-01-01T10:00:00Z",
        },
        {"uuid": "m3", "sender": "human", "text": "And Rome?", "content": [], "files": [{"file_name": "map.png"}]},
    ]
    root = "00000000-0000-4000-8000-000000000000"
    for message, parent in zip(messages, (root, "m1", "m1"), strict=True):
        message["parent_message_uuid"] = parent
    return [{"uuid": "c1", "name": "Weather", "account": {"uuid": "x"}, "chat_messages": messages[: 3 if more else 2]}]


def read(name: str, export: Any) -> list[Transcript]:
    return FORMATS[name].read({"conversations.json": json.dumps(export).encode()})


def messages_of(transcript: Transcript) -> list[Message]:
    return [fact for step in transcript.steps for fact in step.facts if isinstance(fact, Message)]


def test_chatgpt_is_read_with_its_branches_calls_and_thoughts(tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(chatgpt(more=True), indent=1))
    other, transcript = read_transcripts(found_at(path))
    assert (other.session_id, other.header.title) == ("chatgpt:other", "Other")
    assert (transcript.session_id, transcript.header.title) == ("chatgpt:abc", "Sums")
    assert [message.parts for message in messages_of(transcript)] == [
        (Text("How much is 6 * 8?"),),
        (Text("48."),),
        (Text("How much is 6 * 7?"),),
        (Thinking("Six times seven."),),
        (ToolCall("c", "python", {"input": "print(6 * 7)"}),),
        (ToolResult("c", (Text("42"),)),),
        (Text("It is 42."),),
        (FileRef("file-service://file-1"), Text("What is this?")),
    ]
    (model,) = {message.meta.model.model for message in messages_of(transcript) if message.meta and message.meta.model}
    assert model == "gpt-5"

    async def imported() -> list[str]:
        store = MemoryStore()
        await import_transcript(store, transcript, NOW)
        assert await check(store) == []
        facts = [entry.fact for entry in await store.load(transcript.session_id)]
        return [fact.role for fact in facts if isinstance(fact, Message)]

    assert asyncio.run(imported()) == ["user", "assistant", "assistant", "tool", "assistant", "user"]


def test_claude_ai_is_read_with_its_branches_and_calls(tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(claude_ai(more=True)))
    (transcript,) = read_transcripts(found_at(path))
    assert (transcript.session_id, transcript.header.title) == ("claude-ai:c1", "Weather")
    assert [message.parts for message in messages_of(transcript)] == [
        (Text("Oslo?"), Text("a long text")),
        (Thinking("Look it up."), ToolCall("toolu_1", "web_search", {"query": "Oslo"})),
        (ToolResult("toolu_1", (Text("rain"),), is_error=True),),
        (Text("It rains."),),
        (Text("And Rome?"), FileRef("map.png")),
    ]
    assert transcript.steps[2].parent == 0


@pytest.mark.parametrize(("name", "export"), [("chatgpt", chatgpt), ("claude-ai", claude_ai)])
async def test_a_later_export_adds_what_is_new_and_an_earlier_one_nothing(name: str, export: Any) -> None:
    store = MemoryStore()
    for more, is_news in ((False, True), (False, False), (True, True), (False, False), (True, False)):
        added = 0
        for transcript in read(name, export(more=more)):
            added += (await import_transcript(store, transcript, NOW)).entries
        assert (added > 0) is is_news
    assert await check(store) == []
    assert len((await store.sessions()).items) == len(export())


@pytest.mark.parametrize(("name", "export"), [("chatgpt", chatgpt), ("claude-ai", claude_ai)])
@given(data=st.data())
def test_whatever_an_export_contains_can_be_stored(name: str, export: Any, data: st.DataObject) -> None:
    document = export(more=True)
    for _ in range(data.draw(st.integers(1, 3))):
        inner: Any = document
        while isinstance(inner, dict | list) and inner:
            key: Any = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
            if not isinstance(inner[key], dict | list) or data.draw(st.booleans()):
                inner[key] = data.draw(values)
                break
            inner = inner[key]
    for transcript in read(name, document):
        for entry in entries_of(transcript):
            assert wire.decode(Entry, wire.encode(entry)) == entry


@pytest.mark.parametrize("name", ["chatgpt", "claude-ai"])
@given(st.binary(max_size=200))
def test_any_bytes_are_an_export_without_conversations(name: str, data: bytes) -> None:
    for transcript in FORMATS[name].read({"conversations.json": data}):
        assert transcript.report.problems or not data
        assert not messages_of(transcript)
    assert FORMATS[name].read({}) == []


def test_a_single_conversation_is_read_as_well() -> None:
    (transcript,) = read("chatgpt", chatgpt()[1])
    assert transcript.session_id == "chatgpt:abc"
    (transcript,) = read("claude-ai", claude_ai()[0])
    assert transcript.session_id == "claude-ai:c1"
