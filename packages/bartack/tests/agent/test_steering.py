"""Messages to a run while it works: before the next model call, or when it would end."""

from bartack import ToolCall, assistant, user
from bartack.agent import ToolChanged
from tests.agent.kit import SESSION, PausingModel, Waiting, check_session, make, messages, within


async def test_steering_is_delivered_after_the_tools_and_before_the_next_model_call() -> None:
    waiting = Waiting()
    agent, store, model = make([assistant(ToolCall("c1", "wait", {})), "As you wish."], waiting.tool)
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ToolChanged) and event.state.status == "running":
                run.steer("Rather", " Rome")
                waiting.proceed.set()
    assert run.result.output == "As you wish."
    assert [message.role for message in model.calls[1].messages] == ["user", "assistant", "tool", "user"]
    assert model.calls[1].messages[-1].text == "Rather Rome"
    await check_session(store)


async def test_steering_during_the_last_answer_continues_the_run() -> None:
    model = PausingModel(["First answer.", "Second answer."])
    agent, store, _ = make(model)
    async with agent.stream("Go", session=SESSION) as run:
        await within(model.reached.wait())
        run.steer("One more thing")
        model.proceed.set()
        result = await within(run.wait())
    assert result.output == "Second answer."
    assert [message.text for message in await messages(store)] == [
        "Go",
        "First answer.",
        "One more thing",
        "Second answer.",
    ]


async def test_a_message_can_be_withdrawn_until_it_is_delivered() -> None:
    model = PausingModel(["First answer.", "Second answer."])
    agent, store, _ = make(model)
    delivered, withdrawn = user("same words"), user("same words")
    async with agent.stream("Go", session=SESSION) as run:
        await within(model.reached.wait())
        run.steer(delivered)
        run.steer(withdrawn)
        assert run.withdraw(withdrawn)
        assert not run.withdraw(withdrawn)
        assert [message is delivered for message in run.steering] == [True]
        model.proceed.set()
        await within(run.wait())
        assert run.steering == ()
        assert not run.withdraw(delivered)
    assert [message.text for message in await messages(store)].count("same words") == 1


async def test_queued_messages_are_turns_of_their_own_in_the_same_run() -> None:
    agent, store, model = make(["One.", "Two.", "Three."])
    async with agent.stream("First", session=SESSION) as run:
        run.queue("Second")
        run.queue(user("Third"))
        result = await within(run.wait())
    assert (result.output, len(model.calls)) == ("Three.", 3)
    assert [message.text for message in await messages(store)] == ["First", "One.", "Second", "Two.", "Third", "Three."]
    assert len({message.run_id for message in await messages(store)}) == 1


async def test_messages_that_come_too_late_are_returned() -> None:
    model = PausingModel(["First answer."])
    agent, _, _ = make(model)
    async with agent.stream("Go", session=SESSION) as run:
        await within(model.reached.wait())
        run.steer("a")
        run.queue("b")
        run.abort()
    assert [message.text for message in run.result.undelivered] == ["a", "b"]


async def test_the_state_of_a_run_can_be_inspected() -> None:
    waiting = Waiting()
    agent, _, _ = make([assistant(ToolCall("c1", "wait", {})), "Done."], waiting.tool)
    run = agent.stream("Go", session=SESSION)
    assert (run.status, run.state.current_run_id) == ("idle", None)
    async with run:
        await within(waiting.started.wait())
        state = run.state
        assert (state.status, [call.tool_call_id for call in state.pending_tool_calls]) == ("tool_running", ["c1"])
        assert state.current_run_id == run.run_id
        waiting.proceed.set()
        await within(run.wait())
    assert run.state.pending_tool_calls == ()
