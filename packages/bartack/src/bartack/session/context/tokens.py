"""Token estimates, for what no provider has counted yet.

Tokenizers differ between providers. An estimate must be cheap, deterministic, and rarely much too low. Four bytes of
UTF-8 per token is close for English and code and, unlike four characters, not far off for other scripts. The next usage
that the provider reports corrects the error.
"""

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from bartack.nouns.config import ToolSpec
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult

__all__ = ["FILE_TOKENS", "IMAGE_TOKENS", "message_tokens", "text_tokens", "tool_tokens"]

IMAGE_TOKENS = 1_600  # what Anthropic counts for the largest image that it does not resize; other providers count less
FILE_TOKENS = 3_000  # about two pages of a document; the real number of pages is unknown
_BYTES_PER_TOKEN = 4
_to_text = msgspec.json.Encoder().encode
_FRAME_TOKENS = 4  # the role of a message, or the name and id of a call, with separators


def text_tokens(text: str) -> int:
    """The estimated tokens of a text: a quarter of its bytes, rounded up."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // _BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """The estimated tokens of a message, without continuation data, which only the reported usage includes."""
    tokens = _FRAME_TOKENS
    for part in message.parts:
        tokens += text_tokens(part.text) if type(part) is Text else _part_tokens(part)
    return tokens


def tool_tokens(tools: Iterable[ToolSpec]) -> int:
    """The estimated tokens of the tool declarations."""
    return sum(
        _FRAME_TOKENS + text_tokens(f"{tool.name}{tool.description or ''}{json_text(tool.parameter_schema)}")
        for tool in tools
    )


def _part_tokens(part: Part) -> int:
    match part:
        case Text() | Thinking():
            return text_tokens(part.text)
        case ToolCall():
            arguments = part.raw_args_text or _object_text(part.arguments)
            result = 0 if part.result is None else _content_tokens(part.result.content)
            return _FRAME_TOKENS + text_tokens(part.tool_name + arguments) + result
        case ToolResult():
            return _FRAME_TOKENS + _content_tokens(part.content)
        case Image():
            return IMAGE_TOKENS
        case FileRef():
            return text_tokens(part.path) + _file_tokens(part)
        case _:
            assert_never(part)


def _object_text(value: dict[str, Any]) -> str:
    try:
        return _to_text(value).decode()  # takes a tenth of the time
    except (ValueError, TypeError):  # unpaired surrogates, or values that are not JSON
        return json_text(value)


def _file_tokens(file: FileRef) -> int:
    if file.data is not None and (file.mime_type or "").startswith("text/"):
        return -(-len(file.data) // _BYTES_PER_TOKEN)
    return 0 if file.data is None and file.url is None else FILE_TOKENS


def _content_tokens(content: ToolContent) -> int:
    if isinstance(content, str):
        return text_tokens(content)
    if isinstance(content, dict):
        return text_tokens(_object_text(content))
    return sum(map(_part_tokens, content))
