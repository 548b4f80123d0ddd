"""`Model`: the interface of every model (001 §4.1, 004); and `StreamingModel`, which implements most of it.

There is one way to call a model: `stream`. It returns `MessageDelta` values that obey the streaming contract and end in
`done` or `error`. It does not raise when the provider fails.

A call is one value, a `ModelRequest`, and `StreamingModel.respond` is the one method that answers it. `stream` builds
the request from its arguments; an agent, which has built one already, calls `respond` (the function) with it.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, Self

import msgspec
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.models.guard import GuardedStream
from bartack.models.prices import ModelInfo
from bartack.nouns.config import ModelConfig, ToolChoice, ToolSpec
from bartack.nouns.deltas import MessageDelta
from bartack.nouns.errors import ConfigError, nearest_name
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.nouns.requests import ModelRequest, RequestMetadata

__all__ = ["Model", "StreamingModel", "respond", "updated_config"]


class Model(Protocol):
    """Any model."""

    def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: Sequence[str | Text] | None = None,
        invocation_state: dict[str, Any] | None = None,
        request_metadata: RequestMetadata | None = None,
        **params: Any,
    ) -> AsyncIterator[MessageDelta]:
        """One answer, streamed.

        Args:
            system_prompt_content: A system prompt in several pieces, which follow `system_prompt` if there is one.
            invocation_state: The caller's own data, for models that use it. It is not sent to the provider.
            params: Settings that override the configuration for this call.
        """

    def update_config(self, **config: Any) -> None:
        """Change settings for later calls. An invalid setting raises and changes nothing."""

    def get_config(self) -> ModelConfig:
        """The current settings."""

    @abstractmethod
    def model_info(self) -> ModelInfo:
        """Name, context window and prices, as far as they are known."""

    @abstractmethod
    def supports(self, feature: str) -> bool:
        """Whether calls may use this feature; see `bartack.formats.Feature`."""


class StreamingModel(Model, ABC):
    """Implements `Model` for subclasses that only turn a `ModelRequest` into deltas.

    It holds the configuration, which is a value: `update_config` replaces it, and calls in progress keep theirs.
    """

    provider = ""  # the provider whose continuation data the answers contain

    def __init__(self, config: ModelConfig, environment: Environment | None = None) -> None:
        """Raises `PartValidationError` with the code `invalid_config` for an invalid configuration."""
        self.config: ModelConfig = updated_config(config, {})
        self._environment = environment or Environment()

    @abstractmethod
    def respond(self, request: ModelRequest) -> GuardedStream:
        """The answer to a request, from `guarded_batches`. Raises only if the request cannot be expressed."""

    def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: Sequence[str | Text] | None = None,
        invocation_state: dict[str, Any] | None = None,
        request_metadata: RequestMetadata | None = None,
        **params: Any,
    ) -> GuardedStream:
        """One answer, streamed; see `Model.stream`. Closing the stream cancels the call."""
        request = self.request(
            messages,
            tool_specs,
            system_prompt,
            tool_choice=tool_choice,
            system_prompt_content=system_prompt_content,
            invocation_state=invocation_state,
            request_metadata=request_metadata,
            **params,
        )
        return self.respond(request)

    def request(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: Sequence[str | Text] | None = None,
        invocation_state: dict[str, Any] | None = None,
        request_metadata: RequestMetadata | None = None,
        **params: Any,
    ) -> ModelRequest:
        """The request that `stream` makes of these arguments."""
        if tool_choice is not None:
            params = {**params, "tool_choice": tool_choice}
        pieces = (*((system_prompt,) if system_prompt else ()), *(system_prompt_content or ()))
        parts = tuple(Text(piece) if isinstance(piece, str) else piece for piece in pieces)
        metadata = request_metadata or RequestMetadata()
        if metadata.run_id is None:
            metadata = replace(metadata, run_id=self._environment.new_id())
        return ModelRequest(
            (Message("system", parts), *messages) if parts else _as_tuple(messages),
            config=updated_config(self.config, params) if params else self.config,
            tools=tuple(tool_specs or ()),
            provider=self.provider,
            metadata=metadata,
            invocation_state=invocation_state,
        )

    def update_config(self, **config: Any) -> None:
        """Change settings for later calls. An invalid setting raises and changes nothing."""
        self.config = updated_config(self.config, config)

    def get_config(self) -> ModelConfig:
        """The current settings."""
        return self.config

    async def aclose(self) -> None:
        """Release the model's resources."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def respond(model: Model, request: ModelRequest) -> AsyncIterator[MessageDelta]:
    """The answer of any model to a request. Raises only if the request cannot be expressed.

    A model with a `stream` of its own gets what differs from its own settings as the arguments of `stream`.
    """
    if isinstance(model, StreamingModel) and type(model).stream is StreamingModel.stream:
        return model.respond(request)
    own = model.get_config()
    values = {name: getattr(request.config, name) for name in ModelConfig.__struct_fields__}
    options = {name: value for name, value in values.items() if value != getattr(own, name)}
    if request.invocation_state is not None:
        options["invocation_state"] = request.invocation_state
    return model.stream(request.messages, request.tools, request_metadata=request.metadata, **options)


