"""What others add to the session of a live run takes effect, and what they add while no run is live waits for one."""

import asyncio
import sys
from typing import Any

import pytest

from bartack import (
    ApprovalRequired,
    Conflict,
    Custom,
    ErrorCode,
    NotFound,
    PartValidationError,
    SessionInUse,
    ToolCall,
    ToolError,
    assistant,
    user,
)
from bartack.agent import Agent, ApprovalRequested, LiveApprover, ModelSwitched
from bartack.models import ScriptedModel
from bartack.nouns.entries import ApprovalDecided, MessageQueued, ModelChange, RunEnded, RunStarted, SessionHeader
from bartack.nouns.errors import LeaseLost, StoreError
from bartack.nouns.messages import ModelRef
from bartack.nouns.tables import AgentStatus
from bartack.session.decisions import Decision, arguments_digest, decided_fact
from bartack.session.outline import REPAIRED
from bartack.store import Lease, MemoryStore, Tail, next_entries
from bartack.store.append import Batch, Permit
from bartack.store.entries import Entries
from bartack.store.requests import decide, note, post, queue, redact, request_abort, steer, switch_model
from bartack.tools import ToolDefinition
from tests.agent.kit import (
    SESSION,
    PausingModel,
    Waiting,
    call,
    check_session,
    collected,
    ended,
    facts,
    kinds,
    make,
    messages,
    results,
    within,
)

ASK = assistant("Moving it.", call("c1", "transfer", amount=5))


def wait_call(id: str = "c1") -> Any:
    return assistant(ToolCall(id, "wait", {}))


# -- messages


async def test_a_message_from_outside_steers_a_live_run() -> None:
    waiting = Waiting()
    agent, store, model = make([wait_call(), "As you wish."], waiting.tool)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    request = await steer(store, SESSION, "Rather Rome", requested_by="ann")
    waiting.proceed.set()
    assert (await within(task)).output == "As you wish."
    assert [message.role for message in model.calls[1].messages] == ["user", "assistant", "tool", "user"]
    delivered = (await messages(store))[3]
    assert delivered.meta is not None
    assert (delivered.text, delivered.meta.request_id) == ("Rather Rome", request.id)


async def test_a_queued_message_continues_a_live_run_when_it_would_end() -> None:
    """D-5.12.1"""
    model = PausingModel(["One.", "Two.", "Three."], after=1)
    agent, store, _ = make(model)
    task = asyncio.create_task(agent.run("First", session=SESSION))
    await within(model.reached.wait())
    await queue(store, SESSION, "Second")
    await queue(store, SESSION, user("Third"))
    model.proceed.set()
    assert (await within(task)).output == "Three."
    assert [message.text for message in await messages(store)] == ["First", "One.", "Second", "Two.", "Third", "Three."]
    assert (await kinds(store)).count("run_started") == 1


@pytest.mark.parametrize("resumed", [True, False])
async def test_messages_queued_without_a_live_run_are_taken_by_the_next_one(resumed: bool) -> None:
    """D-5.12.1"""
    agent, store, model = make(["One.", "Two.", "Three."])
    await agent.run("First", session=SESSION)
    await queue(store, SESSION, "Second")
    await steer(store, SESSION, "Third")
    work = agent.resume(SESSION) if resumed else agent.run("Fourth", session=SESSION)
    assert (await within(work)).output == "Two."
    expected = ["First", "One.", "Second", "Third", *([] if resumed else ["Fourth"])]
    assert [message.text for message in model.calls[1].messages] == expected
    again = await agent.resume(SESSION)
    assert (again.output, len(model.calls)) == ("Two.", 2)


async def test_a_message_queued_after_a_crash_is_delivered_once() -> None:
    """D-5.12.1"""
    agent, store, _ = make([])
    header = await store.create_session(SESSION)
    first = next_entries(
        SESSION, await store.tail_of(SESSION), [RunStarted(), user("Go")], store.environment, run_id="r"
    )
    await store.append(SESSION, first, header.id)
    await queue(store, SESSION, "And then?")
    agent, _, model = make(["One.", "Two."], store=store)
    assert (await agent.resume(SESSION)).output == "Two."
    assert [message.text for message in await messages(store)] == ["Go", "One.", "And then?", "Two."]
    assert len(model.calls) == 2


