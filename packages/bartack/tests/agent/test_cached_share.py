"""A turn of 60 tool calls, replayed for each provider: what share of the input a prompt cache would have served.

Caches work on prefixes of blocks, in the order tools, system prompt, messages. Some providers cache at marked blocks
only and look back at most 20 blocks from a mark; others find the longest prefix that they have seen.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bartack import Agent, ToolCall, assistant
from bartack.formats import ModelRequest, encode
from bartack.models import ScriptedModel
from bartack.nouns.config import CacheConfig, ModelConfig
from bartack.tools import LocalRuntime, file_tools

_TURNS = 60
_LOOK_BACK = 20
PROVIDERS = [
    ("anthropic-messages", "anthropic", "claude-sonnet-4-6"),
    ("bedrock-converse", "bedrock", "anthropic.claude-sonnet-4-6"),
    ("openai-chat", "openai", "gpt-5"),
    ("openai-responses", "openai", "gpt-5"),
    ("gemini-generate", "google", "gemini-2.5-pro"),
    ("openai-chat", "deepseek", "deepseek-chat"),
]


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[ModelRequest]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "a.py").write_text("".join(f"value_{number} = {number}\n" for number in range(400)))
    return asyncio.run(requests_of_a_turn(folder))


async def requests_of_a_turn(folder: Path) -> list[ModelRequest]:
    calls = [
        assistant(
            f"Step {number}.",
            ToolCall(f"c{number}", "read_file", {"path": "a.py", "offset": number + 1, "limit": 20}),
            ToolCall(f"d{number}", "read_file", {"path": "a.py", "offset": number + 200, "limit": 5}),
        )
        for number in range(_TURNS)
    ]
    model = ScriptedModel([*calls, "Done."])
    agent = Agent(
        model, tools=file_tools(), runtime=LocalRuntime(folder), instructions="Work carefully. " * 50, store="memory:"
    )
    async with agent:
        await agent.run("Read all of it")
    return list(model.calls)


def blocks_of(body: dict[str, Any]) -> tuple[list[str], set[int]]:
    """The blocks of a request in the order of caches, as text, and the numbers of those that are marked."""
    tools = body.get("tools") or body.get("toolConfig", {}).get("tools", [])
    system = body.get("system") or body.get("systemInstruction", {}).get("parts", [])
    flat: list[Any] = [*tools, *system]
    for message in body.get("messages") or body.get("contents") or body["input"]:
        content = message.get("content") or message.get("parts")
        flat += [[message.get("role"), block] for block in content] if isinstance(content, list) else [message]
    blocks: list[str] = []
    marks: set[int] = set()
    for item in flat:
        inner = item[1] if isinstance(item, list) else item
        if "cachePoint" in inner:
            marks.add(len(blocks) - 1)
            continue
        if inner.pop("cache_control", None) is not None:
            marks.add(len(blocks))
        blocks.append(json.dumps(item))
    return blocks, marks


class PrefixCache:
    """What a provider remembers of earlier requests."""

    def __init__(self) -> None:
        self._prefixes: set[int] = set()

    def read(self, blocks: list[str], marks: set[int], *, is_marked: bool) -> int:
        """The characters of the longest cached prefix; the request is remembered."""
        prefixes = [hash(tuple(blocks[: end + 1])) for end in range(len(blocks))]
        places = marks if is_marked else set(range(len(blocks)))
        reachable = {place - back for place in places for back in range(_LOOK_BACK if is_marked else 1)}
        hits = [end for end in reachable if end >= 0 and prefixes[end] in self._prefixes]
        self._prefixes |= {prefixes[place] for place in places}
        return sum(map(len, blocks[: max(hits) + 1])) if hits else 0


@pytest.mark.parametrize(("wire_format", "provider", "model_id"), PROVIDERS)
def test_most_of_the_input_of_a_long_turn_is_cached(
    requests: list[ModelRequest], wire_format: str, provider: str, model_id: str
) -> None:
    cache = PrefixCache()
    cached = total = 0
    for request in requests:
        config = ModelConfig(model_id, cache_config=CacheConfig())
        body = encode(wire_format, replace(request, config=config, provider=provider)).body
        blocks, marks = blocks_of(json.loads(json.dumps(body)))
        is_marked = wire_format in ("anthropic-messages", "bedrock-converse")
        assert bool(marks) is is_marked
        cached += cache.read(blocks, marks, is_marked=is_marked)
        total += sum(map(len, blocks))
    assert cached / total > 0.94


def test_without_marks_nothing_is_cached(requests: list[ModelRequest]) -> None:
    """The control: what is measured is due to the marks."""
    cache = PrefixCache()
    for request in requests:
        body = encode("anthropic-messages", replace(request, config=ModelConfig("claude-sonnet-4-6"))).body
        blocks, marks = blocks_of(json.loads(json.dumps(body)))
        assert cache.read(blocks, marks, is_marked=True) == 0
