"""`AgentSettings`: what the runs of an agent work with, and the `RetryPolicy` in it.

A setting may be given in three places. From the weakest to the strongest:

    AgentConfig   a value that can be stored in a file: limits, the policies for tools and context, what is observed
    AgentOptions  the arguments of `Agent(...)`, among them an `AgentConfig`
    RunSettings   the arguments of one run; tools and instructions are added to those of the agent

Whoever is stronger wins. `AgentSettings` is the outcome: assembled once when an agent is created, with the
settings of each run applied by `AgentSettings.for_run`, and passed on as one value. What a run is to do, such as
the prompt to answer, is not a setting but a `RunTask`; the model, tools and instructions that came of the settings when
the run began, or when another agent took it over, are a `RunSetup`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from inspect import isawaitable
from pathlib import Path
from typing import Any, Generic, Literal

from msgspec import Struct, structs

from bartack.agent.hooks import HookChain, Hooks
from bartack.agent.observer import Observer
from bartack.agent.output import OutputReader
from bartack.agent.resources import Connections
from bartack.agent.tracing import TelemetrySink
from bartack.environment import Environment
from bartack.models.model import Model
from bartack.models.prices import ModelInfo
from bartack.models.provider import ProviderModel
from bartack.nouns.config import AgentConfig, LoopConfig, ModelConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import BartackError, ConfigError, ErrorCode, nearest_name
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.noun import wrong_types
from bartack.session.context import ContextManager
from bartack.store.address import StoreAddress
from bartack.store.session_store import SessionStore
from bartack.tools import Approver, LocalRuntime, Runtime, ToolRegistry, Tools, ToolSettings
from bartack.tools.tool_context import Deps

__all__ = ["AgentSettings", "PromptContext", "RetryPolicy", "Summarise"]

Summarise = Callable[[tuple[Message, ...]], Awaitable[str]]  # the messages to summarise -> the summary


class PromptContext(Struct, Generic[Deps], frozen=True, kw_only=True):
    """What a function that returns instructions can see of its run."""

    deps: Deps
    session_id: str
    model: ModelRef


Instructions = str | Callable[[PromptContext[Deps]], str | Awaitable[str]]


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """When a failed model call is retried, and after how long.

    The delay grows exponentially, minus a random share so that clients do not retry in lockstep. A delay requested by
    the provider is used instead, unless it is too long.
    """

    max_retries: int = 2  # after the first attempt, for each model
    max_busy_retries: int | None = None  # if the provider is overloaded or limits the rate; None: as for other errors
    base_ms: int = 500
    max_ms: int = 30_000
    jitter: float = 0.5  # the largest share of a delay that is taken off at random
    max_retry_after_ms: int = 120_000  # a call whose provider requests a longer delay is not retried
    codes: frozenset[ErrorCode] | None = None  # the errors to retry; None: those marked as retryable

    def __post_init__(self) -> None:
        problems = [*wrong_types(self)]
        if not problems:
            numbers = ("max_retries", "max_busy_retries", "base_ms", "max_ms", "max_retry_after_ms", "jitter")
            problems = [(f"$.{name}", "must not be negative") for name in numbers if (getattr(self, name) or 0) < 0]
        for path, problem in problems:
            text = f"RetryPolicy: {path.removeprefix('$.')}: {problem}"
            raise ConfigError(text, path=f"$.retry{path[1:]}")

    def delay_ms(self, failed: Failed, attempt: int, chance: Callable[[], float]) -> int | None:
        """The delay after failed attempt number `attempt` (from 1); None if the call is not retried again.

        `chance` returns random numbers from 0 to 1.
        """
        may_retry = failed.retryable if self.codes is None else failed.error_code in self.codes
        is_busy = failed.error_code in (ErrorCode.OVERLOADED, ErrorCode.RATE_LIMITED)
        max_retries = self.max_busy_retries if is_busy and self.max_busy_retries is not None else self.max_retries
        if not may_retry or attempt > max_retries:
            return None
        if failed.retry_after_ms is not None:
            return failed.retry_after_ms if failed.retry_after_ms <= self.max_retry_after_ms else None
        delay = min(self.max_ms, self.base_ms * (1 << min(attempt - 1, 30)))
        return round(delay * (1 - self.jitter * chance()))


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The settings that every run of an agent shares."""

    model: Model
    fallback_models: tuple[Model, ...]
    instructions: tuple[Instructions[Any], ...]
    config: AgentConfig
    context: ContextManager
    tools: ToolSettings
    hooks: HookChain
    retry: RetryPolicy
    environment: Environment
    output: OutputReader
    summarise: Summarise | None
    name: str | None
    lease_s: float
    max_repeats: int | None
    observer: Observer
    telemetry: TelemetrySink | None
    connections: Connections
    tool_search: bool = False
    output_mode: Literal["native", "tool", "prompt"] | None = None
    find_agent: "Callable[[str], AgentSettings | None]" = lambda _: None  # the settings of one that may take over
    # Settings of this run that apply to every model it uses.
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    _infos: dict[int, tuple[Model, ModelInfo]] = field(default_factory=dict)

    def for_run(
        self,
        *,
        deps: Any = None,
        instructions: Instructions[Any] | None = None,
        tools: Tools = (),
        model_settings: Mapping[str, Any] | None = None,
        limits: LoopConfig | None = None,
        approver: Approver | None = None,
        hooks: Hooks | Sequence[Hooks] = (),
    ) -> "AgentSettings":
        """The settings of one run; `BartackError` with the code ``invalid_config`` if they are invalid."""
        registry = self.tools.registry
        if added := tuple(tools):
            registry = ToolRegistry([registry, enabled_tools(added, self.config)])
        if deps is not None:
            registry.check_deps(type(deps))
        if model_settings:
            changed_config(ModelConfig("any"), model_settings)
        chain = self.hooks + HookChain.of(hooks)
        return replace(
            self,
            hooks=chain,
            instructions=self.instructions if instructions is None else (*self.instructions, instructions),
            config=self.config if limits is None else structs.replace(self.config, loop=limits),
            tools=replace(
                self.tools,
                registry=registry,
                deps=deps,
                approver=approver or self.tools.approver,
                before_tool=chain.before_tool,
                after_tool=chain.after_tool,
            ),
            model_settings=model_settings or {},
        )

    def with_output_tool(self) -> "AgentSettings":
        """The settings with the tool that a model calls to answer, if that is how it answers."""
        if self.output_mode != "tool" or self.output.type is None:
            return self
        registry = ToolRegistry([self.tools.registry, self.output.type.tool])
        return replace(self, tools=replace(self.tools, registry=registry))

    def with_limits(self, limits: LoopConfig) -> "AgentSettings":
        """The settings with these limits."""
        return replace(self, config=structs.replace(self.config, loop=limits))

    def continued_by(self, successor: "AgentSettings") -> "AgentSettings":
        """The settings of this run once another agent answers: with that agent's model, instructions and tools."""
        return replace(
            successor,
            config=structs.replace(successor.config, loop=self.config.loop),
            tools=replace(successor.tools, approver=successor.tools.approver or self.tools.approver),
            output=self.output,
            output_mode=self.output_mode,
            environment=self.environment,
            lease_s=self.lease_s,
            observer=self.observer,
            telemetry=self.telemetry,
            connections=self.connections,
            find_agent=self.find_agent,
        )

    async def instructions_for(self, context: PromptContext[Any]) -> str | None:
        """The instructions as one text; None if there are none."""
        texts: list[str] = []
        for instruction in self.instructions:
            outcome: Any = instruction if isinstance(instruction, str) else instruction(context)
            text = await outcome if isawaitable(outcome) else outcome
            if not isinstance(text, str):
                problem = f"The instructions function returned {_kind(text)} instead of a string."
                raise ConfigError(problem, path="$.instructions")
            texts.append(text)
        return "\n\n".join(text for text in texts if text) or None

    async def info_for(self, model: Model) -> ModelInfo:
        """The model's info, cached: a provider's model reads a price table, which is slow the first time."""
        cached = self._infos.get(id(model))
        if cached is None:
            is_slow = isinstance(model, ProviderModel)
            info = await asyncio.to_thread(model.model_info) if is_slow else model.model_info()
            cached = self._infos[id(model)] = (model, info)
        return cached[1]

    async def find_model(self, ref: ModelRef) -> Model | None:
        """The model of this agent with these names, or else a new one; None if it cannot be connected."""
        for model in (self.model, *self.fallback_models, *(model for model, _ in self._infos.values())):
            info = await self.info_for(model)
            if (info.provider, info.model_id) == (ref.provider, ref.model):
                return model
        try:
            return self.connections.model(f"{ref.provider}:{ref.model}")
        except BartackError:  # an unknown vendor, or no API key
            return None


