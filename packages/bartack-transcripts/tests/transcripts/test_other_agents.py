"""Threads of Amp, transcripts of Cursor, and trajectories of SWE-agent."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.disk.files import find_transcripts, read_transcripts
from bartack_transcripts.formats import FORMATS, Transcript, recognised_format
from tests.transcripts.samples import NO_SAMPLES, samples, unexpected

THREAD: dict[str, Any] = {
    "v": 3,
    "id": "T-5b0c",
    "created": 1767225600000,
    "messages": [
        {
            "role": "user",
            "messageId": 0,
            "content": [{"type": "text", "text": "Fix the test."}],
            "meta": {"sentAt": 1767225600000},
        },
        {
            "role": "assistant",
            "messageId": 1,
            "content": [
                {"type": "thinking", "thinking": "Read it first."},
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a.py"}},
                {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"cmd": "ls"}},
            ],
            "usage": {"model": "claude-x", "inputTokens": 9, "outputTokens": 3, "cacheReadInputTokens": 100},
        },
        {
            "role": "user",
            "messageId": 2,
            "content": [
                {
                    "type": "tool_result",
                    "toolUseID": "toolu_1",
                    "run": {"status": "done", "result": {"content": "x = 1"}},
                },
                {"type": "tool_result", "toolUseID": "toolu_2", "run": {"status": "rejected-by-user"}},
                {"type": "text", "text": "Go on."},
            ],
        },
        {"role": "info", "content": [{"type": "summary", "summary": {"type": "message", "summary": "They fixed it."}}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "text": "Reading a.py"}, {"type": "text", "text": "Done."}],
        },
    ],
    "title": "A broken test",
    "env": {"initial": {"trees": [{"uri": "file:///srv/my%20app"}]}},
}


def messages_of(transcript: Transcript) -> Sequence[Message]:
    return [fact for step in transcript.steps for fact in step.facts if isinstance(fact, Message)]


def lines(*messages: Any) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def test_a_thread_of_amp_is_found_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    place = tmp_path / ".local/share/amp/threads/T-5b0c.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(THREAD))
    (source,) = find_transcripts([], unexpected)
    (transcript,) = read_transcripts(source)
    assert (transcript.session_id, transcript.header.title) == ("amp:T-5b0c", "A broken test")
    assert transcript.header.metadata == {"program": "amp", "directory": "/srv/my app"}
    prompt, answer, first, second, more, summary, last = messages_of(transcript)
    assert prompt.timestamp is not None
    assert answer.parts == (
        Thinking("Read it first."),
        ToolCall("toolu_1", "Read", {"path": "a.py"}),
        ToolCall("toolu_2", "Bash", {"cmd": "ls"}),
    )
    assert answer.meta is not None
    assert answer.meta.model == ModelRef("amp", "claude-x")
    assert answer.meta.usage is not None
    assert (answer.meta.usage.input_tokens, answer.meta.usage.cache_read_tokens) == (109, 100)
    assert first.parts == (ToolResult("toolu_1", {"content": "x = 1"}),)
    assert second.parts == (ToolResult("toolu_2", "", is_error=True),)
    assert (more.role, more.text) == ("user", "Go on.")
    assert summary.parts == (Text("They fixed it.", synthetic=True),)
    assert last.parts == (Text("Done."),)
    assert [problem.what for problem in transcript.report.problems] == [
        "content[0]: a block 'tool_use' that is not understood"
    ]


def test_exports_of_opencode_are_not_threads_of_amp() -> None:
    export = json.dumps({"info": {"id": "ses_1", "slug": "x", "time": {"created": 1}}, "messages": []}).encode()
    row = recognised_format("export.json", export)
    assert row is None or row.name == "opencode"


@pytest.mark.skipif(not samples("amp"), reason=NO_SAMPLES)
def test_the_samples_of_amp_are_read() -> None:
    edge, first = sorted(
        (read_transcripts(sample)[0] for sample in samples("amp")), key=lambda transcript: transcript.id, reverse=True
    )
    assert first.header.title == "Create a login form component"
    assert [message.role for message in messages_of(first)] == ["user", "assistant"] * 3
    assert [message.role for message in messages_of(edge)] == ["user", "user", "assistant"]


def test_a_transcript_of_cursor_is_found_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    blocks = [
        {"type": "text", "text": "I will look."},
        {"type": "tool_use", "name": "read_file", "input": {"path": "a.py"}},
        {"type": "tool_use", "id": "c2", "name": "ls", "input": {}},
    ]
    result = {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "a.py"}]}
    data = lines(
        {"role": "user", "message": {"content": [{"type": "text", "text": "<user_query>\nFix it.\n</user_query>"}]}},
        {"role": "assistant", "message": {"content": blocks}},
        {"role": "user", "message": {"content": [result]}},
    )
    place = tmp_path / ".cursor/projects/srv-app/agent-transcripts/5b0c/5b0c.jsonl"
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    (source,) = find_transcripts([], unexpected)
    (transcript,) = read_transcripts(source)
    assert (transcript.agent, transcript.header.title, transcript.has_own_id) == ("cursor", "Fix it.", False)
    _, answer, output = messages_of(transcript)
    assert answer.parts == (
        Text("I will look."),
        ToolCall("1-1", "read_file", {"path": "a.py"}),
        ToolCall("c2", "ls", {}),
    )
    assert output.parts == (ToolResult("c2", "a.py"),)
    assert recognised_format("x.jsonl", lines({"role": "user", "content": "Hi"})) is FORMATS["chat-jsonl"]


CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}


@pytest.mark.parametrize(
    ("name", "key", "result"),
    [
        ("run.traj", "history", {"tool_call_ids": ["c1"], "agent": "main", "message_type": "observation"}),
        ("run.traj.json", "messages", {"tool_call_id": "c1", "extra": {"returncode": 0}}),
    ],
)
def test_a_trajectory_of_swe_agent_is_read(name: str, key: str, result: dict[str, Any]) -> None:
    history = [
        {"role": "system", "content": "You fix bugs."},
        {"role": "user", "content": [{"type": "text", "text": "Fix the test."}]},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL], "thought": "x"},
        {"role": "tool", "content": "a.py", **result},
    ]
    steps = [{"action": "ls", "observation": "a.py", "messages": [{"role": "user"}]}]
    data = json.dumps({"trajectory": steps, key: history, "info": {"exit_status": "submitted"}}).encode()
    row = recognised_format(name, data)
    assert row is not None
    (transcript,) = row.read({name: data})
    assert (transcript.agent, transcript.header.title) == ("swe-agent", "Fix the test.")
    system, prompt, answer, output = messages_of(transcript)
    assert (system.role, prompt.text) == ("system", "Fix the test.")
    assert answer.parts == (Text("Let me look."), ToolCall("c1", "bash", {"command": "ls"}))
    assert output.parts == (ToolResult("c1", "a.py"),)
