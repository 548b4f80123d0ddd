"""`UIMessageAssembler` refuses what a client refuses, and more. What it assembles is compared with npm's elsewhere."""

from typing import Any

import pytest

from bartack.nouns.errors import PartValidationError
from bartack.protocols.ai_sdk import Version
from bartack.protocols.ai_sdk_assembler import UIMessageAssembler


def assembled(*chunks: dict[str, Any], version: Version = 7) -> UIMessageAssembler:
    assembler = UIMessageAssembler(version)
    for chunk in chunks:
        assembler.add(chunk)
    return assembler


def chunk(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": type, **fields}


START = chunk("tool-input-start", toolCallId="c1", toolName="look")
OPEN = chunk("text-start", id="t")


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([chunk("finish"), chunk("start")], "start after the end"),
        ([chunk("text-delta", id="t", delta="x")], "not started"),
        ([chunk("reasoning-end", id="t")], "not started"),
        ([OPEN, OPEN], "which is open"),
        ([chunk("start-step"), OPEN, chunk("finish-step")], "are open"),
        ([chunk("start-step"), chunk("start-step")], "start-step inside a step"),
        ([chunk("start-step"), chunk("finish")], "finish inside a step"),
        ([chunk("finish-step")], "finish-step outside of a step"),
        ([OPEN, chunk("finish")], "are open"),
        ([chunk("tool-input-delta", toolCallId="c1", inputTextDelta="")], "not started"),
        (
            [
                chunk("tool-input-available", toolCallId="c1", toolName="look", input={}),
                chunk("tool-input-delta", toolCallId="c1", inputTextDelta=""),
            ],
            "not started",
        ),
        ([chunk("tool-output-denied", toolCallId="c1")], "not started"),
        ([chunk("tool-approval-response", approvalId="c1", approved=True)], "not requested"),
        ([START, chunk("tool-approval-response", approvalId="c1", approved=True)], "not requested"),
        ([chunk("source-url", sourceId="s", url="u")], "not supported"),
    ],
)
def test_streams_that_break_a_rule(chunks: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(PartValidationError, match=problem):
        assembled(*chunks)


@pytest.mark.parametrize(
    ("version", "type"),
    [(5, "tool-approval-request"), (5, "tool-output-denied"), (6, "reset-step"), (6, "steering-message"), (7, "new")],
)
def test_chunks_that_a_version_does_not_know(version: Version, type: str) -> None:
    with pytest.raises(PartValidationError, match=f"version {version} has no chunk {type}"):
        assembled(chunk(type), version=version)


def test_version_5_needs_to_know_again_that_a_call_is_dynamic() -> None:
    with pytest.raises(PartValidationError, match="dynamic"):
        assembled(
            {**START, "dynamic": True},
            chunk("tool-output-available", toolCallId="c1", output=1),
            version=5,
        )


def test_static_tools_arguments_and_progress() -> None:
    client = assembled(START, chunk("tool-input-delta", toolCallId="c1", inputTextDelta='{"a": [1'))
    (part,) = client.parts
    assert (part["type"], part["state"], part["input"]) == ("tool-look", "input-streaming", {"a": [1]})
    client.add(chunk("tool-output-available", toolCallId="c1", output=1, preliminary=True))
    assert (part["output"], part["preliminary"]) == (1, True)
    client.add(chunk("tool-output-available", toolCallId="c1", output=2))
    assert part["output"] == 2
    assert "preliminary" not in part


def test_data_parts_are_replaced_by_id_unless_they_are_transient() -> None:
    client = assembled(
        chunk("data-a", id="1", data=1),
        chunk("data-a", id="1", data=2),
        chunk("data-a", data=3),
        chunk("data-a", data=4, transient=True),
    )
    assert [part["data"] for part in client.parts] == [2, 3]


def test_metadata_is_merged() -> None:
    client = assembled(
        chunk("message-metadata", messageMetadata={"a": 1}), chunk("message-metadata", messageMetadata={"b": 2})
    )
    assert client.message["metadata"] == {"a": 1, "b": 2}


def test_approvals_keep_their_reasons() -> None:
    client = assembled(
        START,
        chunk("tool-approval-request", approvalId="a", toolCallId="c1", reason="risky"),
        chunk("tool-approval-response", approvalId="a", approved=False, reason="no"),
        chunk("tool-output-denied", toolCallId="c1"),
    )
    assert client.parts[0]["approval"] == {"id": "a", "requestReason": "risky", "approved": False, "reason": "no"}
    assert client.parts[0]["state"] == "output-denied"


def test_the_calls_of_an_earlier_step_are_found() -> None:
    client = assembled(
        chunk("start-step"),
        START,
        chunk("finish-step"),
        chunk("start-step"),
        chunk("tool-output-error", toolCallId="c1", errorText="no"),
        chunk("finish-step"),
        chunk("abort"),
    )
    assert client.parts[1]["errorText"] == "no"
    assert client.is_ended


def test_a_reset_step_removes_its_parts() -> None:
    client = assembled(
        chunk("start", messageId="m"),
        chunk("start-step"),
        chunk("text-start", id="t"),
        chunk("reset-step"),
        chunk("text-start", id="t"),
        chunk("text-delta", id="t", delta="x"),
        chunk("text-end", id="t"),
        chunk("steering-message", id="s", parts=[]),
        chunk("finish-step"),
        chunk("error", errorText="no"),
    )
    assert [part["type"] for part in client.parts] == ["step-start", "text", "steering-message"]
    assert (client.message["id"], client.error) == ("m", "no")


def test_calls_of_the_provider_are_marked() -> None:
    client = assembled(
        {**START, "providerExecuted": True},
        chunk("tool-input-error", toolCallId="c1", toolName="look", input="{", errorText="bad"),
    )
    assert client.parts[0]["providerExecuted"] is True
    assert client.parts[0]["errorText"] == "bad"