def model_settings(config: AgentConfig, model: str | Model | None) -> tuple[str | Model, dict[str, Any]]:
    """The model, by default the configured one, and the settings to connect it with; `PartValidationError` if there is
    none. A `Model` has its own settings."""
    if config.model is None:
        if model is None:
            raise ConfigError("An agent needs a model.", path="$.model")
        return model, {}
    fields = {name: getattr(config.model, name) for name in config.model.__struct_fields__}
    model_id, extra = fields.pop("model_id"), fields.pop("extra") or {}
    settings = {name: value for name, value in fields.items() if value is not None}
    return (model_id if model is None else model), {**settings, **extra}


def changed_config(config: ModelConfig, settings: Mapping[str, Any]) -> ModelConfig:
    """The configuration with other settings; `PartValidationError` with the code ``invalid_config`` for a wrong one."""
    unknown = settings.keys() - set(ModelConfig.__struct_fields__)
    if unknown:
        nearest = nearest_name(min(unknown), ModelConfig.__struct_fields__)
        hint = "" if nearest is None else f" Did you mean {nearest!r}?"
        names = ", ".join(ModelConfig.__struct_fields__)
        text = f"Unknown model setting {min(unknown)!r}.{hint} Known settings: {names}; others go into 'extra'."
        raise ConfigError(text, path=f"$.modelSettings.{min(unknown)}")
    return structs.replace(config, **settings)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def local_runtime(config: AgentConfig, store: SessionStore | str | Path | None) -> Runtime | None:
    """The runtime in the configuration, without access to the files of the session store."""
    if config.runtime.kind != "local":
        text = f"Unknown runtime kind {config.runtime.kind!r}; pass a runtime with runtime=..."
        raise ConfigError(text, path="$.runtime.kind")
    if config.runtime.root is None:
        return None
    path = _path_of(store)
    forbidden = () if path is None else (path,)
    return LocalRuntime(Path(config.runtime.root), forbidden=forbidden, snapshots=config.runtime.snapshots)


def _path_of(store: SessionStore | str | Path | None) -> Path | None:
    """The file or folder of a store or address; without either, of the default store."""
    if store is not None and not isinstance(store, str | Path):
        return store.path
    if store is None and find_spec("platformdirs") is None:
        return None  # there is no default store
    return StoreAddress.parse(store).path


def enabled_tools(tools: Tools, config: AgentConfig) -> ToolRegistry:
    """The tools that the configuration does not disable; `BartackError` for duplicate names."""
    enabled = config.tools.enabled or {}
    return ToolRegistry(tools).filtered(lambda tool: enabled.get(tool.name, True))
