"""What changes a session from here on: the thinking level, the system prompt, and the summary of another branch."""

from typing import get_args

import pytest
from msgspec import Struct

from bartack import (
    ErrorCode,
    Failed,
    Meta,
    NotFound,
    PartValidationError,
    SessionInUse,
    Text,
    ThinkingConfig,
    Usage,
    assistant,
)
from bartack.agent.replay import replayed_model
from bartack.models import ScriptedModel
from bartack.nouns.entries import BranchSummary, SystemPromptOverride, ThinkingLevelChange
from bartack.store.requests import ThinkingLevel, override_system_prompt, redact, set_thinking_level
from tests.agent.kit import SESSION, PausingModel, check_session, facts, kinds, make

SUMMARY = assistant("It was a dead end.", meta=Meta(usage=Usage(7, 3, cost=0.5)))


class City(Struct):
    name: str


class Plain(ScriptedModel):
    """A model that cannot be given a schema."""

    def supports(self, feature: str) -> bool:
        return False


async def test_a_thinking_level_applies_to_later_runs_until_it_is_reset() -> None:
    """D-5.1"""
    agent, store, model = make(["One.", "Two.", "Three."])
    await agent.run("1", session=SESSION)
    await agent.set_thinking_level(SESSION, "high")
    await agent.run("2", session=SESSION)
    await agent.set_thinking_level(SESSION, "default")
    await agent.run("3", session=SESSION)
    assert [request.config.thinking for request in model.calls] == [None, ThinkingConfig(effort="high"), None]
    levels = [fact.level for fact in await facts(store) if isinstance(fact, ThinkingLevelChange)]
    assert levels == ["high", "default"]
    with pytest.raises(PartValidationError, match="Unknown thinking level 'deep'"):
        await agent.set_thinking_level(SESSION, "deep")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await agent.set_thinking_level("nowhere", "high")


async def test_a_system_prompt_replaces_the_instructions_until_they_are_restored() -> None:
    """D-5.1"""
    agent, store, model = make(["One.", "Two.", "Three."], instructions="Be brief.")
    await agent.run("1", session=SESSION)
    await agent.override_system_prompt(SESSION, "Answer in French.")
    await agent.run("2", session=SESSION)
    await agent.override_system_prompt(SESSION, None)
    await agent.run("3", session=SESSION)
    assert [request.messages[0].text for request in model.calls] == ["Be brief.", "Answer in French.", "Be brief."]
    texts = [fact.text for fact in await facts(store) if isinstance(fact, SystemPromptOverride)]
    assert texts == ["Answer in French.", None]


async def test_a_system_prompt_does_not_replace_the_instructions_for_the_output_type() -> None:
    agent, store, model = make(Plain(['{"name": "Paris"}', '{"name": "Lyon"}']), output_type=City)
    await agent.run("1", session=SESSION)
    await override_system_prompt(store, SESSION, "Answer in French.")
    assert (await agent.run("2", session=SESSION)).output == City("Lyon")
    (before,), (override, suffix) = (request.messages[0].parts for request in model.calls)
    assert (override, suffix) == (Text("Answer in French."), before)


async def test_a_setting_can_begin_a_branch() -> None:
    agent, store, model = make(["One.", "Two.", "Again."])
    await agent.run("1", session=SESSION)
    head = (await store.load(SESSION))[-1].id
    await agent.run("2", session=SESSION)
    await set_thinking_level(store, SESSION, "low", head=head)
    await agent.run("3", session=SESSION)
    assert [message.text for message in model.calls[-1].messages] == ["1", "One.", "3"]
    assert model.calls[-1].config.thinking == ThinkingConfig(effort="low")


async def test_a_live_run_is_not_changed() -> None:
    """D-5.12"""
    model = PausingModel(["A long answer."])
    agent, store, _ = make(model)
    async with agent.stream("1", session=SESSION) as run:
        await model.reached.wait()
        with pytest.raises(SessionInUse):
            await set_thinking_level(store, SESSION, "high")
        model.proceed.set()
        await run.wait()


