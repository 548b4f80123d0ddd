"""Sixty turns with tools, as a coding agent sends them: how much of each request the provider has cached before."""

import json
from itertools import pairwise
from typing import Any

import pytest

from bartack import ModelConfig, ToolCall, ToolResult, assistant, user
from bartack.formats import ModelRequest, encode
from bartack.nouns.config import CacheConfig, ToolSpec
from bartack.nouns.messages import Message, system

TURNS = 60
TOOLS = (ToolSpec("read_file", {"type": "object", "properties": {"path": {"type": "string"}}}, description="Read."),)


def requests(format: str) -> list[dict[str, Any]]:
    """The bodies of all requests of a conversation."""
    config = ModelConfig("claude-sonnet-4-6", max_tokens=1_000, cache_config=CacheConfig())
    messages: list[Message] = [system("You are a coding agent. " * 50), user("Fix the tests.")]
    bodies = []
    for turn in range(TURNS):
        bodies.append(encode(format, ModelRequest(tuple(messages), config=config, tools=TOOLS)).body)
        call = ToolCall(f"c{turn}", "read_file", {"path": f"src/{turn}.py"})
        messages += [assistant(call), Message("tool", (ToolResult(call.tool_call_id, f"line {turn}\n" * 40),))]
    return bodies


def blocks(body: dict[str, Any]) -> list[tuple[str, bool]]:
    """The parts of a prompt in the order in which they are cached, and whether a breakpoint follows each."""
    pieces: list[dict[str, Any]] = [*body["tools"], *body.get("system", ())]
    for message in body["messages"]:
        pieces += message["content"]
    plain = [{name: value for name, value in piece.items() if name != "cache_control"} for piece in pieces]
    return [(json.dumps(own), "cache_control" in piece) for own, piece in zip(plain, pieces, strict=True)]


def test_anthropic_reads_nearly_everything_from_its_cache() -> None:
    cached: set[tuple[str, ...]] = set()
    read = total = 0
    for body in requests("anthropic-messages"):
        texts = [text for text, _ in blocks(body)]
        prefixes = [tuple(texts[:end]) for end, (_, is_marked) in enumerate(blocks(body), 1) if is_marked]
        assert 1 <= len(prefixes) <= 4  # the limit of the provider
        read += max((sum(map(len, prefix)) for prefix in prefixes if prefix in cached), default=0)
        total += sum(map(len, texts))
        cached.update(prefixes)
    assert read / total > 0.94


@pytest.mark.parametrize("format", ["anthropic-messages", "openai-chat", "openai-responses", "gemini-generate"])
def test_each_request_begins_with_the_one_before(format: str) -> None:
    """Providers that cache by themselves compare the beginning of a prompt."""
    key = {"openai-responses": "input", "gemini-generate": "contents"}.get(format, "messages")

    def prompt(body: dict[str, Any]) -> str:
        own = {name: value for name, value in body.items() if name != key}
        return json.dumps([own, *body[key]]).replace(', "cache_control": {"type": "ephemeral"}', "")

    prompts = [prompt(body) for body in requests(format)]
    for earlier, later in pairwise(prompts):
        assert later.startswith(earlier.removesuffix("]"))
    assert sum(map(len, prompts[:-1])) / sum(map(len, prompts[1:])) > 0.94
