"""A typed function with a docstring -> the JSON Schema of its parameters, its description, and `read`.

`read` turns a JSON object into keyword arguments, or reports what is wrong with it. msgspec derives schema and check
from one struct built from the signature, so what a model sees and what its call must pass cannot differ.

Values are read leniently: models write ``"3"`` for 3, and refusing it would cost a round trip.
"""

import copy
import inspect
import re
from collections.abc import Callable
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from bartack.nouns.errors import ConfigError, ErrorCode, ToolError
from bartack.tools.foreign_types import convert, foreign_schema, readable, schemas_of, unsupported
from bartack.tools.tool_context import ToolContext

__all__ = ["Signature"]

_ROOT = "Arguments"
_SECTION = re.compile(r"(args|arguments|parameters|params)\s*:\s*$", re.IGNORECASE)
_GOOGLE_FIELD = re.compile(r"(?P<indent>\s+)\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")
_NUMPY_SECTION = re.compile(r"(parameters|returns|yields|raises)\s*", re.IGNORECASE)
_UNDERLINE = re.compile(r"-{3,}\s*")
_NUMPY_FIELD = re.compile(r"(?P<name>\w+)\s*(:.*)?")
_OTHER_SECTION = re.compile(r"(returns?|raises|yields?)\s*:|:\w+[^:]*:", re.IGNORECASE)
_SPHINX_FIELD = re.compile(r"(?P<indent>\s*):param\s+(?:[^:\s]+\s+)?(?P<name>\w+)\s*:\s*(?P<text>.*)")


class Signature:
    """How a model may call a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        inner: Any = function.func if isinstance(function, partial) else function
        is_object = inspect.isfunction(getattr(type(inner), "__call__", None))  # noqa: B004 - of a class with __call__
        code = inner.__call__ if is_object else inner
        self.name: str = getattr(inner, "__name__", type(inner).__name__)
        self.is_async = inspect.iscoroutinefunction(code)
        parameters, hints = self._typed_parameters(function, code)
        self.context_names = tuple(name for name in parameters if _is_context(hints[name]))
        self.deps_type = next((_deps_type(hints[name]) for name in self.context_names), None)
        self._parameters = {name: parameter for name, parameter in parameters.items() if name not in self.context_names}
        self._struct = msgspec.defstruct(
            _ROOT,
            [
                self._field(parameter, self._readable(parameter, hints[name]))
                for name, parameter in self._parameters.items()
            ],
            forbid_unknown_fields=True,
            kw_only=True,
        )
        self.description, described = _docstring(inspect.getdoc(code if code.__doc__ else inner) or "")
        described |= {name: text for name in self._parameters if (text := _annotated_text(hints[name]))}
        self.schema = self._schema(described)

    def _typed_parameters(
        self, function: Callable[..., Any], code: Callable[..., Any]
    ) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
        """The parameters, without those that a `partial` has set: what the program decides, the model must not."""
        set_names = function.keywords.keys() if isinstance(function, partial) else ()
        try:
            hints = get_type_hints(code, include_extras=True)
        except NameError as error:
            raise ConfigError(f"tool {self.name!r}: a type hint cannot be resolved: {error}") from None
        try:
            signature_parameters = inspect.signature(function).parameters
        except ValueError as error:  # a function or class written in C
            raise ConfigError(f"tool {self.name!r}: {error}") from None
        parameters = {name: parameter for name, parameter in signature_parameters.items() if name not in set_names}
        for name, parameter in parameters.items():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise ConfigError(f"tool {self.name!r}: parameter {parameter} cannot be passed by name")
            if name not in hints:
                hint = "; pass the method of an object, as in tools=[shop.order]" if name in {"self", "cls"} else ""
                raise ConfigError(f"tool {self.name!r}: parameter {name!r} has no type hint{hint}")
        return parameters, hints

    def _readable(self, parameter: inspect.Parameter, hint: Any) -> Any:
        try:
            return readable(hint | None if parameter.default is None and not _accepts_none(hint) else hint)
        except TypeError as error:
            raise ConfigError(f"tool {self.name!r}: parameter {parameter.name!r}: {error}") from None

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
            raise ConfigError(f"tool {self.name!r}: {self._fault() or error}") from None
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

    def _fault(self) -> str | None:
        """The parameter whose type a model cannot write."""
        for field in msgspec.structs.fields(self._struct):
            try:
                schemas_of(field.type)
            except TypeError as error:
                return f"parameter {field.name!r}: {unsupported(error)}"
        return None

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments; `ToolError` with code ``tool_bad_arguments`` if they are invalid.

        Missing arguments are left out, so that the function's own defaults apply.
        """
        try:
            values = convert(arguments, self._struct)
        except msgspec.ValidationError as error:
            names = ", ".join(self._parameters) or "none"
            hint = f" (known: {names})" if "unknown field" in str(error) and "`$." not in str(error) else ""
            raise ToolError(f"{error}{hint}", code=ErrorCode.TOOL_BAD_ARGUMENTS) from None
        return {name: getattr(values, name) for name in self._parameters if name in arguments}


