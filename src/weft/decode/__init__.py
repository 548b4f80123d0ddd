"""Bytes to deltas: one file per wire format, on top of the framings; the mirror of `weft.encode`.

``decoder("anthropic-messages")`` gives a decoder for one response. `guess_format` names the format of bytes that came
without a label, where their beginning leaves no doubt.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from weft.decode.decoder import Decoder
from weft.decode.framing import FRAMINGS, Frame, FramingName, sniff
from weft.errors import ErrorCode, PartValidationError

__all__ = ["FORMATS", "Decoder", "decoder", "guess_format"]

# Names and not modules: a program speaks to one or two providers. A format is imported when it is first asked for.
FORMATS: dict[str, str] = {
    "anthropic-messages": "weft.decode.anthropic_messages",
    "openai-chat": "weft.decode.openai_chat",
    "openai-responses": "weft.decode.openai_responses",
    "gemini-generate": "weft.decode.gemini_generate",
    "gemini-interactions": "weft.decode.gemini_interactions",
    "bedrock-converse": "weft.decode.bedrock_converse",
    "bedrock-invoke": "weft.decode.bedrock_invoke",
    "cohere-v2": "weft.decode.cohere_v2",
    "ollama-chat": "weft.decode.ollama_chat",
}


def decoder(format: str, **options: Any) -> Decoder:
    """A new decoder for one response; the options are those of `Decoder`.

    Raises `PartValidationError` for a format that does not exist.
    """
    path = FORMATS.get(format)
    if path is None:
        raise PartValidationError(
            f"{format!r} is not a format ({', '.join(FORMATS)})", path="$.format", code=ErrorCode.INVALID_CONFIG
        )
    return _decoder_class(path, format)(**options)


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
