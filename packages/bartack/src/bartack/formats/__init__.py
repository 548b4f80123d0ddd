"""Wire formats, one folder or module each: a provider's bytes to deltas, and messages to a provider's request body.

``decoder("anthropic-messages")`` returns a decoder for one response. ``encode("anthropic-messages", request)`` repairs
the history according to the format's rules and writes the request body; `read_request` does the reverse, and
`request_facts` reads what such a body says beside the conversation and its settings. `guess_format`
recognises the format of unlabelled bytes. ``writer("anthropic-messages")`` writes a response for clients of that
provider. A format is imported when it is first used.
"""

from importlib import import_module
from types import NoneType
from typing import Any

import msgspec
from msgspec.structs import replace

from bartack.formats.decoder import Decoder
from bartack.formats.format import Feature, Format, HistoryRules
from bartack.formats.framing import FRAMINGS, Frame, FramingName, sniff
from bartack.formats.losses import Encoded, Loss, Losses, LossReport
from bartack.formats.openai import ToolOptions, tool_options
from bartack.formats.request_facts import FIELDS, RequestFacts, facts_of
from bartack.formats.request_writer import RequestWriter, Written, encode_request
from bartack.formats.response_writer import ErrorResponse, ResponseWriter
from bartack.formats.settings import FORMATS
from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import ConfigError, PartValidationError
from bartack.nouns.json_values import plain
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import dump, load

__all__ = [
    "FORMATS",
    "Decoder",
    "Encoded",
    "ErrorResponse",
    "Feature",
    "Format",
    "Loss",
    "LossReport",
    "Losses",
    "ModelRequest",
    "RequestFacts",
    "RequestWriter",
    "ResponseWriter",
    "ToolOptions",
    "Written",
    "decoder",
    "encode",
    "format_named",
    "guess_format",
    "read_request",
    "request_facts",
    "tool_options",
    "writer",
]


def format_named(name: str) -> Format:
    """The row of this format. Raises `PartValidationError` for an unknown format."""
    if name not in FORMATS:
        raise _invalid_error(f"unknown format {name!r}; the formats are {', '.join(FORMATS)}")
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


def read_request(
    format: str, body: dict[str, Any], *, provider: str | None = None, model_id: str = "", is_parsed: bool = False
) -> ModelRequest:
    """The request that a body of this format makes. `model_id` names the model where the body does not.

    `is_parsed` promises that the body was parsed from JSON, and is not nested too deeply: it is not checked again.

    Raises `PartValidationError` for an unknown format, a body of another format, and a body that is not JSON.
    """
    body = body if is_parsed else plain(body)
    request = format_named(format).read_request(body, provider=provider or format, model_id=model_id)
    tools = tuple(_without_objects(spec) for spec in request.tools if not _is_plain(spec))
    load(ModelRequest, dump(replace(request, tools=tools)))  # refuses a value that has not the type of its field
    return request


def _is_plain(spec: ToolSpec) -> bool:
    """Whether a tool has a name, texts and objects only: those of a program are most of its request."""
    return (
        type(spec.name) is str
        and type(spec.parameter_schema) is dict
        and type(spec.description) in (str, NoneType)
        and type(spec.extra) in (dict, NoneType)
        and type(spec.strict) in (bool, NoneType)
        and type(spec.defer_loading) in (bool, NoneType)
        and spec.native is None
        and spec.hosted is None
        and not spec.input_examples
    )


def _without_objects(spec: ToolSpec) -> ToolSpec:
    """A tool without its free-form JSON, which is most of many requests."""
    objects: dict[str, Any] = {name: {} for name in ("parameter_schema", "extra") if type(getattr(spec, name)) is dict}
    return replace(spec, **objects)


def request_facts(format: str, body: dict[str, Any]) -> RequestFacts:
    """How the client that sent this body wants to be answered, and which conversation it continues.

    Raises `PartValidationError` for an unknown format, and for a value of another type.
    """
    row = format_named(format)
    fields = plain({name: body[name] for name in FIELDS if name in body})
    return facts_of(fields, stream=row.streams, usage_on_request=row.usage_on_request)


def writer(format: str, **options: Any) -> ResponseWriter:
    """A new writer for one response to a client of this format; the options are those of `ResponseWriter`.

    Raises `PartValidationError` for an unknown format, and for one whose responses cannot be written.
    """
    writer_type = format_named(format).writer
    if writer_type is None:
        raise _invalid_error(f"writing {format} responses is not supported")
    return writer_type(**options)


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


def _invalid_error(message: str) -> PartValidationError:
    return ConfigError(message, path="$.format")
