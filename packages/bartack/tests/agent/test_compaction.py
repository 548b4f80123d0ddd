"""Compaction of a context that has grown too large (D-6.4, D-6.5, D-6.6)."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bartack import (
    AgentConfig,
    CompactionSummary,
    ContextConfig,
    ErrorCode,
    Failed,
    Message,
    Meta,
    PartValidationError,
    Text,
    Usage,
    assistant,
    user,
)
from bartack.agent import Compacted, Hooks, Retrying, StatusChanged
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.deltas import Delta, Start, TextDelta
from bartack.nouns.entries import Custom, Redaction, StreamFailed
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tables import AgentStatus
from bartack.store.requests import post
from tests.agent.kit import SESSION, check_session, collected, facts, kinds, make

LONG = "It was a long day in a long year, and much was said and done. " * 12
OVERFLOW = Failed(ErrorCode.CONTEXT_OVERFLOW, "the prompt is too long")
SMALL = AgentConfig(context=ContextConfig(keep_recent_tokens=60))


def story(tokens: int) -> Message:
    return assistant(LONG, meta=Meta(usage=Usage(tokens, 200)))


async def test_an_overflow_is_compacted_once_and_retried() -> None:
    agent, store, model = make([story(300), story(600), OVERFLOW, "They told stories.", "Tuesday."], config=SMALL)
    await agent.run("Tell me a story", session=SESSION)
    await agent.run("Another", session=SESSION)
    events = await collected(agent.stream("Which day was it?", session=SESSION))
    assert events[-1].result.output == "Tuesday."
    (compacted,) = [event for event in events if isinstance(event, Compacted)]
    assert compacted.tokens_after is not None
    assert compacted.tokens_before is not None
    assert compacted.tokens_after < compacted.tokens_before
    summary = next(fact for fact in await facts(store) if isinstance(fact, CompactionSummary))
    assert summary.summary == "They told stories."
    last = model.calls[-1].messages
    assert any("They told stories." in message.text for message in last)
    assert sum(len(message.text) for message in last) < len(LONG) * 2
    meta = events[-1].result.message.meta
    assert (meta.model_call_index, meta.attempt) == (0, 2)
    await check_session(store)


async def test_a_second_overflow_ends_the_run() -> None:
    agent, store, _ = make([story(300), story(600), OVERFLOW, "Stories.", OVERFLOW, "never"], config=SMALL)
    for prompt in ("One", "Two"):
        await agent.run(prompt, session=SESSION)
    result = await agent.run("Three", session=SESSION)
    assert result.status is AgentStatus.FAILED
    assert result.error is not None
    assert result.error.error_code is ErrorCode.CONTEXT_OVERFLOW
    assert (await kinds(store)).count("compaction_summary") == 1


async def test_an_overflow_ends_the_run_if_compaction_is_disabled() -> None:
    config = AgentConfig(context=ContextConfig(compaction=False))
    agent, store, model = make([story(300), OVERFLOW, "never"], config=config)
    await agent.run("One", session=SESSION)
    result = await agent.run("Two", session=SESSION)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.CONTEXT_OVERFLOW
    assert len(model.calls) == 2
    assert "compaction_summary" not in await kinds(store)


async def test_a_users_function_can_write_the_summary() -> None:
    summarised: list[int] = []

    async def summarise(messages: tuple[Message, ...]) -> str:
        summarised.append(len(messages))
        return "Stories."

    agent, _, model = make([story(300), story(600), OVERFLOW, "Tuesday."], config=SMALL, summarise=summarise)
    for prompt in ("One", "Two", "Three"):
        result = await agent.run(prompt, session=SESSION)
    assert result.output == "Tuesday."
    assert summarised
    assert len(model.calls) == 4


async def test_a_context_near_its_budget_is_compacted_before_the_call() -> None:
    config = AgentConfig(context=ContextConfig(max_tokens=1000, reserve_tokens=200, keep_recent_tokens=50))
    agent, store, model = make([story(300), story(650), "They told stories.", "Tuesday."], config=config)
    for prompt in ("One", "Two", "Three"):
        result = await agent.run(prompt, session=SESSION)
    assert result.output == "Tuesday."
    assert "compaction_summary" in await kinds(store)
    assert "stream_failed" not in await kinds(store)
    assert model.calls[2].tools == ()  # the call for the summary


async def test_a_missing_summary_fails_only_a_run_that_needs_it() -> None:
    busy = Failed(ErrorCode.OVERLOADED, "busy")
    config = AgentConfig(context=ContextConfig(max_tokens=1000, reserve_tokens=200, keep_recent_tokens=50))
    agent, store, _ = make([story(300), story(650), busy, "Tuesday."], config=config)
    for prompt in ("One", "Two", "Three"):
        result = await agent.run(prompt, session=SESSION)
    assert result.output == "Tuesday."
    assert "stream_failed" in await kinds(store)
    agent, store, _ = make([story(300), story(600), OVERFLOW, busy], config=SMALL)
    for prompt in ("One", "Two", "Three"):
        result = await agent.run(prompt, session=SESSION)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.COMPACTION_FAILED


@pytest.mark.parametrize("summary", [LONG * 9, " "])
async def test_a_summary_that_does_not_shrink_the_context_fails_the_run(summary: str) -> None:
    agent, store, _ = make([story(300), story(600), OVERFLOW, summary, "never"], config=SMALL)
    for prompt in ("One", "Two", "Three"):
        result = await agent.run(prompt, session=SESSION)
    assert result.error is not None
    assert result.error.error_code is ErrorCode.COMPACTION_FAILED
    await check_session(store)


async def test_a_session_is_compacted_on_demand() -> None:
    agent, store, model = make([story(300), story(600), "They told stories.", "Tuesday."], config=SMALL)
    for prompt in ("Tell me a story", "Another"):
        await agent.run(prompt, session=SESSION)
    events = await collected(agent.compact_stream(SESSION))
    assert [type(event) for event in events].count(Compacted) == 1
    assert events[-1].result.status is AgentStatus.COMPLETED
    assert events[-1].result.reason == "compacted"
    result = await agent.run("Which day was it?", session=SESSION)
    assert result.output == "Tuesday."
    assert any("They told stories." in message.text for message in model.calls[-1].messages)
    await check_session(store)


async def test_a_summary_on_demand_that_is_no_shorter_is_discarded() -> None:
    agent, store, _ = make(["Hello.", LONG])
    await agent.run("Hi", session=SESSION)
    result = await agent.compact(SESSION)
    assert result.status is AgentStatus.FAILED
    assert result.error is not None
    assert result.error.error_code is ErrorCode.COMPACTION_FAILED
    assert (await kinds(store)).count("compaction_summary") == 0
    await check_session(store)


async def test_compaction_on_demand_fails_if_compaction_is_disabled() -> None:
    agent, _, _ = make(["Hello."], config=AgentConfig(context=ContextConfig(compaction=False)))
    await agent.run("Hi", session=SESSION)
    result = await agent.compact(SESSION)
    assert result.error is not None
    assert "disabled" in (result.error.message or "")


@pytest.mark.parametrize(
    "script",
    [
        ["They sent a log.", "Tuesday.", "Still Tuesday."],
        [Failed(ErrorCode.SERVER_ERROR, "no"), "Tuesday.", Failed(ErrorCode.SERVER_ERROR, "no"), "Still Tuesday."],
    ],
    ids=["summarised", "cut"],
)
async def test_an_oversized_first_message_does_not_block_the_session(script: list[str | Failed]) -> None:
    small = AgentConfig(context=ContextConfig(max_tokens=4_000))
    agent, store, model = make(script, config=small)
    result = await agent.run("x" * 100_000, session=SESSION)
    assert result.status is AgentStatus.FAILED
    assert result.error is not None
    assert "limit 3,000" in (result.error.message or "")
    assert (await agent.run("Which day is it?", session=SESSION)).output == "Tuesday."
    assert (await agent.run("And now?", session=SESSION)).output == "Still Tuesday."
    assert all(sum(len(message.text) for message in call.messages) < 12_000 for call in model.calls)
    await check_session(store)


class Unanswerable(ScriptedModel):
    """A model that raises instead of returning a stream, for any request for a summary."""

    def stream(self, messages: Sequence[Message], *arguments: Any, **options: Any) -> Any:
        if messages[-1].text.endswith("Write the summary."):
            raise PartValidationError("The request cannot be encoded.", code=ErrorCode.INVALID_CONFIG)
        return super().stream(messages, *arguments, **options)


async def test_a_summary_call_that_raises_fails_the_run_and_is_recorded() -> None:
    agent, store, _ = make(Unanswerable([story(300), story(600)]), config=SMALL)
    for prompt in ("One", "Two"):
        await agent.run(prompt, session=SESSION)
    result = await agent.compact(SESSION)
    assert result.status is AgentStatus.FAILED
    assert result.error is not None
    assert result.error.error_code is ErrorCode.COMPACTION_FAILED
    assert "cannot be encoded" in (result.error.message or "")
    (failed,) = [fact for fact in await facts(store) if isinstance(fact, StreamFailed)]
    assert failed.error.error_code is ErrorCode.INVALID_CONFIG
    assert failed.model_call_index is None
    await check_session(store)


async def test_a_summary_call_that_raises_before_an_answer_does_not_stop_the_run() -> None:
    config = AgentConfig(context=ContextConfig(max_tokens=1000, reserve_tokens=200, keep_recent_tokens=50))
    agent, store, _ = make(Unanswerable([story(300), story(650), "Tuesday."]), config=config)
    for prompt in ("One", "Two", "Three"):
        result = await agent.run(prompt, session=SESSION)
    assert result.output == "Tuesday."
    assert "stream_failed" in await kinds(store)


BUSY = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)


async def test_a_summary_that_fails_is_retried_like_an_answer() -> None:
    agent, store, _ = make([story(300), story(600), BUSY, BUSY, "They told stories."], config=SMALL)
    for prompt in ("One", "Two"):
        await agent.run(prompt, session=SESSION)
    events = await collected(agent.compact_stream(SESSION))
    assert events[-1].result.status is AgentStatus.COMPLETED
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [(event.model_call_index, event.attempt) for event in retries] == [(None, 2), (None, 3)]
    failures = [fact for fact in await facts(store) if isinstance(fact, StreamFailed)]
    assert [(fact.model_call_index, fact.attempt) for fact in failures] == [(None, 1), (None, 2)]
    await check_session(store)


async def test_a_fallback_model_writes_the_summary_and_answers_from_then_on() -> None:
    fallback = ScriptedModel(["They told stories.", "Tuesday."], model_id="other")
    script: list[ScriptedResponse] = [
        story(300),
        story(600),
        OVERFLOW,
        Failed(ErrorCode.AUTHENTICATION, "no key"),
        "never",
    ]
    agent, store, model = make(script, config=SMALL, fallback_models=[fallback])
    for prompt in ("One", "Two"):
        await agent.run(prompt, session=SESSION)
    result = await agent.run("Which day was it?", session=SESSION)
    assert (result.output, len(model.calls), len(fallback.calls)) == ("Tuesday.", 4, 2)
    assert result.message is not None
    assert result.message.meta is not None
    assert (result.message.meta.model_call_index, result.message.meta.attempt) == (0, 2)
    assert (await kinds(store)).count("model_change") == 1
    await check_session(store)


async def test_model_hooks_see_and_change_the_call_for_a_summary() -> None:
    async def redact(request: ModelRequest) -> ModelRequest | None:
        if request.metadata.model_call_index is not None:
            return None
        return replace(request, messages=(user("Summarise nothing."),))

    async def shorten(message: Message) -> Message | None:
        is_summary = message.meta is not None and message.meta.model_call_index is None
        return replace(message, parts=(Text("Stories."),)) if is_summary else None

    hooks = Hooks(before_model=redact, after_model=shorten)
    agent, store, model = make([story(300), story(600), "They told stories."], config=SMALL, hooks=hooks)
    for prompt in ("One", "Two"):
        await agent.run(prompt, session=SESSION)
    await agent.compact(SESSION)
    assert [message.text for message in model.calls[-1].messages] == ["Summarise nothing."]
    assert [fact.summary for fact in await facts(store) if isinstance(fact, CompactionSummary)] == ["Stories."]


async def test_a_compaction_never_reports_a_running_model() -> None:
    agent, _, _ = make([story(300), story(600), "They told stories."], config=SMALL)
    for prompt in ("One", "Two"):
        await agent.run(prompt, session=SESSION)
    events = await collected(agent.compact_stream(SESSION))
    statuses = [event.status for event in events if isinstance(event, StatusChanged)]
    assert statuses == [AgentStatus.PREPARING, AgentStatus.COMPLETED]


async def test_what_had_arrived_of_an_earlier_answer_is_not_in_the_result_of_a_compaction() -> None:
    torn: Sequence[Delta] = [Start("scripted", "r"), TextDelta("Half an answer"), Failed(ErrorCode.SERVER_ERROR, "no")]
    agent, _, _ = make([story(300), story(600), torn, "They told stories."], config=SMALL)
    for prompt in ("Tell me a story", "Another"):
        await agent.run(prompt, session=SESSION)
    failed = await agent.run("One more", session=SESSION)
    assert failed.message is not None
    assert failed.message.text.startswith("Half")
    compacted = await agent.compact(SESSION)
    assert (compacted.reason, compacted.message) == ("compacted", None)


@pytest.mark.parametrize("reason", ["length", "content_filter", "refusal"])
async def test_a_summary_that_is_not_complete_replaces_nothing(reason: Any) -> None:
    refused = assistant("I cannot help with that.", meta=Meta(finish_reason=reason))
    agent, store, _ = make([story(300), story(600), *[refused] * 3], config=SMALL)
    for prompt in ("Tell me a story", "Another"):
        await agent.run(prompt, session=SESSION)
    result = await agent.compact(SESSION)
    assert (result.status, result.reason) == (AgentStatus.FAILED, "compaction_failed")
    assert "compaction_summary" not in await kinds(store)


@pytest.mark.parametrize("overflow", [False, True])
async def test_redactions_do_not_repeat_a_compaction_for_ever(overflow: bool) -> None:
    """Each summary is outdated by a redaction before it is stored."""
    summaries = 0

    async def summarise(messages: tuple[Message, ...]) -> str:
        nonlocal summaries
        summaries += 1
        note = await post(store, SESSION, Custom(name="note", data={}))
        await post(store, SESSION, Redaction(entry_id=note.id))
        return "They told stories."

    agent, store, _ = make([story(300), story(600), OVERFLOW, "Tuesday."], config=SMALL, summarise=summarise)
    await agent.run("Tell me a story", session=SESSION)
    await agent.run("Another", session=SESSION)
    if overflow:
        result = await agent.run("Which day was it?", session=SESSION)
    else:
        result = await agent.compact(SESSION)
    assert result.error is not None
    assert (result.error.error_code, summaries) == (ErrorCode.COMPACTION_FAILED, 3)
    assert "redacted" in result.error.message
