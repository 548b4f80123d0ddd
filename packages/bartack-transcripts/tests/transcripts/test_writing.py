"""Exports: what other programs get of a session, and what a session keeps that goes back to its own program."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.agent import Agent
from bartack.environment import Environment
from bartack.models import ScriptedModel
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Entry,
    Fact,
    ModelChange,
    SessionHeader,
    StreamFailed,
    branch,
    heads,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.session.context.fold import ContextFold
from bartack.session.title import title_in
from bartack.store import MemoryStore, Tail, next_entries
from bartack.store.foreign import adopt
from bartack.store.requests import redact, rename
from bartack_transcripts.disk.files import FoundTranscript, files_of, read_transcripts
from bartack_transcripts.disk.importing import import_transcript
from bartack_transcripts.formats import FORMATS, Exported, entries_of, exported
from bartack_transcripts.writing import with_call_ids, written_anew
from tests.agent.kit import counting_environment
from tests.transcripts.conversation import said
from tests.transcripts.samples import NO_SAMPLES, samples, unexpected

TARGETS = sorted(name for name, row in FORMATS.items() if row.writer is not None and row.homes)
LIBRARIES = ("pydantic-ai", "langchain", "ai-sdk", "chat-jsonl")  # formats of messages, without sessions
each_target = pytest.mark.parametrize("target", TARGETS)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEW_ID = "aaaaaaaa-1111-4111-8111-111111111111"
CLAUDE = ModelRef("anthropic", "claude-x")
GPT = ModelRef("openai", "gpt-5")
SAMPLES = [sample for sample in samples() if sample.size < 80_000]


def session(*facts: Fact) -> list[Entry]:
    header = SessionHeader(title="A title", metadata={"directory": "/code/app", "gitBranch": "main"})
    return list(next_entries("s", None, [header, *facts], counting_environment()))


def export(entries: list[Entry], target: str, **options: Any) -> Exported:
    writer = FORMATS[target].writer
    assert writer is not None
    return exported(entries, target, writer, new_id=NEW_ID, **options)


def read_back(document: Exported, target: str) -> list[Entry]:
    (transcript, *_) = FORMATS[target].read(document.files)
    assert transcript.report.problems == []
    return entries_of(transcript)


@pytest.mark.skipif(not SAMPLES, reason=NO_SAMPLES)
@each_target
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.format.name}-{sample.name[-50:]}")
def test_every_program_gets_every_text_call_and_result(sample: FoundTranscript, target: str) -> None:
    entries = entries_of(read_transcripts(sample)[0], sample.modified)
    document = export(entries, target)
    if document.is_exact:
        assert document.files.items() <= files_of(sample, unexpected).items()
    else:
        back = read_back(document, target)
        remaining = iter(said(back))  # Codex repeats after a compaction what that keeps
        summaries = [entry.fact.summary for entry in entries if isinstance(entry.fact, CompactionSummary)]
        assert all(item in remaining for item in said(entries) if item not in summaries or target != "strands")
        assert not Counter(context(entries)) - Counter(context(back))


HISTORY: tuple[Fact, ...] = (
    user("Look at this", Image("image/png", data=b"\0\0\0")),
    assistant(
        Thinking("hm", continuation=Continuation("anthropic", "claude-x", {"signature": "c2ln"})),
        "Looking.",
        ToolCall("c1", "bash", {"command": "ls"}),
        ToolCall("c|2", "bash", {"command": "pwd"}),
        meta=Meta(model=CLAUDE, finish_reason="tool_calls"),
    ),
    tool_message(ToolResult("c|2", "/work", is_error=True), ToolResult("c1", (Text("a"), Text("b")))),
    StreamFailed(error=Failed(ErrorCode.OVERLOADED, "busy", status=529), model=CLAUDE),
    user("And then?"),
    assistant("Done.", meta=Meta(model=CLAUDE, finish_reason="stop")),
)


@each_target
def test_a_session_of_bartack_can_be_continued_elsewhere(target: str) -> None:
    entries = session(*HISTORY)
    document = export(entries, target)
    assert document.id == (f"ses_{document.id[4:]}" if target == "opencode" else NEW_ID)
    assert document.id[:8] in next(iter(document.files))
    back = read_back(document, target)
    assert said(back) == said(entries)
    header = back[0].fact
    assert isinstance(header, SessionHeader)
    assert header.metadata is not None
    assert header.metadata.get("directory") == (None if target == "strands" else "/code/app")
    results = [result for entry in back if isinstance(entry.fact, Message) for result in entry.fact.tool_results]
    calls = [call for entry in back if isinstance(entry.fact, Message) for call in entry.fact.tool_calls]
    assert {part.tool_call_id for part in results} == {part.tool_call_id for part in calls}
    again = export(entries, target, directory="/elsewhere")
    assert (again.files == document.files) == (target == "strands")  # strands stores no directory


def test_thinking_goes_back_to_its_provider_only() -> None:
    entries = session(*HISTORY)
    claude_lines = [json.loads(line) for line in next(iter(export(entries, "claude-code").files.values())).splitlines()]
    assert claude_lines[1]["message"]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert claude_lines[1]["message"]["model"] == "claude-x"
    document = export(entries, "codex")
    assert b"c2ln" not in next(iter(document.files.values()))
    assert "thinking" in [loss.what for loss in document.losses]
    assert b"c2ln" in next(iter(export(entries, "pi").files.values()))


def test_reasoning_of_the_responses_api_goes_to_codex_and_pi() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
    lines = [{"type": "turn_context", "payload": {"model": "gpt-5"}}]
    lines += [{"type": "response_item", "payload": payload} for payload in (item, answer)]
    data = b"".join(json.dumps({**line, "timestamp": "2026-01-01T00:00:00Z"}).encode() + b"\n" for line in lines)
    message = next(
        entry.fact for entry in entries_of(FORMATS["codex"].read({"x.jsonl": data})[0]) if entry.fact.kind == "message"
    )
    for target in ("codex", "pi"):
        document = export(session(ModelChange(model=GPT), user("?"), message), target)
        assert b"gAAA" in next(iter(document.files.values()))
        parts = [part for entry in read_back(document, target) for part in getattr(entry.fact, "parts", ())]
        assert "gAAA" in repr([part for part in parts if isinstance(part, Thinking)])


@each_target
def test_a_compaction_keeps_what_follows_its_first_entry(target: str) -> None:
    before = session(user("one"), assistant("1", meta=Meta(model=CLAUDE)), user("two"))
    facts = [entry.fact for entry in before[1:]]
    compacted = session(*facts, CompactionSummary(summary="so far", first_kept_entry_id=before[3].id), user("three"))
    back = read_back(export(compacted, target), target)
    summary = next(entry.fact for entry in back if isinstance(entry.fact, CompactionSummary))
    assert summary.summary == "so far"
    texts = [text for text in said(back) if text != "so far"]
    assert (texts[0], texts[-1]) == ("one", "three")
    alone = session(*facts, CompactionSummary(summary="so far", first_kept_entry_id="unknown"), user("three"))
    assert "three" in said(read_back(export(alone, target), target))[-2:]


@each_target
def test_what_a_program_cannot_read_is_left_out_and_listed(target: str) -> None:
    searched = ToolCall("s1", "web_search", {}, executed_by="provider")
    call = assistant(searched, "Found.", meta=Meta(model=CLAUDE))
    document = export(session(Message("system", (Text("Be brief."),)), user(FileRef("a.bin")), call), target)
    assert "system message" in [loss.what for loss in document.losses]
    assert said(read_back(document, target))[-1] == "Found."


HAVE_TITLES = ("claude-code", "kode", "pi", "qwen", "gemini", "opencode")


@each_target
async def test_a_session_that_was_continued_here_keeps_its_records(target: str) -> None:
    original = export(session(*HISTORY), target)
    store = MemoryStore()
    (transcript, *_) = FORMATS[target].read(original.files)
    await import_transcript(store, transcript, datetime(2026, 1, 1, tzinfo=UTC))
    await rename(store, transcript.session_id, "Another title")
    await adopt(store, transcript.session_id)
    agent = Agent(ScriptedModel(["Of course."]), store=store)
    await agent.run("Can you go on?", session=transcript.session_id)
    entries = list(await store.entries(transcript.session_id))
    document = export(entries, target)
    (name, data) = next(iter(original.files.items()))
    assert not document.is_exact
    back = read_back(document, target)
    assert said(back)[-2:] == ["Can you go on?", "Of course."]
    assert len(heads(back)) == 1
    assert (title_in(back) == "Another title") == (target in HAVE_TITLES)
    writer = FORMATS[target].writer
    assert writer is not None
    if writer.joined is written_anew:
        return  # it is rewritten
    assert document.id == NEW_ID
    assert document.files[name].startswith(data)
    moved = export(entries, target, may_keep_id=False)
    assert moved.files.keys() == {name}  # the new id is the same as the old one in this test
    elsewhere = exported(entries, target, writer, new_id="b" + NEW_ID[1:], may_keep_id=False)
    assert NEW_ID not in repr(elsewhere.files).replace(transcript.session_id, "")  # except that it names its origin
    assert said(read_back(elsewhere, target)) == said(back)


def context(entries: list[Entry]) -> list[str]:
    """The texts that a model would get of the newest branch."""
    fold = ContextFold.of(branch(entries, entries[-1].id))
    parts = [part for item in fold.items if item.message.role != "system" for part in item.message.parts]
    texts = (part.text for part in parts if isinstance(part, Text) and not part.ignored and part.text)
    return [text.removeprefix("\u200b") for text in texts]


@pytest.mark.parametrize("target", [*TARGETS, "strands"])
def test_a_compaction_keeps_what_follows_the_entry_that_it_names_whatever_that_is(target: str) -> None:
    facts = (user("one"), assistant("1"), ModelChange(model=GPT), user("two"), assistant("2", meta=Meta(model=GPT)))
    entries = session(*facts)
    for first_kept in entries[1:]:
        compacted = [
            *entries,
            *new_entries(
                entries, CompactionSummary(summary="so far", first_kept_entry_id=first_kept.id), user("three")
            ),
        ]
        assert context(read_back(export(compacted, target), target)) == context(compacted)


@each_target
def test_a_compaction_of_an_imported_session_keeps_its_messages(target: str) -> None:
    original = export(session(user("one"), assistant("1", meta=Meta(model=CLAUDE)), user("two")), target)
    entries = read_back(original, target)
    first_kept = next(entry for entry in entries if isinstance(entry.fact, Message) and entry.fact.text == "two")
    entries += new_entries(
        entries, CompactionSummary(summary="so far", first_kept_entry_id=first_kept.id), user("three")
    )
    assert context(entries) == ["two", "three"]
    assert context(read_back(export(entries, target), target)) == ["two", "three"]


def new_entries(entries: list[Entry], *facts: Fact) -> list[Entry]:
    last = entries[-1]
    return list(next_entries(last.session_id, Tail(last.id, last.seq), facts, Environment()))


@each_target
async def test_redacted_content_is_not_exported(target: str) -> None:
    original = export(session(user("the secret"), assistant("Yes.", meta=Meta(model=CLAUDE))), target)
    store = MemoryStore()
    (transcript, *_) = FORMATS[target].read(original.files)
    await import_transcript(store, transcript, datetime(2026, 1, 1, tzinfo=UTC))
    entries = await store.entries(transcript.session_id)
    secret = next(entry for entry in entries if isinstance(entry.fact, Message) and entry.fact.role == "user")
    await redact(store, transcript.session_id, secret.id)
    document = export(list(await store.entries(transcript.session_id)), target)
    assert not document.is_exact
    assert b"secret" not in b"".join(document.files.values())
    assert said(read_back(document, target))[-1] == "Yes."


def test_call_ids_that_a_program_refuses_get_others_that_are_not_used() -> None:
    ids = ("a_b", "a b", "a.b", "!")
    calls = [Message("assistant", (ToolCall(id, "f", {}),)) for id in ids]
    results = [Message("tool", (ToolResult(id, "ok"),)) for id in ids]
    renamed = with_call_ids([*calls, *results], r"[a-z_0-9]+")
    names = [call.tool_call_id for message in renamed for call in message.tool_calls]
    assert names == ["a_b", "a_b_1", "a_b_2", "_"]
    assert [result.tool_call_id for message in renamed for result in message.tool_results] == names


@each_target
def test_the_summary_of_another_branch_is_exported(target: str) -> None:
    branch_left = session(user("Hi"), assistant("Hello."), user("Left"))
    tail = Tail(branch_left[2].id, branch_left[-1].seq)
    facts: list[Fact] = [BranchSummary(summary="They left.", from_entry_id=branch_left[-1].id), user("And now?")]
    entries = [*branch_left, *next_entries("s", tail, facts, Environment())]
    context = ContextFold.of(branch(read := read_back(export(entries, target), target), read[-1].id))
    assert [item.message.text.splitlines()[-1] for item in context.items] == ["Hi", "Hello.", "They left.", "And now?"]


def branched(agent: str) -> bytes:
    """A file with a prompt, an answer, and two different continuations after it."""
    said_and_parents = [("user", "p", None), ("assistant", "a", 0), ("user", "p1", 1), ("assistant", "a1", 2)]
    said_and_parents += [("user", "p2", 1), ("assistant", "a2", 4)]
    lines: list[dict[str, Any]] = [] if agent == "claude-code" else [{"type": "session", "version": 3, "id": NEW_ID}]
    for number, (role, text, parent) in enumerate(said_and_parents):
        message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}], "model": "m"}
        common = {"timestamp": f"2026-01-01T00:00:{number:02}Z", "message": message}
        above = None if parent is None else f"e{parent}"
        if agent == "claude-code":
            message["id"] = f"m{number}"
            lines.append({"type": role, "uuid": f"e{number}", "parentUuid": above, "sessionId": NEW_ID, **common})
            lines.append({"type": "mode", "mode": text})
        else:
            message |= {"provider": "anthropic", "api": "anthropic-messages", "stopReason": "stop"}
            lines.append({"type": "message", "id": f"e{number}", "parentId": above, **common})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.mark.parametrize("agent", ["claude-code", "pi"])
def test_a_branch_is_exported_by_the_id_of_any_of_its_messages(agent: str) -> None:
    """A message's records come after it, and are part of its branch."""
    (transcript,) = FORMATS[agent].read({"x.jsonl": branched(agent)})
    entries = entries_of(transcript)
    by_text = {entry.fact.text: entry.id for entry in entries if isinstance(entry.fact, Message)}
    branches = {"p": ["p"], "a": ["p", "a"], "p1": ["p", "a", "p1"], "a1": ["p", "a", "p1", "a1"]}
    branches |= {"p2": ["p", "a", "p2"], "a2": ["p", "a", "p2", "a2"]}
    for text, expected in branches.items():
        for target in (agent, "codex"):
            document = export(entries, target, head=by_text[text])
            assert said(read_back(document, target)) == expected
    assert export(entries, agent, head=by_text["a2"]).is_exact


