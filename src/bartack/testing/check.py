"""The checks themselves: they ask a model as an agent would, and raise `AssertionError` that names what is wrong."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any

from msgspec import Struct

from bartack.models.model import Model
from bartack.nouns.config import ToolSpec
from bartack.nouns.deltas import Failed, MessageDelta
from bartack.nouns.errors import StreamError
from bartack.nouns.messages import Message, user
from bartack.nouns.requests import RequestMetadata
from bartack.stream.assembler import MessageAssembler
from bartack.stream.contract import Contract
from bartack.testing.faults import Outcome, Scenario
from bartack.testing.server import fault_server

__all__ = ["Answer", "check_fault", "check_stream"]

_TOOLS = tuple(
    ToolSpec(name, {"type": "object", "properties": {"city": {"type": "string"}}}, description="Looks at a city.")
    for name in ("look", "see")
)


class Answer(Struct, frozen=True, kw_only=True):
    """What a model said: every delta, and the message or the error they ended in."""

    deltas: tuple[MessageDelta, ...]
    message: Message | None = None
    error: Failed | None = None


async def check_stream(
    model: Model,
    messages: Sequence[Message] = (user("Hello"),),
    *,
    tool_specs: Sequence[ToolSpec] = (),
    **options: Any,
) -> Answer:
    """Ask once and read to the end; every delta must keep the contract. `options` go to `stream`."""
    metadata = options.pop("request_metadata", None) or RequestMetadata(run_id="checked-run")
    contract, assembler = Contract(metadata.run_id), MessageAssembler(metadata.run_id)
    deltas: list[MessageDelta] = []
    stream = model.stream(messages, tool_specs, request_metadata=metadata, **options)
    async with _closing(stream):
        async for delta in stream:
            try:
                contract.admit(delta)
            except StreamError as error:
                raise AssertionError(f"delta {len(deltas)}: {error}") from error
            _check_time(deltas, delta)
            deltas.append(delta)
            assembler.consume(delta)
    assert contract.ended, f"the stream stopped after {len(deltas)} deltas without done or error"
    failed = assembler.get_error()
    if failed is not None:
        return Answer(deltas=tuple(deltas), error=failed)
    return Answer(deltas=tuple(deltas), message=assembler.build_final_message())


async def check_fault(scenario: Scenario, make_model: Callable[[str], Model]) -> Answer:
    """Let a model that `make_model` makes for a base address meet the scenario, and judge what it makes of it."""
    async with fault_server(scenario) as server:
        model = make_model(server.base_url)
        try:
            answer = await check_stream(model, tool_specs=_TOOLS)
        finally:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()
    assert server.requests, f"{scenario}: the model never asked"
    _judge(scenario, answer)
    return answer


def _closing(stream: Any) -> AbstractAsyncContextManager[Any]:
    return aclosing(stream) if hasattr(stream, "aclose") else nullcontext(stream)


def _check_time(before: list[MessageDelta], delta: MessageDelta) -> None:
    assert not before or before[-1].timestamp <= delta.timestamp, f"delta {len(before)}: time went backwards"


def _judge(scenario: Scenario, answer: Answer) -> None:
    expected = scenario.outcome
    if expected.end == "error":
        _judge_error(scenario, expected, answer)
    else:
        _judge_message(scenario, expected, answer)


def _judge_error(scenario: Scenario, expected: Outcome, answer: Answer) -> None:
    error = answer.error
    assert error is not None, f"{scenario}: passed for an answer: {answer.message}"
    assert error.error_code in expected.codes, f"{scenario}: {error.error_code}, not {set(expected.codes)}: {error}"
    if expected.retryable is not None:
        assert error.retryable is expected.retryable, f"{scenario}: retryable is {error.retryable}"
    if expected.retry_after_ms is not None:
        assert error.retry_after_ms == expected.retry_after_ms, f"{scenario}: retry after {error.retry_after_ms}"


def _judge_message(scenario: Scenario, expected: Outcome, answer: Answer) -> None:
    message = answer.message
    assert message is not None, f"{scenario}: failed with {answer.error}"
    meta = message.meta
    assert meta is not None
    assert meta.finish_reason == expected.finish_reason, f"{scenario}: finished with {meta.finish_reason}"
    bad = meta.bad_args or {}
    if expected.finish_reason != "length":  # of a message cut off by its length no call runs anyway
        runnable = tuple(call.arguments for call in message.tool_calls if call.tool_call_id not in bad)
        assert runnable == expected.runnable, f"{scenario}: would run {runnable}"
        assert len(bad) == expected.bad_args, f"{scenario}: bad arguments {bad}"
    if expected.text is not None:
        assert message.text == expected.text, f"{scenario}: said {message.text!r}"
