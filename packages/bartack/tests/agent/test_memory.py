"""What stays in memory of agents that are closed: nothing, however many there were."""

import asyncio
import gc
from collections import Counter
from pathlib import Path

import pytest

from bartack import ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.tools import tool

AGENTS = 20


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"place {place}"


class Kept:
    """Something that an agent could leave behind."""


def objects() -> Counter[str]:
    """How many objects of each class there are; those that wait to be collected do not count."""
    gc.collect()
    return Counter(f"{type(item).__module__}.{type(item).__qualname__}" for item in gc.get_objects())


def grown(before: Counter[str]) -> dict[str, int]:
    """The classes of which there is one more for each agent."""
    return {name: number for name, number in (objects() - before).items() if number >= AGENTS}


async def use_agents(path: Path, left: list[Kept] | None = None) -> None:
    """Open a store, continue a session in it, and close it, each time with a new agent."""
    for _ in range(AGENTS):
        model = ScriptedModel([assistant(ToolCall("c1", "look", {"place": 1})), "Seen."])
        async with Agent(model, tools=[look], store=path) as agent:
            assert (await agent.run("Look.", session="one")).output == "Seen."
        if left is not None:
            left.append(Kept())


@pytest.mark.parametrize("name", ["store.db", "store"])
def test_a_closed_agent_leaves_no_object_behind(name: str, tmp_path: Path) -> None:
    async def use_and_count() -> dict[str, int]:
        await use_agents(tmp_path / name)  # fills caches
        before = objects()
        await use_agents(tmp_path / name)
        return grown(before)

    assert asyncio.run(use_and_count()) == {}


def test_an_object_per_agent_is_noticed(tmp_path: Path) -> None:
    """The negative control."""
    left: list[Kept] = []

    async def use_and_count() -> dict[str, int]:
        before = objects()
        await use_agents(tmp_path / "store.db", left)
        return grown(before)

    assert asyncio.run(use_and_count())[f"{__name__}.Kept"] == AGENTS