def _members(hint: Any) -> list[Any]:
    """The types of a union, or the type itself, without what annotates them."""
    if get_origin(hint) is Annotated:
        return _members(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [member for argument in get_args(hint) for member in _members(argument)]
    return [hint]


def _is_context(hint: Any) -> bool:
    return any(ToolContext in (member, get_origin(member)) for member in _members(hint))


def _deps_type(hint: Any) -> type[Any] | None:
    """The class in ``ToolContext[Database]``; None if there is none, or something else than a class."""
    arguments = [get_args(member) for member in _members(hint) if get_origin(member) is ToolContext]
    return next((types[0] for types in arguments if isinstance(types[0], type) and types[0] is not object), None)


def _accepts_none(hint: Any) -> bool:
    return any(member in (Any, object, NoneType) for member in _members(hint))


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
    texts = (
        detail if isinstance(detail, str) else getattr(detail, "description", None) for detail in get_args(hint)[1:]
    )
    return next((text for text in texts if isinstance(text, str)), None)


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the parameter descriptions, in the style of Google, NumPy or Sphinx."""
    before: list[str] = []
    described: dict[str, str] = {}
    name, indent, is_before, in_section = "", 0, True, False
    for line in _google_style(text.splitlines()):
        is_header = _SECTION.fullmatch(line) is not None
        field = _SPHINX_FIELD.fullmatch(line) or (_GOOGLE_FIELD.fullmatch(line) if in_section else None)
        is_before = is_before and not is_header and field is None and not (before and _OTHER_SECTION.match(line))
        if is_before:
            before.append(line)
        elif is_header or (in_section and field is None and line.strip() and not line[0].isspace()):
            name, indent, in_section = "", 0, is_header
        elif field is not None and (not indent or len(field["indent"]) <= indent):
            name, indent = field["name"], len(field["indent"])
            described[name] = field["text"].strip()
        elif name and line.strip() and not line.strip().startswith(":"):
            described[name] = f"{described[name]} {line.strip()}".strip()
        elif not in_section:
            name, indent = "", 0
    return "\n".join(before).strip(), described


def _google_style(lines: list[str]) -> list[str]:
    """The lines with sections that NumPy underlines written as Google does."""
    out: list[str] = []
    in_section = False
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        if _UNDERLINE.fullmatch(following) and (in_section or _NUMPY_SECTION.fullmatch(line)):
            in_section = True
            out.append(f"{line.strip()}:")
        elif in_section and _UNDERLINE.fullmatch(line):
            continue
        elif in_section and (field := _NUMPY_FIELD.fullmatch(line)):
            out.append(f"    {field['name']}:")
        else:
            out.append(f"    {line}" if in_section else line)
    return out
