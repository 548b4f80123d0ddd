"""What an agent is configured with: `AgentSettings`, and the `Hooks` and `RetryPolicy` in it.

The settings are assembled once, when an agent is created, and passed on as one value.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from inspect import isawaitable
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

from msgspec import Struct, structs

from bartack.agent.events import Output
from bartack.agent.observer import Observer
from bartack.agent.output import OutputReader
from bartack.agent.tracing import Telemetry
from bartack.environment import Environment
from bartack.models.model import Model
from bartack.models.prices import ModelInfo
from bartack.models.provider import ProviderModel
from bartack.nouns.config import AgentConfig, LoopConfig, ModelConfig
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import AgentError, BartackError, ErrorCode, PartValidationError
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.requests import ModelRequest
from bartack.nouns.type_check import wrong_types
from bartack.session.context import ContextManager
from bartack.store.address import StoreAddress
from bartack.store.session_store import SessionStore
from bartack.tools import ApprovalPolicy, Approver, LocalRuntime, Runtime, ToolRegistry, Tools, ToolSettings
from bartack.tools.tool_context import Deps
from bartack.tools.tool_round import AfterTool, BeforeTool

__all__ = ["AgentOptions", "AgentSettings", "Hooks", "PromptContext", "RetryPolicy", "RunSettings", "Summarise"]

T = TypeVar("T")
Summarise = Callable[[tuple[Message, ...]], Awaitable[str]]  # the messages to summarise -> the summary


class PromptContext(Struct, Generic[Deps], frozen=True, kw_only=True):
    """What a function that returns instructions can see of its run."""

    deps: Deps
    session_id: str
    model: ModelRef


Instructions = str | Callable[[PromptContext[Deps]], str | Awaitable[str]]


class RunSettings(TypedDict, Generic[Deps], total=False):
    """The settings of one run, all of them optional."""

    deps: Deps
    """What its tools get as `ToolContext.deps`. It is passed along and never stored."""
    model: str | Model | None
    """Used instead of the agent's own."""
    instructions: Instructions[Deps]
    """Added to those of the agent."""
    tools: Tools
    """Added to those of the agent."""
    model_settings: Mapping[str, Any]
    """Settings for its model calls, such as ``{"temperature": 0}``."""
    limits: LoopConfig
    """Used instead of ``config.loop`` of the agent."""
    approver: Approver | None
    """Used instead of the agent's own."""
    metadata: Mapping[str, Any]
    """Your own data, stored at the start of the run."""
    takeover: bool
    """Take the session from a process that died before its lease expired."""


class Hooks(Struct, frozen=True, kw_only=True):
    """User code that runs before and after model calls and tools.

    Calls that write a summary are included; their `model_call_index` is None, in the metadata of the request and in the
    `meta` of the answer.

    Each hook is a coroutine function. It may return a changed value; None changes nothing. An exception from a model
    hook ends the run as failed and is raised to the caller; one from a tool hook becomes the call's error result.
    """

    before_model: Callable[[ModelRequest], Awaitable[ModelRequest | None]] | None = None
    after_model: Callable[[Message], Awaitable[Message | None]] | None = None  # before the answer is stored
    before_tool: BeforeTool | None = None  # may also return a result, and then the tool is not run
    after_tool: AfterTool | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            hook = getattr(self, name)
            if hook is not None and (not callable(hook) or isinstance(hook, type)):
                text = f"The {name} hook must be a coroutine function, not a value of type {type(hook).__name__}."
                raise PartValidationError(text, path=f"$.hooks.{name}", code=ErrorCode.INVALID_CONFIG)

    async def change_request(self, request: ModelRequest) -> ModelRequest:
        """The request as the hook before the call changes it."""
        return await _changed("before_model", self.before_model, request, ModelRequest)

    async def change_answer(self, message: Message) -> Message:
        """The answer as the hook after the call changes it."""
        return await _changed("after_model", self.after_model, message, Message)


