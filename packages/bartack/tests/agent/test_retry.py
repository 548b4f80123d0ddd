"""Failed model calls: what is recorded, when they are retried, and when a fallback takes over."""

from itertools import pairwise

import pytest

from bartack import (
    AgentConfig,
    ContextConfig,
    Delta,
    ErrorCode,
    Failed,
    PartValidationError,
    Start,
    Text,
    TextDelta,
    ToolCallArgs,
    ToolCallStart,
    Usage,
    assistant,
)
from bartack.agent import DeltaReceived, Event, ModelSwitched, Retrying, RetryPolicy, Snapshot, StatusChanged
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.entries import ModelChange, StreamFailed
from bartack.nouns.messages import ModelRef
from bartack.nouns.tables import AgentStatus
from tests.agent.kit import FAST, SESSION, call, check_session, collected, facts, kinds, make

BUSY = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
CUT: list[Delta] = [
    Start("scripted", "r1", provider="scripted"),
    TextDelta("The transfer is "),
    ToolCallStart("c1", "weather"),
    ToolCallArgs("c1", '{"city":"Paris"}'),
    Usage(10, 5, cost=0.5),
    Failed(ErrorCode.STREAM_TRUNCATED, "cut", retryable=True),
]


def test_delays_grow_up_to_a_limit_less_a_random_share() -> None:
    policy = RetryPolicy(max_retries=9, base_ms=100, max_ms=1000, jitter=0.5)
    assert [policy.delay_ms(BUSY, attempt, lambda: 0.0) for attempt in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]
    assert policy.delay_ms(BUSY, 3, lambda: 1.0) == 200


def test_a_busy_provider_can_be_waited_out_for_longer() -> None:
    policy = RetryPolicy(max_retries=1, max_busy_retries=12)
    delays = [policy.delay_ms(BUSY, attempt, lambda: 0.5) for attempt in range(1, 14)]
    assert delays[-1] is None
    assert 120_000 < sum(delay or 0 for delay in delays) < 300_000
    broken = Failed(ErrorCode.STREAM_TRUNCATED, retryable=True)
    assert policy.delay_ms(broken, 1, float) is not None
    assert policy.delay_ms(broken, 2, float) is None
    with pytest.raises(PartValidationError, match="max_busy_retries"):
        RetryPolicy(max_busy_retries=-1)


def test_a_delay_requested_by_the_provider_is_used_up_to_a_limit() -> None:
    policy = RetryPolicy(max_retry_after_ms=10_000)
    failed = Failed(ErrorCode.RATE_LIMITED, retryable=True, retry_after_ms=7000)
    assert policy.delay_ms(failed, 1, lambda: 1.0) == 7000
    assert policy.delay_ms(Failed(ErrorCode.RATE_LIMITED, retryable=True, retry_after_ms=60_000), 1, float) is None


def test_only_retryable_errors_or_selected_codes_are_retried() -> None:
    denied = Failed(ErrorCode.AUTHENTICATION)
    assert RetryPolicy().delay_ms(denied, 1, float) is None
    assert RetryPolicy(codes=frozenset({ErrorCode.AUTHENTICATION})).delay_ms(denied, 1, float) == 500
    assert RetryPolicy(codes=frozenset({ErrorCode.AUTHENTICATION})).delay_ms(BUSY, 1, float) is None
    assert RetryPolicy(max_retries=2).delay_ms(BUSY, 3, float) is None


async def test_a_failed_attempt_is_kept_with_its_cost_and_the_next_one_shares_its_index() -> None:
    """001-7.6, D-7.10, D-3.5.2, D-3.5.3"""
    agent, store, _ = make([CUT, BUSY, "Done."])
    events = await collected(agent.stream("Go", session=SESSION))
    first, second = (fact for fact in await facts(store) if isinstance(fact, StreamFailed))
    assert first.parts[0] == Text("The transfer is ", time=first.parts[0].time)  # type: ignore[union-attr]
    assert (first.usage, first.response_id, first.error.error_code) == (
        Usage(10, 5, cost=0.5),
        "r1",
        ErrorCode.STREAM_TRUNCATED,
    )
    assert [(fact.model_call_index, fact.attempt) for fact in (first, second)] == [(0, 1), (0, 2)]
    assert "tool_started" not in await kinds(store)
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [(event.attempt, event.error.error_code) for event in retries] == [
        (2, ErrorCode.STREAM_TRUNCATED),
        (3, ErrorCode.OVERLOADED),
    ]
    result = events[-1].result
    assert (result.output, result.message.meta.attempt, result.usage) == ("Done.", 3, Usage(10, 5, cost=0.5))
    assert result.cost_usd == 0.5
    statuses = [event.status for event in events if isinstance(event, StatusChanged)]
    assert statuses.count(AgentStatus.PREPARING) == 3


def rendered(events: list[Event]) -> list[str]:
    """The answers as the quick start renders them."""
    answers: dict[int | None, str] = {}
    for event in events:
        match event:
            case DeltaReceived(delta=stamped, model_call_index=index) if isinstance(stamped.delta, TextDelta):
                answers[index] = answers.get(index, "") + stamped.delta.text_delta
            case Retrying(model_call_index=index):
                answers.pop(index, None)
            case _:
                pass
    return list(answers.values())


CUT_TEXT: list[Delta] = [Start("scripted", "r"), TextDelta("It will r"), BUSY]
OVERFLOW = Failed(ErrorCode.CONTEXT_OVERFLOW, "too long")


