"""Negative controls: each check fails when it should."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.models import Model, ScriptedModel, connect
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start, TextDelta
from bartack.nouns.errors import ErrorCode
from bartack.testing import FAULT_FORMATS, ExpectedOutcome, Scenario, check_fault, check_stream, scenarios
from tests.models.doubles import KEY

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MATRIX = {scenario.name: scenario for scenario in scenarios("openai-chat")}


class UnguardedModel(ScriptedModel):
    """A model without a guard."""

    def __init__(self, *deltas: MessageDelta) -> None:
        super().__init__([])
        self.deltas = deltas

    def stream(self, *_: Any, **__: Any) -> Any:
        return self._stream()

    async def _stream(self) -> AsyncIterator[MessageDelta]:
        for delta in self.deltas:
            yield delta


def stamp(*deltas: Delta, run_id: str = "checked-run", timestamp: datetime = NOW) -> list[MessageDelta]:
    return [MessageDelta(run_id, seq, delta, timestamp) for seq, delta in enumerate(deltas)]


@pytest.mark.parametrize(
    ("deltas", "message"),
    [
        (stamp(TextDelta("early")), "before start"),
        (stamp(Start("m", "r"), Done("stop"), TextDelta("late")), "after the end"),
        (stamp(Start("m", "r")), "without done or error"),
        (stamp(Start("m", "r"), run_id="another"), "another"),
        (stamp(Start("m", "r"), timestamp=NOW.replace(tzinfo=None)), "zone"),
        (
            [*stamp(Start("m", "r")), MessageDelta("checked-run", 1, Done("stop"), NOW - timedelta(seconds=1))],
            "timestamp decreased",
        ),
    ],
)
async def test_a_contract_violation_fails_the_check(deltas: list[MessageDelta], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        await check_stream(UnguardedModel(*deltas))


async def test_a_stream_without_aclose_is_accepted() -> None:
    class BareModel(UnguardedModel):
        def stream(self, *_: Any, **__: Any) -> Any:
            source = self._stream()

            class Only:
                def __aiter__(self) -> Any:
                    return source

            return Only()

    assert (await check_stream(BareModel(*stamp(Start("m", "r"), Done("stop"))))).message is not None


def scripted(answer: Any) -> Callable[[str], Model]:
    """A model that sends a request, as the check requires, and then gives another answer."""

    def make(base_url: str) -> Model:
        real = connect("openai-chat:m", api_key=KEY, base_url=base_url)

        class WrongModel(ScriptedModel):
            def stream(self, messages: Any, tool_specs: Any = None, *args: Any, **options: Any) -> Any:
                return self._answer(messages, tool_specs, **options)

            async def _answer(self, *args: Any, **options: Any) -> AsyncIterator[MessageDelta]:
                async for _ in real.stream(*args, **options):
                    pass
                async for delta in ScriptedModel([answer]).stream(*args, **options):
                    yield delta

            async def aclose(self) -> None:
                await real.aclose()

        return WrongModel([])

    return make


@pytest.mark.parametrize(
    ("name", "answer", "message"),
    [
        ("text cut off by a close", "The transfer is ", "got a complete message"),
        ("text cut off by a close", Failed(ErrorCode.TIMEOUT), "stream_truncated"),
        ("text cut off by a close", Failed(ErrorCode.STREAM_TRUNCATED, retryable=False), "retryable=False"),
        ("429 with Retry-After", Failed(ErrorCode.RATE_LIMITED, retryable=True), "retry_after_ms=None"),
        ("complete text", Failed(ErrorCode.TIMEOUT), "expected a message"),
        ("complete text", "Something else", "expected the text"),
        ("complete call", "no call", "finish_reason=stop"),
        ("two calls with the same id", [Start("m", "r"), Done("tool_calls")], "expected the calls"),
        ("arguments that are not JSON", [Start("m", "r"), Done("tool_calls")], "expected 1 bad_args"),
    ],
)
async def test_a_wrong_outcome_fails_the_check(name: str, answer: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        await check_fault(MATRIX[name], scripted(answer))


async def test_a_model_that_sends_no_request_fails_the_check() -> None:
    with pytest.raises(AssertionError, match="sent no request"):
        await check_fault(MATRIX["complete text"], lambda _: ScriptedModel(["All is well."]))


def test_scenarios_exist_in_each_format() -> None:
    everything = scenarios()
    assert {scenario.format for scenario in everything} == set(FAULT_FORMATS)
    assert len(everything) == len(FAULT_FORMATS) * len(MATRIX)
    assert str(everything[0]) == f"{everything[0].format}: {everything[0].name}"


async def test_custom_scenarios_can_be_played() -> None:
    mine = replace(MATRIX["complete text"], name="mine", outcome=ExpectedOutcome(end="done", finish_reason="stop"))
    assert isinstance(mine, Scenario)
    await check_fault(mine, lambda base_url: connect("openai-chat:m", api_key=KEY, base_url=base_url))