async def test_a_redaction_withdraws_a_queued_message() -> None:
    model = PausingModel(["One."], after=1)
    agent, store, _ = make(model)
    task = asyncio.create_task(agent.run("First", session=SESSION))
    await within(model.reached.wait())
    request = await queue(store, SESSION, "my secret")
    await redact(store, SESSION, request.id)
    model.proceed.set()
    assert (await within(task)).output == "One."
    assert [message.text for message in await messages(store)] == ["First", "One."]


async def test_redacting_a_delivered_message_redacts_its_request_too_and_vice_versa() -> None:
    for of_request in (True, False):
        agent, store, _ = make(["One."])
        await store.create_session(SESSION)
        request = await queue(store, SESSION, "my secret")
        await agent.resume(SESSION)
        delivered = next(entry for entry in await store.load(SESSION) if getattr(entry.fact, "role", "") == "user")
        await redact(store, SESSION, request.id if of_request else delivered.id, reason="private")
        assert "my secret" not in repr(list(await store.load(SESSION)))


class DeliversWhileRead(MemoryStore):
    """Delivers the queued messages right after its entries were read."""

    agent: Agent | None = None

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        entries = await super().entries(session_id, after_seq, limit)
        if self.agent is not None:
            agent, self.agent = self.agent, None
            await agent.resume(session_id)
        return entries


async def test_a_message_that_is_delivered_while_its_request_is_redacted_is_redacted_too() -> None:
    store = DeliversWhileRead()
    await store.create_session(SESSION)
    request = await queue(store, SESSION, "my secret")
    store.agent, _, model = make(["One."], store=store)
    await redact(store, SESSION, request.id)
    assert len(model.calls) == 1
    assert "my secret" not in repr(list(await store.load(SESSION)))


async def test_only_messages_of_a_user_can_be_queued() -> None:
    _, store, _ = make([])
    await store.create_session(SESSION)
    with pytest.raises(PartValidationError):
        await queue(store, SESSION, assistant("I say"))
    with pytest.raises(NotFound):
        await queue(store, "nowhere", "Hello?")


# -- aborts


async def test_an_abort_from_outside_stops_a_live_run_and_keeps_the_partial_answer() -> None:
    """D-5.12.4"""
    model = PausingModel(["A long answer."], after=3)
    agent, store, _ = make(model)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(model.reached.wait())
    await request_abort(store, SESSION, reason="enough", requested_by="ann")
    result = await within(task)
    assert (result.status, result.reason) == (AgentStatus.ABORTED, "enough")
    assert (await messages(store))[-1].text == "A long a"
    assert (await ended(store)).status == "aborted"
    await check_session(store)


async def test_an_abort_of_a_run_that_is_not_live_takes_effect_when_it_is_resumed() -> None:
    """D-5.12.4"""
    agent, store, _ = make([ASK, "never"])
    assert (await agent.run("Go", session=SESSION)).status is AgentStatus.AWAITING_HUMAN
    await request_abort(store, SESSION)
    result = await agent.resume(SESSION)
    assert (result.status, result.reason) == (AgentStatus.ABORTED, "user")
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_ABORTED
    with pytest.raises(NotFound, match="no open run"):
        await request_abort(store, SESSION)


async def test_a_new_prompt_after_an_abort_was_requested_ends_the_old_run_with_its_reason() -> None:
    agent, store, _ = make([ASK, "Fine."])
    await agent.run("Go", session=SESSION)
    await request_abort(store, SESSION, reason="enough")
    assert (await agent.run("Something else", session=SESSION)).output == "Fine."
    assert [fact.reason for fact in await facts(store) if isinstance(fact, RunEnded)] == ["enough", None]


# -- decisions


async def test_a_decision_from_outside_wakes_a_run_that_waits_for_its_owner() -> None:
    for granted in (True, False):
        agent, store, _ = make([ASK, "Done."], approver=LiveApprover())
        async with agent.stream("Go", session=SESSION) as run:
            async for event in run:
                if isinstance(event, ApprovalRequested):
                    await decide(store, SESSION, "c1", Decision("approve" if granted else "deny", reason="because"))
            with pytest.raises(NotFound):
                run.approve("c1")
        assert run.result.output == "Done."
        assert (await results(store))["c1"].is_error is not granted
        assert (await kinds(store)).count("approval_decided") == 1


