"""The chunks of Gemini's streamGenerateContent as they stand on the wire, typed.

Every field may be missing or null. Enums are words on the Gemini API and may be numbers on Vertex AI. A function
call's arguments stay the text they came as; what goes back to Gemini as it came is kept as plain JSON.
"""

from typing import Any

import msgspec

__all__ = ["Call", "Candidate", "Chunk", "Content", "Counts", "Feedback", "Part"]


class Call(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: Call | None = None
    executable_code: dict[str, Any] | None = None
    code_execution_result: dict[str, Any] | None = None
    tool_call: dict[str, Any] | None = None
    tool_response: dict[str, Any] | None = None
    inline_data: dict[str, Any] | None = None
    file_data: dict[str, Any] | None = None


class Content(msgspec.Struct, gc=False, rename="camel"):
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: Content | None = None
    finish_reason: str | int | None = None
    index: int | None = None
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    url_context_metadata: dict[str, Any] | None = None


class Counts(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None


class Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | int | None = None


class Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: Counts | None = None
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: Feedback | None = None
    error: Any = None