def _as_tuple(messages: Sequence[Message]) -> tuple[Message, ...]:
    return messages if isinstance(messages, tuple) else tuple(messages)  # a `History` as it is


# Settings that ask for what no part of an answer holds, by their names in any format.
_SEVERAL_ANSWERS = frozenset(("n", "candidateCount", "candidate_count", "num_generations"))
_LOG_PROBABILITIES = frozenset(("logprobs", "top_logprobs", "responseLogprobs", "response_logprobs"))


# What `connect` takes besides settings of the model. A key that is passed by another name must not become a setting.
_CONNECTION_OPTIONS = (
    *("api_key", "base_url", "client", "headers", "timeouts", "settings", "error_mapper", "environment"),
    *("provider_raw", "limit"),
)
_SIMILAR = frozenset(("speed", "max_new_tokens"))  # names that providers use: of Anthropic, and of models on Bedrock
_NAMES = {name.replace("_", ""): name for name in (*ModelConfig.__struct_fields__, *_CONNECTION_OPTIONS)}


def _check_provider_setting(name: str, value: Any) -> None:
    """Refuse a name that is nearly one of ours, and settings whose effect on the answer would not be read."""
    # Names that differ in one letter of many. "top_k" is not a misspelled "top_p", which are alike by 0.75.
    similar = None if name in _SIMILAR else nearest_name(name.replace("_", "").lower(), _NAMES, cutoff=0.85)
    nearest = None if similar is None else _NAMES[similar]
    if nearest is not None:
        problem = f"Unknown model setting {name!r}. Did you mean {nearest!r}?"
    elif name in _SEVERAL_ANSWERS and value not in (None, 1):
        problem = f"{name}={value!r}: a call has one answer. Make several calls instead."
    elif name in _LOG_PROBABILITIES and value not in (None, False):
        problem = f"{name}: answers have no log probabilities. What a provider sends is in the deltas (provider_raw)."
    else:
        return
    raise ConfigError(problem, path=f"$.{name}", rule="001-2.1.2")


def updated_config(config: ModelConfig, changes: Mapping[str, Any]) -> ModelConfig:
    """The configuration with these changes. Unknown names become provider-specific settings (001 §4.1).

    Raises `PartValidationError` with the code `invalid_config`.
    """
    fields = {name: getattr(config, name) for name in ModelConfig.__struct_fields__}
    for name in changes.keys() - fields.keys():
        _check_provider_setting(name, changes[name])
    extra = {name: value for name, value in changes.items() if name not in fields}
    values = {**fields, **{name: value for name, value in changes.items() if name in fields}}
    values["extra"] = {**(values["extra"] or {}), **extra} or None
    try:
        return msgspec.convert(values, ModelConfig)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        raise ConfigError(message, path=path.strip("`") or "$", rule="001-2.1.2") from None
