"""Random sessions: any mixture of answers, faults, tools, approvals, aborts and crashes leaves a usable session."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from bartack import (
    AgentConfig,
    ApprovalRequired,
    ErrorCode,
    Failed,
    LoopConfig,
    Message,
    Meta,
    NotFound,
    ToolCall,
    assistant,
)
from bartack.agent import Agent, StatusChanged
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.entries import ToolStarted
from bartack.nouns.errors import StoreError
from bartack.nouns.tables import AGENT
from bartack.tools import Decision, ToolContext, ToolDefinition, tool
from tests.agent.kit import FAST, SESSION, check_session, counting_environment, starts, within
from tests.agent.scenarios import FailingStore


class Chance(ScriptedModel):
    """Gives random answers of every kind."""

    def __init__(self, chance: Random) -> None:
        super().__init__([])
        self._chance = chance
        self._calls_made = 0

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        match self._chance.randrange(8):
            case 0:
                return Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
            case 1:
                return Failed(ErrorCode.INVALID_REQUEST, "no")
            case 2:
                return assistant("Cut", self._call(), meta=Meta(finish_reason="length"))
            case 3:
                return assistant(ToolCall(self._id(), "quick", {}, raw_args_text='{"n": '))
            case 4 | 5:
                return assistant("Working.", *(self._call() for _ in range(self._chance.randint(1, 3))))
            case _:
                return "Done."

    def _id(self) -> str:
        self._calls_made += self._chance.random() > 0.1  # some ids are used twice
        return f"c{self._calls_made}"

    def _call(self) -> ToolCall:
        self._calls_made += 1
        name = self._chance.choice(["quick", "slow", "broken", "asked", "unknown"])
        return ToolCall(f"c{self._calls_made}", name, {"n": self._chance.randrange(3)})


class Human:
    def __init__(self, chance: Random) -> None:
        self._chance = chance

    async def decide(self, request: ApprovalRequired) -> Decision:
        await asyncio.sleep(0)
        return Decision(self._chance.choice(["approve", "deny", "abort"]))


def tools(chance: Random, ran: Counter[str]) -> list[ToolDefinition]:
    @tool
    async def quick(n: int, context: ToolContext) -> int:
        """Quick."""
        ran[context.tool_call_id] += 1
        return n

    @tool
    async def slow(n: int, context: ToolContext) -> int:
        """Slow."""
        ran[context.tool_call_id] += 1
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        return n

    @tool
    async def broken(n: int) -> int:
        """Broken."""
        raise RuntimeError("broken")

    @tool(requires_approval=True)
    async def asked(n: int, context: ToolContext) -> int:
        """Asked."""
        ran[context.tool_call_id] += 1
        return n

    return [quick, slow, broken, asked]


async def one_turn(agent: Agent, store: FailingStore, chance: Random, turn: int) -> None:
    """A run that may be aborted, cancelled, or lose its store half-way."""
    fate = chance.randrange(5)
    resumes = chance.random() < 0.3
    store.left = chance.randrange(1, 9) if fate == 0 else None
    run = agent.resume_stream(SESSION) if resumes else agent.stream(f"Turn {turn}", session=SESSION)

    async def watched() -> None:
        count = 0
        async with run:
            async for event in run:
                count += 1
                if isinstance(event, StatusChanged):
                    assert event.status in AGENT[event.previous].values()
                if fate == 1 and count == stop_at:
                    run.abort()
                if fate == 2 and count == stop_at:
                    break

    stop_at = chance.randrange(1, 30)
    task = asyncio.create_task(watched())
    if fate == 3:
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        task.cancel()
    await within(asyncio.wait({task}))
    store.left = None
    if not task.cancelled() and (error := task.exception()) is not None:
        assert isinstance(error, StoreError | NotFound), error


@pytest.mark.parametrize("seed", range(40))
async def test_a_session_can_be_continued_whatever_happens(seed: int) -> None:
    chance = Random(seed)
    environment = counting_environment()
    store = FailingStore(environment)
    ran: Counter[str] = Counter()
    model = Chance(chance)
    for turn in range(6):
        agent = Agent(
            model,
            tools=tools(chance, ran),
            store=store,
            environment=environment,
            retry=FAST,
            approver=Human(chance) if chance.random() < 0.7 else None,
            config=AgentConfig(loop=LoopConfig(max_iterations=5, max_parallel=chance.choice([None, 1]))),
        )
        await one_turn(agent, store, chance, turn)
    last = Agent(
        ScriptedModel(["Fine."], environment=environment),
        tools=tools(chance, ran),
        store=store,
        environment=environment,
    )
    assert (await within(last.run("Are you well?", session=SESSION, takeover=True))).output == "Fine."
    entries = await check_session(store)
    assert max(starts(entries).values(), default=0) <= 1
    assert max(ran.values(), default=0) <= 1
    assert set(ran) <= {entry.fact.tool_call_id for entry in entries if isinstance(entry.fact, ToolStarted)}
