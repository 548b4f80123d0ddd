"""Toolsets: tools that are known only while something is connected, and may change between two turns."""

from dataclasses import replace
from typing import Any

import pytest

from bartack import BartackError, Entry, ScriptedModel, Text, ToolCall, assistant
from bartack.agent import Agent, ApprovalRequested, Hooks, LiveApprover
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, ToolStarted
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tables import AgentStatus
from bartack.store import MemoryStore
from bartack.tools import ToolContext, ToolDefinition, ToolRegistry, Toolset, tool


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return f"echo: {text}"


@tool
async def late(text: str) -> str:
    """Another tool."""
    return text


class Shelf:
    """A toolset whose tools the test puts there and takes away."""

    def __init__(self, *tools: ToolDefinition, name: str = "shelf") -> None:
        self.name = name
        self.shown = tools
        self.opened = 0
        self.closed = 0
        self.hints: str | None = None

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        return self.shown if self.opened else ()

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.opened, self.closed = 0, self.closed + 1

    def problem(self, tool_name: str) -> str | None:
        return "The shelf is empty." if tool_name.startswith("shelf_") else None


def calling(name: str, call_id: str = "c1", text: str = "hi") -> object:
    return assistant(ToolCall(call_id, name, {"text": text}))


def names(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


def questions(entries: list[Entry]) -> list[ApprovalRequired]:
    return [entry.fact for entry in entries if isinstance(entry.fact, ApprovalRequired)]


def agent_with(*tools: Any, script: list[Any], store: MemoryStore | None = None, **settings: Any) -> Agent:
    return Agent(ScriptedModel(script), tools=tools, store=store or MemoryStore(), **settings)


async def test_a_toolset_is_opened_by_the_run_and_closed_with_the_agent() -> None:
    shelf = Shelf(echo)
    assert isinstance(shelf, Toolset)
    async with agent_with(shelf, script=[calling("echo"), "done", "again"]) as agent:
        assert shelf.opened == 0
        result = await agent.run("go", session="s")
        assert result.output == "done"
        assert result.messages[2].tool_results[0].content == "echo: hi"
        await agent.run("go on", session="s")
        assert shelf.closed == 0
    assert shelf.closed == 1


async def test_tools_that_appear_during_a_run_are_offered_in_its_next_turn() -> None:
    shelf = Shelf(echo)
    offered: list[list[str]] = []

    async def swap(request: ModelRequest) -> None:
        offered.append(names(request))
        shelf.shown = (late,)

    script = [calling("echo"), calling("late", "c2"), "done"]
    result = await agent_with(shelf, script=script, hooks=Hooks(before_model=swap)).run("go")
    assert offered == [["echo"], ["late"], ["late"]]
    results = [tool_result for message in result.messages for tool_result in message.tool_results]
    assert [result.error_code for result in results] == ["tool_not_found", None]


async def test_sets_of_one_run_are_filtered_and_renamed_like_others_and_closed_with_the_agent() -> None:
    shelf, second_shelf = Shelf(echo, late), Shelf(echo, name="other")
    agent = agent_with(ToolRegistry([shelf]).filtered(lambda tool: tool.name == "echo"), script=["one", "two"])
    for _ in range(2):
        await agent.run("go", tools=[ToolRegistry([second_shelf]).prefixed("my_")])
    registry = ToolRegistry([agent.tools, ToolRegistry([second_shelf]).prefixed("my_")])
    assert registry.names == ("echo", "my_echo")
    await agent.close()
    assert (shelf.closed, second_shelf.closed) == (1, 1)


async def test_a_name_that_is_taken_stays_with_the_first_tool() -> None:
    shelf = Shelf(replace(echo, description="Not this one."))
    registry = ToolRegistry([echo, shelf])
    await shelf.open()
    assert registry.get("echo") is echo
    assert len(registry) == 1
    with pytest.raises(BartackError, match="Duplicate toolset name 'shelf'"):
        ToolRegistry([shelf, Shelf()])


async def test_a_missing_tool_of_a_set_is_explained() -> None:
    agent = agent_with(ToolRegistry([Shelf()]).prefixed("my_"), script=[calling("my_shelf_read"), "done"])
    result = await agent.run("go")
    assert result.output == "done"
    assert result.messages[2].tool_results[0].content == "The shelf is empty. Available tools: none."


async def test_the_hints_of_a_set_are_part_of_the_system_prompt() -> None:
    shelf = Shelf(echo)
    shelf.hints = "Use echo."
    texts: list[str] = []

    async def see(request: ModelRequest) -> None:
        texts.extend(part.text for part in request.messages[0].parts if isinstance(part, Text))

    await agent_with(shelf, script=["done"], instructions="Be brief.", hooks=Hooks(before_model=see)).run("go")
    assert texts == ["Be brief.", "Use echo."]


# -- definitions that change


async def test_a_decision_counts_for_the_definition_that_was_shown_only() -> None:
    store, shelf = MemoryStore(), Shelf(replace(echo, requires_approval=True, digest="one"))
    agent = agent_with(shelf, script=[calling("echo"), "done"], store=store)
    paused = await agent.run("go", session="s")
    assert paused.status is AgentStatus.AWAITING_HUMAN
    await agent.approve("s", "c1")
    shelf.shown = (replace(echo, requires_approval=True, digest="two"),)
    again = await agent.resume("s")
    assert again.status is AgentStatus.AWAITING_HUMAN
    await agent.approve("s", "c1")
    assert (await agent.resume("s")).output == "done"
    entries = list(await store.load("s"))
    assert [question.definition_digest for question in questions(entries)] == ["one", "two"]
    decided = [entry.fact for entry in entries if isinstance(entry.fact, ApprovalDecided)]
    assert [decision.definition_digest for decision in decided] == ["one", "two"]
    assert sum(isinstance(entry.fact, ToolStarted) for entry in entries) == 1


async def test_a_changed_definition_is_asked_about_even_if_no_call_needs_approval() -> None:
    store, shelf = MemoryStore(), Shelf(replace(echo, changed="the definition has changed", digest="two"))
    agent = agent_with(shelf, script=[calling("echo"), "done"], store=store, approval=lambda call, definition: False)
    assert (await agent.run("go", session="s")).status is AgentStatus.AWAITING_HUMAN
    [question] = questions(list(await store.load("s")))
    assert question.reason == "the definition has changed"


# -- questions of a running tool


@tool
async def asking(text: str, ctx: ToolContext) -> str:
    """Ask about the text."""
    decision = await ctx.ask("form", {"name": text}, reason="Who are you?", parameters={"type": "object"})
    return f"{decision.decision} {decision.arguments}"


async def test_a_running_tool_asks_the_approver_of_its_run() -> None:
    agent = agent_with(asking, script=[calling("asking"), "done"], approver=LiveApprover())
    async with agent.stream("go") as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                assert event.request.tool_call_id == "c1/1"
                assert event.request.tool_name == "asking/form"
                assert event.request.arguments == {"name": "hi"}
                run.approve("c1/1", arguments={"name": "Ada"})
    assert run.result.messages[2].tool_results[0].content == "modify_args {'name': 'Ada'}"


async def test_without_an_approver_such_a_question_is_denied() -> None:
    result = await agent_with(asking, script=[calling("asking"), "done"]).run("go")
    assert result.messages[2].tool_results[0].content == "deny None"
    assert (await ToolContext().ask("form", {}, reason="?")).decision == "deny"