async def _changed(name: str, hook: Callable[[T], Awaitable[T | None]] | None, value: T, kind: type[T]) -> T:
    """The value that the hook returns, or the original; `AgentError` (``invalid_config``) if it is not a valid hook."""
    if hook is None:
        return value
    made: Any = hook(value)
    is_async = isawaitable(made)
    changed = await made if is_async else made
    if is_async and isinstance(changed, kind | None):
        return value if changed is None else changed
    fault = f"this one returned {_kind(changed)}" if is_async else "this one is not async"
    text = f"The {name} hook must be a coroutine function that returns a {kind.__name__} or None; {fault}."
    raise AgentError(text, code=ErrorCode.INVALID_CONFIG)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """When a failed model call is retried, and after how long.

    The delay grows exponentially, minus a random share so that clients do not retry in lockstep. A delay requested by
    the provider is used instead, unless it is too long.
    """

    max_retries: int = 2  # after the first attempt, for each model
    base_ms: int = 500
    max_ms: int = 30_000
    jitter: float = 0.5  # the largest share of a delay that is taken off at random
    max_retry_after_ms: int = 120_000  # a call whose provider requests a longer delay is not retried
    codes: frozenset[ErrorCode] | None = None  # which errors to retry; None: those marked as retryable

    def __post_init__(self) -> None:
        problems = [*wrong_types(self)]
        if not problems:
            numbers = ("max_retries", "base_ms", "max_ms", "max_retry_after_ms", "jitter")
            problems = [(f"$.{name}", "must not be negative") for name in numbers if getattr(self, name) < 0]
        for path, problem in problems:
            text = f"RetryPolicy: {path.removeprefix('$.')}: {problem}"
            raise PartValidationError(text, path=f"$.retry{path[1:]}", code=ErrorCode.INVALID_CONFIG)

    def delay_ms(self, failed: Failed, attempt: int, chance: Callable[[], float]) -> int | None:
        """The delay after failed attempt number `attempt` (from 1); None if the call is not retried again.

        `chance` returns random numbers from 0 to 1.
        """
        may_retry = failed.retryable if self.codes is None else failed.error_code in self.codes
        if not may_retry or attempt > self.max_retries:
            return None
        if failed.retry_after_ms is not None:
            return failed.retry_after_ms if failed.retry_after_ms <= self.max_retry_after_ms else None
        delay = min(self.max_ms, self.base_ms * (1 << min(attempt - 1, 30)))
        return round(delay * (1 - self.jitter * chance()))


