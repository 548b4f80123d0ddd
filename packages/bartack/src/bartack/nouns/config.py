"""Configuration of model calls and agents, and the state of an agent (001 §4.1, 004).

These are plain values; `bartack.models` and `bartack.agent` act on them.
"""

import re
import sys
from typing import Any, ClassVar, Literal

from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.errors import ConfigError, PartValidationError
from bartack.nouns.noun import Noun, wrong_types
from bartack.nouns.parts import Continuation, ToolCall
from bartack.nouns.tables import AgentStatus

__all__ = [
    "AgentConfig",
    "AgentState",
    "CacheConfig",
    "ContextConfig",
    "HostedTool",
    "LoopConfig",
    "ModelConfig",
    "ObservabilityConfig",
    "RuntimeConfig",
    "SpecificTool",
    "ThinkingConfig",
    "ToolChoice",
    "ToolSpec",
    "ToolsConfig",
]


class _Config(Noun, frozen=True, kw_only=True, rename={}, omit_defaults=False, forbid_unknown_fields=False):
    """A configuration whose values have the types of their fields. `msgspec.convert` reads it by its Python names."""

    extra: dict[str, Any] | None = None
    rule: ClassVar[str] = "004-agent-config.1"
    not_negative: ClassVar[tuple[str, ...]] = ()  # fields

    def __post_init__(self) -> None:
        for path, problem in wrong_types(self):
            raise _invalid_error(_json_path(path), f"{path.removeprefix('$.')}: {problem}", self.rule)
        for name in self.not_negative:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise _invalid_error(_json_path(f"$.{name}"), f"{name}: must not be negative, got {value}", self.rule)


class CacheConfig(_Config, frozen=True):
    """Prompt caching. With ``auto``, the encoder places the cache breakpoints, always in the same positions.

    `ttl` is how long the provider should keep the beginning of a request; None leaves it to the provider.
    """

    rule: ClassVar[str] = "001-4.1.8"
    always_written: ClassVar[tuple[str, ...]] = ("strategy",)
    strategy: Literal["auto"] = "auto"
    ttl: Literal["5m", "1h", "24h"] | None = None


class SpecificTool(_Config, frozen=True):
    """The model must call this tool."""

    rule: ClassVar[str] = "001-4.1.11"
    tool_name: str


ToolChoice = Literal["auto", "required", "none"] | SpecificTool


class ThinkingConfig(_Config, frozen=True, kw_only=True):
    """How much a model may think: an effort level or a token budget, as far as the provider supports them."""

    effort: Literal["none", "minimal", "low", "medium", "high", "max"] | None = None
    budget_tokens: int | None = None


class _ModelSettings(_Config, frozen=True, kw_only=True):
    # `extra` holds provider-specific settings, which are copied into the request body (001 §4.1). Those under the name
    # of a wire format are sent in that format only (`bartack.formats.settings`).
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] | None = None
    seed: int | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    thinking: ThinkingConfig | None = None
    output_schema: dict[str, Any] | None = None
    cache_config: CacheConfig | None = None
    service_tier: str | None = None  # how a request is scheduled and priced, in the provider's words
    verbosity: Literal["low", "medium", "high"] | None = None


class ModelConfig(_ModelSettings, frozen=True):
    """A model and its settings. None leaves a setting to the provider."""

    rule: ClassVar[str] = "001-2.1.2"
    model_id: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(bool(self.model_id), "model_id", "must not be empty")
        for key, number in (("temperature", self.temperature), ("top_p", self.top_p)):
            # Not `math.isfinite`, which raises for an integer beyond the range of a float.
            _require(number is None or abs(number) <= sys.float_info.max, key, "must be a finite number")
        _require(self.max_tokens is None or self.max_tokens > 0, "max_tokens", "must be positive")
        _require(self.temperature is None or self.temperature >= 0, "temperature", "must not be negative")
        _require(self.top_p is None or 0 <= self.top_p <= 1, "top_p", "must be between 0 and 1")


def _require(condition: bool, name: str, claim: str) -> None:
    if not condition:
        raise _invalid_error(_json_path(f"$.{name}"), f"{name}: {claim}", ModelConfig.rule)


def _invalid_error(path: str, problem: str, rule: str) -> PartValidationError:
    return ConfigError(problem, path=path, rule=rule)


