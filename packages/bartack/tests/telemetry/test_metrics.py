"""The values of the metrics."""

from typing import Any

import pytest

from bartack import Delta, ErrorCode, Failed, Meta, Start, Usage, assistant
from tests.agent.kit import SESSION, PausingModel, call, make, within
from tests.telemetry.kit import Recorder
from tests.telemetry.test_spans import OVERLOADED

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "scripted", "gen_ai.request.model": "scripted"}
ANSWERED = {**CHAT, "gen_ai.response.model": "scripted"}


async def measured() -> dict[str, dict[frozenset[Any], Any]]:
    """A run with a retry and a tool: the data points of each metric by their attributes."""
    recorder = Recorder()
    answers: list[Any] = [
        OVERLOADED,
        assistant(call("c1"), meta=Meta(usage=Usage(20, 5, cost=0.25))),
        assistant("Rain.", meta=Meta(usage=Usage(30, 6, cost=0.5))),
    ]
    agent, _, _ = make(answers, telemetry=recorder.telemetry(), name="guide")
    await agent.run("Will it rain?", session=SESSION)
    return {
        name: {frozenset(point.attributes.items()): point for point in points}
        for name, points in recorder.metrics().items()
    }


def key(**attributes: Any) -> frozenset[Any]:
    return frozenset(attributes.items())


async def test_tokens_and_cost_are_those_of_the_model_calls() -> None:
    metrics = await measured()
    tokens = metrics["gen_ai.client.token.usage"]
    assert tokens.keys() == {key(**ANSWERED, **{"gen_ai.token.type": kind}) for kind in ("input", "output")}
    sums = {dict(attributes)["gen_ai.token.type"]: point.sum for attributes, point in tokens.items()}
    assert sums == {"input": 50, "output": 11}
    (cost,) = metrics["bartack.usage.cost"].values()
    assert cost.value == pytest.approx(0.75)


async def test_durations_are_recorded_for_calls_runs_and_tools_with_their_errors() -> None:
    points = (await measured())["gen_ai.client.operation.duration"]
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "guide"}
    run |= {name: CHAT[name] for name in ("gen_ai.provider.name", "gen_ai.request.model")}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"}
    failed = next(attributes for attributes in points if ("error.type", "overloaded") in attributes)
    assert points.keys() == {key(**ANSWERED), failed, key(**run), key(**tool)}
    assert points[key(**ANSWERED)].count == 2
    assert all(0 < point.sum < 60 for point in points.values())


async def test_the_first_chunk_is_measured_for_answers_only() -> None:
    (point,) = (await measured())["gen_ai.client.operation.time_to_first_chunk"].values()
    assert (point.count, dict(point.attributes)) == (2, CHAT)


async def test_retries_are_counted_by_their_cause() -> None:
    (point,) = (await measured())["bartack.retries"].values()
    assert (point.value, dict(point.attributes)) == (1, {**CHAT, "error.type": "overloaded"})


async def test_active_runs_are_those_in_progress() -> None:
    recorder = Recorder()
    model = PausingModel(["Once upon a time"])
    agent, _, _ = make(model, telemetry=recorder.telemetry())

    def active() -> list[float]:
        return [point.value for point in recorder.metrics().get("bartack.active_runs", [])]

    assert active() == []
    async with agent.stream("Tell me a story", session=SESSION) as run:
        await within(model.reached.wait())
        assert active() == [1]
        model.proceed.set()
        await run.wait()
    assert active() == [0]


async def test_what_a_failed_call_has_used_counts() -> None:
    recorder = Recorder()
    broken: list[Delta] = [Start("scripted", "r1"), Usage(40, 0), Failed(ErrorCode.STREAM_TRUNCATED, "cut off")]
    agent, _, _ = make([broken], telemetry=recorder.telemetry())
    await agent.run("Hello", session=SESSION)
    points = recorder.metrics()["gen_ai.client.token.usage"]
    assert {point.attributes["gen_ai.token.type"]: point.sum for point in points} == {"input": 40, "output": 0}
