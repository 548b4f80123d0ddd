"""`RunSetup`: the model, tools and instructions of a run, from the settings of its agent."""

from typing import NamedTuple

from bartack.agent.run_context import model_ref
from bartack.agent.settings import AgentSettings, PromptContext
from bartack.models.model import Model
from bartack.models.prices import ModelInfo
from bartack.nouns.config import ToolSpec
from bartack.nouns.entries import Fact, ModelChange, RunStarted, RuntimeInit
from bartack.nouns.messages import ModelRef
from bartack.session.run_state import RunState

__all__ = ["RunSetup", "set_up_run"]


class RunSetup(NamedTuple):
    """The model, tools and instructions of a run, and the facts to record about them besides its start."""

    model: Model
    info: ModelInfo
    hints: tuple[str, ...]  # what the runtime adds to the system prompt
    tool_specs: tuple[ToolSpec, ...]
    instructions: str | None
    facts: tuple[Fact, ...]
    is_switched: bool  # to another model than the session had before

    def started(self, agent: str | None) -> RunStarted:
        """The fact about the start, without its trace and metadata."""
        names = tuple(spec.name for spec in self.tool_specs)
        return RunStarted(agent=agent, model=self.ref, config=self.model.get_config(), tools=names)

    @property
    def ref(self) -> ModelRef:
        """The model by its names."""
        return model_ref(self.info)


async def set_up_run(
    settings: AgentSettings, state: RunState, session_id: str, model: Model, *, asks_model: bool = True
) -> RunSetup:
    """Set up a run with these settings and this model. Without `asks_model`, the run only ends an earlier one."""
    info = await settings.info_for(model)
    hints, runtime_facts = await _connect_runtime(settings, state)
    ref, previous = model_ref(info), state.model
    instructions: str | None = None
    if asks_model:
        await settings.tools.registry.open()
        context = PromptContext(deps=settings.tools.deps, session_id=session_id, model=ref)
        instructions = await settings.instructions_for(context)
    is_switched = previous is not None and previous != ref
    switched = (ModelChange(ref, previous),) if is_switched else ()
    specs = settings.tools.registry.build_model_tool_specs()
    return RunSetup(model, info, hints, specs, instructions, (*switched, *runtime_facts), is_switched)


async def _connect_runtime(settings: AgentSettings, state: RunState) -> tuple[tuple[str, ...], list[Fact]]:
    """What the runtime adds to the system prompt, and the fact about it if it has changed."""
    runtime = settings.tools.runtime
    if runtime is None:
        return (), []
    if runtime.status == "closed":
        await runtime.connect()
    hints = runtime.get_hints()
    fact = RuntimeInit(runtime.name, await runtime.get_init_data())
    return (hints,) if hints else (), [] if fact == state.runtime else [fact]
