"""Everything that a provider sent goes back to it: items that only the provider understands, in every place."""

from typing import Any

import pytest

from bartack.formats import FORMATS, Encoded, ModelRequest, decoder, encode, read_request
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import Message, Meta, assistant, user
from bartack.nouns.parts import Continuation, Text, Thinking

Json = dict[str, Any]
COMPACTION = {"type": "compaction", "content": "So far: ...", "encrypted_content": "x"}


def encoded(format: str, *messages: Message, provider: str = "", model: str = "claude-opus-4-8") -> Encoded:
    return encode(format, ModelRequest(messages, config=ModelConfig(model), provider=provider))


def again(format: str, body: Json, provider: str | None = None) -> Encoded:
    return encode(format, read_request(format, body, provider=provider))


def data(provider: str, **kept: Any) -> Continuation:
    return Continuation(provider, "m", kept)


# -- Anthropic


@pytest.mark.parametrize("format", ["anthropic-messages", "bedrock-invoke"])
def test_an_answer_that_is_only_a_compaction_is_sent_back_and_continued(format: str) -> None:
    part = Thinking("", continuation=data(format, block=COMPACTION))
    paused = assistant(part, meta=Meta(finish_reason="pause", raw_finish_reason="compaction"))
    reply = encoded(format, user("Hi"), paused, model="anthropic.claude-opus-4-8")
    assert reply.body["messages"][-1] == {"role": "assistant", "content": [COMPACTION]}
    assert reply.report.losses == ()


def test_tool_references_in_a_result_are_sent_back() -> None:
    reference = {"type": "tool_reference", "tool_name": "read"}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "search", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [reference]}]},
    ]
    reply = again("anthropic-messages", {"model": "claude-opus-4-8", "max_tokens": 9, "messages": turns})
    assert reply.body["messages"] == turns
    assert reply.report.losses == ()


def test_tool_additions_in_a_system_turn_are_sent_back() -> None:
    addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read"}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "system", "content": [addition]},
    ]
    reply = again("anthropic-messages", {"model": "claude-opus-4-8", "max_tokens": 9, "messages": turns})
    assert reply.body["messages"] == turns
    assert reply.report.losses == ()


def test_results_apart_from_their_calls_keep_their_place_at_the_end() -> None:
    blocks = [
        *({"type": "server_tool_use", "id": name, "name": "web_search", "input": {}} for name in "ab"),
        *({"type": "web_search_tool_result", "tool_use_id": name, "content": []} for name in "ab"),
    ]
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [{"type": "text", "text": "Go on"}]},
    ]
    reply = again("anthropic-messages", {"model": "claude-opus-4-8", "max_tokens": 9, "messages": turns})
    assert reply.body["messages"] == turns
    assert reply.report.losses == ()


def test_what_has_no_place_is_reported_with_its_path() -> None:
    displaced = Thinking("", continuation=data("anthropic-messages", resultOf="gone"))
    cited = Text(" ", continuation=data("anthropic-messages", citations=[{}]))
    reply = encoded("anthropic-messages", user("Hi"), assistant("Ho", displaced, cited), user("Go on"))
    assert {(loss.where, loss.what) for loss in reply.report.losses} == {
        ("messages[1].parts[1]", "place of a tool result"),
        ("history[1].parts[2]", "blank text with data of anthropic-messages"),
    }


# -- OpenAI


@pytest.mark.parametrize("item", [{"type": "compaction", "id": "c", "encrypted_content": "x"}])
def test_an_answer_that_is_only_an_opaque_item_is_sent_back(item: Json) -> None:
    part = Text("", continuation=data("openai-responses", item=item))
    reply = encoded("openai-responses", user("Hi"), assistant(part), user("Go on"), model="gpt-5")
    assert reply.body["input"][1] == item
    assert reply.report.losses == ()


