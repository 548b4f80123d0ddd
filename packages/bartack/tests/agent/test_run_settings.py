"""What one run is started with: dependencies, instructions, tools, settings, limits, metadata and history."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from bartack import (
    AgentConfig,
    AgentError,
    BartackError,
    ErrorCode,
    LoopConfig,
    Message,
    PartValidationError,
    ToolCall,
    ToolContext,
    ToolRegistry,
    ToolResult,
    assistant,
    tool,
    tool_message,
    user,
)
from bartack.agent import Agent, PromptContext
from bartack.models import ScriptedModel
from bartack.nouns.entries import RunStarted
from bartack.nouns.tables import AgentStatus
from tests.agent.kit import SESSION, call, check_session, facts, make, messages, weather


@dataclass
class User:
    name: str


@tool
async def greet(context: ToolContext[User]) -> str:
    """Greet the user."""
    return f"Hello {context.deps.name}"


@tool(requires_approval=True)
def greet_formally(title: str, context: ToolContext[User]) -> str:
    """Greet the user."""
    return f"Good day, {title} {context.deps.name}"


# -- dependencies


async def test_a_tool_gets_the_dependencies_of_its_run() -> None:
    agent, store, _ = make(
        [assistant(ToolCall("a", "greet", {})), "Ada.", assistant(ToolCall("b", "greet", {})), "Bob."], greet
    )
    await agent.run("Go", session=SESSION, deps=User("Ada"))
    await agent.run("Go", session=SESSION, deps=User("Bob"))
    results = [result.content for message in await messages(store) for result in message.tool_results]
    assert results == ["Hello Ada", "Hello Bob"]
    assert "context" not in greet.parameter_schema.get("properties", {})
    assert not any("Ada" in repr(fact) for fact in await facts(store) if isinstance(fact, RunStarted))


async def test_a_resumed_run_gets_the_dependencies_again() -> None:
    answers: list[Any] = [assistant(ToolCall("a", "greet_formally", {"title": "Dr"})), "Done."]
    agent, store, _ = make(answers, greet_formally)
    paused = await agent.run("Go", session=SESSION, deps=User("Ada"))
    assert paused.status is AgentStatus.AWAITING_HUMAN
    await agent.approve(SESSION, "a")
    assert (await agent.resume(SESSION, deps=User("Ada"))).output == "Done."
    assert (await messages(store))[2].tool_results[0].content == "Good day, Dr Ada"


# -- instructions


async def test_instructions_are_texts_or_functions_of_the_run() -> None:
    contexts: list[PromptContext[User]] = []

    def about(context: PromptContext[User]) -> str:
        contexts.append(context)
        return f"The user is {context.deps.name}."

    async def later(context: PromptContext[User]) -> str:
        await asyncio.sleep(0)
        return "Be brief."

    agent, _, model = make(["Hi."], instructions=about)
    await agent.run("Go", session=SESSION, deps=User("Ada"), instructions=later)
    assert model.calls[0].messages[0].text == "The user is Ada.\n\nBe brief."
    assert (contexts[0].session_id, contexts[0].model.model) == (SESSION, "scripted")


async def test_the_instructions_of_one_run_are_not_those_of_the_next() -> None:
    agent, _, model = make(["Hi.", "Hi."])
    await agent.run("Go", session=SESSION, instructions="Be brief.")
    await agent.run("Go", session=SESSION)
    assert [request.messages[0].role for request in model.calls] == ["system", "user"]


async def test_instructions_that_raise_fail_the_start_and_store_nothing() -> None:
    def broken(context: PromptContext[Any]) -> str:
        raise LookupError("no user")

    agent, store, _ = make(["never"], instructions=broken)
    with pytest.raises(LookupError):
        await agent.run("Go", session=SESSION)
    assert (await store.sessions()).items == ()


# -- tools, settings, limits, metadata


async def test_tools_of_one_run_are_added_to_those_of_the_agent() -> None:
    agent, store, model = make([assistant(call("a")), "Rain.", "Hi."], greet)
    await agent.run("Go", session=SESSION, tools=[weather])
    await agent.run("Go", session=SESSION)
    assert [spec.name for spec in model.calls[0].tools] == ["greet", "weather"]
    assert [spec.name for spec in model.calls[2].tools] == ["greet"]
    assert (await messages(store))[2].tool_results[0].content == "rain in Paris"


async def test_sets_of_tools_stand_for_their_tools() -> None:
    registry = ToolRegistry([greet, weather])
    model = ScriptedModel([assistant(ToolCall("a", "far_weather", {"city": "Oslo"})), "Rain."])
    agent = Agent(model, tools=[registry.filtered(lambda tool: tool is greet), weather])
    result = await agent.run("Go", tools=[registry.prefixed("far_")])
    assert [spec.name for spec in model.calls[0].tools] == ["far_greet", "far_weather", "greet", "weather"]
    assert result.messages[2].tool_results[0].content == "rain in Oslo"


async def test_a_tool_of_a_run_needs_a_name_of_its_own() -> None:
    agent, _, _ = make(["never"], weather)
    with pytest.raises(BartackError, match="Duplicate tool name 'weather'"):
        await agent.run("Go", session=SESSION, tools=[weather])


async def test_model_settings_apply_to_the_calls_of_one_run() -> None:
    agent, _, model = make(["Hi.", "Hi."])
    await agent.run("Go", session=SESSION, model_settings={"temperature": 0.0, "max_tokens": 5})
    await agent.run("Go", session=SESSION)
    assert (model.calls[0].config.temperature, model.calls[0].config.max_tokens) == (0.0, 5)
    assert (model.calls[1].config.temperature, model.calls[1].config.max_tokens) == (None, None)


@pytest.mark.parametrize("settings", [{"warmth": 1}, {"temperature": -1}, {"max_tokens": "many"}])
async def test_a_wrong_model_setting_is_refused_before_anything_is_stored(settings: dict[str, Any]) -> None:
    agent, store, _ = make(["never"])
    with pytest.raises(BartackError) as caught:
        await agent.run("Go", session=SESSION, model_settings=settings)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert next(iter(settings)).split("_")[0] in str(caught.value)
    assert (await store.sessions()).items == ()


async def test_limits_of_one_run() -> None:
    agent, _, _ = make([assistant(call("a")), "Rain."], weather)
    result = await agent.run("Go", session=SESSION, limits=LoopConfig(max_iterations=1))
    assert (result.status, result.reason) == (AgentStatus.FAILED, "max_iterations")


async def test_a_run_without_limits_ends_at_the_default_one() -> None:
    answers = [assistant(call(f"c{number}", city=str(number))) for number in range(300)]
    agent, _, model = make(answers, weather)
    result = await agent.run("Go", session=SESSION)
    assert (result.reason, len(model.calls)) == ("max_iterations", LoopConfig().max_iterations)
    assert result.error is not None
    assert "200" in result.error.message


async def test_a_limit_holds_across_resume() -> None:
    answers: list[Any] = [assistant(call("a")), assistant(ToolCall("b", "greet_formally", {"title": "Dr"})), "never"]
    agent, _, model = make(answers, weather, greet_formally, config=AgentConfig(loop=LoopConfig(max_iterations=2)))
    await agent.run("Go", session=SESSION)
    await agent.deny(SESSION, "b")
    result = await agent.resume(SESSION)
    assert (result.reason, len(model.calls)) == ("max_iterations", 2)


async def test_metadata_is_stored_at_the_start_of_the_run() -> None:
    agent, store, _ = make(["Hi."])
    await agent.run("Go", session=SESSION, metadata={"ticket": 7})
    (started,) = [fact for fact in await facts(store) if isinstance(fact, RunStarted)]
    assert started.metadata == {"ticket": 7}


async def test_an_unknown_setting_is_refused() -> None:
    agent, _, _ = make(["never"])
    with pytest.raises(PartValidationError, match=r"run setting 'warmth'\. Known: session, history, .*deps, model"):
        agent.stream("Go", warmth=1)  # type: ignore[call-arg]


# -- history


HISTORY = (
    user("What is 2 + 2?"),
    assistant(ToolCall("h1", "add", {"a": 2, "b": 2})),
    tool_message(ToolResult("h1", "4")),
    assistant("4."),
)


async def test_a_new_session_begins_with_the_history() -> None:
    agent, store, model = make(["8.", "16."])
    assert (await agent.run("Twice that?", session=SESSION, history=HISTORY)).output == "8."
    assert (await agent.run("And again?", session=SESSION)).output == "16."
    texts = [message.text or message.tool_results for message in model.calls[1].messages if message.role != "assistant"]
    assert [str(text)[:12] for text in texts][::2] == ["What is 2 + ", "Twice that?"]
    await check_session(store)


async def test_only_messages_of_the_run_itself_are_in_its_result() -> None:
    agent, _, _ = make(["8."])
    result = await agent.run("Twice that?", session=SESSION, history=HISTORY)
    assert [message.text for message in result.messages] == ["Twice that?", "8."]


async def test_calls_of_a_history_are_never_executed() -> None:
    agent, store, model = make(["Hi."], weather)
    await agent.run("Go", session=SESSION, history=[user("?"), assistant(call("a")), user("Never mind.")])
    (result,) = (await messages(store))[2].tool_results
    assert (result.tool_call_id, result.error_code) == ("a", ErrorCode.TOOL_NOT_RUN)
    await check_session(store)
    assert len(model.calls) == 1


async def test_a_history_is_for_a_new_session_only() -> None:
    agent, store, _ = make(["Hi.", "never"])
    await agent.run("Go", session=SESSION)
    before = await facts(store)
    with pytest.raises(AgentError, match="already has a history"):
        await agent.run("Go", session=SESSION, history=HISTORY)
    assert await facts(store) == before


async def test_a_history_of_something_else_is_refused_before_anything_is_stored() -> None:
    agent, store, model = make(["?"])
    for history in ([user("Hi"), {"role": "user", "content": "Hi"}], "Hi"):
        with pytest.raises(PartValidationError, match=r"consists of messages, not of dict|must be a list of messages"):
            await agent.run("Go", session=SESSION, history=history)  # type: ignore[arg-type]
    assert model.calls == []
    assert (await store.sessions()).items == ()


async def test_every_message_of_a_prompt_is_kept() -> None:
    agent, store, model = make(["Ada."])
    await agent.run(user("I am Ada."), assistant("Hello Ada."), "Who", "am I?", session=SESSION)
    assert [message.text for message in model.calls[0].messages] == ["I am Ada.", "Hello Ada.", "Whoam I?"]
    assert [message.text for message in await messages(store)] == ["I am Ada.", "Hello Ada.", "Whoam I?", "Ada."]


@pytest.mark.parametrize("last", [assistant("Hello."), Message("system", ())])
async def test_a_prompt_ends_with_the_user(last: Message) -> None:
    agent, store, _ = make(["never"])
    with pytest.raises(BartackError, match="must end with a user message"):
        await agent.run("Hi.", last, session=SESSION)
    assert (await store.sessions()).items == ()


# -- memory


def test_an_agent_in_memory_remembers_between_two_calls_of_run_sync() -> None:
    model = ScriptedModel(["Hello Ada.", "Ada."])
    agent = Agent(model, store="memory:")
    agent.run_sync("I am Ada.", session="s")
    assert agent.run_sync("Who am I?", session="s").output == "Ada."
    assert [message.text for message in model.calls[1].messages] == ["I am Ada.", "Hello Ada.", "Who am I?"]


async def test_a_session_without_a_name_is_continued_by_its_id() -> None:
    model = ScriptedModel(["Hello Ada.", "Ada."])
    async with Agent(model) as agent:
        first = await agent.run("I am Ada.")
        await agent.run("Who am I?", session=first.session_id)
    assert len(model.calls[1].messages) == 3


async def test_a_paused_session_without_a_name_is_approved_by_its_id() -> None:
    agent: Agent[User] = Agent(
        ScriptedModel([assistant(ToolCall("a", "greet_formally", {"title": "Dr"})), "Done."]), tools=[greet_formally]
    )
    paused = await agent.run("Go", deps=User("Ada"))
    await agent.approve(paused.session_id, "a")
    assert (await agent.resume(paused.session_id, deps=User("Ada"))).output == "Done."


async def test_a_paused_run_is_aborted_without_what_its_instructions_need() -> None:
    def about(context: PromptContext[User]) -> str:
        return f"The user is {context.deps.name}."

    agent, store, _ = make([assistant(call("t", "transfer", amount=5))], instructions=about)
    paused = await agent.run("Go", session=SESSION, deps=User("Ada"))
    assert paused.status is AgentStatus.AWAITING_HUMAN
    assert (await agent.abort(SESSION)).status is AgentStatus.ABORTED
    await check_session(store)


async def test_the_limits_of_a_run_hold_when_it_is_resumed_without_them() -> None:
    script: list[Any] = [assistant(call(f"t{number}", "transfer", amount=number + 1)) for number in range(10)]
    agent, _, model = make(script)
    result = await agent.run("Go", session=SESSION, limits=LoopConfig(max_iterations=3))
    while result.status is AgentStatus.AWAITING_HUMAN:
        await agent.approve(SESSION, result.approvals[0].tool_call_id)
        result = await agent.resume(SESSION)
    assert (result.reason, len(model.calls)) == ("max_iterations", 3)
    second_result = await agent.run("Again", session=SESSION)
    assert second_result.status is AgentStatus.AWAITING_HUMAN


async def test_a_history_may_use_a_call_id_twice() -> None:
    def asked(city: str, text: str) -> list[Message]:
        return [user(city), assistant(call("1", city=city)), tool_message(ToolResult("1", text))]

    orphan = tool_message(ToolResult("1", "a second result"))
    agent, store, model = make(["ok", "fine"])
    history = [*asked("Rome", "sun"), orphan, *asked("Oslo", "snow")]
    assert (await agent.run("And now?", session=SESSION, history=history)).output == "ok"
    assert (await agent.run(*asked("Bonn", "rain"), "And now?", session=SESSION)).output == "fine"
    request = model.calls[-1].messages
    calls = [call.tool_call_id for message in request for call in message.tool_calls]
    contents = {result.tool_call_id: result.content for message in request for result in message.tool_results}
    assert [contents[id] for id in calls] == ["sun", "snow", "rain"]
    assert len(set(calls)) == 3
    await check_session(store)


async def test_a_resumed_run_keeps_the_configured_limits_it_was_started_with() -> None:
    answers: list[Any] = [assistant(call("a")), assistant(ToolCall("b", "greet_formally", {"title": "Dr"})), "never"]
    agent, store, _ = make(answers, weather, greet_formally, config=AgentConfig(loop=LoopConfig(max_iterations=2)))
    await agent.run("Go", session=SESSION)
    await agent.deny(SESSION, "b")
    generous = AgentConfig(loop=LoopConfig(max_iterations=50, journal_ms=100))
    elsewhere, _, model = make(["never"], weather, greet_formally, store=store, config=generous)
    result = await elsewhere.resume(SESSION)
    assert (result.reason, len(model.calls)) == ("max_iterations", 0)
    started = [fact.limits for fact in await facts(store) if isinstance(fact, RunStarted)]
    assert started == [LoopConfig(max_iterations=2)] * 2  # the journal is a matter of each process


async def test_a_run_that_was_started_with_the_default_limits_keeps_them() -> None:
    agent, store, _ = make([assistant(ToolCall("b", "greet_formally", {"title": "Dr"}))], greet_formally)
    await agent.run("Go", session=SESSION)
    await agent.deny(SESSION, "b")
    strict = AgentConfig(loop=LoopConfig(max_iterations=1))
    elsewhere, _, _ = make(["Done."], greet_formally, store=store, config=strict)
    assert (await elsewhere.resume(SESSION)).output == "Done."
