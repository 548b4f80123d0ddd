"""How tools are declared to a provider: functions, and the tools that the provider executes itself.

**Functions.** `read_spec` reads what all formats say about a function: its name, description and schema, under names of
their own. `function_tools` and `read_function` are for formats that declare functions as OpenAI's chat API does.

**Hosted tools.** `HostedRows` declares the tools that a provider executes itself; each format fills it with its own.
A row belongs to one tool of one provider, or of every provider with the format that has no rows of its own. It names
the options that the declaration expresses; the others become losses. A tool that a provider lacks is a loss as well, or
an error if the request requires it.

A search of the web that a client declares in the terms of one provider (Codex always does) becomes that of another, if
it has one. Other tools of a provider have no equal elsewhere.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from bartack.formats.body_values import Json, beyond, object_at, optional_text_at, text_at
from bartack.formats.losses import Losses
from bartack.formats.settings import labelled, own_fields
from bartack.nouns.config import HostedTool, ToolSpec
from bartack.nouns.errors import ConfigError, PartValidationError
from bartack.nouns.hosted_tools import PortableTool, UserLocation, hosted_tool
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolCall

__all__ = [
    "HostedRow",
    "HostedRows",
    "filled",
    "function_tools",
    "hosted_row",
    "is_sendable_call",
    "note_tool_options",
    "parameters_of",
    "read_function",
    "read_spec",
    "refuse_required",
    "used_tools",
]

# -- functions


def parameters_of(spec: ToolSpec) -> Json:
    """The schema of a tool's arguments, which are an object: "tools.0.custom.input_schema.type: Field required"."""
    schema = spec.parameter_schema
    return schema if "type" in schema else {"type": "object", **(schema or {"properties": {}})}


def note_tool_options(spec: ToolSpec, where: str, losses: Losses, *, defers: bool = False) -> None:
    """Add the options of a function that only some providers have to `losses`."""
    if spec.defer_loading and not defers:
        losses.add(f"{where}.deferLoading", "deferred loading", "not supported by the provider; the tool is declared")
    if spec.input_examples:
        losses.add(f"{where}.inputExamples", "input examples", "not supported by the provider")


def read_spec(
    function: Mapping[str, Any], format: str, path: str, schema: Any, *handled: str, strict: bool | None = None
) -> ToolSpec:
    """The tool for a function. The first name in `handled` is that of the schema; the fields not named stay with it.

    Raises `PartValidationError` for a name, schema or description of another type.
    """
    return ToolSpec(
        text_at(function.get("name"), f"{path}.name"),
        object_at(schema, f"{path}.{handled[0]}"),
        description=optional_text_at(function.get("description"), f"{path}.description"),
        strict=strict,
        extra=labelled(format, beyond(function, "name", "description", *handled)),
    )


def function_tools(specs: Iterable[ToolSpec], format: str, model_id: str, losses: Losses) -> list[Json]:
    """The tools as OpenAI's chat API declares functions, `extra` fields under the format's name added."""
    tools = []
    for index, spec in enumerate(specs):
        if not spec.is_function:
            declared = HostedRows(format, {}).declared(spec, f"tools[{index}]", model_id, losses)
            tools += [] if declared is None else [declared]
            continue
        note_tool_options(spec, f"tools[{index}]", losses)
        described = {} if spec.description is None else {"description": spec.description}
        function = {"name": spec.name, **described, "parameters": parameters_of(spec)}
        tools.append({"type": "function", "function": {**function, **own_fields(spec, format)}})
    return tools


def read_function(tool: Json, format: str, path: str, *, strict: bool | None = None) -> ToolSpec:
    """A function as `function_tools` declares it. Raises `PartValidationError` for anything else."""
    function = object_at(tool.get("function"), f"{path}.function")
    parameters = function.get("parameters") or {}
    return read_spec(function, format, f"{path}.function", parameters, "parameters", strict=strict)


def is_sendable_call(call: ToolCall, where: str, losses: Losses) -> bool:
    """Whether a call can be sent as a function call; what is left out of it, or all of it, is added to `losses`."""
    losses.continuation(where, call.continuation)
    if call.executed_by == "provider":
        losses.add(where, f"call of {call.tool_name}", "another provider executed it")
        return False
    if call.raw_args_text is not None:
        losses.add(where, "invalid arguments", "arguments must be a JSON object; an empty one is sent")
    return True


def used_tools(message: Message) -> str:
    """The text of an answer whose only content is calls that another provider executed.

    An empty answer would be refused, and omitting it would put two turns of one role next to each other.
    """
    return f"[used {', '.join(call.tool_name for call in message.tool_calls)}]"


# -- tools that the provider executes


class HostedRow(NamedTuple):
    """How one provider declares one tool."""

    write: Callable[[Any], Json]
    options: frozenset[str] = frozenset()
    models: re.Pattern[str] | None = None  # the models that have the tool; None: all, as far as is known


def hosted_row(declaration: Json, *options: str, models: str | None = None, **fields: str) -> HostedRow:
    """A row for the models whose ids begin like this.

    The tool is declared as `declaration`, with these `options` under their own names and the `fields`, each with the
    option that it has, added as far as they have a value. ``a__b`` is the field ``b`` of the object ``a``.
    """
    names = dict(zip(options, options, strict=True)) | fields

    def write(tool: Any) -> Json:
        declared = deepcopy(declaration)
        for path, option in names.items():
            *outer, name = path.split("__")
            value = getattr(tool, option)
            written = _location_fields(value) if isinstance(value, UserLocation) else value
            if written not in (None, (), {}):
                inner = declared
                for step in outer:
                    inner = inner.setdefault(step, {})
                inner[name] = list(written) if isinstance(written, tuple) else written
        return declared

    return HostedRow(write, frozenset(names.values()), None if models is None else re.compile(models))


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


def _location_fields(location: UserLocation) -> Json:
    """A location as all providers write it."""
    return filled(
        type="approximate",
        city=location.city,
        region=location.region,
        country=location.country,
        timezone=location.timezone,
    )
