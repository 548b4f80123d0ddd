"""Ten runs told from their first fact to their last. Time and ids are counted, so they are the same on every machine.

`scripts/make_golden.py` writes what they come to; the tests play them again and compare every byte.
"""

from collections.abc import Awaitable, Callable, Sequence

from bartack import (
    AgentConfig,
    ContextConfig,
    Entry,
    ErrorCode,
    Failed,
    LoopConfig,
    Message,
    Meta,
    StoreError,
    Thinking,
    ToolCall,
    Usage,
    assistant,
)
from bartack.agent import Agent, ApprovalRequested, LiveApprover, RetryPolicy
from bartack.environment import Environment
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.store import Lease, MemoryStore, Tail
from bartack.tools import ToolDefinition
from tests.agent.kit import SESSION, PausingModel, call, counting_environment, fail, transfer, weather

__all__ = ["SCENES", "played"]

NO_WAIT = RetryPolicy(base_ms=0, max_ms=0)


class Stage:
    """What a scene plays on."""

    def __init__(self) -> None:
        self.environment: Environment = counting_environment()
        self.store = FailingStore(self.environment)

    def agent(
        self, answers: Sequence[ScriptedResponse] | ScriptedModel, *tools: ToolDefinition, **options: object
    ) -> Agent:
        model = answers if isinstance(answers, ScriptedModel) else ScriptedModel(answers, environment=self.environment)
        return Agent(
            model,
            tools=tools or (weather, fail, transfer),
            instructions="Be brief.",
            store=self.store,
            environment=self.environment,
            retry=NO_WAIT,
            **options,  # type: ignore[arg-type]
        )


class FailingStore(MemoryStore):
    """A store that can be told to fail, as if the process ended there."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment=environment)
        self.left: int | None = None

    async def append(
        self, session_id: str, entries: Sequence[Entry], expected_tail: str | None, *, lease: Lease | None = None
    ) -> Tail:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise StoreError("the process ends here")
        return await super().append(session_id, entries, expected_tail, lease=lease)


def _said(*content: str | Thinking | ToolCall, tokens: int = 10) -> Message:
    return assistant(*content, meta=Meta(usage=Usage(tokens * 4, tokens)))


async def no_tool(stage: Stage) -> None:
    await stage.agent([_said(Thinking("A greeting."), "Hello.")]).run("Hi", session=SESSION)


async def one_tool(stage: Stage) -> None:
    agent = stage.agent([_said("Let me look.", call("c1")), _said("It rains in Paris.")])
    await agent.run("Does it rain in Paris?", session=SESSION)


async def several_tools_in_sequence(stage: Stage) -> None:
    agent = stage.agent([_said(call("c1")), _said(call("c2", city="Rome")), _said("It rains in both.")])
    await agent.run("Paris, then Rome?", session=SESSION)


async def several_tools_in_parallel(stage: Stage) -> None:
    agent = stage.agent([_said(call("c1"), call("c2", city="Rome"), call("c3", city="Oslo")), _said("Rain.")])
    await agent.run("Paris, Rome and Oslo?", session=SESSION)


async def a_tool_fails(stage: Stage) -> None:
    agent = stage.agent([_said(call("c1", "fail", why="no network"), call("c2")), _said("Only Paris: rain.")])
    await agent.run("Look", session=SESSION)


async def _decided(stage: Stage, granted: bool) -> None:
    answers = [_said("This needs your word.", call("c1", "transfer", amount=5)), _said("Done." if granted else "Fine.")]
    agent = stage.agent(answers, approver=LiveApprover())
    async with agent.stream("Move five", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested) and granted:
                run.approve(event.request.tool_call_id, decided_by="ann")
            elif isinstance(event, ApprovalRequested):
                run.deny(event.request.tool_call_id, reason="not today", decided_by="ann")


async def approval_granted(stage: Stage) -> None:
    await _decided(stage, granted=True)


async def approval_denied(stage: Stage) -> None:
    await _decided(stage, granted=False)


async def overflow_compaction_retry(stage: Stage) -> None:
    config = AgentConfig(context=ContextConfig(keep_recent_tokens=60), loop=LoopConfig(max_retries=1))
    story = "It was a long day in a long year, and much was said. " * 12
    agent = stage.agent(
        [
            _said(story, tokens=200),
            _said(story, tokens=400),
            Failed(ErrorCode.CONTEXT_OVERFLOW, "the prompt is too long"),
            _said("They told each other long stories.", tokens=8),
            _said("It was Tuesday.", tokens=5),
        ],
        config=config,
    )
    for prompt in ("Tell me a story", "Another one", "Which day was it?"):
        await agent.run(prompt, session=SESSION)


async def user_abort(stage: Stage) -> None:
    model = PausingModel(
        [_said("This will take a long time, because"), _said("Fine.")], after=4, environment=stage.environment
    )
    agent = stage.agent(model)
    async with agent.stream("Explain everything", session=SESSION) as run:
        await model.reached.wait()
        run.abort()
    model.go_on.set()
    await agent.run("Shorter, please", session=SESSION)


async def resume_and_go_on(stage: Stage) -> None:
    first = stage.agent([_said("Both.", call("c1"), call("c2", city="Rome"))])
    stage.store.left = 5  # header, start and prompt, answer, and both starts: then the process ends
    try:
        await first.run("Paris and Rome?", session=SESSION)
    except StoreError:
        stage.store.left = None
    second = stage.agent([_said("I am not sure about either."), _said("Sunny.")])
    await second.resume(SESSION, takeover=True)
    await second.run("And tomorrow?", session=SESSION)


Scene = Callable[[Stage], Awaitable[None]]
SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        no_tool,
        one_tool,
        several_tools_in_sequence,
        several_tools_in_parallel,
        a_tool_fails,
        approval_granted,
        approval_denied,
        overflow_compaction_retry,
        user_abort,
        resume_and_go_on,
    )
}


async def played(scene: Scene) -> MemoryStore:
    """The store after the scene; its session is `SESSION`."""
    stage = Stage()
    await scene(stage)
    return stage.store
