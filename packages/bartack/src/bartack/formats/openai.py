"""What OpenAI's two formats share: client tools in a form that only OpenAI has, prompt caching, and errors.

A client executes these tools itself. They are functions for all other formats:

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

from bartack.formats.body_values import Json, object_of, text_of
from bartack.formats.losses import Losses
from bartack.formats.response_writer import ErrorResponse, WrittenCall, error_kind
from bartack.formats.settings import DECLARATION
from bartack.nouns.config import CacheConfig, ToolSpec
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text

__all__ = [
    "INPUT_ONLY",
    "ToolOptions",
    "cache_key",
    "custom_input",
    "custom_spec",
    "declaration_of",
    "function_name",
    "openai_error",
    "retention",
    "schema_name",
    "tool_options",
]

_MAX_NAME = 64  # the limit of most providers
_SEPARATOR = "__"
INPUT_ONLY: Json = {
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


def custom_spec(format: str, name: str, tool: Mapping[str, Any], declaration: Json) -> ToolSpec:
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


def declaration_of(spec: ToolSpec, format: str) -> Json | None:
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


def custom_input(call: WrittenCall) -> str:
    """The free text of a call of a custom tool, which models of other formats write as the argument `input`."""
    text = call.arguments.get("input")
    return text if isinstance(text, str) else call.text


# -- settings


def cache_key(beginning: Any) -> str:
    """A `prompt_cache_key` that requests with the same beginning share."""
    return hashlib.sha256(json_text(beginning).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def retention(cache: CacheConfig, losses: Losses) -> Json:
    """The setting for how long a prompt is cached; some minutes are the default, and a day the only other choice
    (developers.openai.com/api/docs/guides/prompt-caching)."""
    if cache.ttl == "1h":
        losses.add("config.cacheConfig.ttl", "ttl '1h'", "the provider has minutes, which is sent, or a day")
    return {"prompt_cache_retention": "24h"} if cache.ttl == "24h" else {}


def schema_name(schema: Mapping[str, Any]) -> str:
    """A name for an output schema, made from its title."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", str(schema.get("title") or "output"))[:64]


# -- errors

# The codes that OpenAI and its clients use. Codex retries server_error and rate_limit_exceeded, and stops at
# context_length_exceeded and insufficient_quota; an overload is a server_error, because it stops at that code, too.
_ERRORS = {
    ErrorCode.INVALID_REQUEST: "invalid_request_error",
    ErrorCode.CONTEXT_OVERFLOW: "context_length_exceeded",
    ErrorCode.CONTENT_FILTER: "content_policy_violation",
    ErrorCode.AUTHENTICATION: "invalid_api_key",
    ErrorCode.PERMISSION_DENIED: "permission_denied",
    ErrorCode.MODEL_NOT_FOUND: "model_not_found",
    ErrorCode.REQUEST_TOO_LARGE: "request_too_large",
    ErrorCode.QUOTA_EXCEEDED: "insufficient_quota",
    ErrorCode.RATE_LIMITED: "rate_limit_exceeded",
    ErrorCode.SERVER_ERROR: "server_error",
    ErrorCode.OVERLOADED: "server_error",
    ErrorCode.TIMEOUT: "server_error",
}
_NO_RESPONSE = "previous_response_not_found"  # clients send the whole history instead


def openai_error(failed: Failed) -> ErrorResponse:
    """OpenAI's response to a request that failed. Codex takes the delay of a rate limit from the message."""
    status, code = error_kind(failed, _ERRORS, {ErrorCode.QUOTA_EXCEEDED: 429})
    message = failed.message or str(failed.error_code)
    if failed.error_code is ErrorCode.RATE_LIMITED and failed.retry_after_ms is not None:
        message = f"{message} Please try again in {failed.retry_after_ms / 1000:g}s."
    kind = "server_error" if status >= 500 else code if status == 429 else "invalid_request_error"
    param = None
    if failed.raw_code == _NO_RESPONSE:
        code, param = _NO_RESPONSE, "previous_response_id"
    return ErrorResponse(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})
