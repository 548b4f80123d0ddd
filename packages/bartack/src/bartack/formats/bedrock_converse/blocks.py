"""Parts as content blocks of Bedrock's Converse, and media blocks read back.

A block is an object with one key that names its kind. Media blocks have a format, a source (base64 bytes or an S3
address) and, if they are documents, a name. Reasoning is sent back to the model it came from; signed or redacted
reasoning to every model of the same family. Other families refuse it (not verified).
"""

import re
from base64 import b64encode
from pathlib import PurePosixPath
from typing import Any, assert_never

from bartack.formats.bedrock_converse.capabilities import family_of
from bartack.formats.bedrock_converse.decode import SERVER_TOOL, ConverseContinuation
from bartack.formats.body_values import NO_OUTPUT, bytes_at, object_at, text_at
from bartack.formats.emitter import CALL_ID
from bartack.formats.losses import Losses
from bartack.formats.media import media_type, placeholder
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["ConverseBlockWriter", "carries", "read_media"]

Json = dict[str, Any]

# Bedrock API reference: ImageBlock, DocumentBlock, VideoBlock, AudioBlock. Media type -> kind of block and format; of
# several media types for one format, the first is what a reader returns.
_MEDIA: dict[str, tuple[str, str]] = {
    "image/png": ("image", "png"),
    "image/jpeg": ("image", "jpeg"),
    "image/jpg": ("image", "jpeg"),
    "image/gif": ("image", "gif"),
    "image/webp": ("image", "webp"),
    "application/pdf": ("document", "pdf"),
    "text/csv": ("document", "csv"),
    "application/msword": ("document", "doc"),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ("document", "docx"),
    "application/vnd.ms-excel": ("document", "xls"),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("document", "xlsx"),
    "text/html": ("document", "html"),
    "text/plain": ("document", "txt"),
    "application/json": ("document", "txt"),
    "text/markdown": ("document", "md"),
    "video/x-matroska": ("video", "mkv"),
    "video/quicktime": ("video", "mov"),
    "video/mp4": ("video", "mp4"),
    "video/webm": ("video", "webm"),
    "video/x-flv": ("video", "flv"),
    "video/mpeg": ("video", "mpeg"),
    "video/x-ms-wmv": ("video", "wmv"),
    "video/3gpp": ("video", "three_gp"),
    "audio/mpeg": ("audio", "mp3"),
    "audio/wav": ("audio", "wav"),
    "audio/x-wav": ("audio", "wav"),
    "audio/aac": ("audio", "aac"),
    "audio/flac": ("audio", "flac"),
    "audio/ogg": ("audio", "ogg"),
    "audio/opus": ("audio", "opus"),
    "audio/mp4": ("audio", "m4a"),
    "audio/webm": ("audio", "webm"),
}
_TYPES = {kind: mime_type for mime_type, kind in reversed(_MEDIA.items())}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")
_RESULT_BLOCKS = ("text", "json", "image", "document", "video", "searchResult")  # API reference: ToolResultContentBlock


def carries(part: Part, losses: Losses) -> bool:
    """Whether a part is sent as a block of its own that is neither text, which may be blank, nor reasoning."""
    losses.expect(ConverseContinuation)
    block = losses.own_data(part).get("block", {})
    return bool(block) and not {"text", "reasoningContent"} & block.keys()


