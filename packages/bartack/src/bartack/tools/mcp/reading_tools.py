"""Tools with which a model lists and reads the resources and prompts of a server."""

from typing import Any, Protocol

from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, Text
from bartack.tools.definition import ToolDefinition
from bartack.tools.tool_context import ToolContext

__all__ = ["Readable", "prompt_tools", "resource_tools"]

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
