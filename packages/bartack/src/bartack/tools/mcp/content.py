"""What a server returned -> parts of a conversation: text, images, files, links and structured content.

Nothing in it is trusted: text loses its terminal control, data must be valid base64, a type is read from the data where
that is possible, and a URL of a server is never fetched or passed on to a provider to fetch.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

from mcp import types
from msgspec import json as msgspec_json

from bartack.nouns.messages import Message, assistant, user
from bartack.nouns.parts import STRUCTURED, ContentPart, FileRef, Image, Text
from bartack.tools.mcp.text import plain_text
from bartack.tools.output import ToolOutput, image_type, valid_object

__all__ = ["output_of", "prompt_messages", "resource_parts"]

_MAX_STRUCTURED_CHARS = 200_000  # kept next to the text; about 50,000 tokens if it were sent
_NAME = re.compile(r"[^\w.-]+")

Resource = types.TextResourceContents | types.BlobResourceContents


def output_of(result: types.CallToolResult, metadata: dict[str, Any]) -> ToolOutput:
    """The result of a call, with its structured content as data."""
    parts = [part for block in result.content for part in _parts_of(block)]
    structured = _structured(result.structured_content)
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


def _structured(value: Any) -> dict[str, Any]:
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