class ConverseBlockWriter:
    """Writes the parts of one request in order. Document names are unique within a request."""

    def __init__(self, model_id: str, losses: Losses) -> None:
        self._model_id = model_id
        self._losses = losses
        self._document_names: set[str] = set()
        self._after_results: list[Json] = []

    def blocks(self, part: Part, where: str) -> list[Json]:
        """The blocks of a part; none, with a loss recorded, if it cannot be sent."""
        if isinstance(part, Text | Thinking) and part.ignored:
            return []
        if isinstance(part, Thinking):
            data = self._losses.thinking(where, part) or {}
        else:
            data = self._losses.continuation(where, part.continuation)
        blocks: list[Json]
        match part:
            case ToolCall():
                blocks = self._call(part, data, where)
            case ToolResult():
                blocks = [self._result(part, data, where)]
            case _ if data.get("block"):  # an empty block is refused
                blocks = [data["block"]]
            case Text():
                blocks = _text(part.text, data)
            case Thinking():
                blocks = self._reasoning(part, data, where)
            case Image() | FileRef():
                blocks = [self._media(part, where)]
            case _:
                assert_never(part)
        return [*blocks, {"cachePoint": data["cachePoint"]}] if blocks and "cachePoint" in data else blocks

    def take_after_results(self) -> list[Json]:
        """The blocks that tools returned but results may not hold; they follow the results in the same turn."""
        blocks, self._after_results = self._after_results, []
        return blocks

    def _reasoning(self, part: Thinking, data: Json, where: str) -> list[Json]:
        redacted: str | None = data.get("redactedContent")
        fields: Json | None = data.get("reasoningText")
        if part.continuation is None or (redacted is None and fields is None):
            return []
        is_sealed = redacted is not None or "signature" in (fields or {})
        origin = part.continuation.model
        is_same_family = is_sealed and family_of(origin) == family_of(self._model_id)
        if origin not in ("", self._model_id) and not is_same_family:  # "": the model is unknown
            self._losses.add(where, "thinking", f"it came from another model, {origin}")
            return []
        if not is_sealed and family_of(self._model_id) == "anthropic":
            self._losses.add(where, "thinking", "it has no signature")
            return []
        if redacted is not None:
            return [{"reasoningContent": {"redactedContent": redacted}}]
        return [{"reasoningContent": {"reasoningText": {"text": part.text, **(fields or {})}}}]

    # -- tools

    def _call(self, part: ToolCall, data: Json, where: str) -> list[Json]:
        origin = "" if part.continuation is None else part.continuation.model
        is_same_family = origin == "" or family_of(origin) == family_of(self._model_id)
        is_provider_call = part.executed_by == "provider"
        if is_provider_call and (data.get("type") != SERVER_TOOL or not is_same_family):
            self._losses.add(where, f"call of {part.tool_name}", _why_not_sent(part, is_same_family))
            return []
        if part.raw_args_text is not None:
            self._losses.add(where, "invalid arguments", "arguments must be a JSON object; an empty one is sent")
        # A provider call has to be sent back under the provider's own id.
        call_id = data.get(CALL_ID, part.tool_call_id) if is_provider_call else part.tool_call_id
        call = {"toolUseId": call_id, "name": part.tool_name, "input": part.arguments}
        if "toolUse" in data.get("block", {}):
            call = {**data["block"]["toolUse"], "toolUseId": call_id}
        elif is_provider_call:
            call["type"] = SERVER_TOOL
        call = {**data.get("toolUse", {}), **call}
        result = [{"toolResult": {**data["toolResult"], "toolUseId": call_id}}] if "toolResult" in data else []
        return [{"toolUse": call}, *result]

    def _result(self, part: ToolResult, data: Json, where: str) -> Json:
        if "toolResult" in data.get("block", {}):
            return {"toolResult": {**data["block"]["toolResult"], "toolUseId": part.tool_call_id}}
        result: Json = {"toolUseId": part.tool_call_id, "content": self._result_content(part, where)}
        if part.is_error:  # "success" is the default, and not all models accept the field
            result["status"] = "error"
        return {"toolResult": result}

    def _result_content(self, part: ToolResult, where: str) -> list[Json]:
        blocks: list[Json]
        match part.content:
            case str():
                blocks = [{"text": part.content}] if part.content.strip() else []
            case dict():
                blocks = [{"json": part.content}]
            case tuple():
                pieces = enumerate(part.content)
                content_blocks = [
                    block for index, piece in pieces for block in self.blocks(piece, f"{where}.content[{index}]")
                ]
                blocks = [block for block in content_blocks if next(iter(block)) in _RESULT_BLOCKS]
                moved = [block for block in content_blocks if next(iter(block)) not in _RESULT_BLOCKS]
                if any("cachePoint" not in block for block in moved):
                    self._losses.moved_media(where)
                self._after_results += moved
            case _:
                assert_never(part.content)
        return blocks or [{"text": NO_OUTPUT}]

    # -- media

    def _media(self, part: Image | FileRef, where: str) -> Json:
        mime_type = media_type(part)
        kind = _MEDIA.get(mime_type) or (("document", "txt") if mime_type.startswith("text/") else None)
        source: Json | None = None
        if part.data:
            source = {"bytes": b64encode(part.data).decode()}
        elif part.url is not None and part.url.startswith("s3://"):
            source = {"s3Location": {"uri": part.url}}
        if kind is None or source is None:
            why = "Converse accepts a few types of media and documents, inline or from S3"
            return {"text": placeholder(part, where, why, self._losses)}
        name, media_format = kind
        named_as = {"name": self._document_name(getattr(part, "path", ""))} if name == "document" else {}
        return {name: {**named_as, "format": media_format, "source": source}}

    def _document_name(self, path: str) -> str:
        """A unique name of the characters that Converse accepts, as close to the file's own as possible."""
        stem = _NOT_IN_NAMES.sub(" ", PurePosixPath(path).stem)
        base = " ".join(stem.split())[:190].strip() or "document"
        name, number = base, 1
        while name in self._document_names:
            number += 1
            name = f"{base} ({number})"
        self._document_names.add(name)
        return name


def _why_not_sent(call: ToolCall, is_same_family: bool) -> str:
    """The reason why a call that a provider executed is left out."""
    if not is_same_family:
        return "a model of another family executed it"
    if call.continuation is None and call.result is not None and isinstance(call.result.content, tuple):
        return "only the user may send images"  # API reference: Message
    return "another provider executed it"


def _text(text: str, data: Json) -> list[Json]:
    if "citations" in data:
        return [{"citationsContent": {"content": [{"text": text}], "citations": data["citations"]}}]
    return [{"text": text}] if text.strip() else []  # blank text is refused


def read_media(block: Json, path: str) -> Image | FileRef:
    """The image or file of a media block, as far as a part can represent it."""
    [(kind, value)] = block.items()
    media = object_at(value, f"{path}.{kind}")
    mime_type = _TYPES.get((kind, str(media.get("format"))))
    source = object_at(media.get("source"), f"{path}.{kind}.source")
    data = bytes_at(source["bytes"], f"{path}.{kind}.source.bytes") if "bytes" in source else None
    url = None
    if "s3Location" in source:
        location = f"{path}.{kind}.source.s3Location"
        url = text_at(object_at(source["s3Location"], location).get("uri"), f"{location}.uri")
    if kind == "image" and mime_type is not None and (data is None) != (url is None):
        return Image(mime_type, data=data, url=url)
    return FileRef(str(media.get("name") or kind), mime_type=mime_type, data=data, url=url if data is None else None)
