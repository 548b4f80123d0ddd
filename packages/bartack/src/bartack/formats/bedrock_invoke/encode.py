"""A `ModelRequest` to the body of Bedrock's InvokeModel, in the format of the model's own family.

The model and the choice to stream are part of the URL. Claude takes the Messages body with an `anthropic_version`, Nova
the Converse body with a `schemaVersion`, Titan a plain-text prompt, and gpt-oss, Qwen and Jamba the Chat Completions
body (docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html). Other families are reached through Converse.
"""

from typing import Any, assert_never

from msgspec.structs import replace

from bartack.formats.anthropic_messages import FORMAT as MESSAGES
from bartack.formats.bedrock_converse import FORMAT as CONVERSE
from bartack.formats.bedrock_converse.capabilities import family_of
from bartack.formats.body_values import object_of
from bartack.formats.format import ALL_FEATURES, NO_SCHEMA, Feature, Format, HistoryRules
from bartack.formats.losses import Losses
from bartack.formats.media import placeholder
from bartack.formats.openai_chat import FORMAT as CHAT
from bartack.formats.settings import note_settings, own_extra, with_extra
from bartack.nouns.errors import ConfigError
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import camel

__all__ = ["TITAN_SETTINGS", "encode", "lacking", "own_format", "rules_for"]

Json = dict[str, Any]

_ANTHROPIC_VERSION = "bedrock-2023-05-31"
_NOVA_SCHEMA = "messages-v1"
_CHAT_FAMILIES = ("openai", "qwen", "ai21")
_IN_URL = ("model", "stream", "stream_options")
TITAN_SETTINGS = {  # our setting -> Titan's
    "max_tokens": "maxTokenCount",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}
_TITAN_SPEAKERS = {"user": "User: ", "tool": "User: ", "assistant": "Bot: ", "system": ""}


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; what the model cannot receive is added to `losses`.

    Raises `PartValidationError` for a family whose format is not known.
    """
    family, model_id = family_of(request.config.model_id), request.config.model_id
    if family == "anthropic" or "claude" in model_id:
        body = MESSAGES.encode(_with_default(request, MESSAGES, "anthropic_version", _ANTHROPIC_VERSION), losses)
        return {key: value for key, value in body.items() if key not in _IN_URL}
    if "nova" in model_id:
        body = CONVERSE.encode(_with_default(request, CONVERSE, "schemaVersion", _NOVA_SCHEMA), losses)
        own = body.pop("additionalModelRequestFields", {})  # Converse passes these on to the model
        return with_extra(body, own)
    if "titan" in model_id:
        return _encode_titan(request, losses)
    if family in _CHAT_FAMILIES:
        body = CHAT.encode(request, losses)
        return {key: value for key, value in body.items() if key not in _IN_URL}
    raise ConfigError(
        f"InvokeModel is not supported for {model_id!r}; use bedrock-converse",
        path="$.config.modelId",
    )


def own_format(model_id: str) -> Format:
    """The format of the model's family."""
    if family_of(model_id) in _CHAT_FAMILIES:
        return CHAT
    return CONVERSE if "nova" in model_id else MESSAGES


def rules_for(provider: str, model_id: str) -> HistoryRules:
    """The history rules of the model's own format."""
    format = own_format(model_id)
    return format.history_rules(provider, model_id) if format is MESSAGES else format.rules


def lacking(provider: str, model_id: str) -> frozenset[Feature]:
    """What this model does not support, by the model's own format."""
    if "titan" in model_id:
        return NO_SCHEMA
    return ALL_FEATURES - own_format(model_id).features_of(provider, model_id)


def _with_default(request: ModelRequest, format: Format, key: str, value: str) -> ModelRequest:
    extra = request.config.extra or {}
    extra = {**extra, format.name: {key: value, **object_of(extra, format.name)}}
    return replace(request, config=replace(request.config, extra=extra))


# -- Titan: a plain-text prompt


def _encode_titan(request: ModelRequest, losses: Losses) -> Json:
    config = request.config
    values = {name: getattr(config, field) for field, name in TITAN_SETTINGS.items()}
    settings = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items() if v is not None}
    body: Json = {"inputText": _prompt(request.messages, losses)}
    if settings:
        body["textGenerationConfig"] = settings
    for name in ("seed", "tool_choice", "thinking", "output_schema", "cache_config"):
        if getattr(config, name) is not None:
            losses.add(f"config.{camel(name)}", camel(name), "not supported by Titan")
    note_settings(config, losses)
    if request.tools:
        losses.add("tools", "tools", "not supported by Titan")
    return with_extra(body, own_extra(request, "bedrock-invoke", losses))


def _prompt(messages: tuple[Message, ...], losses: Losses) -> str:
    """A single user message as it is; a conversation in the form of Titan's documentation."""
    texts = [(message.role, _text(message, index, losses)) for index, message in enumerate(messages)]
    if [role for role, _ in texts] == ["user"]:
        return texts[0][1]
    return "\n".join([*(_TITAN_SPEAKERS[role] + text for role, text in texts if text), "Bot:"])


def _text(message: Message, index: int, losses: Losses) -> str:
    texts: list[str] = []
    for number, part in enumerate(message.parts):
        where = f"messages[{index}].parts[{number}]"
        match part:
            case Text() | Thinking() if part.ignored:
                pass
            case Text():
                losses.continuation(where, part.continuation)
                texts.append(part.text)
            case Thinking():
                if losses.thinking(where, part) is not None:
                    losses.add(where, "thinking", "Titan accepts text only")
            case Image() | FileRef():
                texts.append(("\n" if texts else "") + placeholder(part, where, "Titan accepts text only", losses))
            case ToolCall() | ToolResult():
                losses.add(where, part.kind.replace("_", " "), "Titan accepts text only")
            case _:
                assert_never(part)
    return "".join(texts)
