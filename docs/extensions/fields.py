"""A griffe extension that documents fields in the reference; griffe reads the sources for mkdocstrings.

Bartack's values are msgspec structs. They have no ``__init__`` in the source, and a field is described by the comment
next to it, or directly above it. The signature is therefore taken from the class, and the comments become a list below
its docstring.
"""

import dataclasses
import enum
import inspect
import io
import re
import tokenize
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import griffe
import msgspec

OMITTED = {"bartack.app", "bartack.cli"}  # packages that are not in the reference; they are not imported
RULE = re.compile(r"^\d{3} (§[\d.]+|BR-\d+)[:;] ")  # rule ids are for readers of the source
LIST_ITEM = re.compile(r" {0,3}(-|\d+\.) ")
HIDDEN = {"extra"}  # every noun has it; documented once, on the page of the nouns
ANY_OF = "Any of these."  # the description of a named union without a comment
NO_DEFAULT = inspect.Parameter.empty


class Fields(griffe.Extension):
    """Completes structs, enums and constants when the package has been loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Complete every module of the package."""
        for module in _modules(pkg):
            comments = _comments(module)
            _tidy(module)
            for member in module.members.values():  # imported names are aliases, documented elsewhere
                match member:
                    case griffe.Class():
                        _complete(member, comments)
                    case griffe.Attribute(docstring=None):
                        text = comments.get(member.lineno or 0) or (ANY_OF if _is_union(member.value) else "")
                        member.docstring = griffe.Docstring(_sentence(text), parent=member) if text else None
                    case griffe.Function(docstring=griffe.Docstring() as docstring) if "\nArgs:\n" in docstring.value:
                        docstring.parser = griffe.Parser.google  # the built-in tools document their arguments
                    case _:
                        pass


def _is_union(value: Any) -> bool:
    text = str(value)
    return text.startswith("Literal[") or " | " in text.partition("(")[0]


def _sentence(comment: str) -> str:
    return comment[0].upper() + comment[1:].rstrip(".") + "."


def _tidy(module: griffe.Module) -> None:
    """Turn a docstring into Markdown, which needs a blank line before a list."""
    if module.docstring is not None:
        lines: list[str] = []
        in_list = False
        for line in module.docstring.value.splitlines():
            if LIST_ITEM.match(line) and lines and lines[-1].strip() and not in_list:
                lines.append("")
            in_list = bool(LIST_ITEM.match(line)) or (in_list and line.startswith(" "))
            lines.append(re.sub("::$", ":", line))
        module.docstring.value = "\n".join(lines)


def _modules(module: griffe.Module) -> list[griffe.Module]:
    modules = [module]
    for member in module.members.values():
        if isinstance(member, griffe.Module) and member.path not in OMITTED:
            modules += _modules(member)
    return modules


def _comments(module: griffe.Module) -> dict[int, str]:
    """The comments of the code, by the number of the line that they describe: their own, or else the next one."""
    if isinstance(module.filepath, list):  # a namespace package
        return {}
    source = module.filepath.read_text(encoding="utf-8")
    trailing: dict[int, str] = {}
    whole_lines: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:", "# fmt:", "# --")):
            line_number, column = token.start
            comments = trailing if token.line[:column].strip() else whole_lines
            comments[line_number] = RULE.sub("", token.string.lstrip("# "))
    return {**_blocks(whole_lines), **trailing}


def _blocks(whole_lines: dict[int, str]) -> dict[int, str]:
    """Comments on consecutive lines as one, by the number of the line after them."""
    blocks: dict[int, str] = {}
    for line_number, text in whole_lines.items():
        before = blocks.pop(line_number, None)
        blocks[line_number + 1] = text if before is None else f"{before} {text}"
    return blocks


def _complete(declared: griffe.Class, comments: dict[int, str]) -> None:
    real: type = getattr(import_module(declared.module.path), declared.name)
    if issubclass(real, msgspec.Struct):
        if "__init__" not in declared.members and not declared.name.startswith("_"):
            declared.set_member("__init__", _constructor(declared, real))
        _append(declared, _field_list(declared, inspect.signature(real).parameters, comments))
    elif dataclasses.is_dataclass(real) and isinstance(real, type):
        _append(declared, _field_list(declared, inspect.signature(real).parameters, comments))
    elif issubclass(real, enum.Enum):
        lines = []
        for name, member in declared.members.items():
            if isinstance(real.__members__.get(name), enum.Enum):
                lines.append(f"- `{real[name].value}`{_meaning(comments.get(member.lineno or 0))}")
        _append(declared, lines)


def _constructor(declared: griffe.Class, real: type[msgspec.Struct]) -> griffe.Function:
    parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
    for name, parameter in inspect.signature(real).parameters.items():
        if name not in HIDDEN:
            field = _field(declared, name)
            is_named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            parameters.append(
                griffe.Parameter(
                    name,
                    annotation=None if field is None else field.annotation,
                    default=None if parameter.default is NO_DEFAULT else _default(field, parameter.default),
                    kind=griffe.ParameterKind.keyword_only if is_named else griffe.ParameterKind.positional_or_keyword,
                )
            )
    constructor = griffe.Function("__init__", parameters=griffe.Parameters(*parameters), parent=declared)
    constructor.lineno = declared.lineno
    return constructor


def _default(field: griffe.Attribute | None, value: Any) -> Any:
    return repr(value) if field is None or field.value is None else field.value


def _field(declared: griffe.Class, name: str) -> griffe.Attribute | None:
    """The declaration of a field, in this class or in one of its base classes."""
    for place in (declared, *declared.mro()):
        member = place.members.get(name)
        if isinstance(member, griffe.Attribute):
            return member
    return None


def _field_list(declared: griffe.Class, names: Iterable[str], comments: dict[int, str]) -> list[str]:
    lines = []
    for name in names:
        field = None if name in HIDDEN else _field(declared, name)
        if field is not None:
            own = comments if field.module is declared.module else _comments(field.module)
            if field.lineno in own:
                lines.append(f"- `{name}`{_meaning(own[field.lineno])}")
    return lines


def _meaning(comment: str | None) -> str:
    return "" if comment is None else f": {comment}"


def _append(declared: griffe.Class, lines: list[str]) -> None:
    if lines:
        text = "" if declared.docstring is None else declared.docstring.value
        declared.docstring = griffe.Docstring("\n\n".join([text, "\n".join(lines)]), parent=declared)