async def test_a_decision_that_comes_while_other_calls_run_saves_the_pause() -> None:
    waiting = Waiting()
    from tests.agent.kit import transfer

    answer = assistant(call("c1", "transfer", amount=5), ToolCall("c2", "wait", {}))
    agent, store, _ = make([answer, "Done."], waiting.tool, transfer)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    await decide(store, SESSION, "c1", Decision("approve"))
    waiting.proceed.set()
    assert (await within(task)).output == "Done."
    assert (await results(store))["c1"].content == "moved 5"


async def test_edited_arguments_are_checked_by_every_keyword_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"properties": {"tags": {"uniqueItems": True}}}
    move = ToolDefinition(
        name="transfer", description="", parameter_schema=schema, execute=lambda v, c: v, requires_approval=True
    )
    store = MemoryStore()
    agent = Agent(ScriptedModel([ASK, "Done."]), tools=[move], store=store)
    await agent.run("Go", session=SESSION)
    with pytest.raises(PartValidationError, match=r"Invalid arguments: .*unique"):
        await decide(store, SESSION, "c1", Decision("modify_args", arguments={"tags": [1, 1]}))
    edited = Decision("modify_args", arguments={"tags": [1, 2]})
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "jsonschema_rs", None)
        with pytest.raises(PartValidationError, match=r"bartack\[http\]") as caught:
            await decide(store, SESSION, "c1", edited)
    assert caught.value.code is ErrorCode.MISSING_DEPENDENCY
    await decide(store, SESSION, "c1", edited)


async def test_decisions_that_are_wrong_are_refused_before_they_are_stored() -> None:
    """D-5.12.3"""
    agent, store, _ = make([ASK, "Done."], approval_timeout_ms=1000)
    await agent.run("Go", session=SESSION)
    before = await store.tail_of(SESSION)
    with pytest.raises(NotFound):
        await decide(store, SESSION, "unknown", Decision("approve"))
    with pytest.raises(PartValidationError, match="amount"):
        await decide(store, SESSION, "c1", Decision("modify_args", arguments={"amount": "lots"}))
    with pytest.raises(ToolError):
        await decide(store, SESSION, "c1", Decision("approve", arguments_digest=arguments_digest({"amount": 6})))
    while store.environment.now() < (await facts(store))[-1].expires_at:  # the clock counts
        pass
    with pytest.raises(Conflict, match="expired"):
        await decide(store, SESSION, "c1", Decision("approve"))
    assert await store.tail_of(SESSION) == before


async def test_a_call_without_a_question_and_one_with_a_result_cannot_be_decided() -> None:
    waiting = Waiting()
    agent, store, _ = make([wait_call(), "Done."], waiting.tool)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    with pytest.raises(Conflict, match="already acted on"):
        await decide(store, SESSION, "c1", Decision("approve"))
    waiting.proceed.set()
    await within(task)
    with pytest.raises(Conflict, match="already acted on"):
        await decide(store, SESSION, "c1", Decision("approve"))


async def test_a_late_approval_that_got_in_all_the_same_is_ignored() -> None:
    """D-5.12.2"""
    agent, store, _ = make([ASK, "Never mind."], approval_timeout_ms=50)
    await agent.run("Go", session=SESSION)
    question = (await facts(store))[-1]
    assert isinstance(question, ApprovalRequired)
    while store.environment.now() < question.expires_at:  # type: ignore[operator]
        pass
    await post(store, SESSION, decided_fact(question, Decision("approve")))
    assert (await agent.resume(SESSION)).output == "Never mind."
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_DENIED
    assert [fact.decision for fact in await facts(store) if isinstance(fact, ApprovalDecided)] == ["approve", "expire"]


# -- models, redactions, notes


async def test_a_model_chosen_from_outside_answers_from_the_next_call_to_the_end_of_the_run() -> None:
    second = ScriptedModel(["From the second."], model_id="second")
    waiting = Waiting()
    agent, store, _ = make([wait_call(), "From the first."], waiting.tool, fallback_models=[second])
    run = agent.stream("Go", session=SESSION)
    events = asyncio.create_task(collected(run))
    await within(waiting.started.wait())
    await switch_model(store, SESSION, "scripted:second")
    waiting.proceed.set()
    switched = [event for event in await within(events) if isinstance(event, ModelSwitched)]
    assert [(event.model.model, event.reason) for event in switched] == [("second", "chosen")]
    assert run.result.output == "From the second."
    assert [fact.model.model for fact in await facts(store) if isinstance(fact, ModelChange)] == ["second"]
    assert (await agent.run("And now?", session=SESSION)).output == "From the first."


