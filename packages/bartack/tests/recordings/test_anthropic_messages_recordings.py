"""Every recorded Anthropic stream, decoded and compared with the oracle; every recorded request, read and encoded."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.formats.anthropic_messages.encode import encode
from bartack.formats.anthropic_messages.read import read_request
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import assistant, user
from bartack.nouns.parts import Continuation, ToolCall
from bartack.nouns.requests import ModelRequest
from tests.recordings.agreement import FRAMINGS, assembler_of, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_others import read_stream
from tests.recordings.plain import Case, case_dirs, json_lines, load_case, sse_events

STREAMS = [case for case in case_dirs("anthropic-messages") if load_case(case).http_status < 400]


def decoder_for(case_dir: Path) -> AnthropicMessages:
    suffix = Path(load_case(case_dir).file).suffix
    return AnthropicMessages(framing=FRAMINGS[suffix])


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_decoding_agrees_with_the_oracle(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, read_stream("anthropic-messages", case_dir))


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_an_answer_is_sent_back_block_by_block(case_dir: Path) -> None:
    """The same blocks in the same order, signatures and results included (D-3.9).

    Blank text is omitted, since the API refuses it; an empty list of citations is the same as none. A call that the
    provider's code made refers to it, so the history has that code before the answer.
    """
    case = load_case(case_dir)
    deltas = decoded(AnthropicMessages(framing=FRAMINGS[Path(case.file).suffix], provider="anthropic"), case.body)
    answer = assembler_of(deltas).build_final_message()
    expected = blocks_of(case)
    before = [user("Hi"), assistant(*map(code_call, callers_of(expected)))]
    history = (*before, user("Continue."), answer)
    request = ModelRequest(messages=history, config=ModelConfig(model_id="claude-x"), provider="anthropic")
    losses = Losses("anthropic")
    *_, turn = encode(request, losses)["messages"]
    assert turn["content"] == expected
    assert losses.found == []


def callers_of(blocks: list[dict[str, Any]]) -> list[str]:
    """The provider calls that an answer refers to but does not contain."""
    caller_ids = {str((block.get("caller") or {}).get("tool_id", "")) for block in blocks}
    return sorted(caller_ids - {str(block.get("id")) for block in blocks} - {""})


def code_call(call_id: str) -> ToolCall:
    result = {"type": "code_execution_tool_result", "content": []}
    continuation = Continuation("anthropic", "claude-x", {"type": "server_tool_use", "result": result})
    return ToolCall(call_id, "code_execution", {}, executed_by="provider", continuation=continuation)


def blocks_of(case: Case) -> list[dict[str, Any]]:
    """The content blocks of a recorded answer, assembled without the decoder."""
    sse = case.file == "response.sse"
    lines = [data for _, data in sse_events(case.body)] if sse else json_lines(case.body)
    blocks: dict[int, dict[str, Any]] = {}
    for event in map(json.loads, lines):
        if event["type"] == "message_start":
            blocks.update(enumerate(event["message"]["content"]))
        elif event["type"] == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            add_delta(blocks[event["index"]], event["delta"])
    return [block for block in map(finished, blocks.values()) if block is not None]


def add_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "citation":
            block["citations"] = [*(block.get("citations") or []), value]
        elif name != "type" and value is not None:
            block[name] = (block.get(name) or "") + value


def finished(block: dict[str, Any]) -> dict[str, Any] | None:
    if block["type"] == "text" and not block["text"].strip():
        return None
    if not block.get("citations", True):
        del block["citations"]
    text = block.pop("partial_json", "")
    if text:
        try:
            block["input"] = json.loads(text)
        except ValueError:
            block["input"] = {"INVALID_JSON": text}
    return block


REQUESTS = [
    path
    for api in ("anthropic-messages", "anthropic-messages-requests")
    for case in case_dirs(api)
    if (path := case / "request.json").is_file()
]


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.parent.name[-30:])
def test_a_recorded_request_survives_a_round_trip(path: Path) -> None:
    """Encoding what was read gives the recorded body again, up to differences without a meaning:

    - a string is short for one text block (`content`, `system`);
    - neighbours of one role are combined into a single turn;
    - `is_error: false` is the default, and `stream` is always set.
    """
    body = json.loads(path.read_bytes())
    losses = Losses("anthropic")
    encoded = encode(read_request(body, provider="anthropic"), losses)
    assert normalised(encoded) == normalised(body)
    assert encoded["stream"] is True
    assert losses.found == []


def normalised(body: dict[str, Any]) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for turn in body["messages"]:
        content = [without_default(block) for block in as_blocks(turn["content"])]
        if turns and turns[-1]["role"] == turn["role"] != "system":
            turns[-1]["content"] += content
        else:
            turns.append({"role": turn["role"], "content": content})
    settings = {key: value for key, value in body.items() if key not in ("messages", "stream", "system")}
    system = {"system": as_blocks(body["system"])} if "system" in body else {}
    return {**settings, **system, "messages": turns}


def as_blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def without_default(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if (key, value) != ("is_error", False)}
