"""Gemini's streamGenerateContent to deltas: SSE with ``alt=sse``, one JSON array without it. Vertex AI sends the same.

Each chunk holds some parts of the answer. A `finishReason` or a blocked prompt is the terminal signal. Early models
sent a `finishReason` with every chunk (not recorded), so reading continues after it and `done` waits for the end of
the bytes.

How Gemini's parts become ours (the cases named here are in recordings/gemini-generate):
- Text is joined with the text before it, thoughts with thoughts. A part with a `thoughtSignature` stays separate even
  if its text is empty (pydantic-ai--test_code_execution-test_code_execution_stream--0-011c67): Gemini requires each
  signature back on exactly the part it came with (ai.google.dev/gemini-api/docs/thought-signatures).
- `functionCall` is a call for the client, whole or streamed over several parts (`streamed_arguments`).
- `executableCode` and `toolCall` are executed by Google. They stay open until a `codeExecutionResult` or `toolResponse`
  arrives; both parts are kept whole, since both have to be sent back.
- `inlineData` and `fileData` are generated media: a call executed by the provider whose result is the image or file.
- Grounding and citations refer to the text: they are continuation data of the last text part.
- A part of an unknown kind is an empty text that carries it.

Every field of a chunk may be missing or null. Enums are words on the Gemini API and may be numbers on Vertex AI (not
recorded). The arguments of a function call are kept as text; what is sent back to Gemini unchanged is kept as plain
JSON.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypedDict

import msgspec

from bartack.formats.body_values import beyond, present, text_of
from bartack.formats.decoder import UNREADABLE, Decoder
from bartack.formats.framing import Frame
from bartack.formats.gemini import gemini_usage, generated_media, media_tool, refuse
from bartack.formats.gemini_generate.streamed_arguments import OutOfOrder, StreamedArguments
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import ToolContent

__all__ = [
    "CALL_FIELDS",
    "CALL_RESULTS",
    "FINISH",
    "TEXT_METADATA",
    "GeminiContinuation",
    "GeminiGenerate",
    "is_failure",
    "readable_result",
]

# -- the chunks


# Metadata of an answer that refer to its text. No request has a place for them.
TEXT_METADATA = {
    "groundingMetadata": "grounding_metadata",
    "citationMetadata": "citation_metadata",
    "urlContextMetadata": "url_context_metadata",
}

# The calls that Google executes, and their results.
CALL_RESULTS = {"executableCode": "codeExecutionResult", "toolCall": "toolResponse"}

# ai.google.dev/api/generate-content#FinishReason. Only these numbers mean the same on the Gemini API and on Vertex AI.
FINISH: dict[str | int, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    1: "stop",
    2: "length",
    3: "content_filter",
    4: "content_filter",
}
_UNSPECIFIED = frozenset(
    (None, 0, "", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED")
)


class GeminiContinuation(TypedDict, total=False):
    """What a part keeps beside the fields of Google's part: the decoder and the reader write it, the encoder reads it.

    The fields that our part has no place for (thoughtSignature, mediaResolution, groundingMetadata, ...) are kept under
    Google's names. ``thought`` is one of them: it marks thoughts as Gemini's own, which it accepts back.
    """

    id: str  # the id that Gemini gave to a call
    name: str
    part: dict[str, Any]  # a call that Google executed, whole; generated media without data; a part of an unknown kind
    resultPart: dict[str, Any]  # the result of such a call, whole
    beside: bool  # marks media that a client sent after the response to a call, not inside it
    inlineData: dict[str, Any]
    fileData: dict[str, Any]


class _FunctionCall(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


CALL_FIELDS = frozenset(_FunctionCall.__struct_encode_fields__)


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None
    executable_code: dict[str, Any] | None = None
    code_execution_result: dict[str, Any] | None = None
    tool_call: dict[str, Any] | None = None
    tool_response: dict[str, Any] | None = None
    inline_data: dict[str, Any] | None = None
    file_data: dict[str, Any] | None = None
    # Fields beside the content.
    part_metadata: Any = None
    media_resolution: Any = None
    video_metadata: Any = None


class _Content(msgspec.Struct, gc=False, rename="camel"):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | int | None = None
    index: int | None = None
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    url_context_metadata: dict[str, Any] | None = None


class _GeminiCounts(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | int | None = None


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _GeminiCounts | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


class _RawContent(msgspec.Struct):
    parts: list[dict[str, msgspec.Raw]] | None = None


class _RawCandidate(msgspec.Struct):
    content: _RawContent | None = None


class _RawChunk(msgspec.Struct):
    candidates: list[_RawCandidate]


_RAW_CHUNK = msgspec.json.Decoder(_RawChunk)
_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _unknown_fields(data: bytes, candidate: int, part: int) -> dict[str, Any]:
    """The fields of a part that `Part` does not declare, and under ``functionCall`` those that a call does not.

    Only these are decoded: arguments of a call may be nested more deeply than can be read here. What is not UTF-8 could
    not be stored, and is left out.
    """
    try:
        content = _RAW_CHUNK.decode(data).candidates[candidate].content
        assert content is not None  # it has this part
        assert content.parts is not None
        whole = content.parts[part]
        call = beyond(_RAW_FIELDS.decode(whole.get("functionCall") or b"{}"), *CALL_FIELDS)
        undeclared = beyond(whole, *_Part.__struct_encode_fields__)
        fields = {name: msgspec.json.decode(value) for name, value in undeclared.items()}
        if call:
            fields["functionCall"] = {name: msgspec.json.decode(value) for name, value in call.items()}
        return fields
    except UNREADABLE:
        return {}


def _usage_of(counts: _GeminiCounts) -> Usage:
    return gemini_usage(
        counts.prompt_token_count,
        counts.tool_use_prompt_token_count,
        counts.candidates_token_count,
        counts.thoughts_token_count,
        counts.cached_content_token_count,
    )


def readable_result(value: dict[str, Any]) -> ToolContent:
    """The content of a `codeExecutionResult` or `toolResponse`."""
    response = value.get("response")
    return response if isinstance(response, dict) else text_of(value, "output")


def is_failure(kind: str, value: dict[str, Any]) -> bool:
    """Whether the result of a call that Google executed is an error."""
    return kind == "codeExecutionResult" and value.get("outcome") not in ("OUTCOME_OK", 1)


# -- the decoder


_BESIDE_CONTENT = {
    "thoughtSignature": "thought_signature",
    "partMetadata": "part_metadata",
    "mediaResolution": "media_resolution",
    "videoMetadata": "video_metadata",
}
_FIELDS = {"text", "thought", *_BESIDE_CONTENT}
_CONTENT = (
    *("function_call", "executable_code", "code_execution_result", "tool_call", "tool_response"),
    *("inline_data", "file_data"),
)


class GeminiGenerate(Decoder):
    """Decodes chunks of `candidates`."""

    format: ClassVar[str] = "gemini-generate"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Chunk)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._kind = ""  # the current part: text, thinking or call
        self._sealed = False  # the current part has its signature, so that the next piece begins another
        self._calls = 0
        self._streamed: StreamedArguments | None = None  # the last call's arguments, if more may follow
        self._running: list[tuple[int, str, str]] = []  # provider calls without a result: key, kind, id
        self._text_metadata: dict[str, Any] = {}
        self._counts: _GeminiCounts | None = None

    def read(self, event: _Chunk, frame: Frame) -> None:
        out = self.out
        if not out.started:
            out.start(event.model_version, event.response_id)
        if event.candidates:
            for place, candidate in enumerate(event.candidates):
                if not candidate.index:  # the first of several alternative answers
                    self._read_candidate(candidate, place, frame)
        counts = event.usage_metadata
        if counts is not None and counts.prompt_token_count is not None:
            if self._counts is None:
                out.usage(_usage_of(counts))
            self._counts = counts
        if event.prompt_feedback is not None and event.prompt_feedback.block_reason not in _UNSPECIFIED:
            out.finish("content_filter", str(event.prompt_feedback.block_reason))
        if event.error is not None:
            self._emit_usage()
            refuse(out, event.error)

    def read_unparsed(self, frame: Frame) -> bool:
        # Some gateways send [DONE] (not verified). Nothing after the terminal signal invalidates the answer.
        return frame.data == b"[DONE]" or self.out.finish_reason is not None

    def read_end(self) -> None:
        self._emit_usage()
        reason = self.out.finish_reason
        if reason is None:
            self.truncated("a finishReason")
            return
        # Streamed arguments may lack their end and still be complete, but only with this reason. Recorded:
        # ai--google-stream-tool-call-array-arguments-missing-terminal-function-call--0-8fc68e.
        if reason == "stop":
            self._end_streamed()
        self._emit_text_metadata()
        self.out.done()

    def _emit_usage(self) -> None:
        # Every chunk has counts; the first and the last are emitted. With Google's own tools single counts decrease
        # (pydantic-ai--test_code_execution-test_code_execution_stream--0-011c67): the last ones hold as a whole.
        if self._counts is not None:
            self.out.usage(_usage_of(self._counts))

    def _read_candidate(self, candidate: _Candidate, place: int, frame: Frame) -> None:
        if candidate.grounding_metadata or candidate.citation_metadata or candidate.url_context_metadata:
            self._keep_text_metadata(candidate)
        content = candidate.content
        if content is not None and content.parts:
            for index, part in enumerate(content.parts):
                text = part.text
                if text is None:
                    is_known = any(getattr(part, field) is not None for field in _CONTENT)
                    whole = {} if is_known else self.plain_json(frame)["candidates"][place]["content"]["parts"][index]
                    if whole.keys() <= _FIELDS:
                        self._read_part(part, _unknown_fields(frame.data, place, index) if is_known else {})
                    else:
                        self._carry(whole)
                elif part.thought or part.thought_signature is not None or part.part_metadata is not None:
                    self._read_part(part)
                elif text:
                    self.out.text(text, new_part=self._sealed)
                    self._sealed = False
                    self._kind = "text"
        reason = candidate.finish_reason
        if reason is not None and reason not in _UNSPECIFIED:
            self.out.finish(FINISH.get(reason, "other"), str(reason))

    # -- text and thoughts

    def _read_part(self, part: _Part, unknown: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Read a part. `unknown` has the fields beside its content that `Part` does not declare."""
        beside = {name: getattr(part, field) for name, field in _BESIDE_CONTENT.items()}
        fields = {**present(**beside), **unknown}
        if fields and not self._pending.can_keep(fields):
            return
        if part.function_call is not None:
            self._read_call(part.function_call, fields)
        elif part.executable_code is not None:
            code = part.executable_code
            arguments = beyond(code, "id")
            self._open_provider_call("executableCode", code, fields, "code_execution", arguments)
        elif part.tool_call is not None:
            call = part.tool_call
            self._open_provider_call("toolCall", call, fields, text_of(call, "toolType"), call.get("args") or {})
        elif part.code_execution_result is not None:
            self._close_provider_call("executableCode", part.code_execution_result, fields)
        elif part.tool_response is not None:
            self._close_provider_call("toolCall", part.tool_response, fields)
        elif part.inline_data is not None:
            self._read_media("inlineData", part.inline_data, fields)
        elif part.file_data is not None:
            self._read_media("fileData", part.file_data, fields)
        else:
            self._emit(part.text or "", part.thought is True, fields)

    def _emit(self, text: str, is_thought: bool, fields: dict[str, Any]) -> None:
        if fields and not text and self._kind == "text":
            self._emit_text_metadata()
        if not fields and not text:
            return
        data = dict(fields)
        new_part = self._sealed or bool(fields)
        if is_thought:
            if new_part or self._kind != "thinking":
                data["thought"] = True
            self.out.thinking(text, new_part=new_part, continuation=data or None)
        else:
            self.out.text(text, new_part=new_part, continuation=data or None)
        self._kind = "thinking" if is_thought else "text"
        self._sealed = bool(fields)

    def _carry(self, part: dict[str, Any]) -> None:
        """Emit an empty text that keeps a part of an unknown kind at its position."""
        if part and self._pending.can_keep(part):
            self._end_streamed()
            self.out.text("", new_part=True, continuation={"part": part})
            self._kind, self._sealed = "text", True

    def _keep_text_metadata(self, candidate: _Candidate) -> None:
        for name, field in TEXT_METADATA.items():
            value = getattr(candidate, field)
            if value and self._pending.can_keep(value):
                self._text_metadata.setdefault(name, {}).update(value)

    def _emit_text_metadata(self) -> None:
        if self._text_metadata:
            self.out.text("", continuation=self._text_metadata)
            self._text_metadata = {}

    # -- client calls

    def _read_call(self, call: _FunctionCall, fields: dict[str, Any]) -> None:
        data = dict(fields)
        if call.name:
            self._end_streamed()
            self._open_call(call, data)
        streamed = self._streamed
        if streamed is None:
            return  # the end of a call that has already ended
        try:
            for piece in call.partial_args or ():
                if not self._pending.can_keep(piece):
                    return
                self.out.call_args(self._calls, streamed.write(piece))
        except OutOfOrder as error:
            self.out.fail(ErrorCode.STREAM_MALFORMED, f"Streamed arguments are out of order: {error}")
            return
        if not call.will_continue:
            self._end_streamed(None if call.name else data)

    def _open_call(self, call: _FunctionCall, data: dict[str, Any]) -> None:
        self._calls += 1
        self._kind = "call"
        self._sealed = False
        if call.id:
            data["id"] = call.id
        self.out.open_call(self._calls, call.name or "", provider_id=call.id, continuation=data or None)
        self._streamed = StreamedArguments()
        arguments = bytes(call.args)
        if arguments and arguments != b"null":
            try:
                self.out.call_args(self._calls, arguments.decode())
            except UnicodeDecodeError as error:  # raw JSON is not validated by the parser
                self.out.fail(ErrorCode.STREAM_MALFORMED, f"Arguments are not UTF-8: {error}")

    def _end_streamed(self, data: dict[str, Any] | None = None) -> None:
        if self._streamed is not None:
            self.out.call_args(self._calls, self._streamed.end())
            self.out.close_call(self._calls, continuation=data or None)
            self._streamed = None

    # -- provider calls

    def _open_provider_call(
        self, kind: str, value: dict[str, Any], fields: dict[str, Any], name: str, arguments: Any
    ) -> None:
        if not self._pending.can_keep(value):
            return
        self._begin_provider_call(name, text_of(value, "id"), {kind: value, **fields})
        self.out.call_args(self._calls, json_text(arguments))
        self._running.append((self._calls, kind, text_of(value, "id")))

    def _begin_provider_call(self, name: str, provider_id: str, part: dict[str, Any] | None) -> None:
        self._end_streamed()
        self._calls += 1
        self._kind = "call"
        self._sealed = False
        self.out.open_call(
            self._calls,
            name,
            provider_id=provider_id or None,
            executed_by="provider",
            continuation=None if part is None else {"part": part},
        )

    def _close_provider_call(self, call_kind: str, value: dict[str, Any], fields: dict[str, Any]) -> None:
        if not self._pending.can_keep(value):
            return
        call_id, kind = text_of(value, "id"), CALL_RESULTS[call_kind]
        matching = [running for running in self._running if running[1] == call_kind and call_id in ("", running[2])]
        if matching:
            self._running.remove(matching[0])
            key = matching[0][0]
        else:  # its call is in an earlier message
            self._begin_provider_call(text_of(value, "toolType") or "code_execution", call_id, None)
            key = self._calls
        data = {"resultPart": {kind: value, **fields}}
        result, is_error = readable_result(value), is_failure(kind, value)
        self.out.close_call(key, continuation=data, result=result, result_is_error=is_error)

    def _read_media(self, kind: str, value: dict[str, Any], fields: dict[str, Any]) -> None:
        mime_type = text_of(value, "mimeType")
        content = generated_media(mime_type, text_of(value, "data"), text_of(value, "fileUri"))
        if content is None:
            self.out.fail(ErrorCode.STREAM_MALFORMED, f"Invalid {kind} of type {mime_type!r}.")
            return
        described = beyond(value, "data")
        if self._pending.can_keep(described):
            self._begin_provider_call(media_tool(mime_type), "", {kind: described, **fields})
            self.out.close_call(self._calls, result=(content,))
