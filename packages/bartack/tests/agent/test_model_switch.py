"""A change of model within a session: recorded as a fact, with a report of what the new model does not receive."""

from bartack import Continuation, Text, Thinking, assistant
from bartack.agent import Agent, EntryAppended, ModelSwitched
from bartack.models import ScriptedModel, connect
from bartack.nouns.entries import ModelChange
from bartack.nouns.messages import ModelRef
from tests.agent.kit import SESSION, call, check_session, collected, facts, make, weather
from tests.models.doubles import BytesClient

ANSWER = b"".join(
    b"data: %s\n\n" % line
    for line in (
        b'{"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"From elsewhere."}}]}',
        b'{"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
        b"[DONE]",
    )
)


async def test_the_next_run_may_use_another_provider_with_a_report_of_losses() -> None:
    """002-non-goals.1"""
    signed = Thinking("Hm.", continuation=Continuation("scripted", "scripted", {"signature": "abc"}))
    agent, store, _ = make([assistant(signed, call("c1")), assistant(Text("Rain.")), "never"])
    await agent.run("Rain?", session=SESSION)
    client = BytesClient([ANSWER])
    openai_model = connect("openai-chat:gpt-x", api_key="sk-test-0123456789", client=client)
    events = await collected(agent.stream("Sure?", session=SESSION, model=openai_model))
    assert events[-1].result.output == "From elsewhere."
    switch = next(event for event in events if isinstance(event, ModelSwitched))
    assert (switch.previous, switch.reason) == (ModelRef("scripted", "scripted"), "chosen")
    (loss,) = switch.report.losses
    assert (loss.where, "scripted" in loss.why) == ("messages[1].parts[0]", True)
    change = next(fact for fact in await facts(store) if isinstance(fact, ModelChange))
    assert change.previous == ModelRef("scripted", "scripted")
    assert change.model == switch.model
    await check_session(store)
    assert len(client.requests) == 1


async def test_a_run_can_switch_models_midway() -> None:
    """002-non-goals.1"""
    second = ScriptedModel(["From the second."], model_id="second")
    agent, store, first = make([assistant(call("c1")), "never"])
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, EntryAppended) and event.entry.fact.kind == "tool_started":
                run.switch_model(second)
    assert run.result.output == "From the second."
    assert (len(first.calls), len(second.calls)) == (1, 1)
    assert [fact.model.model for fact in await facts(store) if isinstance(fact, ModelChange)] == ["second"]


async def test_using_the_same_model_again_is_not_a_switch() -> None:
    agent, store, _ = make(["One.", "Two."])
    await agent.run("a", session=SESSION)
    events = await collected(agent.stream("b", session=SESSION))
    assert not [event for event in events if isinstance(event, ModelSwitched)]
    assert not [fact for fact in await facts(store) if isinstance(fact, ModelChange)]


async def test_a_model_can_be_given_by_name() -> None:
    agent = Agent("ollama:llama", tools=[weather])
    assert agent.model.get_config().model_id == "llama"
    assert agent.tools.names == ("weather",)
    await agent.close()
