"""A typed function with a docstring -> the JSON Schema of its parameters, its description, and `read`.

`read` turns a JSON object into keyword arguments, or reports what is wrong with it. msgspec derives schema and check
from one struct built from the signature, so what a model sees and what its call must pass cannot differ.

Values are read leniently: models write ``"3"`` for 3, and refusing it would cost a round trip.
"""

import copy
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from bartack.nouns.errors import ErrorCode, ToolError
from bartack.tools.foreign_types import convert, foreign_schema, readable
from bartack.tools.tool_context import ToolContext

__all__ = ["Signature"]

_ROOT = "Arguments"
_SECTION = re.compile(r"(args|arguments|parameters|params)\s*:\s*$", re.IGNORECASE)
_GOOGLE_FIELD = re.compile(r"(?P<indent>\s+)\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")
_SPHINX_FIELD = re.compile(r"(?P<indent>\s*):param\s+(?:[^:\s]+\s+)?(?P<name>\w+)\s*:\s*(?P<text>.*)")


class Signature:
    """How a model may call a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        parameters, hints = self._typed_parameters(function)
        self.context_names = tuple(name for name in parameters if ToolContext in (hints[name], get_origin(hints[name])))
        self._parameters = {name: one for name, one in parameters.items() if name not in self.context_names}
        self._struct = msgspec.defstruct(
            _ROOT,
            [self._field(one, self._readable(one, hints[name])) for name, one in self._parameters.items()],
            forbid_unknown_fields=True,
            kw_only=True,
        )
        self.description, described = _docstring(inspect.getdoc(function) or "")
        described |= {name: text for name in self._parameters if (text := _annotated_text(hints[name]))}
        self.schema = self._schema(described)

    def _typed_parameters(self, function: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError as error:
            raise TypeError(f"tool {self._name!r}: a type hint cannot be resolved: {error}") from None
        parameters = dict(inspect.signature(function).parameters)
        for name, parameter in parameters.items():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise TypeError(f"tool {self._name!r}: parameter {parameter} cannot be passed by name")
            if name not in hints:
                raise TypeError(f"tool {self._name!r}: parameter {name!r} has no type hint")
        return parameters, hints

    def _readable(self, parameter: inspect.Parameter, hint: Any) -> Any:
        try:
            return readable(hint)
        except TypeError as error:
            raise TypeError(f"tool {self._name!r}: parameter {parameter.name!r}: {error}") from None

    def _field(self, parameter: inspect.Parameter, hint: Any) -> Any:
        if parameter.default is parameter.empty:
            return parameter.name, hint
        default = parameter.default
        return parameter.name, hint, msgspec.field(default_factory=lambda: default)

    def _schema(self, described: dict[str, str]) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        try:
            schema = msgspec.json.schema(self._struct, schema_hook=lambda hint: foreign_schema(hint, definitions))
        except TypeError as error:
            raise TypeError(f"tool {self._name!r}: a parameter type has no JSON Schema: {error}") from None
        definitions = {**schema.get("$defs", {}), **definitions}
        root = definitions.pop(_ROOT)
        del root["title"]
        for name, parameter in self._parameters.items():
            shape = root["properties"][name]
            if name in described:
                shape["description"] = described[name]
            if parameter.default is not parameter.empty:
                _put_default(shape, parameter.default)
        return {**root, "$defs": definitions} if definitions else root

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments; `ToolError` with code ``tool_bad_arguments`` if they are invalid.

        Missing arguments are left out, so that the function's own defaults apply.
        """
        try:
            values = convert(arguments, self._struct)
        except msgspec.ValidationError as error:
            known = ", ".join(self._parameters) or "none"
            hint = f" (known: {known})" if "unknown field" in str(error) and "`$." not in str(error) else ""
            raise ToolError(f"{error}{hint}", code=ErrorCode.TOOL_BAD_ARGUMENTS) from None
        return {name: getattr(values, name) for name in self._parameters if name in arguments}


def _put_default(shape: dict[str, Any], default: Any) -> None:
    try:
        shape["default"] = copy.deepcopy(msgspec.to_builtins(default))
    except (TypeError, ValueError):  # not JSON: the schema shows the parameter as optional, without a default
        pass


# -- the docstring


def _annotated_text(hint: Any) -> str | None:
    """The description in ``Annotated[str, "..."]``, or in a ``Field`` or ``Meta`` in its place."""
    if get_origin(hint) is not Annotated:
        return None
    texts = (one if isinstance(one, str) else getattr(one, "description", None) for one in get_args(hint)[1:])
    return next((text for text in texts if isinstance(text, str)), None)


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the parameter descriptions from ``Args:`` or ``:param`` lines."""
    first: list[str] = []
    described: dict[str, str] = {}
    name, indent, is_first, in_section = "", 0, True, False
    for line in text.splitlines():
        is_header = _SECTION.fullmatch(line) is not None
        field = _SPHINX_FIELD.fullmatch(line) or (_GOOGLE_FIELD.fullmatch(line) if in_section else None)
        is_first = is_first and bool(line.strip()) and not is_header and field is None
        if is_first:
            first.append(line.strip())
        elif is_header or (in_section and field is None and line.strip() and not line[0].isspace()):
            name, indent, in_section = "", 0, is_header
        elif field is not None and (not indent or len(field["indent"]) <= indent):
            name, indent = field["name"], len(field["indent"])
            described[name] = field["text"].strip()
        elif name and line.strip() and not line.strip().startswith(":"):
            described[name] = f"{described[name]} {line.strip()}".strip()
        elif not in_section:
            name, indent = "", 0
    return " ".join(first), described
