"""Tasks of Cline, Roo Code and Kilo Code."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack_transcripts.disk.files import find_transcripts, found_at, read_transcripts
from bartack_transcripts.formats import FORMATS
from tests.transcripts.samples import unexpected

HISTORY: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "<task>\nFix the test.\n</task>"},
            {"type": "text", "text": "<environment_details>\n# Time\n</environment_details>"},
        ],
        "ts": 1767225600000,
    },
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I will look."},
            {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x = 1"}]},
    {"role": "assistant", "type": "reasoning", "summary": [], "encrypted_content": "abc"},
    {"type": "reasoning", "summary": []},
]


@pytest.mark.parametrize(
    ("agent", "extension"),
    [("cline", "saoudrizwan.claude-dev"), ("roo", "rooveterinaryinc.roo-cline"), ("kilo", "kilocode.kilo-code")],
)
def test_the_tasks_of_an_extension_are_found_and_read(
    agent: str, extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".config/Code/User/globalStorage" / extension / "tasks"
    for task, history in (("1", HISTORY), ("2", [{"role": "user", "content": "Another task."}])):
        (folder / task).mkdir(parents=True)
        (folder / task / "api_conversation_history.json").write_text(json.dumps(history))
        (folder / task / "ui_messages.json").write_text("[]")
    first, second = find_transcripts([], unexpected)
    (transcript,) = read_transcripts(first)
    assert (transcript.agent, transcript.header.title) == (agent, "Fix the test.")
    messages = [fact for step in transcript.steps for fact in step.facts if isinstance(fact, Message)]
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert messages[1].parts == (Text("I will look."), ToolCall("toolu_1", "read_file", {"path": "a.py"}))
    assert messages[2].parts == (ToolResult("toolu_1", "x = 1"),)
    assert messages[0].timestamp is not None
    (other,) = read_transcripts(second)
    assert other.header.title == "Another task."
    assert other.session_id != transcript.session_id
    assert found_at(first.path).format.name == "cline"  # only the folder tells them apart


def test_other_lists_of_messages_are_not_tasks() -> None:
    head = json.dumps(HISTORY).encode()
    assert FORMATS["cline"].looks_like("api_conversation_history.json", head)
    assert not FORMATS["cline"].looks_like("messages.json", head)
