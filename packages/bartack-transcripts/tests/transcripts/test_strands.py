"""What the reader makes of the folders of strands-agents."""

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bartack.nouns.entries import Fact, branch
from bartack.nouns.messages import Message
from bartack.nouns.parts import Image, Text, Thinking
from bartack.session.context.fold import ContextFold
from bartack_transcripts.disk.files import found_at, read_transcripts
from bartack_transcripts.formats import Outgoing, entries_of, exported, source_files
from bartack_transcripts.strands import STRANDS_WRITER, read_strands

Json = dict[str, Any]
FOLDER = "agents/agent_default"


def message(role: str, *content: Json, **fields: Any) -> bytes:
    body = {"message": {"role": role, "content": list(content), **fields}, "message_id": 0}
    return json.dumps(body | {"created_at": "2026-01-01T00:00:00+00:00"}).encode()


def session(*messages: bytes, manager: Json | None = None) -> dict[str, bytes]:
    """The files of a session, in the order of their names, in which 10 comes before 2."""
    files = {
        "session.json": json.dumps({"session_id": "s1", "session_type": "AGENT"}).encode(),
        f"{FOLDER}/agent.json": json.dumps({"agent_id": "default", "conversation_manager_state": manager}).encode(),
    }
    files |= {f"{FOLDER}/messages/message_{number}.json": data for number, data in enumerate(messages)}
    return dict(sorted(files.items()))


def facts_of(files: dict[str, bytes]) -> list[Fact]:
    entries = entries_of(read_strands(files)[0])
    return [entry.fact for entry in branch(entries, entries[-1].id)[1:] if entry.fact.kind != "custom"]


def messages_of(files: dict[str, bytes]) -> list[Message]:
    return [fact for fact in facts_of(files) if isinstance(fact, Message)]


def test_messages_are_in_the_order_of_their_numbers() -> None:
    files = session(*(message("user", {"text": f"{number}"}) for number in range(12)))
    assert [read_message.text for read_message in messages_of(files)] == [f"{number}" for number in range(12)]
    assert source_files(entries_of(read_strands(files)[0])) == files


def test_calls_results_images_and_reasoning_are_read() -> None:
    image = {"image": {"format": "png", "source": {"bytes": {"__bytes_encoded__": True, "data": "AAAA"}}}}
    reasoning = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
    call = {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}}
    outcome = {"toolResult": {"toolUseId": "c1", "status": "error", "content": [{"text": "no"}]}}
    usage = {"usage": {"inputTokens": 100, "outputTokens": 5, "totalTokens": 105, "cacheReadInputTokens": 60}}
    files = session(
        message("user", {"text": "look"}, image),
        message("assistant", reasoning, {"text": "Adding."}, call, metadata=usage),
        message("user", outcome),
    )
    prompt, answer, result = messages_of(files)
    assert isinstance(prompt.parts[1], Image)
    assert isinstance(answer.parts[0], Thinking)
    assert "c2ln" in repr(answer.parts[0].continuation)
    assert answer.meta is not None
    assert answer.meta.usage is not None
    assert (answer.meta.usage.input_tokens, answer.meta.usage.cache_read_tokens) == (100, 60)
    assert result.tool_results[0].is_error


def test_messages_that_are_no_longer_sent_are_compacted() -> None:
    prompts = [message("user", {"text": name}) for name in ("one", "two", "three")]
    summary = {"role": "user", "content": [{"text": "so far"}]}
    for manager, count, text in (
        ({"summary_message": summary}, 2, "so far"),
        ({}, 2, "Earlier messages"),
        ({"summary_message": summary}, 0, "so far"),
        ({"summary_message": summary}, 3, "so far"),
    ):
        entries = entries_of(read_strands(session(*prompts, manager={**manager, "removed_message_count": count}))[0])
        context = ContextFold.of(entries)
        assert context.summary is not None
        assert text in context.summary.text
        assert [item.message.text for item in context.items] == ["one", "two", "three"][count:]


def test_a_message_after_a_compaction_is_not_joined_with_one_that_is_no_longer_sent() -> None:
    facts = session(message("user", {"text": "one"}), manager={"removed_message_count": 1})
    entries = entries_of(read_strands(facts)[0])
    last = entries[-2]
    prompt = Message("user", (Text("two"),), id="m", timestamp=last.timestamp)
    entries.append(replace(last, id="m", parent_id=entries[-1].id, seq=len(entries) + 1, fact=prompt))
    export = exported(entries, "strands", STRANDS_WRITER, new_id="n")
    context = ContextFold.of(entries_of(read_strands(export.files)[0]))
    assert [item.message.text for item in context.items] == ["two"]


def test_a_redacted_message_replaces_the_original() -> None:
    body = json.loads(message("user", {"text": "secret"}))
    body["redact_message"] = {"role": "user", "content": [{"text": "[removed]"}]}
    assert [read_message.text for read_message in messages_of(session(json.dumps(body).encode()))] == ["[removed]"]


def test_each_agent_of_a_session_is_a_session() -> None:
    files = session(message("user", {"text": "one"}))
    files["agents/agent_other/messages/message_0.json"] = message("user", {"text": "two"})
    first, second = read_strands(files)
    assert (first.session_id, second.session_id) == ("strands:s1", "strands:s1/other")
    assert source_files(entries_of(first)) | source_files(entries_of(second)) == files


def test_a_folder_and_a_snapshot_are_recognised(tmp_path: Path) -> None:
    for name, data in session(message("user", {"text": "hi"}), b"{broken").items():
        path = tmp_path / "session_s1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    source = found_at(tmp_path / "session_s1")
    (transcript,) = read_transcripts(source)
    assert (source.format.name, transcript.session_id, transcript.header.title) == ("strands", "strands:s1", "hi")
    assert len(transcript.report.problems) == 1
    snapshot = {
        "scope": "agent",
        "schema_version": "1.0",
        "data": {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
    }
    path = tmp_path / "snap.json"
    path.write_text(json.dumps(snapshot))
    (transcript,) = read_transcripts(found_at(path))
    assert not transcript.has_own_id
    assert source_files(entries_of(transcript)) == {"snap.json": path.read_bytes()}


def test_an_export_is_the_folder_that_its_program_looks_for() -> None:
    files = session(message("user", {"text": "one"}))
    export = exported(entries_of(read_strands(files)[0]), "strands", STRANDS_WRITER, new_id="n")
    assert export.is_exact
    assert export.files == {f"session_s1/{name}": data for name, data in files.items()}
    renamed = exported(entries_of(read_strands(files)[0]), "strands", STRANDS_WRITER, new_id="n", may_keep_id=False)
    assert {name.partition("/")[0] for name in renamed.files} == {"session_n"}
    files["session.json"] = json.dumps({"session_id": "../../x", "session_type": "AGENT"}).encode()
    hostile = exported(entries_of(read_strands(files)[0]), "strands", STRANDS_WRITER, new_id="n")
    assert {name.partition("/")[0] for name in hostile.files} == {"session_.._.._x"}


def test_every_result_that_is_written_has_a_status() -> None:
    call = {"toolUse": {"toolUseId": "c1", "name": "add", "input": {}}}
    result = {"toolResult": {"toolUseId": "c1", "content": [{"text": "3"}]}}
    entries = entries_of(read_strands(session(message("assistant", call), message("user", result)))[0])
    document = STRANDS_WRITER.write(Outgoing("n", tuple(entries), entries[0].timestamp, "/"))
    last = json.loads(document.other_files["session_n/agents/agent_default/messages/message_1.json"])
    assert last["message"]["content"][0]["toolResult"]["status"] == "success"