async def test_a_model_chosen_while_no_run_is_live_answers_in_the_next_one() -> None:
    second = ScriptedModel(["Two."], model_id="second")
    agent, store, _ = make(["One.", "Three."], fallback_models=[second])
    await agent.run("Go", session=SESSION)
    await switch_model(store, SESSION, ModelRef("scripted", "second"))
    assert (await agent.run("And?", session=SESSION)).output == "Two."
    assert (await agent.run("And?", session=SESSION)).output == "Three."


async def test_a_model_that_is_not_available_leaves_the_run_with_its_own() -> None:
    waiting = Waiting()
    agent, store, _ = make([wait_call(), "Done."], waiting.tool)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    await switch_model(store, SESSION, "nowhere/none")
    waiting.proceed.set()
    assert (await within(task)).output == "Done."
    changes = [fact.model.model for fact in await facts(store) if isinstance(fact, ModelChange)]
    assert changes == ["none", "scripted"]
    with pytest.raises(PartValidationError):
        await switch_model(store, SESSION, "nameless")


async def test_a_redaction_from_outside_takes_effect_in_the_next_request() -> None:
    waiting = Waiting()
    agent, store, model = make([wait_call(), "Done."], waiting.tool)
    task = asyncio.create_task(agent.run("My password is xyzzy", session=SESSION))
    await within(waiting.started.wait())
    prompt = next(entry for entry in await store.load(SESSION) if getattr(entry.fact, "role", "") == "user")
    await redact(store, SESSION, prompt.id)
    waiting.proceed.set()
    assert (await within(task)).output == "Done."
    assert "xyzzy" in model.calls[0].messages[0].text
    assert "xyzzy" not in repr(model.calls[1].messages)


async def test_a_note_disturbs_nothing() -> None:
    waiting = Waiting()
    agent, store, model = make([wait_call(), "Done."], waiting.tool)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    await note(store, SESSION, "reviewed", {"by": "ann"})
    waiting.proceed.set()
    assert (await within(task)).output == "Done."
    assert (await kinds(store)).count("custom") == 1
    assert len(model.calls[1].messages) == 3


# -- who may do what


async def test_anything_but_a_request_is_refused_while_a_run_is_live() -> None:
    """D-5.11"""
    waiting = Waiting()
    agent, store, _ = make([wait_call(), "Done."], waiting.tool, name="worker")
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    with pytest.raises(SessionInUse, match="worker") as caught:
        await post(store, SESSION, user("Me too"))
    assert caught.value.owner.startswith("worker ")
    for refused in (agent.run("Me too", session=SESSION), agent.resume(SESSION)):
        with pytest.raises(SessionInUse):
            await refused
    waiting.proceed.set()
    assert (await within(task)).output == "Done."
    assert [message.text for message in await messages(store) if message.role == "user"] == ["Go"]


async def test_a_takeover_by_an_abort_stops_the_old_run_before_its_next_model_call() -> None:
    model = PausingModel(["A long answer.", "never"], after=2)
    agent, store, _ = make(model)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(model.reached.wait())
    second_agent, _, _ = make([], store=store)
    assert (await second_agent.abort(SESSION, takeover=True)).status is AgentStatus.ABORTED
    with pytest.raises(LeaseLost):  # although its model never proceeds
        await within(task)
    await check_session(store)


async def test_an_agent_aborts_a_run_that_is_live_elsewhere() -> None:
    """D-5.12.4"""
    waiting = Waiting()
    agent, store, _ = make([wait_call(), "never"], waiting.tool)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    second_agent, _, model = make(["never"], store=store)
    result = await within(second_agent.abort(SESSION, reason="enough"))
    assert (result.status, result.reason) == (AgentStatus.ABORTED, "enough")
    assert (await within(task)).status is AgentStatus.ABORTED
    assert (await second_agent.abort(SESSION)).reason == "enough"  # there is nothing more to abort
    assert (await kinds(store)).count("run_ended") == 1
    assert model.calls == []
    await check_session(store)


