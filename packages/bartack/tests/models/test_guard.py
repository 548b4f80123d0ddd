"""The guard around any model (D-3.12)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.models import guarded
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start, TextDelta, ToolCallStart
from bartack.nouns.errors import ErrorCode, ModelError
from tests.counting import counting_environment
from tests.models.doubles import read

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Foreign:
    """A third-party stream that records whether it was closed."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)
        self.is_closed = False

    def __aiter__(self) -> AsyncIterator[MessageDelta]:
        return self

    async def __anext__(self) -> MessageDelta:
        if not self.items:
            raise StopAsyncIteration
        item = self.items.pop(0)
        if isinstance(item, BaseException):
            raise item
        assert isinstance(item, MessageDelta)
        return item

    async def aclose(self) -> None:
        self.is_closed = True


def stamp(*deltas: Delta) -> list[MessageDelta]:
    return [MessageDelta("run", seq, delta, NOW) for seq, delta in enumerate(deltas)]


async def last_error(*items: Any) -> Failed:
    """The error that ends this stream; before it there is always a start with a request id (D-3.7)."""
    source = Foreign(*items)
    deltas = await read(guarded(source, "run", environment=counting_environment()))
    assert source.is_closed
    assert isinstance(deltas[0].delta, Start)
    assert deltas[0].delta.request_id
    assert [delta.seq for delta in deltas] == list(range(len(deltas)))
    last = deltas[-1].delta
    assert isinstance(last, Failed)
    return last


async def test_a_valid_stream_passes_unchanged() -> None:
    deltas = stamp(Start("m", "r"), TextDelta("hi"), Done("stop"))
    source = Foreign(*deltas)
    passed = await read(guarded(source, "run"))
    assert passed == deltas
    assert all(delta is original for delta, original in zip(passed, deltas, strict=True))
    assert source.is_closed


@pytest.mark.parametrize(
    ("deltas", "rule"),
    [
        ((TextDelta("early"),), "000-5.1"),
        ((Start("m", "r"), Start("m", "r")), "001-8.3"),
        ((Start("m", "r"), ToolCallStart("c", "t"), ToolCallStart("c", "t")), "D-3.8"),
        ((Start("m", "r"), ToolCallStart("c", "t"), Done("stop")), "001-5.2.5"),
        ((Start("m", "r"), Done("finished")), "D-3.4.5"),  # type: ignore[arg-type]
    ],
)
async def test_a_contract_violation_becomes_an_error_with_its_rule(deltas: tuple[Delta, ...], rule: str) -> None:
    error = await last_error(*stamp(*deltas), *stamp(Done("stop")))
    assert error.error_code is ErrorCode.CONTRACT_VIOLATION
    assert error.rule == rule


async def test_a_repeated_seq_and_a_foreign_run_are_violations() -> None:
    start = MessageDelta("run", 0, Start("m", "r"), NOW)
    assert (await last_error(start, MessageDelta("run", 0, TextDelta("again"), NOW))).rule == "000-5.3"
    assert (await last_error(start, MessageDelta("other", 1, TextDelta("x"), NOW))).rule == "001-4.2.2"


async def test_values_that_are_not_deltas_are_rejected() -> None:
    async def strange() -> AsyncIterator[Any]:
        yield {"kind": "text"}

    deltas = await read(guarded(strange(), "run"))
    assert isinstance(deltas[-1].delta, Failed)
    assert deltas[-1].delta.rule == "000-4.1"


async def test_a_stream_without_an_end_is_truncated() -> None:
    """001-4.1.13, 004-invariants.5"""
    error = await last_error(*stamp(Start("m", "r"), TextDelta("half an ")))
    assert error.error_code is ErrorCode.STREAM_TRUNCATED
    assert error.retryable
    assert (await last_error()).error_code is ErrorCode.STREAM_TRUNCATED


async def test_an_exception_becomes_an_error() -> None:
    """D-3.7.1"""
    error = await last_error(*stamp(Start("m", "r")), RuntimeError("boom, with sk-ant-api03-0123456789abcdef"))
    assert error.error_code is ErrorCode.PROVIDER_ERROR
    assert error.message == "RuntimeError: boom, with [hidden]"
    assert not error.retryable


async def test_a_bartack_error_keeps_its_code() -> None:
    """D-3.7.1"""
    error = await last_error(ModelError("slow down", code=ErrorCode.RATE_LIMITED))
    assert error.error_code is ErrorCode.RATE_LIMITED
    assert error.retryable


async def test_nothing_is_read_after_the_end() -> None:
    """001-4.1.13"""
    source = Foreign(*stamp(Start("m", "r"), Done("stop")), RuntimeError("never reached"))
    assert len(await read(guarded(source, "run"))) == 2
    assert len(source.items) == 1
    assert source.is_closed


async def test_cancellation_propagates_and_closes_the_source() -> None:
    source = Foreign(*stamp(Start("m", "r")), asyncio.CancelledError())
    stream = guarded(source, "run")
    await anext(stream)
    with pytest.raises(asyncio.CancelledError):
        await anext(stream)
    assert source.is_closed


async def test_closing_the_stream_closes_the_source() -> None:
    source = Foreign(*stamp(Start("m", "r"), TextDelta("more")))
    stream = guarded(source, "run")
    await anext(stream)
    await stream.aclose()
    assert source.is_closed


async def test_a_guarded_stream_is_not_guarded_twice() -> None:
    stream = guarded(Foreign(*stamp(Start("m", "r"), Done("stop"))), "run")
    assert guarded(stream, "run") is stream
    second = guarded(stream, "another run")
    assert second is not stream
    assert isinstance((await read(second))[-1].delta, Failed)
