"""Reads bodies of Bedrock's InvokeModel back into requests, for round-trip tests."""

from typing import Any

from bartack.formats import read_request as read_format
from bartack.formats.bedrock_converse.capabilities import family_of
from bartack.formats.bedrock_invoke.encode import TITAN_SETTINGS
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import user
from bartack.nouns.requests import ModelRequest


def read_request(body: dict[str, Any], provider: str, model_id: str) -> ModelRequest:
    if "inputText" in body:
        return _read_titan(body, provider, model_id)
    if "anthropic_version" in body:
        format = "anthropic-messages"
    else:
        format = "openai-chat" if family_of(model_id) == "openai" else "bedrock-converse"
    return read_format(format, body, provider=provider, model_id=model_id)


def _read_titan(body: dict[str, Any], provider: str, model_id: str) -> ModelRequest:
    given = body.get("textGenerationConfig", {})
    settings = {field: given[name] for field, name in TITAN_SETTINGS.items() if name in given}
    if "stop_sequences" in settings:
        settings["stop_sequences"] = tuple(settings["stop_sequences"])
    config = ModelConfig(model_id, **settings)
    return ModelRequest(messages=(user(body["inputText"]),), config=config, provider=provider)