async def test_an_agent_aborts_a_run_whose_process_does_not_react() -> None:
    store = MemoryStore()
    opening = next_entries(SESSION, None, [SessionHeader(), RunStarted(), user("Go")], store.environment, run_id="r")
    await store.claim(SESSION, opening, None, "a process that hangs", ttl=0.1)
    agent = Agent(ScriptedModel([]), store=store)
    assert (await within(agent.abort(SESSION))).status is AgentStatus.ABORTED
    assert (await kinds(store))[-3:] == ["abort_requested", "run_started", "run_ended"]


# -- stores that fail for a moment


class Flaky(MemoryStore):
    """Refuses every second append for a moment, before or after it was stored."""

    def __init__(self, *, stored: bool, **options: Any) -> None:
        super().__init__(**options)
        self.refused = 0
        self._stored = stored
        self._seen: set[str] = set()

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        if batch.ids[0] in self._seen:
            return await super()._append(batch, expected_tail, permit)
        self._seen.add(batch.ids[0])
        if self._stored:
            await super()._append(batch, expected_tail, permit)
        self.refused += 1
        raise StoreError("the connection was lost", retryable=True)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_store_that_fails_for_a_moment_does_not_end_a_run(stored: bool) -> None:
    """D-5.7.1"""
    store = Flaky(stored=stored)
    agent, _, model = make([assistant(call("c1")), "Done."], store=store)
    assert (await within(agent.run("Go", session=SESSION))).output == "Done."
    assert store.refused == 6
    assert len(model.calls) == 2
    entries = await check_session(store)
    assert [entry.seq for entry in entries] == list(range(1, 9))


async def test_a_store_that_stays_away_ends_the_run_once_the_lease_is_lost() -> None:
    class Away(MemoryStore):
        is_away = False

        async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
            if self.is_away:
                raise StoreError("no route to host", retryable=True)
            return await super()._append(batch, expected_tail, permit)

        async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
            raise StoreError("no route to host", retryable=True)

    store = Away()
    model = PausingModel(["A long answer."])
    agent, _, _ = make(model, store=store, lease_s=0.3)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(model.reached.wait())
    store.is_away = True
    model.proceed.set()
    with pytest.raises(StoreError, match="no route"):
        await within(task)


async def test_a_lease_that_is_renewed_late_is_not_lost() -> None:
    class Hiccup(MemoryStore):
        failures = 3

        async def renew_lease(self, lease: Lease, ttl: float = 30.0) -> Lease:
            self.failures -= 1
            if self.failures >= 0:
                raise StoreError("busy", retryable=True)
            return await super().renew_lease(lease, ttl)

    store = Hiccup()
    waiting = Waiting()
    agent, _, _ = make([wait_call(), "Done."], waiting.tool, store=store, lease_s=3)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    while store.failures >= 0:  # noqa: ASYNC110 - the store has no event for it
        await asyncio.sleep(0.01)
    waiting.proceed.set()
    assert (await within(task)).output == "Done."


async def test_requests_compete_with_each_other_and_with_the_run() -> None:
    waiting = Waiting()
    agent, store, _ = make([wait_call(), "Done.", *["More."] * 20], waiting.tool)
    task = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    await asyncio.gather(*(queue(store, SESSION, f"{number}") for number in range(20)))
    waiting.proceed.set()
    await within(task)
    queued = [fact for fact in await facts(store) if isinstance(fact, MessageQueued)]
    texts = [message.text for message in await messages(store) if message.meta is not None and message.meta.request_id]
    assert texts == [fact.message.text for fact in queued]
    assert sorted(texts, key=int) == [f"{number}" for number in range(20)]


class BusyStore(MemoryStore):
    """A store to which another writer always appends first."""

    async def tail_of(self, session_id: str) -> Tail:
        tail = await super().tail_of(session_id)
        await self.append(
            session_id, next_entries(session_id, tail, [Custom(name="x", data={})], self.environment), tail.entry_id
        )
        return tail


async def test_a_request_that_always_comes_too_late_fails_with_a_retryable_error() -> None:
    store = BusyStore()
    await store.create_session("s")
    with pytest.raises(StoreError, match="faster") as caught:
        await within(note(store, "s", "late", {}))
    assert caught.value.retryable


async def test_a_note_cannot_have_a_name_that_is_interpreted() -> None:
    store = MemoryStore()
    await store.create_session("s")
    for name in (REPAIRED, "bartack.title", "bartack.scheduled"):
        with pytest.raises(PartValidationError, match="reserved"):
            await note(store, "s", name, {})
    assert len(await store.entries("s")) == 1
