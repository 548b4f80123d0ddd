"""Entries to JSON text and back, compared with msgspec on plain structs: an agent's session, by kind of fact.

The floor reads and writes the same texts as structs whose annotations are plain: the values of the union of kinds are
tagged structs, nothing is checked, and unknown keys are dropped. Targets: at most 3 times as long, both ways.

Each round measures all four in turn on the same entries, as CPU of this process. A table has the median ratio of five
rounds, and its spread. Run it with `make bench` or `python -m bench.codec [turns]`.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from bartack import AgentConfig, ContextConfig
from bartack.agent import Agent
from bartack.nouns import wire
from bartack.nouns.entries import Entry
from bartack.store import MemoryStore
from bench.agent import Model, look

ROUNDS = 5
REPEATS = 5
AIM = 3.0


class Plain(msgspec.Struct, rename="camel", omit_defaults=True):
    """The settings of the plain structs."""


class Ref(Plain):
    provider: str
    model: str


class Usage(Plain):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class Meta(Plain):
    model: Ref | None = None
    response_id: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    duration_ms: int | None = None
    completed_at: datetime | None = None
    finish_reason: str | None = None
    raw_finish_reason: str | None = None
    model_call_index: int | None = None
    attempt: int | None = None
    agent: str | None = None


class Span(Plain):
    start: datetime | None = None
    end: datetime | None = None


class TextPayload(Plain):
    text: str
    time: Span | None = None


class CallPayload(Plain):
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]


class ResultPayload(Plain):
    tool_call_id: str
    content: str
    is_error: bool
    title: str | None = None
    time: Span | None = None


class TextPart(Plain, tag_field="kind", tag="text"):
    payload: TextPayload


class CallPart(Plain, tag_field="kind", tag="tool_call"):
    payload: CallPayload


class ResultPart(Plain, tag_field="kind", tag="tool_result"):
    payload: ResultPayload


class Message(Plain):
    role: str
    parts: list[TextPart | CallPart | ResultPart]
    id: str | None = None
    run_id: str | None = None
    timestamp: datetime | None = None
    meta: Meta | None = None


class Config(Plain):
    model_id: str


class RunStarted(Plain):
    agent: str | None = None
    model: Ref | None = None
    config: Config | None = None
    tools: list[str] = []
    trace_id: str | None = None


class ToolStarted(Plain):
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    attempt: int = 1


class RunEnded(Plain):
    status: str
    usage: Usage | None = None
    cost_usd: float | None = None


class PlainEntry(Plain, tag_field="kind"):
    """The fields around every fact."""

    id: str
    session_id: str
    seq: int
    timestamp: datetime
    parent_id: str | None = None
    run_id: str | None = None


class MessageEntry(PlainEntry, kw_only=True, tag="message"):
    payload: Message


class RunStartedEntry(PlainEntry, kw_only=True, tag="run_started"):
    payload: RunStarted


class ToolStartedEntry(PlainEntry, kw_only=True, tag="tool_started"):
    payload: ToolStarted


class RunEndedEntry(PlainEntry, kw_only=True, tag="run_ended"):
    payload: RunEnded


FLOOR = msgspec.json.Decoder(MessageEntry | RunStartedEntry | ToolStartedEntry | RunEndedEntry)
ENCODER = msgspec.json.Encoder()


def name_of(entry: Entry) -> str:
    """The kind of the fact; of a message, with its role."""
    return f"message: {entry.fact.role}" if entry.fact.kind == "message" else entry.fact.kind


def microseconds(work: Callable[[Any], object], values: Sequence[Any]) -> float:
    """The CPU of `work` for one value, the best of several passes."""
    durations = []
    for _ in range(REPEATS):
        begin = time.process_time()
        for value in values:
            work(value)
        durations.append(time.process_time() - begin)
    return min(durations) / len(values) * 1e6


async def session_entries(turns: int) -> list[Entry]:
    """The entries of a session in which an agent calls a tool in each turn; without the header."""
    store = MemoryStore()
    agent = Agent(Model(), tools=[look], store=store, config=AgentConfig(context=ContextConfig(compaction=False)))
    for number in range(turns):
        await agent.run(f"Look at place {number}", session="one")
    return [entry for entry in await store.load("one") if entry.fact.kind != "session_header"]


def measure(entries: Sequence[Entry]) -> list[float]:
    """Microseconds: reading by the floor and by Bartack, writing by the floor and by Bartack."""
    texts = [wire.encode(entry) for entry in entries]
    plain = [FLOOR.decode(text) for text in texts]
    assert all(len(ENCODER.encode(entry)) == len(text) for entry, text in zip(plain, texts, strict=True)), "same work"
    return [
        microseconds(FLOOR.decode, texts),
        microseconds(lambda text: wire.decode(Entry, text), texts),
        microseconds(ENCODER.encode, plain),
        microseconds(wire.encode, entries),
    ]


def ratio(pairs: Sequence[tuple[float, float]]) -> str:
    """The median ratio and its spread."""
    ratios = sorted(ours / floor for floor, ours in pairs)
    return f"{statistics.median(ratios):5.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"


def main(turns: int) -> None:
    entries = asyncio.run(session_entries(turns))
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        by_name.setdefault(name_of(entry), []).append(entry)
    print(f"{'fact':20} {'bytes':>6} {'floor':>7} {'decode':>7} {'ratio':>17} {'floor':>7} {'encode':>7} {'ratio':>17}")
    for name, group in [*by_name.items(), ("all", entries)]:
        rounds = [measure(group) for _ in range(ROUNDS)]
        reads, writes = [(row[0], row[1]) for row in rounds], [(row[2], row[3]) for row in rounds]
        size = sum(len(wire.encode(entry)) for entry in group) // len(group)
        a, b, c, d = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name:20} {size:6} {a:7.2f} {b:7.2f} {ratio(reads):>17} {c:7.2f} {d:7.2f} {ratio(writes):>17}")
    print(f"The aim is a ratio of at most {AIM}.")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
