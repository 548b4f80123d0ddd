"""`Model`: what an agent asks of a model, whoever made it (001 §4.1, 004).

There is one way to ask: `stream`. It gives `MessageDelta` values that keep the streaming contract and end in `done` or
`error`; it does not raise for a provider's fault. `bartack.models.provider` is the implementation over HTTP.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from bartack.models.prices import ModelInfo
from bartack.nouns.config import ModelConfig, ToolChoice, ToolSpec
from bartack.nouns.deltas import MessageDelta
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.nouns.requests import RequestMetadata

__all__ = ["Model", "configured", "with_system_prompt"]


class Model(Protocol):
    """Anyone's model."""

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
        """One answer, as it is made. `params` replace settings of the configuration for this call alone.

        `system_prompt_content` is a system prompt in pieces and goes before `system_prompt`. `invocation_state` is the
        caller's own, for models that know it.
        """

    def update_config(self, **config: Any) -> None:
        """Change settings for later calls; a setting that is invalid raises and changes nothing."""

    def get_config(self) -> ModelConfig:
        """The settings as they are now."""

    def model_info(self) -> ModelInfo:
        """What is known about the model."""

    def supports(self, feature: str) -> bool:
        """Whether the model can be asked for this; see `bartack.formats.Feature`."""


def configured(config: ModelConfig, changes: Mapping[str, Any]) -> ModelConfig:
    """The configuration with these changes. Names it does not know are the provider's own settings (001 §4.1).

    Raises `PartValidationError` with the code `invalid_config`.
    """
    known = {name: getattr(config, name) for name in ModelConfig.__struct_fields__}
    own = {name: value for name, value in changes.items() if name not in known}
    values = {**known, **{name: value for name, value in changes.items() if name in known}}
    values["extra"] = {**(values["extra"] or {}), **own} or None
    try:
        return msgspec.convert(values, ModelConfig)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        raise PartValidationError(
            message, path=path.strip("`") or "$", rule="001-2.1.2", code=ErrorCode.INVALID_CONFIG
        ) from None


def with_system_prompt(
    messages: Sequence[Message], text: str | None, content: Sequence[str | Text] | None
) -> tuple[Message, ...]:
    """The messages behind a system message, where there is a system prompt. Content in pieces wins over text."""
    pieces = content if content else ((text,) if text else ())
    if not pieces:
        return tuple(messages)
    parts = tuple(Text(piece) if isinstance(piece, str) else piece for piece in pieces)
    return (Message("system", parts), *messages)
