"""What a store keeps beside an entry: which calls it ends, what it used, which text a search finds it by."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import msgspec

from bartack.nouns import wire
from bartack.nouns.deltas import TOKEN_COUNTS, Usage
from bartack.nouns.entries import BranchSummary, CompactionSummary, Fact, SessionHeader, StreamFailed
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack.session.tool_state import output_text
from bartack.store.session_store import ModelSpend, Spend

__all__ = ["heads", "path", "results_in", "results_of", "spend_of", "text_of"]

SEARCHED = 100_000  # characters of one entry that are indexed: a dump of a megabyte is not prose


def results_of(fact: Fact) -> tuple[str, ...]:
    """The ids of the calls whose result this fact is (D-5.4); a provider's own tools have theirs in the call."""
    if not isinstance(fact, Message):
        return ()
    ended = [part.tool_call_id for part in fact.parts if isinstance(part, ToolResult)]
    ended += [part.result.tool_call_id for part in fact.parts if isinstance(part, ToolCall) and part.result is not None]
    return tuple(ended)


class _Result(msgspec.Struct, rename="camel", gc=False):
    tool_call_id: str


class _PartFacts(msgspec.Struct, rename="camel", gc=False):
    tool_call_id: str | None = None
    result: _Result | None = None


class _PartPeek(msgspec.Struct, gc=False):
    kind: str
    payload: _PartFacts


class _MessagePeek(msgspec.Struct):
    parts: list[_PartPeek]


_MESSAGE = msgspec.json.Decoder(_MessagePeek)


def results_in(payload: bytes) -> tuple[str, ...]:
    """As `results_of`, of a message's canonical JSON, without reading the rest; raises `PartValidationError`."""
    try:
        parts = _MESSAGE.decode(payload).parts
    except ValueError:  # a key of that name that means something else
        return results_of(wire.decode(Message, payload))
    ended = [part.payload.tool_call_id for part in parts if part.kind == ToolResult.kind]
    inner = [part.payload.result.tool_call_id for part in parts if part.payload.result is not None]
    return (*(call for call in ended if call is not None), *inner)


def spend_of(fact: Fact) -> ModelSpend | None:
    """What this fact's model call used. A run's end repeats what its calls used and is not counted."""
    match fact:
        case Message():
            meta = fact.meta
            return None if meta is None else _spend(meta.model, meta.usage, meta.cost_usd)
        case StreamFailed() | CompactionSummary() | BranchSummary():
            return _spend(fact.model, fact.usage, None)
        case _:
            return None


def _spend(model: ModelRef | None, usage: Usage | None, cost_usd: float | None) -> ModelSpend | None:
    if usage is None and cost_usd is None:
        return None
    usage = usage or Usage(0, 0)
    cost = usage.cost if cost_usd is None else cost_usd
    counts: dict[str, Any] = {name: getattr(usage, name) or 0 for name in TOKEN_COUNTS if name != "total_tokens"}
    spend = Spend(calls=1, **counts, cost_usd=cost or 0.0, unpriced=int(cost is None))
    return ModelSpend(None if model is None else ModelRef(model.provider, model.model), spend)


def text_of(fact: Fact) -> str:
    """What people read of this fact: what was said and what tools answered; not what a model thought."""
    match fact:
        case Message():
            texts = [part.text for part in fact.parts if isinstance(part, Text)]
            texts += [output_text(result) for result in fact.tool_results]
            return "\n".join(texts)[:SEARCHED]
        case SessionHeader():
            return fact.title or ""
        case CompactionSummary() | BranchSummary():
            return fact.summary[:SEARCHED]
        case _:
            return ""


Jumps = Mapping[int, int]  # seq of an entry -> seq of its parent, where that is not the one before


def heads(tail_seq: int, jumps: Jumps) -> list[int]:
    """The seqs that nothing follows, in order. Only what stands before a jump, and the tail, can be one."""
    followed = set(jumps.values())
    ends = {seq - 1 for seq in jumps} | {tail_seq}
    return sorted(ends - followed)


def path(head_seq: int, jumps: Jumps) -> list[range]:
    """The seqs from the first entry to `head_seq`, as ranges in order."""
    places = sorted(jumps)
    ranges: list[range] = []
    here = head_seq
    while True:
        before = bisect_right(places, here)
        if before == 0:
            ranges.append(range(1, here + 1))
            return ranges[::-1]
        jump = places[before - 1]
        ranges.append(range(jump, here + 1))
        here = jumps[jump]