SEARCH: Json = {"type": "tool_search_call", "id": "tsc", "call_id": None, "execution": "server", "arguments": {}}
FOUND: Json = {"type": "tool_search_output", "id": "tso", "call_id": None, "execution": "server", "tools": []}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "ok"}


@pytest.mark.parametrize(
    ("items", "settings"),
    [
        ([SEARCH, FOUND], {}),
        ([SEARCH, FOUND, {**SEARCH, "id": "tsc2"}, {**FOUND, "id": "tso2"}], {}),
        ([FOUND], {}),
        ([{"type": "item_reference", "id": "fc"}, OUTPUT], {}),
        ([OUTPUT], {"previous_response_id": "resp"}),
        (
            [{"type": "mcp_approval_response", "approval_request_id": "mcpr", "approve": True}],
            {"previous_response_id": "resp"},
        ),
        ([{"type": "compaction", "encrypted_content": "x"}], {}),
    ],
)
def test_items_of_a_request_are_sent_back(items: list[Json], settings: Json) -> None:
    prompt = {"role": "user", "content": "Hi"}
    reply = again("openai-responses", {"model": "gpt-5", "input": [prompt, *items, prompt], **settings})
    assert reply.body["input"] == [prompt, *items, prompt]
    assert reply.report.losses == ()


def test_a_result_whose_call_is_nowhere_is_left_out() -> None:
    reply = again("openai-responses", {"model": "gpt-5", "input": [{"role": "user", "content": "Hi"}, OUTPUT]})
    assert reply.body["input"] == [{"role": "user", "content": "Hi"}]
    assert [loss.what for loss in reply.report.losses] == ["result of call 'c'"]


# -- Chat Completions, Bedrock


def test_encrypted_reasoning_after_the_text_is_sent_back() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]
    sealed = Thinking("", continuation=data("openrouter", reasoning_details=details))
    reply = encoded("openai-chat", user("Hi"), assistant("Ho", sealed), user("Go on"), provider="openrouter")
    assert reply.body["messages"][1]["reasoning_details"] == details
    assert reply.report.losses == ()


def test_a_message_of_one_unknown_piece_is_sent_back() -> None:
    piece = {"type": "hologram", "hologram": {"url": "https://example.org"}}
    reply = again("openai-chat", {"model": "m", "messages": [{"role": "system", "content": [piece]}]})
    assert reply.body["messages"] == [{"role": "system", "content": [piece]}]


def test_an_unknown_block_of_converse_is_sent_back() -> None:
    block = {"hologramContent": {"id": "1"}}
    turns = [
        {"role": "user", "content": [{"text": "Hi"}]},
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": [{"text": "Go on"}]},
    ]
    request = read_request("bedrock-converse", {"messages": turns}, model_id="m")
    assert encode("bedrock-converse", request).body["messages"] == turns


@pytest.mark.parametrize("format", FORMATS)
def test_items_are_not_sent_to_other_providers(format: str) -> None:
    part = Text("", continuation=data("elsewhere", block=COMPACTION, item=COMPACTION, content=COMPACTION))
    model = "anthropic.claude-opus-4-8"
    reply = encoded(format, user("Hi"), assistant(part), user("Go on"), model=model)
    assert "So far" not in str(reply.body)
    assert any("[1]" in loss.where for loss in reply.report.losses)


def test_a_stream_of_one_compaction_block_is_decoded_as_a_pause() -> None:
    events = [
        '{"type": "message_start", "message": {"model": "claude-opus-4-8", "id": "m"}}',
        '{"type": "content_block_start", "index": 0, "content_block": {"type": "compaction"}}',
        '{"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "So far"}}',
        '{"type": "content_block_stop", "index": 0}',
        '{"type": "message_delta", "delta": {"stop_reason": "compaction"}}',
        '{"type": "message_stop"}',
    ]
    deltas = decoder("anthropic-messages").receive_data("".join(f"data: {event}\n\n" for event in events).encode())
    assert [getattr(delta, "finish_reason", None) for delta in deltas][-1] == "pause"
