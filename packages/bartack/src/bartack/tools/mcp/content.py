"""What a server returned -> parts of a conversation: text, images, files, links and structured content.

Nothing in it is trusted: text loses its terminal control, data must be valid base64, a type is read from the data where
that is possible, and a URL of a server is never fetched or passed on to a provider to fetch.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any, Protocol

from mcp import types
from msgspec import json as msgspec_json

from bartack.nouns.messages import Message, assistant, user
from bartack.nouns.parts import STRUCTURED, ContentPart, FileRef, Image, Text
from bartack.tools.definition import ToolDefinition
from bartack.tools.mcp.config import plain_text
from bartack.tools.output import ToolOutput, image_type, valid_object
from bartack.tools.tool_context import ToolContext

__all__ = ["Readable", "output_of", "prompt_messages", "prompt_tools", "resource_parts", "resource_tools"]

_MAX_STRUCTURED_CHARS = 200_000  # kept next to the text; about 50,000 tokens if it were sent
_NAME = re.compile(r"[^\w.-]+")

Resource = types.TextResourceContents | types.BlobResourceContents


def output_of(result: types.CallToolResult, metadata: dict[str, Any]) -> ToolOutput:
    """The result of a call, with its structured content as data."""
    parts = [part for block in result.content for part in _parts_of(block)]
    structured = _structured_part(result.structured_content)
    content: Any = tuple(parts)
    if not parts:
        content = structured.get(STRUCTURED, "")
    elif len(parts) == 1 and isinstance(parts[0], Text):
        content = parts[0].text
    return ToolOutput(content, metadata={**structured, **metadata}, is_error=bool(result.is_error))


def resource_parts(contents: Iterable[Resource]) -> tuple[ContentPart, ...]:
    """The contents of a resource."""
    return tuple(part for content in contents for part in _resource_parts(content))


def prompt_messages(messages: Iterable[types.PromptMessage]) -> list[Message]:
    """The messages of a prompt. A model never wrote those with its role, which therefore contain text only."""
    converted = []
    for message in messages:
        parts = _parts_of(message.content)
        if message.role == "user":
            converted.append(user(*parts))
        else:
            converted.append(assistant(*(part for part in parts if isinstance(part, Text))))
    return converted


def _structured_part(value: Any) -> dict[str, Any]:
    """The structured content under the key `STRUCTURED`; nothing if it is too large or cannot be stored."""
    stored = None if value is None else valid_object({STRUCTURED: value})
    if stored is None or len(msgspec_json.encode(stored)) > _MAX_STRUCTURED_CHARS:
        return {}
    return stored


def _parts_of(block: types.ContentBlock) -> list[ContentPart]:
    match block:
        case types.TextContent():
            return [Text(plain_text(block.text))]
        case types.ImageContent():
            return [_data_part(block.data, block.mime_type, "image")]
        case types.AudioContent():
            return [_data_part(block.data, block.mime_type, "audio")]
        case types.ResourceLink():
            kind = f", {block.mime_type}" if block.mime_type else ""
            description = f": {block.description}" if block.description else ""
            return [Text(plain_text(f"[Resource {block.title or block.name} ({block.uri}{kind}){description}]"))]
        case types.EmbeddedResource():
            return _resource_parts(block.resource)


def _resource_parts(resource: Resource) -> list[ContentPart]:
    uri = plain_text(str(resource.uri))
    if isinstance(resource, types.TextResourceContents):
        return [Text(f"[Resource {uri}]\n{plain_text(resource.text)}")]
    name = _NAME.sub("_", uri.partition("?")[0].rstrip("/").rpartition("/")[2])
    return [Text(f"[Resource {uri}]"), _data_part(resource.blob, resource.mime_type, name or "resource")]


def _data_part(encoded: str, mime_type: str | None, name: str) -> ContentPart:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{name}: the server sent data that is not valid base64]")
    media_type = image_type(data)
    if media_type is not None:
        return Image(media_type, data=data)
    kind = plain_text(mime_type) if mime_type else "application/octet-stream"
    return FileRef(name, data=data, mime_type=kind, size=len(data))


# -- resources and prompts
#
# The tools with which a model lists and reads the resources and prompts of a server.

_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
_URI = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
_PROMPT = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
}


class Readable(Protocol):
    """A server with resources and prompts."""

    name: str

    async def list_resources(self) -> list[dict[str, Any]]: ...
    async def read_resource(self, uri: str) -> tuple[ContentPart, ...]: ...
    async def list_prompts(self) -> list[dict[str, Any]]: ...
    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> list[Message]: ...


def resource_tools(server: Readable, prefix: str, needs_approval: bool) -> tuple[ToolDefinition, ...]:
    """Tools that list and read resources."""

    async def list_all(arguments: dict[str, Any], context: ToolContext) -> Any:
        return {"resources": await server.list_resources()}

    async def read(arguments: dict[str, Any], context: ToolContext) -> Any:
        return await server.read_resource(arguments["uri"])

    source = f"of the MCP server {server.name!r}"
    return (
        ToolDefinition(
            name=f"{prefix}list_resources",
            description=f"List the resources {source}, with their URIs.",
            parameter_schema=_NOTHING,
            execute=list_all,
        ),
        ToolDefinition(
            name=f"{prefix}read_resource",
            description=f"Read a resource {source}.",
            parameter_schema=_URI,
            execute=read,
            requires_approval=needs_approval,
        ),
    )


def prompt_tools(server: Readable, prefix: str, needs_approval: bool) -> tuple[ToolDefinition, ...]:
    """Tools that list and read prompts."""

    async def list_all(arguments: dict[str, Any], context: ToolContext) -> Any:
        return {"prompts": await server.list_prompts()}

    async def get(arguments: dict[str, Any], context: ToolContext) -> Any:
        messages = await server.get_prompt(arguments["name"], arguments.get("arguments"))
        parts: list[ContentPart] = []
        for message in messages:
            parts.append(Text(f"[{message.role}]"))
            parts += [part for part in message.parts if isinstance(part, ContentPart)]
        return tuple(parts)

    source = f"of the MCP server {server.name!r}"
    return (
        ToolDefinition(
            name=f"{prefix}list_prompts",
            description=f"List the prompts {source}, with their arguments.",
            parameter_schema=_NOTHING,
            execute=list_all,
        ),
        ToolDefinition(
            name=f"{prefix}get_prompt",
            description=f"Get a prompt {source}.",
            parameter_schema=_PROMPT,
            execute=get,
            requires_approval=needs_approval,
        ),
    )
