"""Message Part Abstraction (003): its interfaces, written out with values, load and dump unchanged."""

from typing import Any

import pytest

import bartack
from bartack import Message, MessageAssembler, PartValidationError
from bartack.nouns.errors import InvalidStateTransition, StreamError
from bartack.nouns.tables import AGENT, TOOL, AgentStatus, ToolStatus, advance
from bartack.nouns.tool_states import Completed, Errored, Pending, Running, ToolState
from bartack.views import document
from bartack.views.document import DOCUMENT
from bartack.views.document_parts import AssistantInfo, DocumentPart, FilePart, StepFinishPart, UserInfo, WithParts

BASE = {
    "id": "0198c0de-0000-7000-8000-00000000000a",
    "sessionID": "0198c0de-0000-7000-8000-000000000001",
    "messageID": "0198c0de-0000-7000-8000-000000000002",
}
TOKENS = {"input": 20, "output": 7, "reasoning": 3, "cache": {"read": 5, "write": 0}}
FILE: dict[str, Any] = {
    "type": "file",
    **BASE,
    "mime": "text/x-python",
    "url": "file://a.py",
    "filename": "a.py",
    "source": {"type": "file", "path": "a.py"},
}
STATES: list[dict[str, Any]] = [
    {"status": "pending", "input": {"city": "Paris"}, "raw": '{"city": "Paris"}'},
    {
        "status": "running",
        "input": {"city": "Paris"},
        "title": "Weather",
        "metadata": {"percent": 50},
        "time": {"start": 1767323045000},
    },
    {
        "status": "completed",
        "input": {"city": "Paris"},
        "output": "rain",
        "title": "Weather",
        "metadata": {},
        "time": {"start": 1767323045000, "end": 1767323046000, "compacted": 1767323047000},
        "attachments": [FILE],
    },
    {
        "status": "error",
        "input": {"city": "Paris"},
        "error": "no such city",
        "metadata": {"tries": 2},
        "time": {"start": 1767323045000, "end": 1767323046000},
    },
]
PARTS: list[dict[str, Any]] = [
    {
        "type": "text",
        **BASE,
        "text": "hi",
        "synthetic": True,
        "ignored": True,
        "time": {"start": 1767323045000, "end": 1767323046000},
        "metadata": {"a": 1},
    },
    {"type": "reasoning", **BASE, "text": "hm", "metadata": {"a": 1}, "time": {"start": 1767323045000}},
    {"type": "tool", **BASE, "callID": "c1", "tool": "weather", "state": STATES[0], "metadata": {"a": 1}},
    {"type": "step-start", **BASE, "snapshot": "a1"},
    {"type": "step-finish", **BASE, "reason": "stop", "snapshot": "b2", "cost": 0.25, "tokens": TOKENS},
    FILE,
]
USER: dict[str, Any] = {
    "role": "user",
    "id": BASE["messageID"],
    "time": {"created": 1767323045000},
    "summary": {"title": "Rain", "body": "About rain", "diffs": [{"file": "a.py"}]},
    "agent": "main",
    "model": {"providerID": "openai", "modelID": "gpt"},
    "system": "Be brief.",
    "tools": {"weather": True},
    "variant": "b",
}
ASSISTANT: dict[str, Any] = {
    "role": "assistant",
    "id": BASE["messageID"],
    "time": {"created": 1767323045000, "completed": 1767323046000},
    "cost": 0.25,
    "tokens": TOKENS,
    "agent": "main",
    "path": {"cwd": "src", "root": "."},
}


@pytest.mark.parametrize("shape", PARTS, ids=lambda shape: shape["type"])
def test_a_part_loads_and_dumps_unchanged(shape: dict[str, Any]) -> None:
    """003-3.2.1, 003-3.3.1, 003-3.5.1, 003-3.6.1, 003-3.6.2, 003-3.7.1, 003-BR-03"""
    part = DOCUMENT.load(DocumentPart, shape)
    assert part.extra is None  # every key is a field
    assert DOCUMENT.dump(part) == shape


