"""The chunks of a Chat Completions stream as typed values, and what their odd corners mean.

In: JSON as OpenAI and everyone who speaks like it sends it. Every field may be missing or null; fields nobody reads are
not here. What vendors shape differently (`usage`, `error`, `content`) is taken as it comes and sorted out below.
"""

import json
from typing import Any

from msgspec import Struct

from bartack.formats.emitter import amount, token_count
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.json_values import json_text

__all__ = [
    "FAILED_FINISHES",
    "FINISH_REASONS",
    "CallPiece",
    "ChatChoice",
    "ChatChunk",
    "ChatDelta",
    "Fault",
    "fault_in",
    "usage_in",
]


class FunctionPiece(Struct, gc=False):
    name: str | None = None
    arguments: Any = None  # text; an object from servers that pass on what their model's template parsed


class CustomPiece(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class CallPiece(Struct, gc=False):
    index: int | None = None  # Mistral sends none; some servers send 0 for every call
    id: str | None = None
    function: FunctionPiece | None = None
    custom: CustomPiece | None = None
    extra_content: Any = None  # Gemini's thought signatures


class ChatDelta(Struct, gc=False):
    content: str | list[Any] | None = None  # a list of typed pieces from Mistral
    reasoning_content: str | None = None  # DeepSeek, xAI, Z.ai, Alibaba, llama.cpp
    reasoning: str | None = None  # OpenRouter, Groq, Cerebras, vLLM, Ollama
    reasoning_details: list[Any] | None = None  # OpenRouter, Snowflake
    tool_calls: list[CallPiece] | None = None
    refusal: str | None = None
    function_call: FunctionPiece | None = None  # OpenAI before tool_calls
    executed_tools: list[Any] | None = None  # Groq's own tools
    annotations: list[Any] | None = None
    images: list[Any] | None = None  # OpenRouter
    audio: Any = None


class ChatChoice(Struct, gc=False):
    index: int | None = None
    delta: ChatDelta | None = None
    finish_reason: str | None = None
    error: Any = None
    message: Any = None  # of an answer that was not streamed; repeated beside the delta by some


class ChatChunk(Struct, gc=False):
    id: str | int | None = None
    model: str | None = None
    object: str | None = None
    choices: list[ChatChoice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None
    citations: Any = None  # Perplexity
    search_results: Any = None


# -- how it ended

# OpenAI's words, then those of Together and TGI, Mistral, Z.ai, and of gateways that pass on Anthropic's or Google's.
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

# Words that say that the answer broke off through no fault of the model: OpenRouter and Mistral, Z.ai, DeepSeek, vLLM.
FAILED_FINISHES = frozenset({"error", "network_error", "insufficient_system_resource", "abort"})


# -- what it cost


def usage_in(raw: Any) -> Usage | None:
    """The tokens of a `usage` object, or None if it counts nothing."""
    if not isinstance(raw, dict):
        return None
    sent, made = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
    if sent is None and made is None:
        return None
    sent, made = sent or 0, made or 0
    into = raw.get("prompt_tokens_details") or raw.get("prompt_token_details")  # Mistral knows both spellings
    reasoning = _count(raw.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(raw, "reasoning_tokens")
    total = _count(raw, "total_tokens")
    if reasoning and total == sent + made + reasoning:
        made += reasoning  # xAI counts reasoning beside the completion; only its total gives that away
    cached = _count(into, "cached_tokens")
    if cached is None:  # DeepSeek, Mistral, Together
        cached = _count(raw, "prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens")
    return Usage(
        sent,
        made,
        -1 if total is None else total,
        cache_read_tokens=cached,
        cache_write_tokens=_count(into, "cache_write_tokens"),
        reasoning_tokens=reasoning,
        cost=_cost(raw),
    )


def _count(holder: Any, *names: str) -> int | None:
    return token_count(*map(holder.get, names)) if isinstance(holder, dict) else None


def _cost(raw: dict[str, Any]) -> float | None:
    """US dollars: OpenRouter says a number, Perplexity an object, xAI ten-billionths."""
    cost, ticks = raw.get("cost"), amount(raw.get("cost_in_usd_ticks"))
    if cost is None and ticks is not None:
        return ticks / 1e10
    return amount(cost.get("total_cost") if isinstance(cost, dict) else cost)


# -- what went wrong


class Fault(Struct, frozen=True):
    """A provider's refusal, in its own words."""

    message: str
    raw_code: str | None = None
    status: int | None = None


def fault_in(payload: bytes, event: str) -> Fault | None:
    """The refusal that a payload holds, or None.

    Seen: ``{"error": {"message", "code", "type", "status_code"?, "metadata"?}}``, ``{"error": "text"}``,
    ``{"object": "error", "message"}``, ``{"errors": [{"message", "code"}]}``, ``{"detail": "text"}``, and any of them,
    or plain text, as the SSE event "error". A payload with choices is an answer unless it has an `error` of its own.
    """
    try:
        whole = json.loads(payload)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict):
        return Fault(payload.decode("utf-8", "replace")) if event == "error" and payload.strip() else None
    choices, errors = whole.get("choices"), whole.get("errors")
    holders = [whole, *(choices if isinstance(choices, list) else ())]
    inner = next((one["error"] for one in holders if isinstance(one, dict) and one.get("error")), None)
    if inner is None and isinstance(errors, list) and errors:
        inner = errors[0]
    if inner is None and event != "error" and not _is_flat_fault(whole):
        return None
    told = inner if isinstance(inner, dict) else whole
    return Fault(_message(inner, told, payload), *_code_and_status(told))


def _is_flat_fault(whole: dict[str, Any]) -> bool:
    """Whether the payload itself is the error. A message alone is no proof: it may be a gateway's news."""
    if whole.get("object") == "error":
        return True
    coded = any(name in whole for name in ("code", "error_code", "status", "status_code"))
    told = (isinstance(whole.get("message"), str) and coded) or isinstance(whole.get("detail"), str)
    return told and "choices" not in whole


def _message(inner: Any, told: dict[str, Any], payload: bytes) -> str:
    if isinstance(inner, str):
        return inner
    message = told.get("message") or told.get("detail") or payload.decode("utf-8", "replace")
    message = message if isinstance(message, str) else json_text(message)
    metadata = told.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: what the one behind it said
    return f"{message}: {raw}" if isinstance(raw, str) and raw else message


def _code_and_status(told: dict[str, Any]) -> tuple[str | None, int | None]:
    word = told.get("code") or told.get("type") or told.get("error_code")
    said = [str(one) for one in (told.get("status_code"), told.get("status"), word)]
    status = next((int(one) for one in said if len(one) == 3 and one[0] in "45" and one.isdecimal()), None)
    return None if word is None else str(word), status
