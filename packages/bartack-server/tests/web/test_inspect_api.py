"""What the inspector shows: rebuilt requests, states, and entries with HTML."""

from collections.abc import Sequence
from typing import Any

from bartack import Agent, AgentConfig, ContextConfig, MemoryStore, Message, ScriptedModel, connect
from bartack.nouns.deltas import Failed, Start
from bartack.nouns.errors import ErrorCode
from bartack_server.web import User, app
from tests.web.agents import Gate, GatedModel, abandoned_session, new_agent
from tests.web.serving import Client, served
from tests.web.test_api import finished, settled, state_is


async def test_the_request_of_a_model_call_is_rebuilt_from_the_entries_before_it(client: Client) -> None:
    await finished(client, "s", "weather Paris")
    entries = (await client.get("/sessions/s/entries", limit=200))["items"]
    calls = [entry for entry in entries if entry["kind"] == "message" and entry["payload"]["role"] == "assistant"]
    first = await client.get(f"/sessions/s/entries/{calls[0]['id']}/request")
    second = await client.get(f"/sessions/s/entries/{calls[1]['id']}/request")
    assert first["model"] == "scripted:scripted"
    assert [message["role"] for message in first["body"]["messages"]] == ["user"]
    assert [message["role"] for message in second["body"]["messages"]] == ["user", "assistant", "tool"]
    assert {tool["name"] for tool in first["body"]["tools"]} == {"pay", "weather", "picture", "ask_expert", "helper"}
    status, value, _ = await client.send("GET", f"/api/sessions/s/entries/{entries[0]['id']}/request")
    assert (status, value["error"]["code"]) == (404, "not_found")


async def test_the_request_to_a_provider_has_its_body_and_what_was_left_out() -> None:
    store = MemoryStore()
    await Agent(ScriptedModel(["Hello."]), store=store).run("Hi", session="s")
    agent = Agent(connect("anthropic:claude-sonnet-4-6", api_key="not-a-real-key"), instructions="Be brief.")
    async with agent, served(app(agent, store=store)) as client:
        entries = (await client.get("/sessions/s/entries", limit=200))["items"]
        answer = next(
            entry for entry in entries if entry["kind"] == "message" and entry["payload"]["role"] == "assistant"
        )
        request = await client.get(f"/sessions/s/entries/{answer['id']}/request")
    assert request["format"] == "anthropic-messages"
    assert request["body"]["messages"][0]["role"] == "user"
    assert "not-a-real-key" not in str(request)
    assert request["losses"] == []


async def test_a_request_is_shown_as_it_was_sent_with_what_was_compacted_and_trimmed(gate: Gate) -> None:
    config = AgentConfig(context=ContextConfig(max_tokens=200, reserve_tokens=20, keep_recent_tokens=60))
    agent = Agent(GatedModel(gate), config=config, summarise=_summarise, lease_s=5.0)
    async with served(application := app(agent, store=MemoryStore())) as client:
        for number in range(3):
            long = f"raw {'rain ' * 60}{number}"
            started = await application.service.start_run(User("me"), "s", long, instructions=f"Be brief: {number}.")
            await settled(client, "s", started.position)
        entries = (await client.get("/sessions/s/entries", limit=200))["items"]
        calls = [entry for entry in entries if entry["kind"] == "message" and entry["payload"]["role"] == "assistant"]
        requests = [await client.get(f"/sessions/s/entries/{call['id']}/request") for call in calls]
    assert [request["isExact"] for request in requests] == [True] * 3
    prompts = [request["body"]["messages"][0]["parts"][0]["payload"]["text"] for request in requests]
    assert prompts == [f"Be brief: {number}." for number in range(3)]
    assert requests[0]["compacted"] is None
    assert requests[-1]["compacted"]["summary"] == "It rained."
    assert any(message["parts"][0]["payload"]["text"].endswith("It rained.") for message in _texts(requests[-1]))


async def _summarise(messages: Sequence[Message]) -> str:
    return "It rained."


def _texts(request: Any) -> list[Any]:
    return [message for message in request["body"]["messages"] if message["parts"][0]["kind"] == "text"]


async def test_a_failed_attempt_has_its_request_too(gate: Gate) -> None:
    agent = Agent(ScriptedModel([[Start("m", "r"), Failed(ErrorCode.OVERLOADED, retryable=False)]]))
    async with served(app(agent, store=MemoryStore())) as client:
        await finished(client, "s", "hello")
        entries = (await client.get("/sessions/s/entries", limit=200))["items"]
        failed = next(entry for entry in entries if entry["kind"] == "stream_failed")
        request = await client.get(f"/sessions/s/entries/{failed['id']}/request")
    assert [message["role"] for message in request["body"]["messages"]] == ["user"]


async def test_a_run_of_another_program_is_interrupted_once_its_lease_is_gone(gate: Gate) -> None:
    store = await abandoned_session(gate)
    async with served(app(new_agent(gate), store=store)) as client:
        assert (await client.get("/sessions/s"))["state"] == "interrupted"
        assert (await client.get("/sessions"))["items"][0]["state"] == "interrupted"
        lease = await store.acquire_lease("s", "chat")
        assert (await client.get("/sessions"))["items"][0]["state"] == "running"
        await store.release_lease(lease)
        gate.open()
        await finished(client, "s", "hello")
        assert (await client.get("/sessions"))["items"][0]["state"] == "idle"


async def test_the_tables_show_the_current_states(client: Client) -> None:
    await finished(client, "s", "pay 5 Bob")
    await state_is(client, "s", "waiting")
    tables = {table["name"]: table for table in (await client.get("/sessions/s/states"))["tables"]}
    assert tables["agent"]["current"] == "awaiting_human"
    assert tables["tool"]["current"] == "pending"
    assert tables["assembly"]["current"] == "done"
    assert tables["agent"]["states"]["idle"] == {"prepare": "preparing"}


async def test_entries_have_the_html_of_their_texts_if_asked_for(client: Client) -> None:
    await finished(client, "s", "think hard")
    page = await client.get("/sessions/s/entries", limit=200, html=1)
    answer = next(entry for entry in page["items"] if entry.get("html") and entry["payload"]["role"] == "assistant")
    assert answer["html"][0][0].startswith("<p>First one thing, then <strong>another")
    assert answer["html"][1] == ["<p>Thought about hard.</p>"]


async def test_the_last_entries_come_first_page_by_page(client: Client) -> None:
    await finished(client, "s", "hello")
    last = await client.get("/sessions/s/entries", before=2**52, limit=2)
    earlier = await client.get("/sessions/s/entries", before=last["cursor"], limit=200)
    seqs = [entry["seq"] for entry in earlier["items"] + last["items"]]
    assert seqs == list(range(1, len(seqs) + 1))
    assert earlier["cursor"] is None
