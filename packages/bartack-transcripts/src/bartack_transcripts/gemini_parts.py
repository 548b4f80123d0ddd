"""What Gemini CLI and Qwen Code share: both store the contents of Gemini's API.

Calls and results have the id of the call in them, so that each content can be read and written by itself.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bartack.formats.gemini_generate.encode import encode
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation, Part, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack_transcripts.transcript import ReadReport, Record
from bartack_transcripts.values import Json, read_messages

__all__ = ["ContentWriter", "part_list", "read_contents", "text_of_parts"]

_MODEL = "gemini-3"  # the first model whose results may contain media


def part_list(content: Any) -> list[Json]:
    """Content as a list of parts; text is short for a list with one."""
    parts = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            parts.append({"text": part})
        elif isinstance(part, dict) and part:
            parts.append(part)
    return parts


def text_of_parts(parts: Sequence[Json]) -> str:
    """All text in the parts, joined."""
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def read_contents(contents: Sequence[Json], provider: str, record: Record, report: ReadReport) -> list[Message]:
    """The messages that these contents are."""
    return read_messages("gemini-generate", {"contents": list(contents)}, provider, record, report)


class ContentWriter:
    """Writes messages as contents. Whatever only another provider can read is a loss."""

    def __init__(self, provider: str) -> None:
        self.losses = Losses(provider)
        self._names: dict[str, str] = {}  # the tool of each call

    def write(self, message: Message, where: str) -> list[Json]:
        """The contents of a message that is not a system message."""
        parts = tuple(self._identified(part, where) for part in message.parts)
        request = ModelRequest(messages=(replace(message, parts=parts),), config=ModelConfig(_MODEL))
        contents: list[Json] = encode(request, self.losses)["contents"]
        for call in (part for content in contents for part in content["parts"] if "functionCall" in part):
            if call.get("thoughtSignature") == "skip_thought_signature_validator":
                del call["thoughtSignature"]  # the program adds it itself
        return contents

    def _identified(self, part: Part, where: str) -> Part:
        """A call or result with its id, and the name of the tool, as data of this provider."""
        if isinstance(part, ToolCall) and part.executed_by == "client":
            self._names[part.tool_call_id] = part.tool_name
            continuation = self.losses.continuation(where, part.continuation)
            return self._with_data(part, continuation | {"id": part.tool_call_id})
        if isinstance(part, ToolResult):
            name = self._names.get(part.tool_call_id, "unknown")
            return self._with_data(part, {"name": name, "id": part.tool_call_id})
        return part

    def _with_data(self, part: ToolCall | ToolResult, data: Json) -> Part:
        return replace(part, continuation=Continuation(self.losses.provider, _MODEL, data))
