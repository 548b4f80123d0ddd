"""Programs as users write them, as a type checker sees them. Checked by mypy and pyright, never run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_never, assert_type

import msgspec
from pydantic import BaseModel

import bartack
from bartack import Agent, PromptContext, ToolContext
from bartack.agent import Compacted, EntryAppended, Event, RunPaused, StatusChanged, SubagentEvent, ToolChanged
from bartack.formats import ModelRequest
from bartack.models import Model
from bartack.nouns.entries import Fact
from bartack.nouns.messages import ModelRef
from bartack.nouns.parts import Part
from bartack.nouns.tables import AgentStatus
from bartack.store import SessionStore
from bartack.tools import Decision, Tool, ToolDefinition, ToolOutput


@dataclass
class Shop:
    orders: dict[str, str]


@dataclass
class Order:
    number: str


class Refund(msgspec.Struct):
    amount: int


class Invoice(BaseModel):
    number: str


class Address(TypedDict):
    street: str


Answer = Order | Refund | Literal["unknown"]


# -- tools


@bartack.tool
async def order_status(number: str, context: ToolContext[Shop]) -> str:
    return assert_type(context.deps, Shop).orders[number]


@bartack.tool(timeout_ms=1_000, requires_approval=lambda arguments: arguments["amount"] > 100)
def refund(amount: int) -> ToolOutput:
    return ToolOutput(Refund(amount), title="refund")


@bartack.tool
def picture() -> bartack.Image:
    return bartack.Image.from_url("https://example.org/a.png")


async def a_tool_is_still_the_function() -> None:
    assert_type(await order_status("7", ToolContext(deps=Shop({}))), str)
    assert_type(refund(5), ToolOutput)
    assert_type(picture(), bartack.Image)
    assert_type(picture, Tool[Callable[[], bartack.Image]])
    as_function: Callable[[int], ToolOutput] = refund
    assert_type(as_function(5), ToolOutput)
    refund("5")  # type: ignore[arg-type]
    await order_status()  # type: ignore[call-arg]
    bartack.tool(timeout=5)  # type: ignore[call-overload]


# -- dependencies and output


def instructions(context: PromptContext[Shop]) -> str:
    return f"{len(assert_type(context.deps, Shop).orders)} orders, {assert_type(context.session_id, str)}"


async def later_instructions(context: PromptContext[Shop]) -> str:
    return instructions(context)


def support(model: Model) -> Agent[Shop, Answer]:
    return Agent(model, deps_type=Shop, tools=[order_status, refund], instructions=instructions, output_type=Answer)


def support_with_a_list_of_tools(model: Model) -> Agent[Shop, str]:
    tools = [order_status, refund, picture]
    return Agent(model, deps_type=Shop, tools=tools)


def serve(agent: Agent[Shop, Answer], shop: Shop) -> str:
    match agent.run_sync("Where is order 7?", deps=shop).output:
        case Order(number):
            return assert_type(number, str)
        case Refund(amount):
            return str(assert_type(amount, int))
        case "unknown":
            return "?"


def an_agent_without_dependencies_or_type_answers_with_text(model: Model | str) -> None:
    agent = Agent(model)
    assert_type(agent, Agent[None, str])
    assert_type(agent.run_sync("?").output, str)
    serve(agent, Shop({}))  # type: ignore[arg-type]


def every_kind_of_output_type_is_known(model: Model) -> None:
    assert_type(Agent(model, output_type=Invoice).run_sync("?").output, Invoice)
    assert_type(Agent(model, output_type=Address).run_sync("?").output, Address)
    assert_type(Agent(model, output_type=list[Order]).run_sync("?").output, list[Order])
    assert_type(Agent(model, output_type=dict[str, int]).run_sync("?").output, dict[str, int])
    assert_type(Agent(model, output_type=bool).run_sync("?").output, bool)
    assert_type(Agent(model, output_type=Literal["a", "b"]).run_sync("?").output, Literal["a", "b"])
    assert_type(Agent(model, output_type=Order | None).run_sync("?").output, Order | None)


# -- output functions and validators


def find(number: str, context: ToolContext[Shop]) -> Order:
    if number not in context.deps.orders:
        raise bartack.TryAgain(f"There is no order {number}.")
    return Order(number)


async def charge(amount: int) -> Refund:
    return Refund(amount)


def checked(order: Order) -> Order:
    return order


async def checked_later(order: Order) -> Order:
    return order


async def output_functions_and_validators_decide_the_output(model: Model) -> None:
    assert_type(Agent(model, output_function=find, deps_type=Shop).run_sync("?", deps=Shop({})).output, Order)
    assert_type((await Agent(model, output_function=charge).run("?")).output, Refund)
    Agent[None, Order](model, output_function=charge)  # type: ignore[arg-type]
    Agent(model, output_type=Order, output_function=charge)  # type: ignore[call-overload]
    Agent(model, output_function=charge, instruction="?")  # type: ignore[call-overload]
    Agent(model, lease_s="long")  # type: ignore[call-overload]
    assert_type((await Agent(model, output_type=Order, output_validator=checked).run("?")).output, Order)
    assert_type((await Agent(model, output_type=Order, output_validator=checked_later).run("?")).output, Order)
    Agent(model, output_type=Refund, output_validator=checked)  # type: ignore[arg-type]


# -- settings of a run


async def a_run_has_settings_of_its_own(agent: Agent[Shop, Answer], model: Model) -> None:
    result = await agent.run(
        "Where is it?",
        bartack.Image.from_file("parcel.png"),
        deps=Shop({}),
        instructions=later_instructions,
        tools=[picture, bartack.ToolRegistry([refund]).prefixed("shop_")],
        model=model,
        model_settings={"temperature": 0},
        limits=bartack.LoopConfig(max_iterations=3),
        metadata={"ticket": 7},
        session="customer",
    )
    assert_type(result, bartack.RunResult[Answer])
    assert_type(result.usage, bartack.Usage | None)
    assert_type(result.error, bartack.Failed | None)
    assert_type(result.approvals, tuple[bartack.ApprovalRequired, ...])
    await agent.run("?", deps=Order("7"))  # type: ignore[arg-type]
    await agent.run("?", deps=Shop({}), instructions=about_orders)  # type: ignore[arg-type]
    await agent.run("?", dependencies=Shop({}))  # type: ignore[call-arg]
    await agent.run(7)  # type: ignore[arg-type]


def about_orders(context: PromptContext[Order]) -> str:
    return context.deps.number


async def a_history_consists_of_messages(agent: Agent[Shop, Answer], stored: Sequence[bartack.Message]) -> None:
    await agent.run("And now?", history=stored, deps=Shop({}))
    await agent.run(bartack.user("Hi"), bartack.assistant("Hello"), "And now?", deps=Shop({}))
    await agent.run("And now?", history=[{"role": "user"}], deps=Shop({}))  # type: ignore[list-item]


# -- streams


async def every_event_has_its_class(agent: Agent[Shop, Answer]) -> str:
    async with agent.stream("?", deps=Shop({}), snapshots=True) as run:
        assert_type(run, bartack.Run[Answer])
        async for event in run:
            match event:
                case bartack.DeltaReceived():
                    assert_type(event.delta.delta, bartack.Delta)
                    assert_type(event.model_call_index, int)
                    assert_type(event.text, str)
                case bartack.Snapshot():
                    assert_type(event.message, bartack.Message)
                case bartack.Retrying():
                    assert_type(event.model_call_index, int | None)
                case ToolChanged():
                    assert_type(event.tool_name, str)
                    assert_type(event.state.status, Literal["pending", "running", "completed", "error"])
                case bartack.agent.ApprovalRequested():
                    run.approve(assert_type(event.request.tool_call_id, str))
                case EntryAppended():
                    assert_type(event.entry.fact, Fact)
                case SubagentEvent():
                    assert_type(event.event, Event)
                case StatusChanged():
                    assert_type(event.status, AgentStatus)
                case bartack.ModelSwitched():
                    assert_type(event.model, ModelRef)
                case Compacted():
                    assert_type(event.tokens_after, int | None)
                case RunPaused():
                    assert_type(event.approvals, tuple[bartack.ApprovalRequired, ...])
                case bartack.RunFinished():
                    return event.result.session_id
                case _:
                    assert_never(event)
    assert_type(run.result.output, Answer)
    return str(assert_type(run.partial_output(), Any))


def the_kind_of_a_fact_is_its_class(fact: Fact, part: Part, delta: bartack.Delta) -> None:
    if fact.kind == "message":
        assert_type(fact, bartack.Message)
    if part.kind == "tool_call":
        assert_type(part.arguments, dict[str, Any])
    if delta.kind == "error":
        assert_type(delta.error_code, bartack.ErrorCode)


# -- hooks, approvals, stores


async def before_model(request: ModelRequest) -> ModelRequest | None:
    return None if assert_type(request.messages, tuple[bartack.Message, ...]) else request


async def before_tool(call: bartack.ToolCall) -> bartack.ToolCall | bartack.ToolResult | None:
    return bartack.ToolResult(call.tool_call_id, "no", is_error=True)


async def after_tool(call: bartack.ToolCall, result: bartack.ToolResult) -> bartack.ToolResult | None:
    return None


def forgot_async(call: bartack.ToolCall) -> None: ...


class Supervisor:
    async def decide(self, request: bartack.ApprovalRequired) -> Decision:
        return Decision("approve" if request.tool_name == "refund" else "deny")


def hooks_and_approvers_have_signatures(model: Model) -> None:
    hooks = bartack.agent.Hooks(before_model=before_model, before_tool=before_tool, after_tool=after_tool)
    Agent(model, hooks=hooks, approver=Supervisor())
    bartack.agent.Hooks(before_tool=forgot_async)  # type: ignore[arg-type]
    Agent(model, approver=forgot_async)  # type: ignore[call-overload]


async def a_store_has_sessions(address: str) -> None:
    store = await bartack.open_store(address)
    takes_a_store(store)
    takes_a_store(bartack.MemoryStore())
    for entry in await store.load("trip"):
        assert_type(entry, bartack.Entry)
    async for entry in store.follow("trip"):
        assert_type(entry.seq, int)


def takes_a_store(store: SessionStore) -> ToolDefinition:
    agent = Agent("anthropic:claude-sonnet-4-6", store=store)
    return assert_type(agent.as_tool("helper", "Helps."), ToolDefinition)


async def approvals_and_resume(agent: Agent[Shop, Answer]) -> None:
    await agent.approve("s", "c1", arguments={"amount": 5}, decided_by="ann")
    await agent.deny("s", "c2", reason="no")
    assert_type((await agent.resume("s", deps=Shop({}))).output, Answer)
    assert_type(await agent.abort("s"), bartack.RunResult[Answer])
