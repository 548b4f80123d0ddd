"""`Model`: the interface of every model (001 §4.1, 004); and `StreamingModel`, which implements most of it.

There is one way to call a model: `stream`. It returns `MessageDelta` values that obey the streaming contract and end in
`done` or `error`. It does not raise when the provider fails.
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
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.nouns.requests import ModelRequest, RequestMetadata

__all__ = ["Model", "StreamingModel", "updated_config"]


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

    provider = ""  # whose continuation data the answers contain

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
        **options: Any,
    ) -> GuardedStream:
        """One answer, streamed; see `Model.stream`. Closing the stream cancels the call."""
        return self.respond(self.request(messages, tool_specs, system_prompt, **options))

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


def _as_tuple(messages: Sequence[Message]) -> tuple[Message, ...]:
    return messages if isinstance(messages, tuple) else tuple(messages)  # a `History` as it is


def updated_config(config: ModelConfig, changes: Mapping[str, Any]) -> ModelConfig:
    """The configuration with these changes. Unknown names become provider-specific settings (001 §4.1).

    Raises `PartValidationError` with the code `invalid_config`.
    """
    known = {name: getattr(config, name) for name in ModelConfig.__struct_fields__}
    extra = {name: value for name, value in changes.items() if name not in known}
    values = {**known, **{name: value for name, value in changes.items() if name in known}}
    values["extra"] = {**(values["extra"] or {}), **extra} or None
    try:
        return msgspec.convert(values, ModelConfig)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        raise PartValidationError(
            message, path=path.strip("`") or "$", rule="001-2.1.2", code=ErrorCode.INVALID_CONFIG
        ) from None