class AgentOptions(TypedDict, Generic[Deps, Output], total=False):
    """The options of `Agent`, for its overloads, without its model and what its output is made of."""

    tools: Tools
    instructions: Instructions[Deps] | None
    deps_type: type[Deps] | None
    output_validator: Callable[[Output], Output | Awaitable[Output]] | None
    store: SessionStore | str | Path | None
    runtime: Runtime | None
    approver: Approver | None
    approval: ApprovalPolicy | None
    approval_timeout_ms: int | None
    fallback_models: Sequence[str | Model]
    config: AgentConfig
    retry: RetryPolicy | None
    hooks: Hooks
    summarise: Summarise | None
    environment: Environment | None
    name: str | None
    lease_s: float
    max_repeats: int | None
    telemetry: Telemetry | None


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The settings that every run of an agent shares."""

    model: Model
    fallback_models: tuple[Model, ...]
    instructions: tuple[Instructions[Any], ...]
    config: AgentConfig
    context: ContextManager
    tools: ToolSettings
    hooks: Hooks
    retry: RetryPolicy
    environment: Environment
    output: OutputReader
    summarise: Summarise | None
    name: str | None
    lease_s: float
    max_repeats: int | None
    observer: Observer
    telemetry: Telemetry | None
    connect: Callable[[str], Model]  # by name
    find_agent: "Callable[[str], AgentSettings | None]" = lambda _: None  # the settings of one that may take over
    model_settings: Mapping[str, Any] = field(default_factory=dict)  # of this run, for every model
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
    ) -> "AgentSettings":
        """The settings of one run; `BartackError` with the code ``invalid_config`` if they are invalid."""
        registry = self.tools.registry
        if added := tuple(tools):
            registry = ToolRegistry([registry, enabled_tools(added, self.config)])
        if model_settings:
            changed_config(ModelConfig("any"), model_settings)
        return replace(
            self,
            instructions=self.instructions if instructions is None else (*self.instructions, instructions),
            config=self.config if limits is None else structs.replace(self.config, loop=limits),
            tools=replace(self.tools, registry=registry, deps=deps, approver=approver or self.tools.approver),
            model_settings=model_settings or {},
        )

    def with_limits(self, limits: LoopConfig) -> "AgentSettings":
        """The settings with these limits."""
        return replace(self, config=structs.replace(self.config, loop=limits))

    def continued_by(self, other: "AgentSettings") -> "AgentSettings":
        """The settings of this run once another agent answers: with that agent's model, instructions and tools."""
        return replace(
            other,
            config=structs.replace(other.config, loop=self.config.loop),
            tools=replace(other.tools, approver=other.tools.approver or self.tools.approver),
            output=self.output,
            environment=self.environment,
            lease_s=self.lease_s,
            observer=self.observer,
            telemetry=self.telemetry,
            find_agent=self.find_agent,
        )

    async def instructions_for(self, context: PromptContext[Any]) -> str | None:
        """The instructions as one text; None if there are none."""
        texts: list[str] = []
        for one in self.instructions:
            made: Any = one if isinstance(one, str) else one(context)
            text = await made if isawaitable(made) else made
            if not isinstance(text, str):
                problem = f"The instructions function returned {_kind(text)} instead of a string."
                raise PartValidationError(problem, path="$.instructions", code=ErrorCode.INVALID_CONFIG)
            texts.append(text)
        return "\n\n".join(text for text in texts if text) or None

    async def info_for(self, model: Model) -> ModelInfo:
        """The model's info, cached: a provider's model reads a price table, which is slow the first time."""
        known = self._infos.get(id(model))
        if known is None:
            is_slow = isinstance(model, ProviderModel)
            info = await asyncio.to_thread(model.model_info) if is_slow else model.model_info()
            known = self._infos[id(model)] = (model, info)
        return known[1]

    async def find_model(self, ref: ModelRef) -> Model | None:
        """The model of this agent with these names, or else a new one; None if it cannot be connected."""
        for model in (self.model, *self.fallback_models, *(model for model, _ in self._infos.values())):
            info = await self.info_for(model)
            if (info.provider, info.model_id) == (ref.provider, ref.model):
                return model
        try:
            return self.connect(f"{ref.provider}:{ref.model}")
        except BartackError:  # an unknown vendor, or no API key
            return None


def model_settings(config: AgentConfig, model: str | Model | None) -> tuple[str | Model, dict[str, Any]]:
    """The model, by default the configured one, and the settings to connect it with; `PartValidationError` if there is
    none. A `Model` has its own settings."""
    if config.model is None:
        if model is None:
            raise PartValidationError("An agent needs a model.", path="$.model", code=ErrorCode.INVALID_CONFIG)
        return model, {}
    given = {name: getattr(config.model, name) for name in config.model.__struct_fields__}
    model_id, extra = given.pop("model_id"), given.pop("extra") or {}
    settings = {name: value for name, value in given.items() if value is not None}
    return (model_id if model is None else model), {**settings, **extra}


def changed_config(config: ModelConfig, settings: Mapping[str, Any]) -> ModelConfig:
    """The configuration with other settings; `PartValidationError` with the code ``invalid_config`` for a wrong one."""
    unknown = settings.keys() - set(ModelConfig.__struct_fields__)
    if unknown:
        text = f"Unknown model setting {min(unknown)!r}; known settings: {', '.join(ModelConfig.__struct_fields__)}."
        raise PartValidationError(text, path=f"$.modelSettings.{min(unknown)}", code=ErrorCode.INVALID_CONFIG)
    return structs.replace(config, **settings)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def local_runtime(config: AgentConfig, store: SessionStore | str | Path | None) -> Runtime | None:
    """The runtime in the configuration, without access to the files of the session store."""
    if config.runtime.kind != "local":
        text = f"Unknown runtime kind {config.runtime.kind!r}; pass a runtime with runtime=..."
        raise PartValidationError(text, path="$.runtime.kind", code=ErrorCode.INVALID_CONFIG)
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