def _json_path(path: str) -> str:
    """The path with names as in JSON: ``$.max_tokens`` -> ``$.maxTokens``."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), path)


class HostedTool(Noun, frozen=True, kw_only=True):
    """A tool that several providers execute themselves, in terms that none of them owns (`bartack.nouns.hosted_tools`).

    An encoder writes it as the provider declares it.
    """

    tool: str
    options: dict[str, Any] | None = None


class _SpecDetails(Noun, frozen=True, kw_only=True):
    description: str | None = None
    strict: bool | None = None
    # The declaration in the terms of one provider, or of everyone who has a format: `native.provider` names either.
    native: Continuation | None = None
    hosted: HostedTool | None = None
    # Of a provider's tool: a request to a provider without it is refused instead of being sent with a loss.
    required: bool = False
    defer_loading: bool | None = None  # True: only a search for tools shows it to the model
    input_examples: tuple[dict[str, Any], ...] = ()  # arguments of typical calls


class ToolSpec(_SpecDetails, frozen=True):
    """A tool as declared to the model: its name and the JSON Schema of its arguments (004)."""

    name: str
    parameter_schema: dict[str, Any]

    @property
    def is_function(self) -> bool:
        """Whether this is a function with a schema of ours, not a tool in a provider's own terms."""
        return self.native is None and self.hosted is None


class RuntimeConfig(_Config, frozen=True, kw_only=True):
    """The runtime that tools with side effects use. Only ``local`` is known; pass any other one to the agent."""

    kind: str = "local"
    root: str | None = None
    snapshots: bool = False  # record the git work tree before each model call


class ToolsConfig(_Config, frozen=True, kw_only=True):
    """Which tools are enabled, and defaults for all of them."""

    not_negative: ClassVar[tuple[str, ...]] = ("timeout_ms",)
    enabled: dict[str, bool] | None = None
    approval: dict[str, Literal["never", "always"]] | None = None
    timeout_ms: int | None = None


class ContextConfig(_Config, frozen=True, kw_only=True):
    """The size of the context, and when older turns are summarised."""

    not_negative: ClassVar[tuple[str, ...]] = ("max_tokens", "reserve_tokens", "keep_recent_tokens")
    max_tokens: int | None = None
    reserve_tokens: int | None = None
    keep_recent_tokens: int | None = None
    compaction: bool = True


class LoopConfig(_Config, frozen=True, kw_only=True):
    """The limits of one run, which hold across `Agent.resume`. None means no limit.

    `max_iterations` is how often the model may answer. `timeout_ms` is how long the run may be
    live, without the time between a pause or crash and the resume.
    `journal_ms` is how often an answer that is arriving is written to the session's journal, so that other processes
    can follow it and a crash leaves what had arrived; 100 to 250 is a good choice. None: never.
    With `keep_requests`, the instructions, tools and settings of model calls are stored, so that `Agent.request_after`
    can show each request as it was sent.
    """

    not_negative: ClassVar[tuple[str, ...]] = (
        *("max_iterations", "max_tool_rounds", "timeout_ms", "max_total_tokens", "max_cost_usd"),
        *("max_retries", "max_parallel", "journal_ms"),
    )
    max_iterations: int | None = 200
    max_tool_rounds: int | None = None
    timeout_ms: int | None = None
    max_total_tokens: int | None = None
    max_cost_usd: float | None = None
    max_retries: int = 2
    max_parallel: int | None = None
    journal_ms: int | None = None
    keep_requests: bool = False


class ObservabilityConfig(_Config, frozen=True, kw_only=True):
    """Logging, tracing and metrics.

    `log_level` is the least severe level that the agent's runs log; None leaves it to the logger ``bartack.agent``.
    With `trace`, a run outside of any trace starts a new one (`bartack.agent.tracing`). With `metrics`, the agent
    counts what its runs do (`Agent.metrics`). `provider_raw` attaches what a provider sent to the deltas.
    """

    log_level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    trace: bool = False
    metrics: bool = False
    provider_raw: bool = False


class AgentConfig(_Config, frozen=True, kw_only=True):
    """The configuration of an agent (004)."""

    model: ModelConfig | None = None
    runtime: RuntimeConfig = RuntimeConfig()
    tools: ToolsConfig = ToolsConfig()
    context: ContextConfig = ContextConfig()
    loop: LoopConfig = LoopConfig()
    observability: ObservabilityConfig = ObservabilityConfig()


class AgentState(Noun, frozen=True, kw_only=True):
    """The current state of an agent (004)."""

    always_written: ClassVar[tuple[str, ...]] = ("status",)
    status: AgentStatus = AgentStatus.IDLE
    current_run_id: str | None = None
    pending_tool_calls: tuple[ToolCall, ...] = ()
    last_error: Failed | None = None
    token_usage: Usage | None = None
    cost_usage: float | None = None
