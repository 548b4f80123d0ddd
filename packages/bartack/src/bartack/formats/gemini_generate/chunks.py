"""The chunks of Gemini's streamGenerateContent as typed structs, and the parts of their meaning that need only one.

Every field may be missing or null. Enums are words on the Gemini API and may be numbers on Vertex AI (not recorded).
The arguments of a function call are kept as text; what is sent back to Gemini unchanged is kept as plain JSON.
"""

from typing import Any, TypedDict

import msgspec

from bartack.formats.body_values import text_of
from bartack.formats.decoder import UNREADABLE
from bartack.formats.gemini import gemini_usage
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.parts import ToolContent

__all__ = [
    "CALL_FIELDS",
    "CALL_RESULTS",
    "FINISH",
    "TEXT_METADATA",
    "UNSPECIFIED",
    "Candidate",
    "Chunk",
    "FunctionCall",
    "GeminiContinuation",
    "GeminiCounts",
    "Part",
    "is_failure",
    "readable_result",
    "unknown_fields",
    "usage_of",
]

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
UNSPECIFIED = frozenset(
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


class FunctionCall(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


CALL_FIELDS = frozenset(FunctionCall.__struct_encode_fields__)


class Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
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
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | int | None = None
    index: int | None = None
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    url_context_metadata: dict[str, Any] | None = None


class GeminiCounts(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | int | None = None


class Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: GeminiCounts | None = None
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


def unknown_fields(data: bytes, candidate: int, part: int) -> dict[str, Any]:
    """The fields of a part that `Part` does not declare, and under ``functionCall`` those that a call does not.

    Only these are decoded: arguments of a call may be nested more deeply than can be read here. What is not UTF-8 could
    not be stored, and is left out.
    """
    try:
        content = _RAW_CHUNK.decode(data).candidates[candidate].content
        assert content is not None  # it has this part
        assert content.parts is not None
        whole = content.parts[part]
        call = _RAW_FIELDS.decode(whole.get("functionCall") or b"{}")
        beyond = {name: value for name, value in call.items() if name not in CALL_FIELDS}
        return {
            **{
                name: msgspec.json.decode(value)
                for name, value in whole.items()
                if name not in Part.__struct_encode_fields__
            },
            **(
                {"functionCall": {name: msgspec.json.decode(value) for name, value in beyond.items()}} if beyond else {}
            ),
        }
    except UNREADABLE:
        return {}


def usage_of(counts: GeminiCounts) -> Usage:
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