@pytest.mark.parametrize(
    ("shape", "cls"), list(zip(STATES, (Pending, Running, Completed, Errored), strict=True)), ids=lambda x: str(x)[:20]
)
def test_a_tool_state_loads_and_dumps_unchanged(shape: dict[str, Any], cls: type[ToolState]) -> None:
    """003-3.4.1, 003-3.4.2, 003-3.4.3, 003-3.4.4, 003-3.4.5"""
    state = DOCUMENT.load(ToolState, shape)
    assert isinstance(state, cls)
    assert state.extra is None
    assert DOCUMENT.dump(state) == shape


def test_a_tool_state_without_a_required_field_is_rejected() -> None:
    """003-3.4.2, 003-3.4.3, 003-3.4.4, 003-3.4.5"""
    optional = {"running": {"title", "metadata"}, "completed": {"attachments"}, "error": {"metadata"}}
    for shape in STATES:
        for field in shape.keys() - optional.get(shape["status"], set()):
            with pytest.raises(PartValidationError):
                DOCUMENT.load(ToolState, {key: value for key, value in shape.items() if key != field})


@pytest.mark.parametrize(("info", "cls"), [(USER, UserInfo), (ASSISTANT, AssistantInfo)], ids=["user", "assistant"])
def test_with_parts_loads_and_dumps_unchanged(info: dict[str, Any], cls: type[Any]) -> None:
    """003-3.8.1, 003-3.8.2, 003-3.9.1, 003-3.9.2, 003-3.9.3"""
    shape = {"info": info, "parts": PARTS}
    message = DOCUMENT.load(WithParts, shape)
    assert isinstance(message.info, cls)
    assert message.info.extra is message.info.time.extra is None
    assert DOCUMENT.dump(message) == shape


def test_a_whole_document_loads_into_facts_and_dumps_unchanged() -> None:
    """003-3.9.4, D-7.6, 003-7.1.5"""
    places = [{**part, "id": f"{BASE['id'][:-1]}{n}"} for n, part in enumerate(PARTS)]
    step = [
        places[3],
        places[1],
        places[0],
        {**places[2], "state": {**STATES[2], "attachments": [{**FILE, "id": "f"}]}},
    ]
    message = {"info": ASSISTANT, "parts": [*step, places[4]]}
    view = {"view": "document", "sessionID": BASE["sessionID"], "omitted": {}, "messages": [message]}
    assert document.dump(document.load(view))["messages"] == [message]


def test_a_part_of_an_unknown_type_is_rejected() -> None:
    """003-BR-03"""
    with pytest.raises(PartValidationError, match="unknown type"):
        DOCUMENT.load(DocumentPart, {**PARTS[0], "type": "dream"})


def test_a_file_part_always_has_a_url() -> None:
    """003-3.7.1"""
    with pytest.raises(PartValidationError):
        DOCUMENT.load(FilePart, {key: value for key, value in FILE.items() if key != "url"})


def test_a_cost_is_a_number() -> None:
    """003-3.6.2"""
    with pytest.raises(PartValidationError) as caught:
        DOCUMENT.load(StepFinishPart, {**PARTS[4], "cost": "free"})
    assert caught.value.path == "$.cost"


def test_an_invalid_transition_lists_the_valid_ones() -> None:
    """003-6.2.1, 003-6.1.2"""
    with pytest.raises(InvalidStateTransition) as caught:
        advance(TOOL, ToolStatus.COMPLETED, "start")
    assert caught.value.name == "InvalidStateTransition"
    assert caught.value.message == "'start' is not valid in state 'completed'; valid: complete"
    assert caught.value.details == {
        "currentStatus": "completed",
        "attemptedStatus": "running",
        "validTransitions": ["completed"],
    }


def test_a_missing_decision_does_not_block_a_run_forever() -> None:
    """D-7.11"""
    assert advance(AGENT, AgentStatus.AWAITING_HUMAN, "fail") is AgentStatus.FAILED
    assert advance(AGENT, AgentStatus.AWAITING_HUMAN, "abort") is AgentStatus.ABORTED


def test_the_assembler_is_a_public_class_and_messages_have_ids() -> None:
    """D-7.1, D-7.7"""
    assert "MessageAssembler" in bartack.__all__
    assembler = MessageAssembler(message_id="m1")
    snapshot = assembler.snapshot()
    assert isinstance(snapshot, Message)
    assert snapshot.id == "m1"
    with pytest.raises(StreamError):
        assembler.build_final_message()
