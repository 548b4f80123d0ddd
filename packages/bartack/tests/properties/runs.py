"""Runs for hypothesis: the events of an agent whose model, tools and approver do anything that they may do.

`recorded` executes a plan as real runs with a `ScriptedModel`. `as_followed` turns the events into those that a reader
in another process would have had, who joins at any moment and misses any of the last deltas of an answer.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Any, Literal, get_args

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from bartack.agent import (
    Agent,
    DeltaReceived,
    EntryAppended,
    Event,
    Hooks,
    RetryPolicy,
    RunFinished,
    RunPaused,
    handoff,
)
from bartack.events import LiveDeltas, LiveEntry, LiveEvent, LiveReset
from bartack.models import ScriptedModel
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start, ToolCallArgs, ToolCallEnd, ToolCallStart
from bartack.nouns.entries import ApprovalRequired, Entry, RunEnded
from bartack.nouns.messages import Message, assistant
from bartack.nouns.parts import Image, Text, ToolCall
from bartack.nouns.tables import AgentStatus
from bartack.store import MemoryStore
from bartack.store.live import ends_answer
from bartack.store.requests import decide, note, post_result, queue, steer, switch_model
from bartack.stream.assembler import MessageAssembler
from bartack.tools import Decision, ToolContext, ToolDefinition, ToolOutput
from tests.agent.kit import counting_environment
from tests.properties.strategies import streams

Draw = Callable[[st.SearchStrategy[int]], int]
SESSION = "s"
TOOLS = ("quick", "loud", "broken", "asked", "unknown", "picture", "later")


class RecordedRun(Struct):
    """The events of a run, one list for each time that it was started or resumed, and what is stored of it.

    What others add while the run is paused comes before the events of the part that follows.
    """

    parts: list[list[Event]]
    entries: tuple[Entry, ...]

    @property
    def events(self) -> list[Event]:
        return [event for part in self.parts for event in part]


async def _quick(arguments: dict[str, Any], context: ToolContext) -> int:
    return 7


async def _loud(arguments: dict[str, Any], context: ToolContext) -> dict[str, int]:
    await context.progress("half-way")
    return {"n": 1}


async def _picture(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    return ToolOutput((Text("Here:"), Image("image/png", data=b"png")))


async def _broken(arguments: dict[str, Any], context: ToolContext) -> str:
    raise RuntimeError("broken")


_TOOLS = [
    ToolDefinition(
        name=name,
        description=name,
        parameter_schema={"type": "object"},
        execute=execute,
        requires_approval=name == "asked",
    )
    for name, execute in (
        ("quick", _quick),
        ("loud", _loud),
        ("broken", _broken),
        ("asked", _quick),
        ("picture", _picture),
    )
]
_TOOLS.append(ToolDefinition(name="later", description="later", parameter_schema={"type": "object"}, deferred=True))
REASONS = ("stop", "tool_calls", "other", "length", "refusal")
INNER_CALL = "/inner"  # how the ids end that calls of the sub-agent have in the outer session


def _inner_answer(messages: Sequence[Message]) -> Message | str:
    """The sub-agent makes a call that needs approval, one whose result is posted, and one that needs nobody, and then
    answers."""
    if messages[-1].role == "user":
        calls = [ToolCall("inner", "asked", {}), ToolCall("inner-late", "later", {}), ToolCall("other", "loud", {})]
        return assistant("Hm.", *calls)
    return "Found."


def _other_answer(messages: Sequence[Message]) -> Message | str:
    """The agent that takes over makes a call, and then answers."""
    if not any(call.tool_call_id == "o" for message in messages for call in message.tool_calls):
        return assistant("My turn.", ToolCall("o", "asked", {"n": 1}))
    return "The other end."


def _helper() -> ToolDefinition:
    agent = Agent(ScriptedModel([_inner_answer] * 40), tools=_TOOLS, name="helper", max_repeats=None)
    return agent.as_tool("helper", "Helps.")


def _other() -> ToolDefinition:
    agent = Agent(ScriptedModel([_other_answer] * 40), tools=_TOOLS, name="other", max_repeats=None)
    return handoff(agent, "Takes over.")


def _calls(name: str, arguments: str) -> list[Delta]:
    call = (ToolCallStart("h", name), ToolCallArgs("h", arguments), ToolCallEnd("h"))
    return [Start("m", "r"), *call, Done("tool_calls")]


_ASKS_HELPER = _calls("helper", '{"prompt": "Help"}')
_HANDS_OVER = _calls("transfer_to_other", '{"reason": "Help"}')
Verdict = Literal["approve", "deny", "modify_args"]


class Plan(Struct):
    """What happens in a run."""

    answers: list[list[Delta]]
    verdicts: list[Verdict]  # what is decided about calls that need approval, in turn,
    pauses: bool  # and whether the run pauses for it
    stop_at: int | None  # the number of the event at which the run is aborted
    suspend_at: int | None  # the number of the event at which the run is suspended, to be resumed
    steer_at: int | None
    queue_at: int | None
    switch_at: int | None
    hook: bool  # changes each answer


@st.composite
def _answers(draw: st.DrawFn) -> list[Delta]:
    stream = draw(streams(end=draw(st.sampled_from(["done", "done", "done", "error"]))))
    return [_playable(draw, stamped.delta) for stamped in stream]


def _playable(draw: st.DrawFn, delta: Delta) -> Delta:
    match delta:
        case ToolCallStart(executed_by="client"):
            return replace(delta, tool_name=draw(st.sampled_from(TOOLS)))
        case Failed():
            return replace(delta, retry_after_ms=None, retryable=draw(st.booleans()))
        case Done():
            return replace(
                delta, finish_reason=draw(st.sampled_from(["stop", "tool_calls", "other", "length", "refusal"]))
            )
        case _:
            return delta


plans = st.builds(
    Plan,
    answers=st.lists(_answers() | st.sampled_from([_ASKS_HELPER, _HANDS_OVER]), min_size=1, max_size=4),
    verdicts=st.lists(st.sampled_from(get_args(Verdict)), min_size=1, max_size=3),
    pauses=st.booleans(),
    stop_at=st.none() | st.integers(1, 40),
    suspend_at=st.none() | st.integers(1, 40),
    steer_at=st.none() | st.integers(1, 20),
    queue_at=st.none() | st.integers(1, 20),
    switch_at=st.none() | st.integers(1, 20),
    hook=st.integers(0, 5).map(lambda number: number == 0),
)


class _Approver:
    def __init__(self, verdicts: Sequence[Verdict]) -> None:
        self._verdicts = cycle(verdicts)

    async def decide(self, request: ApprovalRequired) -> Decision:
        verdict = next(self._verdicts)
        changed = {"changed": 2**60} if verdict == "modify_args" else None
        return Decision(verdict, arguments=changed)


async def _with_note(message: Message) -> Message:
    return replace(message, parts=(*message.parts[1:], Text("[checked]")))


async def _record(plan: Plan) -> RecordedRun:
    environment = counting_environment()
    store = MemoryStore(environment=environment)
    approver = _Approver(plan.verdicts)
    agent = Agent(
        ScriptedModel([*plan.answers, "The end."]),
        tools=[*_TOOLS, _helper(), _other()],
        store=store,
        environment=environment,
        retry=RetryPolicy(base_ms=0, max_ms=0),
        hooks=Hooks(after_model=_with_note) if plan.hook else Hooks(),
        approver=None if plan.pauses else approver,
        max_repeats=None,
    )
    parts: list[list[Event]] = []
    count = 0
    run = agent.stream("Go", session=SESSION)
    events: list[Event] = []
    while True:
        parts.append(events)
        async with run:
            async for event in run:
                events.append(event)
                count += 1
                if count == plan.steer_at:
                    await steer(store, SESSION, "Faster!")
                    await note(store, SESSION, "weather", {"rain": True})
                if count == plan.queue_at:
                    await queue(store, SESSION, "And then?")
                if count == plan.switch_at:
                    await switch_model(store, SESSION, "nowhere:other")  # which the run cannot reach
                if count == plan.suspend_at:
                    run.suspend()
                if count == plan.stop_at:
                    run.abort()
        last = events[-1]
        assert isinstance(last, RunFinished)
        if last.result.status is not AgentStatus.AWAITING_HUMAN:
            entries = await store.entries(SESSION)
            end = next(entry.seq for entry in entries if isinstance(entry.fact, RunEnded))
            return RecordedRun(parts, tuple(entry for entry in entries if entry.seq <= end))
        for request in last.result.approvals:
            await decide(store, SESSION, request.tool_call_id, await approver.decide(request))
        for deferred in last.result.deferred:
            await post_result(store, SESSION, deferred.tool_call_id, {"posted": True})
        last_seq = max(event.entry.seq for event in events if isinstance(event, EntryAppended))
        events = [EntryAppended(entry) for entry in await store.entries(SESSION, after_seq=last_seq)]
        run = agent.resume_stream(SESSION)


def recorded(plan: Plan) -> RecordedRun:
    """Execute the plan."""
    return asyncio.run(_record(plan))


# -- as a reader in another process has it


def as_followed(draw: Draw, events: Sequence[Event]) -> list[LiveEvent | RunPaused]:
    """The same run from `SessionStore.follow_live`."""
    followed: list[LiveEvent | RunPaused] = []
    deltas: list[MessageDelta] = []
    for event in events:
        match event:
            case DeltaReceived():
                if isinstance(event.delta.delta, Start):
                    deltas = []
                deltas.append(event.delta)
            case EntryAppended():
                if ends_answer(event.entry.fact):
                    followed += _journal(draw, deltas)
                    deltas = []
                followed.append(LiveEntry(str(event.entry.seq), event.entry))
            case RunPaused():
                followed.append(event)
            case _:
                pass
    return followed


def _journal(draw: Draw, deltas: list[MessageDelta]) -> Iterable[LiveEvent]:
    """What a reader has of an answer before it is stored: a first batch as a snapshot, others as deltas, or nothing."""
    arrived = deltas[: draw(st.integers(0, len(deltas)))]
    if not arrived:
        return
    first = draw(st.integers(1, len(arrived)))
    assembler = MessageAssembler(guarded=True)
    for delta in arrived[:first]:
        assembler.consume(delta)
    yield LiveReset("r", assembler.snapshot())
    if arrived[first:]:
        yield LiveDeltas("d", tuple(arrived[first:]))
