"""The chunks of Gemini's streamGenerateContent as they stand on the wire, typed.

Every field may be missing or null. Enums are words on the Gemini API and may be numbers on Vertex AI. A function
call's arguments stay the text they came as; what goes back to Gemini as it came is kept as plain JSON.
"""

from typing import Any

import msgspec

__all__ = ["Call", "Candidate", "Chunk", "Content", "Counts", "Feedback", "Part"]


class Call(msgspec.Struct, gc=False):
    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    partialArgs: list[dict[str, Any]] | None = None
    willContinue: bool | None = None


class Part(msgspec.Struct, gc=False):
    text: str | None = None
    thought: bool | None = None
    thoughtSignature: str | None = None
    functionCall: Call | None = None
    executableCode: dict[str, Any] | None = None
    codeExecutionResult: dict[str, Any] | None = None
    toolCall: dict[str, Any] | None = None
    toolResponse: dict[str, Any] | None = None
    inlineData: dict[str, Any] | None = None
    fileData: dict[str, Any] | None = None


class Content(msgspec.Struct, gc=False):
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False):
    content: Content | None = None
    finishReason: str | int | None = None
    index: int | None = None
    groundingMetadata: dict[str, Any] | None = None
    citationMetadata: dict[str, Any] | None = None
    urlContextMetadata: dict[str, Any] | None = None


class Counts(msgspec.Struct, gc=False):
    promptTokenCount: int | None = None
    candidatesTokenCount: int | None = None
    thoughtsTokenCount: int | None = None
    toolUsePromptTokenCount: int | None = None
    cachedContentTokenCount: int | None = None


class Feedback(msgspec.Struct, gc=False):
    blockReason: str | int | None = None


class Chunk(msgspec.Struct, gc=False):
    candidates: list[Candidate] | None = None
    usageMetadata: Counts | None = None
    modelVersion: str | None = None
    responseId: str | None = None
    promptFeedback: Feedback | None = None
    error: Any = None
