"""Sessions of Copilot CLI."""

import json
from pathlib import Path
from typing import Any

from bartack.nouns.entries import CompactionSummary, Fact, ModelChange, RunEnded, StreamFailed
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import FileRef, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.disk.files import find_transcripts, found_at, read_transcripts
from bartack_transcripts.formats import FORMATS, Transcript
from tests.transcripts.samples import unexpected

CONTEXT = {"cwd": "/srv/app", "branch": "main"}
START = ("session.start", {"sessionId": "5b0c", "version": 1, "copilotVersion": "1.0.2", "context": CONTEXT})


def lines(*events: tuple[str, dict[str, Any]]) -> bytes:
    records = [
        {"type": kind, "data": data, "id": str(number), "parentId": str(number - 1) if number else None}
        for number, (kind, data) in enumerate(events)
    ]
    return "".join(json.dumps({**record, "timestamp": "2026-01-01T00:00:00Z"}) + "\n" for record in records).encode()


def read(*events: tuple[str, dict[str, Any]]) -> Transcript:
    (transcript,) = FORMATS["copilot"].read({"5b0c/events.jsonl": lines(START, *events)})
    return transcript


def facts(transcript: Transcript) -> list[Fact]:
    return [fact for step in transcript.steps for fact in step.facts]


def test_a_session_is_found_and_read_with_calls_results_and_thinking(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / ".copilot" / "session-state" / "5b0c"
    place.mkdir(parents=True)
    request = {"toolCallId": "c1", "name": "bash", "arguments": {"command": "ls"}, "type": "function"}
    answer = {"messageId": "m", "content": "", "reasoningText": "Look.", "toolRequests": [request], "outputTokens": 7}
    result = {"toolCallId": "c1", "success": False, "error": {"message": "not found"}, "model": "gpt-5"}
    (place / "events.jsonl").write_bytes(
        lines(
            START,
            ("session.model_change", {"newModel": "gpt-5"}),
            ("user.message", {"content": "List the files.", "attachments": [{"type": "file", "path": "/srv/a.txt"}]}),
            ("assistant.turn_start", {"turnId": "0"}),
            ("assistant.message", answer),
            ("assistant.message", {"messageId": "n", "content": "inner", "parentToolCallId": "c1"}),
            ("tool.execution_complete", result),
            ("assistant.message", {"messageId": "o", "content": "There are none.", "model": "gpt-5"}),
        )
    )
    (source,) = find_transcripts(["copilot"], unexpected)
    assert source.path == found_at(source.path).path
    (transcript,) = read_transcripts(source)
    header = transcript.header
    assert (transcript.session_id, header.title, header.origin) == ("copilot:5b0c", "List the files.", "copilot")
    assert header.metadata == {"program": "copilot", "directory": "/srv/app", "gitBranch": "main", "version": "1.0.2"}
    change, *messages = facts(transcript)
    assert change == ModelChange(model=ModelRef("github-copilot", "gpt-5"))
    assert [message.parts for message in messages if isinstance(message, Message)] == [
        (Text("List the files."), FileRef("/srv/a.txt")),
        (Thinking("Look."), ToolCall("c1", "bash", {"command": "ls"})),
        (ToolResult("c1", "not found", is_error=True),),
        (Text("There are none."),),
    ]
    assert isinstance(messages[1], Message)
    assert messages[1].meta is not None
    assert messages[1].meta.usage is not None
    assert messages[1].meta.usage.output_tokens == 7


def test_compactions_errors_aborts_titles_and_injected_prompts_are_read() -> None:
    transcript = read(
        ("session.title_changed", {"title": "A title"}),
        ("user.message", {"content": "Use the skill.", "source": "skill-pdf"}),
        ("session.error", {"errorType": "rate_limit", "message": "slow down", "statusCode": 429}),
        ("abort", {"reason": "user_initiated"}),
        ("session.compaction_complete", {"success": True, "summaryContent": "They talked.", "preCompactionTokens": 9}),
        ("session.compaction_complete", {"success": False, "error": "no"}),
    )
    assert transcript.header.title == "A title"
    prompt, failed, ended, compaction = facts(transcript)
    assert isinstance(prompt, Message)
    assert prompt.parts == (Text("Use the skill.", synthetic=True),)
    assert isinstance(failed, StreamFailed)
    assert (failed.error.error_code, failed.error.status) == (ErrorCode.RATE_LIMITED, 429)
    assert ended == RunEnded(status="aborted", reason="user")
    assert compaction == CompactionSummary(summary="They talked.", first_kept_entry_id="", tokens_before=9)


def test_a_rewound_session_has_a_branch() -> None:
    data = lines(START, ("user.message", {"content": "a"}), ("user.message", {"content": "b"}))
    data += data.splitlines(keepends=True)[2].replace(b'"id": "2"', b'"id": "3"').replace(b'"b"', b'"c"')
    (transcript,) = FORMATS["copilot"].read({"events.jsonl": data})
    assert [step.parent for step in transcript.steps] == [None, None, None, 1]


def test_a_call_that_an_answer_repeats_is_read_once() -> None:
    request = {"toolCallId": "c1", "name": "bash", "arguments": {"command": "ls"}}
    data = lines(START, ("assistant.message", {"content": "Look.", "toolRequests": [request, request]}))
    (transcript,) = FORMATS["copilot"].read({"events.jsonl": data})
    messages = [fact for step in transcript.steps for fact in step.facts if isinstance(fact, Message)]
    assert [call.tool_call_id for message in messages for call in message.tool_calls] == ["c1"]
