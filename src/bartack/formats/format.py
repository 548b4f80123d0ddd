"""`Format`: everything about one wire format, in one row.

To add a format, create a folder whose ``__init__`` defines its row as ``FORMAT``, and add its name to
`bartack.formats.FORMATS`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, get_args

from msgspec import Struct

from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame, FramingName
from bartack.formats.history_rules import HistoryRules
from bartack.formats.losses import Losses
from bartack.nouns.requests import ModelRequest

__all__ = ["ALL_FEATURES", "NOTHING", "NOT_ENFORCED", "NO_SCHEMA", "Feature", "Format", "RequestReader"]

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
    read_request: RequestReader | None = None
    rules: HistoryRules
    # Overrides `rules` by provider and model id, where they differ within one format.
    rules_for: Callable[[str, str], HistoryRules] | None = None
    features: frozenset[Feature] = ALL_FEATURES  # what the format can express
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
