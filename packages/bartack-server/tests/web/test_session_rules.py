"""Rules that allow tool calls: they apply to one session, in one process, and to exactly what they cover."""

from typing import Any

from bartack import MemoryStore
from bartack.queues import StoreQueue
from bartack.tools import Decision
from bartack_server.web import app
from tests.web.agents import Gate, new_agent
from tests.web.serving import Client, is_entry, served


class Refusing:
    """An approver of the application."""

    async def decide(self, request: Any) -> Decision:
        return Decision("deny", reason="never")


async def asked(client: Client, session: str, text: str) -> dict[str, Any]:
    """The question that a prompt leads to."""
    started = await client.post(f"/sessions/{session}/runs", text=text)
    async with client.events(session, started["position"]) as events:
        await events.until(is_entry("approval_required"))
    question: dict[str, Any] = (await client.get(f"/sessions/{session}/requests"))["items"][0]
    return question


async def automatic_decision(client: Client, session: str, text: str) -> dict[str, Any]:
    """The decision that a rule made about the call that a prompt leads to."""
    started = await client.post(f"/sessions/{session}/runs", text=text)
    async with client.events(session, started["position"]) as events:
        run_events = await events.until(is_entry("run_ended"))
    (decided,) = [event.data["payload"] for event in run_events if event.data.get("kind") == "approval_decided"]
    decision: dict[str, Any] = decided
    return decision


async def allow(client: Client, session: str, question: dict[str, Any], **changed: Any) -> tuple[int, Any]:
    body = {
        "type": "decide",
        "toolCallId": question["toolCallId"],
        "decision": "approve",
        "questionDigest": question["questionDigest"],
        "always": "tool",
        **changed,
    }
    status, answer, _ = await client.send("POST", f"/api/sessions/{session}/requests", json=body)
    return status, answer


async def ended(client: Client, session: str) -> None:
    async with client.events(session) as events:
        await events.until(is_entry("run_ended"))


async def test_a_rule_holds_in_its_session_until_it_is_taken_back(client: Client) -> None:
    question = await asked(client, "s", "pay 5 Bob")
    assert question["rules"] == [{"scope": "tool", "text": "every call of pay"}]
    assert (await allow(client, "s", question))[0] == 202
    await ended(client, "s")
    decided = await automatic_decision(client, "s", "pay 6 Bob")
    assert (decided["decision"], decided["decidedBy"], decided["reason"]) == ("approve", "always", "every call of pay")
    assert (await client.get("/sessions/s"))["allowed"] == ["every call of pay"]

    await asked(client, "other", "pay 7 Bob")
    assert (await client.get("/sessions/other"))["allowed"] == []

    assert (await client.send("DELETE", "/api/sessions/s/allowed"))[0] == 200
    await asked(client, "s", "pay 8 Bob")


async def test_a_rule_requires_an_approval_of_what_was_shown(client: Client) -> None:
    question = await asked(client, "s", "pay 5 Bob")
    assert (await allow(client, "s", question, decision="deny"))[0] == 400
    assert (await allow(client, "s", question, questionDigest=None))[0] == 400
    assert (await allow(client, "s", question, always="everything"))[0] == 400
    status, answer = await allow(client, "s", question, always="prefix")
    assert (status, answer["error"]["path"]) == (400, "$.always")
    assert (await allow(client, "s", question, toolCallId="none"))[0] == 404
    assert (await allow(client, "s", question, questionDigest="0" * 64))[0] >= 400
    assert (await client.get("/sessions/s"))["allowed"] == []


async def test_the_approver_of_an_application_decides_about_everything_else(gate: Gate) -> None:
    agent = new_agent(gate, approver=Refusing())
    async with served(app(agent, store=MemoryStore())) as client:
        decided = await automatic_decision(client, "s", "pay 5 Bob")
        assert (decided["decision"], decided["reason"]) == ("deny", "never")


async def test_runs_of_workers_offer_no_rules(gate: Gate) -> None:
    application = app(new_agent(gate, name="web"), store=MemoryStore(), queue=StoreQueue)
    async with served(application) as client:
        await client.post("/sessions/s/runs", text="pay 5 Bob")
        worker = new_agent(gate, name="web").with_store(application.service.store)
        await worker.resume("s")
        question = (await client.get("/sessions/s/requests"))["items"][0]
        assert question["rules"] == []
        status, answer = await allow(client, "s", question)
        assert (status, answer["error"]["path"]) == (400, "$.always")
