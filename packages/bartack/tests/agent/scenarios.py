"""Ten runs from their first fact to their last. Clock and ids count, so they are the same on every machine.

`scripts/make_golden.py` writes their traces; the tests run them again and compare every byte.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bartack import (
    AgentConfig,
    ContextConfig,
    ErrorCode,
    Failed,
    LoopConfig,
    Message,
    Meta,
    Thinking,
    ToolCall,
    Usage,
    assistant,
)
from bartack.agent import Agent, ApprovalRequested, LiveApprover, RetryPolicy
from bartack.environment import Environment
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.errors import StoreError
from bartack.store import Lease, MemoryStore
from bartack.store.append import Batch, Permit
from bartack.tools import ToolDefinition
from tests.agent.kit import SESSION, PausingModel, call, counting_environment, fail, transfer, weather

__all__ = ["SCENARIOS", "run_scenario"]

NO_WAIT = RetryPolicy(base_ms=0, max_ms=0)


class Setting:
    """The store and the clock of a scenario."""

    def __init__(self) -> None:
        self.environment: Environment = counting_environment()
        self.store = FailingStore(self.environment)

    def agent(
        self, answers: Sequence[ScriptedResponse] | ScriptedModel, *tools: ToolDefinition, **options: Any
    ) -> Agent:
        model = answers if isinstance(answers, ScriptedModel) else ScriptedModel(answers, environment=self.environment)
        return Agent(
            model,
            tools=tools or (weather, fail, transfer),
            instructions="Be brief.",
            store=self.store,
            environment=self.environment,
            retry=NO_WAIT,
            **options,
        )


class FailingStore(MemoryStore):
    """A store that can be made to fail, as if the process ended there."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment=environment)
        self.left: int | None = None

    async def _append(self, batch: Batch, expected_tail: str | None, permit: Permit) -> Lease | None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise StoreError("simulated crash")
        return await super()._append(batch, expected_tail, permit)


def _answer(*content: str | Thinking | ToolCall, tokens: int = 10) -> Message:
    return assistant(*content, meta=Meta(usage=Usage(tokens * 4, tokens)))


async def no_tool(setting: Setting) -> None:
    await setting.agent([_answer(Thinking("A greeting."), "Hello.")]).run("Hi", session=SESSION)


async def one_tool(setting: Setting) -> None:
    agent = setting.agent([_answer("Let me look.", call("c1")), _answer("It rains in Paris.")])
    await agent.run("Does it rain in Paris?", session=SESSION)


async def several_tools_in_sequence(setting: Setting) -> None:
    agent = setting.agent([_answer(call("c1")), _answer(call("c2", city="Rome")), _answer("It rains in both.")])
    await agent.run("Paris, then Rome?", session=SESSION)


async def several_tools_in_parallel(setting: Setting) -> None:
    agent = setting.agent([_answer(call("c1"), call("c2", city="Rome"), call("c3", city="Oslo")), _answer("Rain.")])
    await agent.run("Paris, Rome and Oslo?", session=SESSION)


async def a_tool_fails(setting: Setting) -> None:
    agent = setting.agent([_answer(call("c1", "fail", why="no network"), call("c2")), _answer("Only Paris: rain.")])
    await agent.run("Look", session=SESSION)


async def _decided(setting: Setting, granted: bool) -> None:
    answers = [
        _answer("This needs approval.", call("c1", "transfer", amount=5)),
        _answer("Done." if granted else "Fine."),
    ]
    agent = setting.agent(answers, approver=LiveApprover())
    async with agent.stream("Move five", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested) and granted:
                run.approve(event.request.tool_call_id, decided_by="ann")
            elif isinstance(event, ApprovalRequested):
                run.deny(event.request.tool_call_id, reason="not today", decided_by="ann")


async def approval_granted(setting: Setting) -> None:
    await _decided(setting, granted=True)


async def approval_denied(setting: Setting) -> None:
    await _decided(setting, granted=False)


async def overflow_compaction_retry(setting: Setting) -> None:
    config = AgentConfig(context=ContextConfig(keep_recent_tokens=60), loop=LoopConfig(max_retries=1))
    story = "It was a long day in a long year, and much was said. " * 12
    agent = setting.agent(
        [
            _answer(story, tokens=200),
            _answer(story, tokens=400),
            Failed(ErrorCode.CONTEXT_OVERFLOW, "the prompt is too long"),
            _answer("They told each other long stories.", tokens=8),
            _answer("It was Tuesday.", tokens=5),
        ],
        config=config,
    )
    for prompt in ("Tell me a story", "Another one", "Which day was it?"):
        await agent.run(prompt, session=SESSION)


async def user_abort(setting: Setting) -> None:
    model = PausingModel(
        [_answer("This will take a long time, because"), _answer("Fine.")], after=4, environment=setting.environment
    )
    agent = setting.agent(model)
    async with agent.stream("Explain everything", session=SESSION) as run:
        await model.reached.wait()
        run.abort()
    model.proceed.set()
    await agent.run("Shorter, please", session=SESSION)


async def resume_after_crash(setting: Setting) -> None:
    first = setting.agent([_answer("Both.", call("c1"), call("c2", city="Rome"))])
    setting.store.left = 3  # the first entries, the answer, and both starts together: then the crash
    try:
        await first.run("Paris and Rome?", session=SESSION)
    except StoreError:
        setting.store.left = None
    second = setting.agent([_answer("I am not sure about either."), _answer("Sunny.")])
    await second.resume(SESSION, takeover=True)
    await second.run("And tomorrow?", session=SESSION)


Scenario = Callable[[Setting], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        no_tool,
        one_tool,
        several_tools_in_sequence,
        several_tools_in_parallel,
        a_tool_fails,
        approval_granted,
        approval_denied,
        overflow_compaction_retry,
        user_abort,
        resume_after_crash,
    )
}


async def run_scenario(scenario: Scenario) -> MemoryStore:
    """The store after the scenario; its session is `SESSION`."""
    setting = Setting()
    await scenario(setting)
    return setting.store
