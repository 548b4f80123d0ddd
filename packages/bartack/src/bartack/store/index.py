"""What stores derive from entries so that queries need not read them: results, usage, searchable text, branches.

Branches. Most entries follow the one before them. A *branch start* is an entry that does not; stores keep its seq and
its parent's. A session has as many of them as branches were begun, so a branch is found without walking the entries:
between two branch starts, its seqs are a range.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal

import msgspec

from bartack.nouns import wire
from bartack.nouns.deltas import TOKEN_COUNTS, Usage
from bartack.nouns.entries import BranchSummary, CompactionSummary, Fact, StreamFailed
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.session.title import title_of
from bartack.session.tool_state import output_text
from bartack.store.session_store import NO_SPEND, ModelSpend, Spend, Tail, Totals

__all__ = [
    "SPEND_FIELDS",
    "BranchStarts",
    "ModelKey",
    "Where",
    "branch_heads",
    "branch_ranges",
    "model_key",
    "results_in",
    "results_of",
    "seqs_after",
    "spend_of",
    "text_of",
    "totals_of",
]

SEARCHED = 100_000  # characters of one entry that are indexed: a dump of a megabyte is not prose

# -- tool calls


def results_of(fact: Fact) -> tuple[str, ...]:
    """The ids of the tool calls that get their result from this fact (D-5.4), including calls run by the provider."""
    if not isinstance(fact, Message):
        return ()
    ended = [part.tool_call_id for part in fact.parts if isinstance(part, ToolResult)]
    ended += [part.result.tool_call_id for part in fact.parts if isinstance(part, ToolCall) and part.result is not None]
    return tuple(ended)


def results_in(payload: bytes) -> tuple[str, ...]:
    """Like `results_of`, from a message's canonical JSON, without building the parts; raises `PartValidationError`."""
    try:
        parts = [(part["kind"], part["payload"]) for part in msgspec.json.decode(payload)["parts"]]
        ended = [part["toolCallId"] for kind, part in parts if kind == ToolResult.kind]
        inner = [part["result"]["toolCallId"] for kind, part in parts if kind == ToolCall.kind and "result" in part]
    except (ValueError, KeyError, TypeError):
        return results_of(wire.decode(Message, payload))
    return (*ended, *inner)


# -- usage

SPEND_FIELDS = tuple(name for name in Spend.__struct_fields__ if name != "extra")  # the columns of both databases
ModelKey = tuple[str, str]  # provider and model; both empty for a call that names none


def spend_of(fact: Fact) -> ModelSpend | None:
    """The usage of this fact's model call. The end of a run repeats the usage of its calls and does not count."""
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


def model_key(model: ModelRef | None) -> ModelKey:
    """What usage is grouped by."""
    return ("", "") if model is None else (model.provider, model.model)


def totals_of(spends: Iterable[tuple[ModelKey, Spend]]) -> Totals:
    """The sum of what sessions used, in total and by model."""
    models: dict[ModelKey, Spend] = {}
    for key, spend in spends:
        models[key] = models.get(key, NO_SPEND) + spend
    by_model = tuple(ModelSpend(ModelRef(*key) if any(key) else None, spend) for key, spend in sorted(models.items()))
    return Totals(sum(models.values(), NO_SPEND), by_model)


# -- text


Where = Literal["text", "results", "calls", "thinking"]


def text_of(fact: Fact, where: Where | None = None) -> str:
    """The searchable text of a fact, also of an answer that failed: what was said, the output of tools, the names and
    arguments of calls, and thinking; or only one of these."""
    match fact:
        case Message() | StreamFailed():
            texts: dict[Where, list[str]] = {"text": [], "results": [], "calls": [], "thinking": []}
            for part in fact.parts:
                match part:
                    case Text():
                        texts["text"].append(part.text)
                    case ToolResult():
                        texts["results"].append(output_text(part))
                    case ToolCall():
                        texts["calls"] += part.tool_name, *_strings_in(part.arguments)
                        if part.result is not None:
                            texts["results"].append(output_text(part.result))
                    case Thinking():
                        texts["thinking"].append(part.text)
                    case Image() | FileRef():
                        pass
            chosen = texts.values() if where is None else (texts[where],)
            return "\n".join(chain.from_iterable(chosen))[:SEARCHED]
        case CompactionSummary() | BranchSummary():
            return fact.summary[:SEARCHED] if where in (None, "text") else ""
        case _:
            return title_of(fact) or "" if where in (None, "text") else ""


def _strings_in(value: Any) -> Iterator[str]:
    """The texts in JSON, in order."""
    match value:
        case str():
            yield value
        case dict():
            yield from chain.from_iterable(map(_strings_in, value.values()))
        case list():
            yield from chain.from_iterable(map(_strings_in, value))


# -- branches

BranchStarts = Mapping[int, int]  # seq of an entry -> seq of its parent, where that is not the previous entry


def branch_heads(tail_seq: int, starts: BranchStarts) -> list[int]:
    """The seqs of entries without children. Only the tail and the entry before a branch start can be one."""
    candidates = {seq - 1 for seq in starts} | {tail_seq}
    return sorted(candidates.difference(starts.values()))


def branch_ranges(head_seq: int, starts: BranchStarts) -> list[range]:
    """The seqs from the first entry to `head_seq`, as ranges in order."""
    ordered = sorted(starts)
    ranges: list[range] = []
    last = head_seq
    while count := bisect_right(ordered, last):
        start = ordered[count - 1]
        ranges.append(range(start, last + 1))
        last = starts[start]
    ranges.append(range(1, last + 1))
    return ranges[::-1]


def seqs_after(tail: Tail, after_seq: int, limit: int | None) -> range:
    """The seqs of at most `limit` entries after `after_seq`."""
    first = max(after_seq, 0) + 1
    return range(first, (tail.seq if limit is None else min(tail.seq, first + limit - 1)) + 1)
