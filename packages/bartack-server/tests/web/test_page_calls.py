"""The states of tool calls in what the page draws."""

from typing import Any, Literal

import pytest

from bartack import Agent, MemoryStore, ScriptedModel, Text, ToolCall, ToolResult, assistant
from bartack.nouns.entries import ApprovalRequired
from bartack.session.decisions import Decision
from bartack.store.requests import decide
from bartack_server.web.page import page_entries
from tests.web.agents import Gate, new_agent


class Deciding:
    """Decides everything alike."""

    def __init__(self, decision: Any) -> None:
        self._decision = decision

    async def decide(self, request: ApprovalRequired) -> Decision:
        return Decision(self._decision)


def states(pages: list[dict[str, Any]]) -> list[Any]:
    """The states that calls get, one after the other; the name of a call that is new."""
    return [call.get("state", call.get("name")) for entry in pages for call in entry.get("calls", ())]


async def drawn(agent: Agent, *prompts: str, page: int = 1000) -> list[dict[str, Any]]:
    store = MemoryStore()
    for prompt in prompts:
        await agent.with_store(store).run(prompt, session="s")
    branch = await store.load("s")
    starts = range(0, len(branch), page)
    return [entry for start in starts for entry in page_entries(branch, start, min(start + page, len(branch)))]


async def test_calls_are_asked_about_run_and_end(gate: Gate) -> None:
    approved = states(await drawn(new_agent(gate, approver=Deciding("approve")), "pay 3 Ann"))
    assert approved == ["ask", "pending", "running", "done"]
    assert states(await drawn(new_agent(gate, approver=Deciding("deny")), "pay 3 Ann")) == ["ask", "denied", "failed"]
    assert states(await drawn(new_agent(gate), "call nothing")) == ["failed"]


async def test_calls_that_the_provider_executes_have_their_result_in_the_answer() -> None:
    call = ToolCall("w1", "search", {}, executed_by="provider", result=ToolResult("w1", "found"))
    agent = Agent(ScriptedModel([assistant(Text("So: "), call)]))
    assert states(await drawn(agent, "go")) == ["done"]


async def test_pages_do_not_depend_on_where_they_begin(gate: Gate) -> None:
    agent = new_agent(gate, approver=Deciding("approve"))
    prompts = ("weather Rome", "pay 3 Ann", "helper pay 4 Eve")
    whole = states(await drawn(agent, *prompts))
    assert "pay" not in whole, "an approver decides about the calls of sub-agents"
    for page in (1, 3):
        assert states(await drawn(agent, *prompts, page=page)) == whole


@pytest.mark.parametrize(("decision", "end"), [("approve", ["pending", "done"]), ("deny", ["denied", "denied"])])
async def test_a_call_of_a_sub_agent_is_shown_once_it_needs_someone(
    gate: Gate, decision: Literal["approve", "deny"], end: list[str]
) -> None:
    store = MemoryStore()
    agent = new_agent(gate).with_store(store)
    (request,) = (await agent.run("helper pay 4 Eve", session="s")).approvals
    await decide(store, "s", request.tool_call_id, Decision(decision))
    await agent.resume("s")
    branch = await store.load("s")
    calls = [call for entry in page_entries(branch, 0, len(branch)) for call in entry.get("calls", ())]
    first, *others = [call for call in calls if call.pop("id") == request.tool_call_id]
    assert first == {"name": "pay", "isNested": True, "state": "ask"}
    assert [call["state"] for call in others] == end
