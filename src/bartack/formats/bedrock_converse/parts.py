"""Every kind of part -> content blocks of Bedrock's Converse.

Reasoning goes back to the model it came from, and signed or redacted reasoning to every model of the same family: other
families refuse it. Text, calls and results go to all.
"""

from typing import Any, assert_never

from bartack.formats.bedrock_converse.blocks import DocumentNames, media_block, text_block
from bartack.formats.bedrock_converse.models import family_of
from bartack.formats.losses import Losses
from bartack.formats.media import named
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["BlockWriter"]

_IN_RESULTS = ("text", "json", "image", "document", "video", "searchResult")
_EMPTY = {"text": "(no output)"}  # a result without content, or with empty text, is refused


class BlockWriter:
    """Writes the parts of one request in order; it keeps the names of documents apart."""

    def __init__(self, model_id: str, losses: Losses) -> None:
        self._model_id = model_id
        self._losses = losses
        self._names = DocumentNames()
        self._behind_results: list[dict[str, Any]] = []

    def blocks(self, part: Part, where: str) -> list[dict[str, Any]]:
        """The blocks that say this part; none where it cannot be said, with the loss noted."""
        if isinstance(part, Text | Thinking) and part.ignored:
            return []
        data = self._own_data(part, where)
        blocks: list[dict[str, Any] | None]
        match part:
            case Text():
                blocks = [text_block(part.text, data)]
            case Thinking():
                blocks = [self._reasoning(part, data, where)]
            case Image() | FileRef():
                block = media_block(part, data, self._names)
                why = "Converse takes documents and media of few types, inline or from S3"
                blocks = [{"text": named(part, where, why, self._losses)} if block is None else block]
            case ToolCall():
                blocks = [*self._call(part, data, where)]
            case ToolResult():
                blocks = [self._result(part, data, where)]
            case _:
                assert_never(part)
        said = [block for block in blocks if block is not None]
        return [*said, {"cachePoint": data["cachePoint"]}] if said and "cachePoint" in data else said

    def _own_data(self, part: Part, where: str) -> dict[str, Any]:
        if isinstance(part, Thinking):
            return self._losses.thinking(where, part) or {}
        return self._losses.continuation(where, part.continuation)

    def take_behind_results(self) -> list[dict[str, Any]]:
        """What tools gave back and results may not hold; it follows the results in the same turn."""
        blocks, self._behind_results = self._behind_results, []
        return blocks

    def _reasoning(self, part: Thinking, data: dict[str, Any], where: str) -> dict[str, Any] | None:
        if "block" in data:
            block: dict[str, Any] = data["block"]
            return block
        redacted: str | None = data.get("redactedContent")
        beside: dict[str, Any] | None = data.get("reasoningText")
        if part.continuation is None or (redacted is None and beside is None):
            return None
        is_sealed = redacted is not None or "signature" in (beside or {})
        origin = part.continuation.model
        is_kin = is_sealed and family_of(origin) == family_of(self._model_id)
        if origin not in ("", self._model_id) and not is_kin:  # "": nobody said which model it was
            self._losses.add(where, "thinking", f"it came from another model, {origin}")
            return None
        if not is_sealed and family_of(self._model_id) == "anthropic":
            self._losses.add(where, "thinking", "it has no signature")
            return None
        if redacted is not None:
            return {"reasoningContent": {"redactedContent": redacted}}
        return {"reasoningContent": {"reasoningText": {"text": part.text, **(beside or {})}}}

    def _call(self, part: ToolCall, data: dict[str, Any], where: str) -> list[dict[str, Any]]:
        origin = "" if part.continuation is None else part.continuation.model
        is_kin = origin == "" or family_of(origin) == family_of(self._model_id)
        if part.executed_by == "provider" and (data.get("type") != "server_tool_use" or not is_kin):
            self._losses.add(where, f"the call of {part.tool_name}", "it was executed elsewhere, or made an image")
            return []
        if part.raw_args_text is not None:
            self._losses.add(where, "arguments that are no JSON object", "Converse takes objects only")
        # Our id may be a local one; the provider knows its own calls by its own ids.
        call_id = data.get("callId", part.tool_call_id) if part.executed_by == "provider" else part.tool_call_id
        call = {"toolUseId": call_id, "name": part.tool_name, "input": part.arguments}
        if "block" in data:
            call = {**data["block"]["toolUse"], "toolUseId": call_id}
        elif part.executed_by == "provider":
            call["type"] = "server_tool_use"
        result = [{"toolResult": {**data["toolResult"], "toolUseId": call_id}}] if "toolResult" in data else []
        return [{"toolUse": call}, *result]

    def _result(self, part: ToolResult, data: dict[str, Any], where: str) -> dict[str, Any]:
        if "block" in data:
            return {"toolResult": {**data["block"]["toolResult"], "toolUseId": part.tool_call_id}}
        result: dict[str, Any] = {"toolUseId": part.tool_call_id, "content": self._result_content(part, where)}
        if part.is_error:  # "success" is the default, and not all models know the field
            result["status"] = "error"
        return {"toolResult": result}

    def _result_content(self, part: ToolResult, where: str) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]]
        match part.content:
            case str():
                blocks = [{"text": part.content}] if part.content.strip() else []
            case dict():
                blocks = [{"json": part.content}]
            case tuple():
                pieces = enumerate(part.content)
                every = [block for place, piece in pieces for block in self.blocks(piece, f"{where}.content[{place}]")]
                blocks = [block for block in every if next(iter(block)) in _IN_RESULTS]
                self._behind_results += [block for block in every if next(iter(block)) not in _IN_RESULTS]
            case _:
                assert_never(part.content)
        return blocks or [_EMPTY]
