"""Wire formats, one folder each: a provider's bytes to deltas, and messages to a provider's request body.

``decoder("anthropic-messages")`` returns a decoder for one response. ``encode("anthropic-messages", request)`` repairs
the history according to the format's rules and writes the request body; `read_request` does the reverse. `guess_format`
recognises the format of unlabelled bytes. A format is imported when it is first used.
"""

from importlib import import_module
from typing import Any

import msgspec

from bartack.formats.decoder import Decoder
from bartack.formats.format import Feature, Format
from bartack.formats.framing import FRAMINGS, Frame, FramingName, sniff
from bartack.formats.history_rules import HistoryRules
from bartack.formats.losses import Encoded, Loss, Losses, LossReport
from bartack.formats.request_writer import RequestWriter, Written, encode_request
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.json_values import plain
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import dump, load

__all__ = [
    "FORMATS",
    "Decoder",
    "Encoded",
    "Feature",
    "Format",
    "Loss",
    "LossReport",
    "Losses",
    "ModelRequest",
    "RequestWriter",
    "Written",
    "decoder",
    "encode",
    "format_named",
    "guess_format",
    "read_request",
]

FORMATS = (
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


def format_named(name: str) -> Format:
    """The row of this format. Raises `PartValidationError` for an unknown format."""
    if name not in FORMATS:
        raise _invalid(f"unknown format {name!r}; the formats are {', '.join(FORMATS)}")
    row: Format = import_module(f"bartack.formats.{name.replace('-', '_')}").FORMAT
    return row


def decoder(format: str, **options: Any) -> Decoder:
    """A new decoder for one response; the options are those of `Decoder`.

    Raises `PartValidationError` for an unknown format.
    """
    return format_named(format).decoder(**options)


def encode(format: str, request: ModelRequest, *, rules: HistoryRules | None = None) -> Encoded:
    """A request body that the provider accepts, and what was left out of it.

    `rules` overrides the format's history rules, for a model that accepts more or less than the format's other models.
    A loss at ``history[i]`` is one of the messages given here, one at ``messages[i]`` one of those that were sent.

    Raises `PartValidationError` for an unknown format.
    """
    encoded = encode_request(format_named(format), request, rules)
    return Encoded(encoded.body, encoded.report())


def read_request(format: str, body: dict[str, Any], *, provider: str | None = None, model_id: str = "") -> ModelRequest:
    """The request that a body of this format makes. `model_id` names the model where the body does not.

    Raises `PartValidationError` for an unknown format, one whose requests cannot be read, a body of another format, and
    a body that is not JSON.
    """
    read = format_named(format).read_request
    if read is None:
        raise _invalid(f"reading {format} requests is not supported")
    request = read(plain(body), provider=provider or format, model_id=model_id)
    load(ModelRequest, dump(request))  # refuses a value that has not the type of its field
    return request


def guess_format(head: bytes, framing: FramingName | None = None) -> str | None:
    """The format of a body that begins with these bytes, or None if they are ambiguous."""
    framing = framing or sniff(head)
    if framing is None:
        return None
    cutter = FRAMINGS[framing]()
    for frame in [*cutter.feed(head), *cutter.end()]:
        if not isinstance(frame, Frame):
            return None
        event = _json_object(frame.data)
        for name in FORMATS:
            if format_named(name).recognises(event, frame, framing):
                return name
    return None


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _invalid(message: str) -> PartValidationError:
    return PartValidationError(message, path="$.format", code=ErrorCode.INVALID_CONFIG)
