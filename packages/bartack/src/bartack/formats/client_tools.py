"""Tools that a client executes but declares in a form that only OpenAI has, as functions for all other formats.

| form | as a function |
|---|---|
| `custom`: free text, maybe in a grammar | one argument `input`; the grammar is in the description |
| `namespace` of tools | each tool by itself, named ``namespace__name`` |
| `tool_search` by the client | itself, with the parameters that it declares |

The declaration itself is in `ToolSpec.extra`, under `DECLARATION` of its format, and is sent back there. An answer of
another model calls the functions. A writer turns these calls into those that the client expects: `tool_options` has
what it needs to know.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from bartack.formats.body_values import object_of, text_of
from bartack.formats.extra_fields import DECLARATION
from bartack.nouns.config import ToolSpec
from bartack.nouns.json_values import json_text

__all__ = ["INPUT_ONLY", "ToolOptions", "custom_spec", "declaration_of", "function_name", "tool_options"]

_MAX_NAME = 64  # the limit of most providers
_SEPARATOR = "__"
INPUT_ONLY: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class ToolOptions(TypedDict):
    """Options of a `ResponseWriter`."""

    custom_tools: frozenset[str]
    namespaces: dict[str, tuple[str, str]]
    tool_searches: frozenset[str]


def custom_spec(format: str, name: str, tool: Mapping[str, Any], declaration: dict[str, Any]) -> ToolSpec:
    """The function for a custom tool; `tool` has its description and the format of its input."""
    texts = [text_of(tool, "description")] if text_of(tool, "description") else []
    grammar = object_of(tool, "format")
    if grammar.get("type") not in (None, "text"):
        definition = object_of(grammar, "grammar") or grammar
        syntax, text = text_of(definition, "syntax"), text_of(definition, "definition")
        texts.append(f"`input` must match this {syntax} grammar:\n{text}" if text else json_text(grammar))
    description = "\n\n".join(texts) or None
    return ToolSpec(name, INPUT_ONLY, description=description, extra={format: {DECLARATION: declaration}})


def function_name(namespace: str, name: str) -> str:
    """The name of a function in a namespace, which every provider accepts; long names end in a digest."""
    joined = namespace + name if namespace.endswith(_SEPARATOR) else f"{namespace}{_SEPARATOR}{name}"
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", joined)
    if len(plain) <= _MAX_NAME:
        return plain
    digest = hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: _MAX_NAME - 9]}_{digest}"


def declaration_of(spec: ToolSpec, format: str) -> dict[str, Any] | None:
    """The declaration of a tool that is no function in this format."""
    declaration = object_of(spec.extra or {}, format).get(DECLARATION)
    return declaration if isinstance(declaration, dict) else None


def tool_options(tools: Iterable[ToolSpec], format: str) -> ToolOptions:
    """How a writer of this format names the calls of a request's tools."""
    custom: set[str] = set()
    searches: set[str] = set()
    namespaces: dict[str, tuple[str, str]] = {}
    for spec in tools:
        declaration = declaration_of(spec, format) or {}
        if declaration.get("type") == "namespace":
            [tool] = declaration["tools"]
            namespaces[spec.name] = (declaration["name"], tool["name"])
            declaration = tool
        if declaration.get("type") == "custom":
            custom.add(spec.name)
        elif declaration.get("type") == "tool_search":
            searches.add(spec.name)
    return {"custom_tools": frozenset(custom), "namespaces": namespaces, "tool_searches": frozenset(searches)}
