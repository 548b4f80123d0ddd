"""The chunks of a Chat Completions stream as typed structs, and the parts of their meaning that need only one chunk.

Any field may be missing or null; fields that are not read are not declared. Fields that vendors shape differently
(`usage`, `error`, `content`) are declared as `Any` and interpreted below. Case names are folders in recordings/.
"""

import json
from typing import Any, TypedDict

from msgspec import Struct

from bartack.formats.body_values import shown
from bartack.formats.usage import amount, token_count
from bartack.nouns.deltas import FinishReason, Usage

__all__ = [
    "FAILED_FINISHES",
    "FINISH_REASONS",
    "CallPiece",
    "ChatChoice",
    "ChatChunk",
    "ChatContinuation",
    "ChatDelta",
    "ReportedError",
    "error_in",
    "usage_in",
]


class ChatContinuation(TypedDict, total=False):
    """What a part keeps of its message: the decoder and the reader write it, the encoder and the writer read it.

    The last group is kept for the record only: no vendor accepts it back, which is reported as a loss.
    """

    field: str  # the field that the content came in, where the part does not imply it
    reasoning_details: list[Any]
    annotations: list[Any]
    audio: dict[str, Any]
    extra_content: Any  # Gemini's thought signatures
    type: str  # "custom" for a call of a custom tool

    # What a request that was read had beyond our nouns.
    message: dict[str, Any]  # fields of the message, on its first part
    chunk: dict[str, Any]  # fields of one piece of content
    call: dict[str, Any]  # fields of a call
    content: dict[str, Any]  # a whole piece of content that no part can represent
    thinking: Any  # the content of a thinking piece that is not a single text
    image_url: dict[str, Any]  # fields beside the URL
    file: dict[str, Any]  # a file that the provider stores

    citations: Any
    search_results: Any
    executed_tool: Any


class FunctionPiece(Struct, gc=False):
    name: str | None = None
    arguments: Any = None  # text; llama.cpp has sent an object (github.com/ggml-org/llama.cpp/issues/20198)


