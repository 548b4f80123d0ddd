"""What a model call and an agent are configured with, and the state a run is in (001 §4.1, 004).

These are values: they say what is wanted. The shells that act on them are elsewhere.
"""

from typing import Any, ClassVar, Literal

from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Continuation, ToolCall
from bartack.nouns.tables import AgentStatus

__all__ = [
    "AgentConfig",
    "AgentState",
    "CacheConfig",
    "ContextConfig",
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


class CacheConfig(Noun, frozen=True):
    """Prompt caching. ``auto`` lets the encoder place the breakpoints, always in the same places."""

    always_written: ClassVar = ("strategy",)
    strategy: Literal["auto"] = "auto"


class SpecificTool(Noun, frozen=True):
    """The model must call this tool."""

    tool_name: str


ToolChoice = Literal["auto", "required", "none"] | SpecificTool


class ThinkingConfig(Noun, frozen=True, kw_only=True):
    """How much a model may think: by effort or by a budget of tokens, as far as its provider knows them."""

    effort: Literal["none", "minimal", "low", "medium", "high", "max"] | None = None
    budget_tokens: int | None = None


class _ModelSettings(Noun, frozen=True, kw_only=True):
    # `extra` holds a provider's own settings; they go into the request body as they are (001 §4.1).
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


class ModelConfig(_ModelSettings, frozen=True):
    """Which model, and how it is asked."""

    model_id: str

    def __post_init__(self) -> None:
        _require(bool(self.model_id), "modelId", "names a model")
        _require(self.max_tokens is None or self.max_tokens > 0, "maxTokens", "is positive")
        _require(self.temperature is None or self.temperature >= 0, "temperature", "is not negative")
        _require(self.top_p is None or 0 <= self.top_p <= 1, "topP", "lies between 0 and 1")


def _require(condition: bool, key: str, claim: str) -> None:
    if not condition:
        raise PartValidationError(f"{key} {claim}", path=f"$.{key}", rule="001-2.1.2", code=ErrorCode.INVALID_CONFIG)


class _SpecDetails(Noun, frozen=True, kw_only=True):
    description: str | None = None
    strict: bool | None = None
    native: Continuation | None = None  # the provider's own declaration of a tool that it executes itself


class ToolSpec(_SpecDetails, frozen=True):
    """A tool as the model sees it: its name and the JSON Schema of its arguments (004)."""

    name: str
    parameter_schema: dict[str, Any]


class RuntimeConfig(Noun, frozen=True, kw_only=True):
    """Where tools that touch the world do so."""

    kind: str = "local"
    root: str | None = None


class ToolsConfig(Noun, frozen=True, kw_only=True):
    """Which tools are on, and what holds for all of them."""

    enabled: dict[str, bool] | None = None
    approval: dict[str, Literal["never", "always"]] | None = None
    timeout_ms: int | None = None


class ContextConfig(Noun, frozen=True, kw_only=True):
    """How much a model may be shown, and when older turns are summarised."""

    max_tokens: int | None = None
    reserve_tokens: int | None = None
    keep_recent_tokens: int | None = None
    compaction: bool = True


class LoopConfig(Noun, frozen=True, kw_only=True):
    """The limits of one run. None means no limit of our own."""

    max_iterations: int | None = None
    max_tool_rounds: int | None = None
    timeout_ms: int | None = None
    max_total_tokens: int | None = None
    max_cost_usd: float | None = None
    max_retries: int = 2
    max_parallel: int | None = None


class ObservabilityConfig(Noun, frozen=True, kw_only=True):
    """What is told to people who watch."""

    log_level: str | None = None
    trace: bool = False
    metrics: bool = False
    provider_raw: bool = False


class AgentConfig(Noun, frozen=True, kw_only=True):
    """Everything an agent is configured with (004)."""

    model: ModelConfig | None = None
    runtime: RuntimeConfig = RuntimeConfig()
    tools: ToolsConfig = ToolsConfig()
    context: ContextConfig = ContextConfig()
    loop: LoopConfig = LoopConfig()
    observability: ObservabilityConfig = ObservabilityConfig()


class AgentState(Noun, frozen=True, kw_only=True):
    """Where an agent stands right now (004)."""

    always_written: ClassVar = ("status",)
    status: AgentStatus = AgentStatus.IDLE
    current_run_id: str | None = None
    pending_tool_calls: tuple[ToolCall, ...] = ()
    last_error: Failed | None = None
    token_usage: Usage | None = None
    cost_usage: float | None = None
