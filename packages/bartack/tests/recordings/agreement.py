"""Decoding a recorded body in any cut, and comparing the result with the reading of an oracle.

In: a decoder and bytes. Out: deltas, and the message that an assembler builds from them; `assert_agrees` compares it
with a `PlainReading`. `seeded_cuts` gives the positions to cut at: all of them in a small body, some in a large one and
with the Hypothesis profile `quick`.
"""

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import settings

from bartack.formats.decoder import Decoder
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, Thinking, ToolCall
from bartack.nouns.wire import dump
from bartack.stream.assembler import MessageAssembler
from tests.recordings.plain import PlainCall, PlainReading, PlainUsage

SMALL = 4096
STEP = 61  # between two cuts of one decoding: longer than most keys, and no multiple of anything
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
FRAMINGS = {".sse": None, ".bin": None, ".jsonl": "lines", ".ndjson": "ndjson", ".json": "json-array"}


def decoded(decoder: Decoder, *pieces: bytes) -> list[Delta]:
    """All deltas of a body that arrives in these pieces."""
    deltas = [delta for piece in pieces for delta in decoder.receive_data(piece)]
    return deltas + decoder.receive_eof()


def seeded_cuts(body: bytes) -> Iterator[list[int]]:
    """Positions to cut at, for one decoding each, the same on every run.

    Together they are every position of a small body, 80 of a large one, and 20 if quick.
    """
    quick = settings().max_examples < 20
    if len(body) < SMALL and not quick:
        yield from (list(range(first, len(body) + 1, STEP)) for first in range(min(STEP, len(body) + 1)))
    else:
        chance = random.Random(len(body))
        for _ in range(1 if quick else 4):
            yield sorted(chance.sample(range(len(body)), min(len(body), 20)))


def assert_cuts_change_nothing(make: Callable[[], Decoder], body: bytes) -> None:
    """D-3.11.1."""
    expected = decoded(make(), body)
    for cuts in seeded_cuts(body):
        pieces = [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]
        assert decoded(make(), *pieces) == expected, f"cut at {cuts}"


def assembler_of(deltas: list[Delta]) -> MessageAssembler:
    assembler = MessageAssembler()
    for seq, delta in enumerate(deltas):
        assembler.consume(MessageDelta("run", seq, delta, WHEN))
    return assembler


def assert_agrees(deltas: list[Delta], reading: PlainReading) -> None:
    """The deltas contain exactly what the oracle read."""
    start, end = deltas[0], deltas[-1]
    assert isinstance(start, Start)
    assert reading.model in (None, start.model_id)
    assert reading.response_id in (None, start.request_id)
    assembler = assembler_of(deltas)
    usages = [delta for delta in deltas if isinstance(delta, Usage)]
    assert (_plain_usage(usages[-1]) if usages else None) == reading.usage
    if reading.finish in ("error", "truncated"):
        assert isinstance(end, Failed)
        assert (end.error_code is ErrorCode.STREAM_TRUNCATED) == (reading.finish == "truncated")
        return
    assert isinstance(end, Done)
    assert (end.finish_reason, end.raw_finish_reason) == (reading.finish, reading.raw_finish)
    assert_message_agrees(assembler.build_final_message(), reading)


def assert_message_agrees(message: Message, reading: PlainReading) -> None:
    assert message.text == reading.text
    assert message.thinking == reading.thinking
    assert [_plain_call(part, message) for part in message.tool_calls] == [_without_raw(c) for c in reading.calls]
    assert _order(message) == reading.order
    stored = json.dumps(dump(message), ensure_ascii=False)
    for needed in reading.continuation:
        assert json.dumps(needed, ensure_ascii=False) in stored


def _plain_usage(usage: Usage) -> PlainUsage:
    """The counts as they were reported, also where they do not fit together."""
    reported = (usage.extra or {}).get("reported", {})
    return PlainUsage(
        usage.input_tokens,
        usage.output_tokens,
        reported.get("cacheReadTokens", usage.cache_read_tokens),
        reported.get("cacheWriteTokens", usage.cache_write_tokens),
        reported.get("reasoningTokens", usage.reasoning_tokens),
    )


def _plain_call(part: ToolCall, message: Message) -> PlainCall:
    is_bad = message.meta is not None and part.tool_call_id in (message.meta.bad_args or {})
    data = {} if part.continuation is None else part.continuation.data
    provider_id = data.get("callId", part.tool_call_id)
    arguments = None if is_bad else part.arguments
    raw = (part.raw_args_text or "") if is_bad else ""
    return PlainCall(part.tool_name, arguments, raw, provider_id, part.executed_by == "provider")


def _without_raw(call: PlainCall) -> PlainCall:
    """The text of arguments is kept only where it did not parse."""
    raw = call.raw if call.arguments is None else ""
    return PlainCall(call.name, call.arguments, raw, call.provider_id, call.server_side)


def _order(message: Message) -> list[str]:
    kinds: list[str] = []
    for part in message.parts:
        if isinstance(part, Text | Thinking) and not part.text:
            continue
        if not kinds or kinds[-1] != part.kind:
            kinds.append(part.kind)
    return kinds
