"""The tools of a server -> tools of an agent: names, descriptions, digests and which calls need approval."""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp import types

from bartack.nouns.errors import BartackError, ToolError
from bartack.session.schema_check import ArgumentCheck, argument_check
from bartack.tools.definition import ToolDefinition
from bartack.tools.mcp.config import clean_name, visible_prose
from bartack.tools.tool_context import ToolContext

__all__ = ["Offered", "digest_of", "offered_tools", "tool_name"]

MAX_TOOLS = 1_000  # per server
# All descriptions and schemas of a server, about 50,000 tokens of every request.
_MAX_TOTAL_CHARS = 200_000
_MAX_NAME_CHARS = 64  # what the strictest provider accepts
_MAX_DESCRIPTION_CHARS = 8_000
_PROSE = frozenset(("title", "description", "$comment"))  # text of a JSON Schema that validates nothing
# Limits a server that keeps reporting progress, and questions to the user.
_MAX_CALL_MS = 3_600_000

Call = Callable[[str, str, dict[str, Any], ToolContext], Awaitable[Any]]  # tool, digest, arguments, context


@dataclass(frozen=True)
class Offered:
    """The tools of a server as an agent gets them, and those it does not get, with the reason."""

    definitions: tuple[ToolDefinition, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)  # keyed by the server's names
    # The checks for the results of tools with an output schema.
    output_checks: Mapping[str, ArgumentCheck | None] = field(default_factory=dict)
    described: Mapping[str, str] = field(default_factory=dict)  # what the server really wrote, by the agent's names
    left_out: tuple[tuple[str, str], ...] = ()

    def checked(self, result: types.CallToolResult, tool: str) -> types.CallToolResult:
        """The result if it matches the tool's output schema, without structured content that cannot be checked.

        Raises `ToolError` if it does not match.
        """
        if result.is_error or result.structured_content is None or tool not in self.output_checks:
            return result
        check = self.output_checks[tool]
        if check is None:
            return result.model_copy(update={"structured_content": None})
        try:
            check(result.structured_content)
        except ToolError as error:
            raise ToolError(f"The result of {tool!r} does not match its output schema: {error.message}") from None
        return result


def digest_of(tool: types.Tool) -> str:
    """The SHA-256 of everything about a tool that a person or a model decides by."""
    fields = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta", "icons"})
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def tool_name(prefix: str, name: str, used_names: Iterable[str] = ()) -> str:
    """The tool's name with the prefix, in a form that every provider accepts, and unlike the names taken.

    After the prefix of a server without an underscore, no ``__`` may follow; see `tool_prefix`.
    """
    full_name = prefix + clean_name(name)
    is_ambiguous = "__" in full_name and prefix[-2:] not in ("__", "")
    if is_ambiguous or len(full_name) > _MAX_NAME_CHARS or full_name in set(used_names):
        suffix = hashlib.sha256(f"{prefix}{name}".encode()).hexdigest()[:8]
        full_name = re.sub("_+", "_", full_name) if is_ambiguous else full_name
        full_name = f"{full_name[: _MAX_NAME_CHARS - 9]}_{suffix}"
    return full_name


def offered_tools(
    tools: Iterable[types.Tool],
    call: Call,
    *,
    prefix: str,
    keep: Callable[[str], bool],
    known_digest: Callable[[str], str | None],
    trust_hints: bool,
    max_output_chars: int,
) -> Offered:
    """The definitions of these tools; one that cannot be offered is left out, and the others are not affected."""
    definitions: dict[str, ToolDefinition] = {}
    digests: dict[str, str] = {}
    output_checks: dict[str, ArgumentCheck | None] = {}
    described: dict[str, str] = {}
    left_out: list[tuple[str, str]] = []
    chars = 0
    for tool in tools:
        if tool.name in digests or not keep(tool.name):
            left_out.append((tool.name, "duplicate" if tool.name in digests else "filtered"))
            continue
        name, digest, accepted_digest = (
            tool_name(prefix, tool.name, definitions),
            digest_of(tool),
            known_digest(tool.name),
        )
        is_read_only = bool(tool.annotations and tool.annotations.read_only_hint)
        is_changed = accepted_digest is not None and accepted_digest != digest
        try:
            definitions[name] = ToolDefinition(
                name=name,
                description=visible_prose(tool.description or tool.title or "")[:_MAX_DESCRIPTION_CHARS],
                parameter_schema=_schema(tool.input_schema),
                execute=_execute(call, tool.name, digest),
                timeout_ms=_MAX_CALL_MS,
                requires_approval=not (trust_hints and is_read_only),
                idempotent=trust_hints and is_read_only,
                max_output_chars=max_output_chars,
                digest=digest,
                changed="the server has changed the definition of this tool since it was last used"
                if is_changed
                else None,
            )
        except BartackError as error:
            left_out.append((tool.name, error.message))
            continue
        own_chars = len(definitions[name].description) + len(json.dumps(tool.input_schema))
        if chars + own_chars > _MAX_TOTAL_CHARS:  # a smaller one may still fit
            del definitions[name]
            left_out.append((tool.name, f"the tools of this server exceed {_MAX_TOTAL_CHARS:,} characters"))
            continue
        chars += own_chars
        digests[tool.name] = digest
        if tool.output_schema is not None:
            output_checks[tool.name] = _output_check(tool.output_schema)
        described[name] = tool.description or ""
    return Offered(tuple(definitions.values()), digests, output_checks, described, tuple(left_out))


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of the arguments. Providers require `properties`, which servers leave out for tools without any."""
    return {**_visible_schema(schema), "type": "object", "properties": _visible_schema(schema.get("properties") or {})}


def _visible_schema(value: Any, key: str = "") -> Any:
    """A schema without anything that a person who reads it would not see.

    Prose is cleaned as descriptions are. Names and values must stay as the server knows them, so invisible characters
    in these raise `ToolError`, and the tool is left out.
    """
    match value:
        case dict():
            return {_visible_schema(name): _visible_schema(item, name) for name, item in value.items()}
        case list():
            return [_visible_schema(item) for item in value]
        case str() if key in _PROSE:
            return visible_prose(value)
        case str() if visible_prose(value) != value:
            raise ToolError(f"its parameters contain invisible characters: {value!a}")
        case _:
            return value


def _output_check(schema: dict[str, Any]) -> ArgumentCheck | None:
    """The check of structured content; None if the schema is invalid, or needs a package that is not installed."""
    try:
        return argument_check(schema)
    except ToolError:
        return None


def _execute(call: Call, tool: str, digest: str) -> Callable[[dict[str, Any], ToolContext], Awaitable[Any]]:
    async def execute(arguments: dict[str, Any], context: ToolContext) -> Any:
        return await call(tool, digest, arguments, context)

    return execute
