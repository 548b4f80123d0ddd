"""A `ModelRequest` -> the body of Bedrock's InvokeModel, in the language of the model; and back.

The model and the wish to stream stand in the address. Claude takes Anthropic's body with an `anthropic_version`, Nova
the body of Converse with a `schemaVersion`, Titan a prompt of plain text, and gpt-oss and its like that of Chat
Completions. For all other models Converse is the way: there is no body to make for them here.
"""

from typing import Any, assert_never

from msgspec.structs import replace

from bartack.formats.anthropic_messages import FORMAT as MESSAGES
from bartack.formats.anthropic_messages.read import read_request as read_messages
from bartack.formats.bedrock_converse import FORMAT as CONVERSE
from bartack.formats.bedrock_converse.models import family_of
from bartack.formats.bedrock_converse.read import read_request as read_converse
from bartack.formats.body_values import number_at, object_at, text_at, texts_at, with_extra
from bartack.formats.history_rules import HistoryRules
from bartack.formats.losses import Losses
from bartack.formats.media import named
from bartack.formats.openai_chat import FORMAT as CHAT
from bartack.formats.openai_chat.read import read_request as read_chat
from bartack.nouns.config import ModelConfig
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest

__all__ = ["encode", "read_request", "rules_for"]

Json = dict[str, Any]

_ANTHROPIC_VERSION = "bedrock-2023-05-31"
_NOVA_SCHEMA = "messages-v1"
_CHAT_FAMILIES = ("openai", "qwen", "ai21")
_IN_THE_ADDRESS = ("model", "stream", "stream_options")
_TITAN_SETTINGS = {
    "max_tokens": "maxTokenCount",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; `PartValidationError` for a model whose language is not known."""
    family, model_id = family_of(request.config.model_id), request.config.model_id
    if family == "anthropic" or "claude" in model_id:
        body = MESSAGES.encode(_with_default(request, "anthropic_version", _ANTHROPIC_VERSION), losses)
        return {key: value for key, value in body.items() if key not in _IN_THE_ADDRESS}
    if "nova" in model_id:
        body = CONVERSE.encode(_with_default(request, "schemaVersion", _NOVA_SCHEMA), losses)
        own = body.pop("additionalModelRequestFields", {})  # Converse hands these over; here nobody stands between
        return {**body, **own}
    if "titan" in model_id:
        return _encode_titan(request, losses)
    if family in _CHAT_FAMILIES:
        body = CHAT.encode(request, losses)
        return {key: value for key, value in body.items() if key not in _IN_THE_ADDRESS}
    raise PartValidationError(
        f"no InvokeModel body is known for {model_id!r}; Converse takes every model",
        path="$.config.modelId",
        code=ErrorCode.INVALID_CONFIG,
    )


def rules_for(provider: str, model_id: str) -> HistoryRules:
    """What the model's language demands of a history."""
    if family_of(model_id) in _CHAT_FAMILIES:
        return CHAT.rules
    return CONVERSE.rules if "nova" in model_id else MESSAGES.rules


def _with_default(request: ModelRequest, key: str, value: str) -> ModelRequest:
    extra = {key: value, **(request.config.extra or {})}
    return replace(request, config=replace(request.config, extra=extra))


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that a body makes; `PartValidationError` if it is none. The body tells the language."""
    body = object_at(body, "$")
    if "anthropic_version" in body:
        return read_messages(body, provider=provider, model_id=model_id)
    if "inputText" in body:
        return _read_titan(body, provider, model_id)
    if family_of(model_id) in _CHAT_FAMILIES:
        return read_chat(body, provider=provider, model_id=model_id)
    if "messages" in body:
        return read_converse(body, provider=provider, model_id=model_id)
    raise PartValidationError("neither messages nor inputText", path="$")


# -- Titan: a prompt of plain text


def _encode_titan(request: ModelRequest, losses: Losses) -> Json:
    config = request.config
    given = {name: getattr(config, field) for field, name in _TITAN_SETTINGS.items()}
    settings = {name: list(v) if isinstance(v, tuple) else v for name, v in given.items() if v is not None}
    body: Json = {"inputText": _prompt(request.messages, losses)}
    if settings:
        body["textGenerationConfig"] = settings
    for name in ("seed", "tool_choice", "thinking", "output_schema", "cache_config"):
        if getattr(config, name) is not None:
            losses.add(f"config.{name}", name, "Titan has no such setting")
    if request.tools:
        losses.add("tools", "the tools", "Titan has none")
    return with_extra(body, config.extra)


def _prompt(messages: tuple[Message, ...], losses: Losses) -> str:
    """One message of the user as it is; a conversation in the form that Titan was taught."""
    said = [(message.role, _words(message, index, losses)) for index, message in enumerate(messages)]
    if [role for role, _ in said] == ["user"]:
        return said[0][1]
    speakers = {"user": "User: ", "tool": "User: ", "assistant": "Bot: ", "system": ""}
    return "\n".join([*(speakers[role] + words for role, words in said if words), "Bot:"])


def _words(message: Message, index: int, losses: Losses) -> str:
    words = []
    for number, part in enumerate(message.parts):
        where = f"messages[{index}].parts[{number}]"
        match part:
            case Text() | Thinking() if part.ignored:
                pass
            case Text():
                losses.continuation(where, part.continuation)
                words.append(part.text)
            case Thinking():
                if losses.thinking(where, part) is not None:
                    losses.add(where, "thinking", "Titan takes text only")
            case Image() | FileRef():
                words.append(("\n" if words else "") + named(part, where, "Titan takes text only", losses))
            case ToolCall() | ToolResult():
                losses.add(where, f"a {part.kind}", "Titan takes text only")
            case _:
                assert_never(part)
    return "".join(words)


def _read_titan(body: Json, provider: str, model_id: str) -> ModelRequest:
    rest = {key: value for key, value in body.items() if key != "inputText"}
    given = dict(object_at(rest.pop("textGenerationConfig", None) or {}, "$.textGenerationConfig"))
    settings: Json = {}
    for field, name in _TITAN_SETTINGS.items():
        if given.get(name) is not None:
            check = texts_at if field == "stop_sequences" else number_at
            settings[field] = check(given.pop(name), f"$.textGenerationConfig.{name}")
    if given:
        rest["textGenerationConfig"] = given
    return ModelRequest(
        messages=(user(text_at(body["inputText"], "$.inputText")),),
        config=ModelConfig(text_at(model_id or None, "$.model"), extra=rest or None, **settings),
        provider=provider,
    )
