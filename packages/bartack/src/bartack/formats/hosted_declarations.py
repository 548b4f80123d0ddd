"""How the tools that a provider executes itself are declared: `HostedRows`, which each format fills with its own.

A row belongs to one tool of one provider, or of every provider with the format that has no rows of its own. It names
the options that the declaration expresses; the others become losses. A tool that a provider lacks is a loss as well, or
an error if the request requires it.

A search of the web that a client declares in the terms of one provider (Codex always does) becomes that of another, if
it has one. Other tools of a provider have no equal elsewhere.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from bartack.formats.losses import Losses
from bartack.nouns.config import HostedTool, ToolSpec
from bartack.nouns.errors import ConfigError, PartValidationError
from bartack.nouns.hosted_tools import PortableTool, UserLocation, hosted_tool

__all__ = ["HostedRow", "HostedRows", "filled", "hosted_row", "location_fields", "refuse_required"]

Json = dict[str, Any]


class HostedRow(NamedTuple):
    """How one provider declares one tool."""

    write: Callable[[Any], Json]
    options: frozenset[str] = frozenset()
    models: re.Pattern[str] | None = None  # the models that have the tool; None: all, as far as is known


def hosted_row(write: Callable[[Any], Json], *options: str, models: str | None = None) -> HostedRow:
    """A row whose declaration has these options, for the models whose ids begin like this."""
    return HostedRow(write, frozenset(options), None if models is None else re.compile(models))


class HostedRows:
    """The tools of one format, by provider; "" stands for every provider that is not listed."""

    def __init__(
        self, format: str, rows: Mapping[str, Mapping[str, HostedRow]], *, beside_functions: bool = True
    ) -> None:
        """`beside_functions` is whether all models accept such a tool in a request with functions."""
        self._format = format
        self.rows = rows
        self._beside_functions = beside_functions

    def row_of(self, tool: str, provider: str, model_id: str) -> HostedRow | None:
        """How this model declares the tool; None if it has no such tool, as far as is known."""
        row = self.rows.get(provider, self.rows.get("", {})).get(tool)
        return row if row is not None and (row.models is None or row.models.match(model_id)) else None

    def declared(
        self, spec: ToolSpec, where: str, model_id: str, losses: Losses, *, has_functions: bool = False
    ) -> Json | None:
        """A provider's tool as this provider declares it. None if it has no such tool, which is a loss.

        Raises `PartValidationError` with the code ``invalid_config`` for a required tool that the provider lacks.
        """
        if spec.hosted is None:
            assert spec.native is not None
            if spec.native.provider in (losses.provider, self._format):
                return dict(spec.native.data)
            search = _web_search(spec.native.data)
            row = None if search is None else self.row_of("web_search", losses.provider, model_id)
            if search is None or row is None:
                _refuse(spec, where, f"it belongs to {spec.native.provider}", losses)
                return None
            if has_functions and not self._beside_functions:
                _refuse(spec, where, f"{losses.provider} does not accept it beside functions", losses)
                return None
            for name in sorted(spec.native.data.keys() - _SEARCH_FIELDS):
                losses.add(f"{where}.native.{name}", name, f"only {spec.native.provider} has this field")
            return _written(row, search, where, losses)
        row = self.row_of(spec.hosted.tool, losses.provider, model_id)
        if row is None:
            _refuse(spec, where, f"{losses.provider}:{model_id} does not offer it", losses)
            return None
        return _written(row, hosted_tool(spec.hosted), where, losses)


def _written(row: HostedRow, tool: PortableTool, where: str, losses: Losses) -> Json:
    for option in sorted(tool.set_options - row.options):
        losses.add(f"{where}.hosted.options.{option}", option, f"{losses.provider} has no such option of the tool")
    return row.write(tool)


_SEARCH_TYPES = re.compile(r"web_search(_preview)?(_[\d_]+)?|google_search")
_SEARCH_FIELDS = frozenset(
    (
        *("type", "name", "googleSearch", "max_uses", "allowed_domains", "blocked_domains"),
        *("filters", "user_location", "search_context_size"),
    )
)


def _web_search(declaration: Json) -> PortableTool | None:
    """The search that Anthropic, OpenAI or Google declares like this; None for another tool, or odd options."""
    if "googleSearch" not in declaration and not _SEARCH_TYPES.fullmatch(str(declaration.get("type"))):
        return None
    filters = declaration.get("filters")
    fields = {**declaration, **(filters if isinstance(filters, dict) else {})}
    options = {
        "max_uses": fields.get("max_uses"),
        "allowed_domains": fields.get("allowed_domains") or (),
        "blocked_domains": fields.get("blocked_domains") or (),
        "user_location": fields.get("user_location"),
        "context_size": fields.get("search_context_size"),
    }
    try:
        return hosted_tool(HostedTool(tool="web_search", options=options))
    except PartValidationError:
        return None


def _refuse(spec: ToolSpec, where: str, why: str, losses: Losses) -> None:
    if spec.required:
        text = f"The tool {spec.name!r} is not available: {why}. Pass optional=True to go without it."
        raise ConfigError(text, path=f"$.{where}")
    losses.add(where, f"tool {spec.name}", why)


def refuse_required(specs: Iterable[ToolSpec], provider: str) -> None:
    """Raise as `HostedRows.declared` does if a tool is required, for a model that executes none."""
    for index, spec in enumerate(specs):
        if not spec.is_function:
            _refuse(spec, f"tools[{index}]", f"{provider} executes no tools", Losses(provider))


def filled(**fields: Any) -> Json:
    """The fields that have a value, with tuples as lists."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in fields.items()
        if value not in (None, (), {})
    }


def location_fields(location: UserLocation | None) -> Json | None:
    """A location as Anthropic and OpenAI write it."""
    if location is None:
        return None
    return filled(
        type="approximate",
        city=location.city,
        region=location.region,
        country=location.country,
        timezone=location.timezone,
    )
