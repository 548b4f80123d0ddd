"""Wire formats, one folder each: a provider's bytes to deltas, and messages to a provider's request body.

``decoder("anthropic-messages")`` gives a decoder for one response. ``encode("anthropic-messages", request)`` repairs the
history by the format's rules and writes the request body; `read_request` does the reverse.
`guess_format` recognises the format of unlabelled bytes.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, cast

import msgspec
from msgspec.structs import replace

from bartack.formats.decoder import Decoder
from bartack.formats.framing import FRAMINGS, Frame, FramingName, sniff
from bartack.formats.losses import Encoded, Loss, Losses, LossReport
from bartack.formats.media import with_inline_data
from bartack.formats.openai_chat.accents import accent_of
from bartack.formats.repair import RULES, HistoryRules, repair
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.requests import ModelRequest

__all__ = [
    "FORMATS",
    "Decoder",
    "Encoded",
    "Loss",
    "LossReport",
    "Losses",
    "ModelRequest",
    "decoder",
    "encode",
    "guess_format",
    "read_request",
]

# Names and not modules: a format is imported when it is first asked for.
FORMATS: dict[str, str] = {
    name: f"bartack.formats.{name.replace('-', '_')}"
    for name in (
        "anthropic-messages",
        "openai-chat",
        "openai-responses",
        "gemini-generate",
        "gemini-interactions",
        "bedrock-converse",
        "bedrock-invoke",
        "cohere-v2",
        "ollama-chat",
    )
}


class _Format(Protocol):
    def encode(self, request: ModelRequest, losses: Losses) -> dict[str, Any]: ...
    def read_request(self, body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest: ...


def encode(format: str, request: ModelRequest, *, rules: HistoryRules | None = None) -> Encoded:
    """A request body that the provider accepts, and what was left out of it.

    `rules` overrides the format's history rules, for a model that accepts more or less than the format's other models.
    A loss at ``history[i]`` is one of the messages given here, one at ``messages[i]`` one of those that were sent.

    Raises `PartValidationError` for an unknown format.
    """
    module = _module(format)
    provider = request.provider or format
    repaired = repair(request.messages, rules or _rules(format, provider, request.config.model_id))
    losses = Losses(provider)
    for note in repaired.notes:
        if note.action == "dropped":
            losses.add(f"history[{note.index}]", note.what, note.why)
    messages = tuple(with_inline_data(message) for message in repaired.messages)
    body = module.encode(replace(request, messages=messages, provider=provider), losses)
    return Encoded(body, LossReport(tuple(losses.found)))


def read_request(format: str, body: dict[str, Any], *, provider: str | None = None, model_id: str = "") -> ModelRequest:
    """The request that a body of this format makes; `model_id` is the model where the body does not name it.

    Raises `PartValidationError` for a format that does not exist and for a body that is not one of the format.
    """
    return _module(format).read_request(body, provider=provider or format, model_id=model_id)


def _rules(format: str, provider: str, model_id: str) -> HistoryRules:
    if format == "openai-chat":  # it is spoken by many, and some of them are stricter than OpenAI
        return accent_of(provider).rules
    if format == "bedrock-invoke":  # the models behind it speak different languages
        return import_module(f"{FORMATS[format]}.encode").rules_for(model_id)  # type: ignore[no-any-return]
    return RULES[format]


def _module(format: str) -> _Format:
    path = FORMATS.get(format)
    if path is None:
        raise PartValidationError(
            f"{format!r} is not a format ({', '.join(FORMATS)})", path="$.format", code=ErrorCode.INVALID_CONFIG
        )
    return cast(_Format, import_module(f"{path}.encode"))


def decoder(format: str, **options: Any) -> Decoder:
    """A new decoder for one response; the options are those of `Decoder`.

    Raises `PartValidationError` for a format that does not exist.
    """
    path = FORMATS.get(format)
    if path is None:
        raise PartValidationError(
            f"{format!r} is not a format ({', '.join(FORMATS)})", path="$.format", code=ErrorCode.INVALID_CONFIG
        )
    return _decoder_class(f"{path}.decode", format)(**options)


def _decoder_class(path: str, format: str) -> type[Decoder]:
    # A module may hold other decoders that it builds on, so the class is found by what it says it reads.
    return next(
        value
        for value in vars(import_module(path)).values()
        if isinstance(value, type) and issubclass(value, Decoder) and getattr(value, "format", None) == format
    )


# -- guessing

# The first words of each format: what the key `type` or `event_type` of an event begins with.
_BY_TYPE = {
    "message_start": "anthropic-messages",
    "content_block_": "anthropic-messages",
    "response.": "openai-responses",
    "message-start": "cohere-v2",
    "interaction.": "gemini-interactions",
}
# Keys that stand together in an event of one format and of no other.
_BY_KEYS = (
    ({"candidates"}, "gemini-generate"),
    ({"promptFeedback"}, "gemini-generate"),
    ({"choices"}, "openai-chat"),
    ({"created_at", "message", "done"}, "ollama-chat"),
    ({"messageStart"}, "bedrock-converse"),
)


def guess_format(head: bytes, framing: FramingName | None = None) -> str | None:
    """The format of a body that begins with these bytes, or None where they do not say it for certain."""
    framing = framing or sniff(head)
    if framing is None:
        return None
    cutter = FRAMINGS[framing]()
    for frame in [*cutter.feed(head), *cutter.end()]:
        if not isinstance(frame, Frame):
            return None
        if framing == "aws":
            return "bedrock-invoke" if frame.event == "chunk" else "bedrock-converse"
        found = _format_of(_json_object(frame.data))
        if found is not None:
            return found
    return None


def _format_of(event: Mapping[str, Any]) -> str | None:
    kind = event.get("type") or event.get("event_type")
    if isinstance(kind, str):
        return next((format for word, format in _BY_TYPE.items() if kind.startswith(word)), None)
    return next((format for keys, format in _BY_KEYS if keys <= event.keys()), None)


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
