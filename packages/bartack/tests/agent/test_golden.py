"""The golden traces: ten stored sessions that every version of the loop must reproduce byte for byte."""

from pathlib import Path

import pytest

from bartack import Entry, Message
from bartack.agent import Agent
from bartack.agent.replay import replayed_model, replayed_tools
from bartack.nouns import wire
from bartack.store import MemoryStore, open_store
from bartack.store.checksums import split_checksum
from bartack.store.foreign import adopt
from bartack.store.transfer import export_session, import_lines
from lab.make_golden import GOLDEN, trace
from tests.agent.kit import FAST, SESSION, check_session, make
from tests.agent.scenarios import SCENARIOS

# Scenarios without approvals and interruptions, which the model's answers alone determine.
FREE = ["no_tool", "one_tool", "several_tools_in_sequence", "several_tools_in_parallel", "a_tool_fails"]


def lines(name: str) -> list[bytes]:
    return (GOLDEN / f"{name}.jsonl").read_bytes().splitlines(keepends=True)


def test_every_scenario_has_a_trace_and_vice_versa() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(SCENARIOS)
    assert len(SCENARIOS) == 10


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_reproduces_its_trace_byte_for_byte(name: str) -> None:
    assert (await trace(SCENARIOS[name])).splitlines(keepends=True) == lines(name)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kind", ["memory:", "jsonl:", "sqlite:"])
async def test_a_trace_survives_every_store_and_can_be_continued(name: str, kind: str, tmp_path: Path) -> None:
    store = await open_store(kind if kind == "memory:" else f"{kind}{tmp_path / 'sessions'}")
    try:
        await import_lines(store, lines(name))
        assert [line async for line in export_session(store, SESSION)] == lines(name)
        await check_session(store)
        await adopt(store, SESSION)
        agent, _, model = make(["Next."], store=store)
        assert (await agent.run("And then?", session=SESSION)).output == "Next."
        assert model.calls[0].messages[-1].text == "And then?"
        await check_session(store)
    finally:
        await store.close()


def conversation_of(entries: list[Entry]) -> list[tuple[object, ...]]:
    messages = [entry.fact for entry in entries if isinstance(entry.fact, Message)]
    return [
        (
            message.role,
            message.text,
            message.tool_calls,
            [(result.tool_call_id, result.content) for result in message.tool_results],
        )
        for message in messages
    ]


@pytest.mark.parametrize("name", FREE)
async def test_a_stored_session_can_be_replayed(name: str) -> None:
    entries = [wire.decode(Entry, split_checksum(line.rstrip())[0]) for line in lines(name)]
    store = MemoryStore()
    agent = Agent(replayed_model(entries), tools=replayed_tools(entries), store=store, retry=FAST)
    for entry in entries:
        if isinstance(entry.fact, Message) and entry.fact.role == "user":
            await agent.run(entry.fact.text, session=SESSION)
    assert conversation_of(list(await store.load(SESSION))) == conversation_of(entries)