class CustomPiece(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class CallPiece(Struct, gc=False):
    # Mistral sends none (mistral-chat/openinference--test_instrumentor-test_synchronous_...-b157c9), Ollama has sent 0
    # for every call (github.com/ollama/ollama/issues/15457).
    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None
    custom: CustomPiece | None = None
    extra_content: Any = None  # Gemini's thought signatures (ai.google.dev/gemini-api/docs/thought-signatures)


class ChatDelta(Struct, gc=False):
    content: str | list[Any] | None = None  # a list of typed pieces from Mistral: mistral-chat/prism--...-131d10
    reasoning_content: str | None = None  # recorded from DeepSeek, xAI, Z.ai, Alibaba, Azure
    reasoning: str | None = None  # recorded from OpenRouter, Groq, Cerebras
    reasoning_details: list[Any] | None = None  # recorded from OpenRouter, Snowflake
    tool_calls: list[CallPiece] | None = None
    refusal: str | None = None
    function_call: FunctionPiece | None = None  # OpenAI's API before tool_calls
    executed_tools: list[Any] | None = None  # Groq's own tools: groq-chat/langchain--test_code_interpreter--0-2e4fe8
    annotations: list[Any] | None = None
    images: list[Any] | None = None  # OpenRouter; not recorded
    audio: Any = None
    # Gemini's signature of an answer without calls: openai-compat-chat-requests/pydantic-ai--*-without_id--1-4a06fd.
    extra_content: Any = None


class ChatChoice(Struct, gc=False):
    index: int | None = None
    delta: ChatDelta | None = None
    finish_reason: str | None = None
    error: Any = None
    # Of an answer that was not streamed. Writer and Perplexity repeat it beside the delta:
    # openai-compat-chat/openllmetry--test_chat-test_writer_...-3474b7.
    message: Any = None


class ChatChunk(Struct, gc=False):
    id: str | int | None = None
    model: str | None = None
    object: str | None = None
    choices: list[ChatChoice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None
    citations: Any = None  # Perplexity: perplexity-chat/ai--perplexity-citations--0-0c22a9
    search_results: Any = None


# -- finish reasons

# OpenAI's, then those of Together and TGI, Mistral, Z.ai, and of gateways that pass on Anthropic's or Google's. Only
# the first three are recorded; the others are from the vendors' API references.
FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "model_length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "sensitive": "content_filter",
    "safety": "content_filter",
    "refusal": "refusal",
}

# A server fault cut the answer off: Mistral, Z.ai, DeepSeek and vLLM, from their API references.
FAILED_FINISHES = frozenset({"error", "network_error", "insufficient_system_resource", "abort"})


# -- usage


def usage_in(raw: Any, *, reasoning_apart: bool = False) -> Usage | None:
    """The tokens of a `usage` object, or None if it has no counts.

    With `reasoning_apart`, `completion_tokens` does not include reasoning, as with some vendors. This is also assumed
    if the total is the sum of all three counts.
    """
    if not isinstance(raw, dict):
        return None
    input_tokens, output_tokens = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
    if input_tokens is None and output_tokens is None:
        return None
    input_tokens, output_tokens = input_tokens or 0, output_tokens or 0
    into = raw.get("prompt_tokens_details") or raw.get("prompt_token_details")  # Writer's spelling
    reasoning = _count(raw.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(raw, "reasoning_tokens")
    total = _count(raw, "total_tokens")
    if reasoning and (
        reasoning_apart or total == input_tokens + output_tokens + reasoning
    ):  # xAI: xai-chat/ai--xai-text--0-c3a10e
        output_tokens += reasoning
        total = None if total is None else max(total, input_tokens + output_tokens)
    cached = _count(into, "cached_tokens")
    if cached is None:  # DeepSeek, Mistral, Together
        cached = _count(raw, "prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens")
    return Usage(
        input_tokens,
        output_tokens,
        -1 if total is None else total,
        cache_read_tokens=cached,
        cache_write_tokens=_count(into, "cache_write_tokens"),
        reasoning_tokens=reasoning,
        cost=_cost(raw),
    )


def _count(holder: Any, *names: str) -> int | None:
    return token_count(*map(holder.get, names)) if isinstance(holder, dict) else None


def _cost(raw: dict[str, Any]) -> float | None:
    """US dollars: a number from OpenRouter, an object from Perplexity, ten-billionths from xAI.

    Azure sends Grok's ticks as 0, because it bills by other means (reported, not recorded): that is not a price.
    """
    cost, ticks = raw.get("cost"), amount(raw.get("cost_in_usd_ticks"))
    if cost is None and ticks:
        return ticks / 1e10
    return amount(cost.get("total_cost") if isinstance(cost, dict) else cost)


# -- errors


class ReportedError(Struct, frozen=True):
    """An error that the provider reported."""

    message: str
    raw_code: str | None = None
    status: int | None = None


def error_in(payload: bytes, event: str) -> ReportedError | None:
    """The error that a payload reports, or None.

    Known forms: ``{"error": {"message", "code", "type", "status_code"?, "metadata"?}}``, ``{"error": "text"}`` (xAI),
    ``{"object": "error", "message"}`` (Mistral), ``{"errors": [{"message", "code"}]}``,
    ``{"detail": "text"}``, and any of these or plain text as the SSE event "error" (Groq). A payload with choices is an
    answer unless it has an `error` of its own (OpenRouter).
    """
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return ReportedError(payload.decode("utf-8", "replace")) if event == "error" and payload.strip() else None
    choices, errors = body.get("choices"), body.get("errors")
    holders = [body, *(choices if isinstance(choices, list) else ())]
    inner = next((holder["error"] for holder in holders if isinstance(holder, dict) and holder.get("error")), None)
    if inner is None and isinstance(errors, list) and errors:
        inner = errors[0]
    if inner is None and event != "error" and not _is_error_body(body):
        return None
    error = inner if isinstance(inner, dict) else body
    return ReportedError(_message(inner, error, payload), *_code_and_status(error))


def _is_error_body(body: dict[str, Any]) -> bool:
    """Whether the payload itself is the error. A message alone is not enough: gateways send notices that way."""
    if body.get("object") == "error":
        return True
    has_code = any(name in body for name in ("code", "error_code", "status", "status_code"))
    has_text = (isinstance(body.get("message"), str) and has_code) or isinstance(body.get("detail"), str)
    return has_text and "choices" not in body


def _message(inner: Any, error: dict[str, Any], payload: bytes) -> str:
    if isinstance(inner, str):
        return inner
    message = error.get("message") or error.get("detail") or payload.decode("utf-8", "replace")
    message = shown(message)
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: the upstream provider's error
    return f"{message}: {raw}" if isinstance(raw, str) and raw else message


def _code_and_status(error: dict[str, Any]) -> tuple[str | None, int | None]:
    code = error.get("code") or error.get("type") or error.get("error_code")
    texts = [shown(value) for value in (error.get("status_code"), error.get("status"), code)]
    status = next((int(text) for text in texts if len(text) == 3 and text[0] in "45" and text.isdecimal()), None)
    return None if code is None else shown(code), status
