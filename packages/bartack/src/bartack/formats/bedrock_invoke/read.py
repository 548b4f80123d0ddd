"""The body of Bedrock's InvokeModel to a `ModelRequest`: each model family in its own format."""

from typing import Any

from bartack.formats.bedrock_invoke.encode import TITAN_SETTINGS, own_format
from bartack.formats.body_values import number_at, object_at, object_of, text_at, texts_at
from bartack.formats.settings import labelled
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import user
from bartack.nouns.requests import ModelRequest

__all__ = ["read_request"]


def read_request(body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes; `model_id` is needed because the body does not name the model.

    Raises `PartValidationError` if it is not a body of the model's format.
    """
    model = text_at(model_id or None, "$.model")
    if "inputText" in object_at(body, "$"):
        return _read_titan(dict(body), provider, model)
    read = own_format(model).read_request
    assert read is not None  # all of them have one
    return read(body, provider=provider, model_id=model)


def _read_titan(body: dict[str, Any], provider: str, model: str) -> ModelRequest:
    """The prompt as one message of the user: whether it has the form of a conversation is not certain."""
    prompt = text_at(body.pop("inputText"), "$.inputText")
    generation = dict(object_of(body, "textGenerationConfig"))
    body.pop("textGenerationConfig", None)
    settings: dict[str, Any] = {}
    for field, name in TITAN_SETTINGS.items():
        if generation.get(name) is not None:
            check = texts_at if field == "stop_sequences" else number_at
            settings[field] = check(generation.pop(name), f"$.textGenerationConfig.{name}")
    extra = {**body, **({"textGenerationConfig": generation} if generation else {})}
    config = ModelConfig(model, extra=labelled("bedrock-invoke", extra), **settings)
    return ModelRequest(messages=(user(prompt),), config=config, provider=provider)
