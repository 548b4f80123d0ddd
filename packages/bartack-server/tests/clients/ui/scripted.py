"""What the tests with npm clients share: a server with a scripted agent, whose answers can be held."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from bartack import Agent, Delta, MemoryStore, RetryPolicy, ScriptedModel, TextDelta, tool
from bartack.tools import LocalRuntime, ToolDefinition, file_tools
from bartack_server.web import WebApp, app
from tests.properties.runs import Plan, RecordedRun, plans, recorded
from tests.web.serving import LIMIT_S, Client, served

HERE = "⏸"  # where an answer is held


class HeldModel(ScriptedModel):
    """Stops before each text with the sign until it may proceed."""

    def __init__(self, script: Sequence[Any]) -> None:
        super().__init__(script)
        self.proceed = asyncio.Event()

    async def _batches(self, response: Any) -> AsyncGenerator[Sequence[Delta], None]:
        async for batch in super()._batches(response):
            if any(isinstance(delta, TextDelta) and HERE in delta.text_delta for delta in batch):
                await self.proceed.wait()
            yield batch


@tool
async def weather(city: str) -> dict[str, str]:
    """Weather forecast."""
    return {"city": city, "sky": "rain"}


@tool(requires_approval=True)
async def transfer(amount: int) -> str:
    """Transfer money."""
    return f"moved {amount}"


def researcher(*script: Any) -> tuple[ToolDefinition, HeldModel]:
    """A tool that runs another agent, which has both tools as well, and the model of that agent."""
    model = HeldModel(script)
    agent = Agent(model, tools=[weather, transfer], name="researcher")
    return agent.as_tool("research", "Researches a question."), model


class Server:
    """A server, and what a test needs of it."""

    def __init__(self, client: Client, served_app: WebApp, model: HeldModel) -> None:
        self.client, self.app, self.model = client, served_app, model
        self.headers = {"authorization": f"Bearer {served_app.token}"}

    async def watched(self, session_id: str, *, by: bool) -> None:
        """Wait until the session has a follower, or none."""
        async with asyncio.timeout(LIMIT_S):
            while bool(self.app.service.hub.viewers(session_id)) is not by:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.01)


@asynccontextmanager
async def scripted_server(
    *script: Any, extra_tools: Sequence[ToolDefinition] = (), runtime: LocalRuntime | None = None
) -> AsyncIterator[Server]:
    """A server whose agent plays the script, with the two tools and some more."""
    model = HeldModel(script)
    retry = RetryPolicy(base_ms=1, max_ms=1)
    tools = [weather, transfer, *extra_tools, *([] if runtime is None else file_tools())]
    agent = Agent(model, tools=tools, store=MemoryStore(), retry=retry, runtime=runtime)
    served_app = app(agent)
    async with agent, served(served_app) as client:
        yield Server(client, served_app, model)


async def some_runs() -> list[RecordedRun]:
    """Generated runs, the same ones each time."""
    runs: list[RecordedRun] = []

    @settings(max_examples=15, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(plans)
    def collect(plan: Plan) -> None:
        runs.append(recorded(plan))

    await asyncio.to_thread(collect)
    return runs
