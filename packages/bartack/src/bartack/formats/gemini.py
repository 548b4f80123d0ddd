"""What the two Gemini formats share: thinking levels, accepted media, generated media, Google's errors."""

import re
from base64 import b64decode
from typing import Any

from bartack.formats.body_values import shown, text_of
from bartack.formats.emitter import Emitter
from bartack.formats.error_codes import classify
from bartack.formats.media import media_type
from bartack.formats.usage import token_count
from bartack.nouns.config import ThinkingConfig
from bartack.nouns.deltas import Usage
from bartack.nouns.parts import FileRef, Image

__all__ = [
    "LEVELS",
    "URL_SAFE",
    "gemini_generation",
    "gemini_usage",
    "generated_media",
    "is_accepted",
    "media_tool",
    "refuse",
    "thinking_budget",
    "thinking_level",
]

# -- thinking: Gemini 3 takes levels, Gemini 2.5 a token budget. Flash models can turn it off, pro models cannot
# (ai.google.dev/gemini-api/docs/thinking).

LEVELS = frozenset(("minimal", "low", "medium", "high"))  # Gemini's levels, which are also names of our efforts
# The budgets that Google's own compatibility layer uses for an effort (ai.google.dev/gemini-api/docs/openai).
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "max": 24576}
_MIN_BUDGET_OF_PRO = 128


def gemini_generation(model_id: str) -> int:
    """3 for ``gemini-3-pro`` and for names that always mean the newest model; 0 for other models."""
    number = re.search(r"gemini-(\d{1,3})", model_id)
    if number is not None:
        return int(number[1])
    return 3 if re.search(r"gemini-.*latest", model_id) else 0


def thinking_level(thinking: ThinkingConfig, model_id: str) -> str | None:
    """The level for this effort, or the one nearest to this budget."""
    effort: Any = thinking.effort
    if thinking.budget_tokens is not None:
        effort = next((word for word, budget in _BUDGETS.items() if thinking.budget_tokens <= budget), "high")
    if effort in ("none", "minimal"):
        return "low" if "pro" in model_id else "minimal"
    return "high" if effort == "max" else effort


def thinking_budget(thinking: ThinkingConfig, model_id: str) -> int | None:
    """The budget itself, or the one for this effort."""
    if thinking.budget_tokens is not None or thinking.effort is None:
        return thinking.budget_tokens
    return max(_BUDGETS[thinking.effort], _MIN_BUDGET_OF_PRO if "pro" in model_id else 0)


# -- media that Gemini reads: ai.google.dev/gemini-api/docs on images, audio, video and documents. Other types are
# refused as "Unsupported MIME type".

_ACCEPTED = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|(audio|video|text)/[^*]+"
    r"|application/(pdf|json|rtf|x-javascript|x-typescript|x-python-code)"
)


def is_accepted(part: Image | FileRef) -> bool:
    """Whether Gemini reads this type, inline or from its URL. The type behind a URL may be unknown."""
    kind = media_type(part)
    if part.data:
        return _ACCEPTED.fullmatch(kind) is not None
    is_readable = not kind or kind.endswith("/*") or _ACCEPTED.fullmatch(kind) is not None
    return is_readable and (part.url or "").startswith(("https://", "http://", "gs://"))


# -- media that Gemini generates: the result of a call that the provider executed

URL_SAFE = str.maketrans("-_", "+/")  # Google's libraries write base64 in either alphabet


def media_tool(kind: str) -> str:
    """The tool name of the call: ``image_output`` for ``image/png`` or ``image``."""
    return f"{kind.partition('/')[0] or 'file'}_output"


def generated_media(mime_type: str, data: str, uri: str) -> Image | FileRef | None:
    """Media by their base64 data or their URI; None if there is neither, or the data is invalid."""
    content: dict[str, Any] = {"url": uri}
    if data or not uri:
        try:
            content = {"data": b64decode(data.translate(URL_SAFE) + "=" * (-len(data) % 4), validate=True)}
        except ValueError:
            return None
        if not data:
            return None
    if mime_type.startswith("image/"):
        return Image(mime_type, **content)
    return FileRef(media_tool(mime_type), mime_type=mime_type or None, **content)


# -- usage


def gemini_usage(
    prompt: int | None, tool_prompt: int | None, answer: int | None, thoughts: int | None, cached: int | None
) -> Usage:
    """The usage in our terms: Google counts thoughts, and the prompts of its own tools, separately."""
    reasoning = token_count(thoughts)
    return Usage(
        (token_count(prompt) or 0) + (token_count(tool_prompt) or 0),
        (token_count(answer) or 0) + (reasoning or 0),
        cache_read_tokens=token_count(cached),
        reasoning_tokens=reasoning,
    )


# -- errors

_SECONDS = re.compile(r"(\d{1,9}(?:\.\d+)?)s")


def refuse(out: Emitter, error: Any) -> None:
    """End the stream with an error of Google's: ``{code, status, message, details}``, or some of these."""
    if not isinstance(error, dict):
        out.refused(shown(error))
        return
    code = error.get("code")
    status = code if isinstance(code, int) and code >= 400 else None
    word = text_of(error, "status") or (code if isinstance(code, str) else "").rpartition("/")[2]
    message = text_of(error, "message") or word or "the provider gave no reason"
    out.fail(
        classify(status, word, message),
        message,
        status=status,
        retry_after_ms=_retry_after_ms(error.get("details")),
        raw_code=word or None,
    )


def _retry_after_ms(details: Any) -> int | None:
    """The delay of a google.rpc.RetryInfo: ``{"retryDelay": "34.07s"}``."""
    for detail in details if isinstance(details, list) else []:
        delay = _SECONDS.fullmatch(text_of(detail, "retryDelay")) if isinstance(detail, dict) else None
        if delay is not None:
            return round(float(delay[1]) * 1000)
    return None
