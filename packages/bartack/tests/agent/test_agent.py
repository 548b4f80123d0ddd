"""The agent itself: its configuration, its stores, and a few rules of the founding documents."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bartack import (
    AgentConfig,
    AgentError,
    ErrorCode,
    Message,
    MessageAssembler,
    MessageDelta,
    Meta,
    ModelConfig,
    ObservabilityConfig,
    PartValidationError,
    Text,
    Thinking,
    ToolCall,
    Usage,
    assistant,
    tool,
)
from bartack.agent import Agent
from bartack.events import DeltaReceived
from bartack.models import ProviderModel, ScriptedModel
from bartack.nouns.tables import AgentStatus
from bartack.store import open_store
from tests.agent.kit import (
    SESSION,
    Waiting,
    call,
    check_session,
    facts,
    kinds,
    make,
    messages,
    results,
    transfer,
    weather,
    within,
)

KEY = "sk-test-0123456789"


def test_the_default_model_comes_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """004-agent-config.1"""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    config = AgentConfig(
        model=ModelConfig("anthropic:claude-x", temperature=0.5, extra={"metadata": {"user_id": "u"}}),
        observability=ObservabilityConfig(provider_raw=True),
    )
    model = Agent(config=config).model
    assert isinstance(model, ProviderModel)
    assert model.get_config() == ModelConfig("claude-x", temperature=0.5, extra={"metadata": {"user_id": "u"}})
    named = Agent("anthropic:claude-y", config=config).model
    assert named.get_config().model_id == "claude-y"
    assert named.get_config().temperature == 0.5


async def test_a_model_object_keeps_its_own_settings() -> None:
    model = ScriptedModel(["x"])
    assert Agent(model, config=AgentConfig(model=ModelConfig("other:thing"))).model is model


async def test_named_sessions_are_stored_in_the_users_folder_and_others_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))

    def databases() -> list[Path]:
        return list(tmp_path.rglob("sessions.db"))

    async with Agent(ScriptedModel(["One.", "Two."])) as agent:
        await agent.run("Not stored")
        assert not databases()
        await agent.run("Keep this", session=SESSION)
    assert databases()
    async with Agent(ScriptedModel(["Three."])) as agent:
        assert (await agent.resume(SESSION)).output == "Two."


def test_run_sync_opens_and_closes_its_store_each_time(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(["One.", "Two."]), store=tmp_path / "s.db")
    assert agent.run_sync("a", session=SESSION).output == "One."
    assert agent.run_sync("b", session=SESSION).output == "Two."


async def test_a_store_passed_to_the_agent_is_not_closed(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "s.db")
    async with Agent(ScriptedModel(["One."]), store=store) as agent:
        await agent.run("a", session=SESSION)
    assert len(await messages(store)) == 2
    await store.close()


async def test_a_paused_run_can_be_aborted() -> None:
    agent, store, model = make([assistant(call("c1", "transfer", amount=5)), "never"])
    await agent.run("Go", session=SESSION)
    result = await agent.abort(SESSION, reason="changed my mind")
    assert (result.status, result.reason) == (AgentStatus.ABORTED, "changed my mind")
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_ABORTED
    assert len(model.calls) == 1
    await check_session(store)
    assert (await agent.abort(SESSION)).status is AgentStatus.ABORTED


class Stuttering(ScriptedModel):
    """Repeats every delta, as after a reconnect."""

    def stream(self, *arguments: Any, **options: Any) -> AsyncIterator[MessageDelta]:  # type: ignore[override]
        return self._twice(super().stream(*arguments, **options))

    async def _twice(self, stream: AsyncIterator[MessageDelta]) -> AsyncIterator[MessageDelta]:
        async for delta in stream:
            yield delta
            if delta.seq:
                yield delta


async def test_a_repeated_delta_is_consumed_once() -> None:
    """D-7.10.1"""
    agent, store, _ = make(Stuttering([assistant("Let me see.", call("c1")), "It rains."]))
    assert (await agent.run("Rain?", session=SESSION)).output == "It rains."
    assert "stream_failed" not in await kinds(store)


async def test_the_loop_assembles_the_deltas_of_a_call_into_one_message() -> None:
    """001-6.3, 001-7.2, 004-relations.5"""
    answer = assistant(Thinking("Hm."), "One message.", call("c1"), meta=Meta(usage=Usage(10, 5)))
    agent, store, model = make([answer, "Done."], instructions="Be brief.")
    assembler = MessageAssembler()
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, DeltaReceived) and event.model_call_index == 0:
                assembler.consume(event.delta)
    assert [message.text for message in model.calls[0].messages] == ["Be brief.", "Go"]
    (stored, _) = [message for message in await messages(store) if message.role == "assistant"]
    assert (stored.thinking, stored.text, stored.tool_calls) == ("Hm.", "One message.", (call("c1"),))
    assembled = assembler.build_final_message()
    assert stored.parts == assembled.parts
    assert stored.meta is not None
    assert assembled.meta is not None
    assert stored.meta.usage == assembled.meta.usage == Usage(10, 5)


async def test_the_state_has_the_usage_of_all_calls() -> None:
    """002-non-goals.7, 004-agent-state.2"""
    used = Meta(usage=Usage(10, 5, cache_read_tokens=4, cost=0.25))
    agent, _, _ = make([assistant(call("c1"), meta=used), assistant("Done.", meta=used)])
    run = agent.stream("Go", session=SESSION)
    async with run:
        await run.wait()
    state = run.state
    assert state.token_usage == Usage(20, 10, cache_read_tokens=8, cost=0.5)
    assert (state.cost_usage, state.status, state.last_error) == (0.5, AgentStatus.COMPLETED, None)


async def test_ids_are_uuids_of_version_7() -> None:
    """D-7.3.1"""
    store_agent = Agent(ScriptedModel(["x"]), tools=[weather], store="memory:")
    result = await store_agent.run("Go")
    ids = [result.session_id, result.run_id, *(message.id for message in result.messages)]
    assert {UUID(str(id)).version for id in ids} == {7}


async def test_parallel_tools_do_not_affect_each_other() -> None:
    """003-7.1.9"""

    def many(history: Sequence[Message]) -> Message:
        return assistant(*(call(f"c{number}", city=f"city {number}") for number in range(20)))

    agent, store, _ = make([many, "Done."])
    await agent.run("Go", session=SESSION)
    results_by_id = await results(store)
    assert {key: result.content for key, result in results_by_id.items()} == {
        f"c{number}": f"rain in city {number}" for number in range(20)
    }
    assert len([fact for fact in await facts(store) if fact.kind == "tool_started"]) == 20


@pytest.mark.parametrize("message", [assistant(ToolCall("c1", "look", {})), Message("system", (Text("obey"),))])
async def test_a_prompt_of_another_role_is_refused_and_nothing_is_stored(message: Message) -> None:
    agent, store, model = make(["never"])
    with pytest.raises(PartValidationError, match="A prompt must end with a user message"):
        await agent.run(message, session=SESSION)
    assert (await store.sessions()).items == ()
    assert model.calls == []


def test_a_program_without_an_event_loop_decides_and_resumes(tmp_path: Path) -> None:
    @tool(deferred=True)
    def order() -> None:
        """Order a book."""

    calls = assistant(call("a", "transfer", amount=5), call("b", "transfer", amount=6), ToolCall("o", "order", {}))
    agent = Agent(ScriptedModel([calls, "Done."]), tools=[transfer, order], store=tmp_path / "sessions.db")
    result = agent.run_sync("Go", session=SESSION)
    with pytest.raises(AgentError, match=r"it is paused; approve or deny .* and post the results .* resume") as caught:
        _ = result.output
    assert caught.value.code is ErrorCode.PAUSED
    agent.approve_sync(SESSION, "a", arguments={"amount": 1})
    agent.deny_sync(SESSION, "b", reason="no")
    agent.post_result_sync(SESSION, "o", "It came.", posted_by="the post")
    result = agent.resume_sync(SESSION)
    contents = [tool_result.content for message in result.messages for tool_result in message.tool_results]
    assert result.output == "Done."
    assert sorted(str(content)[:7] for content in contents) == ["It came", "The cal", "moved 1"]


async def test_a_suspended_run_has_no_output_yet() -> None:
    waiting = Waiting()
    agent, _, _ = make([assistant(ToolCall("w", "wait", {})), "Done."], waiting.tool)
    async with agent.stream("Go", session=SESSION) as run:
        await within(waiting.started.wait())
        run.suspend()
        result = await run.wait()
    with pytest.raises(AgentError, match="it is paused; resume it"):
        _ = result.output


async def test_run_sync_inside_an_event_loop_is_refused_with_a_hint() -> None:
    agent, _, model = make(["never"])
    with pytest.raises(AgentError, match=r"await agent\.run"):
        agent.run_sync("Hi")
    assert model.calls == []
