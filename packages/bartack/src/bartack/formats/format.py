"""`Format`: everything about one wire format, in one row; and the `HistoryRules` that are part of it.

To add a format, create a module with its row as ``FORMAT``, or a folder whose ``__init__`` has it, and add its name to
`FORMATS` in `bartack.formats.settings`.

**History rules.** All providers require the following, so there is no rule for it:

- A call that the client executes has exactly one result, directly after the message with the call.
- Call ids are unique, and a result belongs to an earlier call.
- A call whose arguments are incomplete is not sent.
- A message has content. Reasoning alone is not enough.
- There is at least one message and, where the assistant must not come last, one that is not a system message.

Where providers differ, `HistoryRules` has a field. Its defaults are the strictest of all providers, so a history that
meets them is accepted everywhere. Roles are ours: if a format sends tool results with the user role, or system messages
in another place, its encoder merges the messages that become adjacent.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, get_args

from msgspec import Struct

from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame, FramingName
from bartack.formats.losses import Losses
from bartack.formats.response_writer import ResponseWriter
from bartack.formats.tools import HostedRows
from bartack.nouns.errors import ConfigError
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Part
from bartack.nouns.requests import ModelRequest

__all__ = [
    "ALL_FEATURES",
    "NOTHING",
    "NOT_ENFORCED",
    "NO_SCHEMA",
    "PLAIN_NAME",
    "STRICTEST",
    "Feature",
    "Format",
    "HistoryRules",
    "RequestReader",
]


class HistoryRules(Noun, frozen=True, kw_only=True):
    """What one provider requires of a history beyond what all require. The defaults are the strictest."""

    merge_same_role: bool = True  # consecutive messages of one role are refused
    starts_with_user: bool = True  # the first message after system messages is from the user
    allows_assistant_last: bool = False  # the model may continue an answer
    allows_paused_last: bool = False  # the provider may continue an answer that it paused
    allows_user_after_tool: bool = False  # a user or system message may follow tool results
    allows_any_result_order: bool = False  # results may be in another order than their calls
    allows_empty_text: bool = False  # blank text is accepted next to other content
    allows_signed_empty_text: bool = False  # applies to assistant messages; such text has continuation data
    allows_trailing_reasoning: bool = False  # reasoning may come after the text or call, or has a field of its own
    call_id_pattern: str | None = r"[a-zA-Z0-9]{9}"  # must match the whole id
    tool_name_pattern: str | None = r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"  # must match the whole name

    def __post_init__(self) -> None:
        if not self.accepts_name("_a-0"):
            raise ConfigError(
                f"tool_name_pattern {self.tool_name_pattern!r} does not match '_a-0', which `repair` may produce",
            )
        if not self.accepts_id("0a1b2c3d4"):
            raise ConfigError(
                f"call_id_pattern {self.call_id_pattern!r} does not match nine hexadecimal digits, as `repair` makes",
            )

    def accepts_id(self, call_id: str) -> bool:
        """Whether a call may have this id."""
        return self.call_id_pattern is None or re.fullmatch(self.call_id_pattern, call_id) is not None

    def accepts_name(self, tool_name: str) -> bool:
        """Whether a client call may have this tool name."""
        return self.tool_name_pattern is None or re.fullmatch(self.tool_name_pattern, tool_name) is not None

    def fitting_name(self, tool_name: str) -> str:
        """The name if it is accepted, else one with the other characters replaced, which every provider accepts."""
        if self.accepts_name(tool_name):
            return tool_name
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", tool_name)[:60] or "unnamed"
        return name if self.accepts_name(name) else f"_{name}"


STRICTEST = HistoryRules()

# "Invalid 'messages[9].tool_calls[0].function.name': string does not match pattern": models invent names, and other
# providers allow more characters. Not recorded.
PLAIN_NAME = r"[a-zA-Z0-9_-]{1,64}"


# `output_schema`: an answer always matches the schema of the request. `json_mode`: a request may have a schema, but the
# provider enforces it only in part, so the model has to read it, too.
Feature = Literal["tools", "tool_choice", "thinking", "images", "files", "output_schema", "json_mode", "prompt_caching"]
ALL_FEATURES: frozenset[Feature] = frozenset(get_args(Feature))
# For `Format.lacks`.
NOTHING: frozenset[Feature] = frozenset()
NOT_ENFORCED: frozenset[Feature] = frozenset({"output_schema"})
NO_SCHEMA: frozenset[Feature] = NOT_ENFORCED | {"json_mode"}


class RequestReader(Protocol):
    """Reads a request body. Raises `PartValidationError` for a body that is not of the format."""

    def __call__(self, body: dict[str, Any], *, provider: str, model_id: str = "") -> ModelRequest: ...


class Format(Struct, frozen=True, kw_only=True):
    """One wire format. A vendor that speaks it is a row of `bartack.models.vendors`."""

    decoder: type[Decoder]
    encode: Callable[[ModelRequest, Losses], dict[str, Any]]
    read_request: RequestReader
    writer: type[ResponseWriter] | None = None
    rules: HistoryRules
    # Whether a response is streamed if the request does not say; None if the URL says it.
    streams: bool | None = False
    usage_on_request: bool = False  # whether a stream ends with usage only if the client requests it
    # Whether a part of this provider's answer or request is sent as an item of its own, even without text or after the
    # last text: a compaction, a tool reference. `repair` leaves such parts alone.
    carries: Callable[[Part, Losses], bool] = lambda part, losses: False
    # Overrides `rules` by provider and model id, where they differ within one format.
    rules_for: Callable[[str, str], HistoryRules] | None = None
    features: frozenset[Feature] = ALL_FEATURES  # what the format can express
    has_image_detail: bool = False  # whether it can say how closely the model should look at an image
    hosted: HostedRows = HostedRows("", {})  # the tools that its providers execute themselves
    # Headers that a request needs because of its content.
    headers: Callable[[ModelRequest], Mapping[str, str]] = lambda request: {}
    # What one model of one provider does not support of it.
    lacks: Callable[[str, str], frozenset[Feature]] | None = None
    # How to recognise the format: how the names of its events begin, or keys that occur together in no other format.
    event_types: tuple[str, ...] = ()
    event_keys: tuple[frozenset[str], ...] = ()

    @property
    def name(self) -> str:
        return self.decoder.format

    @property
    def framing(self) -> FramingName:
        """The framing that providers use unless a vendor's row names another."""
        return self.decoder.framing

    def history_rules(self, provider: str, model_id: str) -> HistoryRules:
        """What this provider requires of a history sent to this model."""
        return self.rules if self.rules_for is None else self.rules_for(provider, model_id)

    def features_of(self, provider: str, model_id: str) -> frozenset[Feature]:
        """What a request to this model of this provider may use, as far as it is known."""
        return self.features if self.lacks is None else self.features - self.lacks(provider, model_id)

    def recognises(self, event: Mapping[str, Any], frame: Frame, framing: FramingName) -> bool:
        """Whether only this format has such an event."""
        if framing == "aws":
            return self.framing == "aws" and frame.event.startswith(self.event_types)
        kind = event.get("type") or event.get("event_type")
        if isinstance(kind, str):
            return self.framing != "aws" and kind.startswith(self.event_types)
        return any(keys <= event.keys() for keys in self.event_keys)