async def test_the_model_learns_what_an_abandoned_branch_came_to() -> None:
    """D-5.1"""
    agent, store, model = make(["One.", "Two.", SUMMARY, "Three."])
    await agent.run("first", session=SESSION)
    fork = (await store.load(SESSION))[-1].id
    await agent.run("second", session=SESSION)
    abandoned = (await store.load(SESSION))[-1].id
    result = await agent.summarise_branch(SESSION, abandoned, head=fork)
    assert (result.reason, result.usage, result.cost_usd) == ("branch_summarised", Usage(7, 3, cost=0.5), 0.5)
    prompt = model.calls[2].messages[1].text
    assert "second" in prompt
    assert "Two." in prompt
    assert "first" not in prompt  # both branches contain it
    await agent.run("third", session=SESSION)
    texts = [message.text for message in model.calls[-1].messages]
    assert (texts[0], texts[1], texts[-1]) == ("first", "One.", "third")
    assert "It was a dead end." in texts[2]
    assert "Two." not in texts
    (fact,) = [fact for fact in await facts(store) if isinstance(fact, BranchSummary)]
    assert (fact.from_entry_id, fact.usage) == (abandoned, Usage(7, 3, cost=0.5))
    replayed = replayed_model(await store.load(SESSION))
    assert [getattr(answer, "text", "") for answer in replayed._responses] == ["One.", "It was a dead end.", "Three."]
    await check_session(store)


async def test_an_own_function_may_summarise_a_branch_and_what_was_redacted_is_not_in_it() -> None:
    """D-5.6"""
    texts: list[str] = []

    async def summarise(messages: tuple[object, ...]) -> str:
        texts.extend(getattr(message, "text", "") for message in messages)
        return "Mine."

    agent, store, _ = make(["One.", "Two."], summarise=summarise)
    await agent.run("first", session=SESSION)
    fork = (await store.load(SESSION))[-1].id
    await agent.run("second", session=SESSION)
    branch = await store.load(SESSION)
    prompt = next(entry.id for entry in branch if getattr(entry.fact, "text", "") == "second")
    await set_thinking_level(store, SESSION, "low", head=fork)  # the redaction is on another branch
    await redact(store, SESSION, prompt)
    await agent.summarise_branch(SESSION, branch[-1].id)
    assert texts[-1] == "Two."
    assert "second" not in texts
    assert "branch_summary" in await kinds(store)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Failed(ErrorCode.OVERLOADED, "busy"), ErrorCode.COMPACTION_FAILED),
        ("", ErrorCode.COMPACTION_FAILED),
    ],
)
async def test_a_branch_without_a_summary_fails_the_run_and_nothing_else(answer: str | Failed, code: ErrorCode) -> None:
    agent, store, _ = make(["One.", "Two.", answer, "Three."])
    await agent.run("first", session=SESSION)
    fork = (await store.load(SESSION))[-1].id
    await agent.run("second", session=SESSION)
    result = await agent.summarise_branch(SESSION, (await store.load(SESSION))[-1].id, head=fork)
    assert result.error is not None
    assert result.error.error_code is code
    assert "branch_summary" not in await kinds(store)
    assert (await agent.run("third", session=SESSION)).output == "Three."


async def test_only_another_branch_can_be_summarised() -> None:
    agent, store, _ = make(["One."])
    await agent.run("first", session=SESSION)
    own = (await store.load(SESSION))[-1].id
    for abandoned, code in ((own, ErrorCode.COMPACTION_FAILED), ("nowhere", ErrorCode.NOT_FOUND)):
        result = await agent.summarise_branch(SESSION, abandoned)
        assert result.error is not None
        assert result.error.error_code is code


def test_the_levels_are_those_of_the_configuration_and_the_default() -> None:
    for level in get_args(ThinkingLevel)[1:]:
        assert ThinkingConfig(effort=level).effort == level
    assert get_args(ThinkingLevel)[0] == "default"