@pytest.mark.parametrize(
    "script",
    [
        [assistant("Looking.", call("c1")), CUT_TEXT, BUSY, "It will rain."],
        [CUT_TEXT, assistant("Looking.", call("c1")), CUT_TEXT, CUT_TEXT, "It will rain."],
        [assistant("Looking.", call("c1")), CUT_TEXT, CUT_TEXT, CUT_TEXT],  # then the fallback answers
        [assistant("Looking.", call("c1")), [*CUT_TEXT[:2], OVERFLOW], "A summary.", "It will rain."],
    ],
)
async def test_a_reader_of_deltas_can_tell_which_of_them_no_longer_count(script: list[ScriptedResponse]) -> None:
    fallback = ScriptedModel(["It will rain."], model_id="other")
    config = AgentConfig(context=ContextConfig(keep_recent_tokens=1))
    agent, store, _ = make(["Hello. " * 100], config=config)
    await agent.run("Hi", session=SESSION)
    agent, _, _ = make(script, store=store, config=config, fallback_models=[fallback])
    events = await collected(agent.stream("Rain?", session=SESSION))
    stored = [message.text for message in events[-1].result.messages if message.role == "assistant"]
    assert rendered(events) == stored == ["Looking.", "It will rain."]
    attempts = [event.attempt for event in events if isinstance(event, DeltaReceived) and event.model_call_index == 1]
    assert attempts == sorted(attempts)
    assert attempts[-1] == events[-1].result.message.meta.attempt > 1


async def test_what_had_arrived_of_an_answer_that_failed_for_good_still_counts() -> None:
    agent, _, _ = make([BUSY, CUT_TEXT], retry=RetryPolicy(max_retries=1, base_ms=1))
    events = await collected(agent.stream("Rain?", session=SESSION))
    assert rendered(events) == [events[-1].result.message.text] == ["It will r"]


async def test_snapshots_begin_again_with_each_attempt() -> None:
    agent, _, _ = make([CUT_TEXT, "It will rain in Paris."])
    async with agent.stream("Rain?", session=SESSION, snapshots=True) as run:
        snapshots = [event.message.text async for event in run if isinstance(event, Snapshot)]
    again = snapshots.index("", 1)
    assert "It will r".startswith(snapshots[again - 1])
    texts = snapshots[again:]
    assert len(texts) > 2
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert "It will rain in Paris.".startswith(texts[-1])


async def test_a_run_fails_with_the_error_of_its_last_attempt() -> None:
    agent, store, model = make([BUSY] * 5)
    result = await agent.run("Go", session=SESSION)
    assert (result.status, result.error, len(model.calls)) == (
        AgentStatus.FAILED,
        Failed(ErrorCode.OVERLOADED, "busy"),
        3,
    )
    agent, store, model = make(["Better."], store=store)
    assert (await agent.run("Again", session=SESSION)).output == "Better."
    await check_session(store)


async def test_an_error_that_is_not_retryable_is_not_retried() -> None:
    agent, _, model = make([Failed(ErrorCode.AUTHENTICATION, "no key"), "never"])
    result = await agent.run("Go", session=SESSION)
    assert (result.status, len(model.calls)) == (AgentStatus.FAILED, 1)


async def test_a_fallback_model_takes_over_for_the_rest_of_the_run() -> None:
    fallback = ScriptedModel([assistant(call("c1")), "Done."], model_id="other")
    agent, store, model = make([BUSY] * 3 + ["back"], fallback_models=[fallback], retry=FAST)
    events = await collected(agent.stream("Go", session=SESSION))
    assert events[-1].result.output == "Done."
    assert (len(model.calls), len(fallback.calls)) == (3, 2)
    switched = [event for event in events if isinstance(event, ModelSwitched)]
    assert [(event.model.model, event.reason) for event in switched] == [("other", "fallback")]
    change = next(fact for fact in await facts(store) if isinstance(fact, ModelChange))
    assert change == ModelChange(model=ModelRef("scripted", "other"), previous=ModelRef("scripted", "scripted"))
    assert events[-1].result.messages[1].meta.attempt == 4
    assert (await agent.run("Again", session=SESSION)).output == "back"


async def test_a_model_that_raises_fails_the_run_instead_of_raising() -> None:
    class Odd(ScriptedModel):
        def stream(self, *arguments: object, **options: object) -> object:  # type: ignore[override]
            from bartack import PartValidationError

            raise PartValidationError("cannot be encoded", code=ErrorCode.INVALID_CONFIG)

    agent, _, _ = make(Odd([]))
    result = await agent.run("Go", session=SESSION)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.INVALID_CONFIG


async def test_a_model_that_breaks_the_contract_is_a_failure() -> None:
    agent, store, _ = make([[TextDelta("no start")]])
    result = await agent.run("Go", session=SESSION)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.CONTRACT_VIOLATION
    assert "stream_failed" in await kinds(store)


@pytest.mark.parametrize("reason", ["before", "after"])
async def test_an_exception_in_a_model_hook_reaches_the_caller(reason: str) -> None:
    from bartack.agent import Hooks

    async def broken(_: object) -> None:
        raise ValueError("mine")

    hooks = Hooks(before_model=broken) if reason == "before" else Hooks(after_model=broken)
    agent, store, _ = make(["x"], hooks=hooks)
    with pytest.raises(ValueError, match="mine"):
        await agent.run("Go", session=SESSION)
    assert (await kinds(store))[-1] == "run_ended"
    agent, store, _ = make(["Fine."], store=store)
    assert (await agent.run("Go", session=SESSION)).output == "Fine."