def test_codex_lists_a_session_without_a_typed_prompt() -> None:
    """It lists only sessions with an event about a prompt."""
    facts = Message("user", (Text("<command-name>/init</command-name>", synthetic=True),)), assistant(Text("Done."))
    for entries, expected in ((session(*facts), "A title"), (session(*facts)[:1], "A title")):
        lines = [json.loads(line) for line in next(iter(export(entries, "codex").files.values())).splitlines()]
        prompts = [line["payload"]["message"] for line in lines if line["payload"].get("type") == "user_message"]
        assert prompts == [expected]
    untitled = [replace(entry, fact=SessionHeader()) if entry.seq == 1 else entry for entry in session(*facts)]
    assert b'"message":"<command-name>/init' in next(iter(export(untitled, "codex").files.values()))
    assert b'"message":"Imported session"' in next(iter(export(untitled[:1], "codex").files.values()))


def test_an_id_that_is_a_word_is_not_replaced_in_texts() -> None:
    data = json.dumps([{"type": "human", "data": {"content": "trip"}}]).encode()
    entries = entries_of(FORMATS["langchain"].read({"trip.json": data})[0], NOW)
    assert export(entries, "langchain", may_keep_id=False).files == {f"{NEW_ID}.json": data}
    message = {"message": {"role": "user", "content": [{"text": "Plan a trip."}]}, "message_id": 0}
    files = {
        "session.json": b'{"session_id": "trip", "session_type": "AGENT"}',
        "agents/agent_a/agent.json": b'{"agent_id": "a", "state": {}}',
        "agents/agent_a/messages/message_0.json": json.dumps(message).encode(),
    }
    strands = entries_of(FORMATS["strands"].read(files)[0], NOW)
    written = b"".join(export(strands, "strands", may_keep_id=False).files.values())
    assert b"Plan a trip." in written
    assert f'"session_id": "{NEW_ID}"'.encode() in written
