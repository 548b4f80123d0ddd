"""Why a provider would reject a request body: an independent check of the encoders.

In: a format and a body as it is sent. Out: `faults`, each with its path; empty for a body that is accepted. The rules
come from the providers' references and from known error messages. Every recorded request that was accepted has no
faults, which reveals rules that are too strict. Nothing from Bartack is imported, so the check is independent of it.

`model` is the model if the body does not name it, `provider` the vendor if several use the format. Vendors of Chat
Completions that accept more than OpenAI are in `LENIENT`; without a provider, OpenAI's own rules apply.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.formats.validity import bedrock, claude, gemini, openai, small

Json = dict[str, Any]

_CHECKS: dict[str, Callable[[Json, str, str], Iterator[str]]] = {
    "anthropic-messages": lambda body, model, provider: claude.faults(body, model),
    "bedrock-converse": lambda body, model, provider: bedrock.converse_faults(body, model),
    "bedrock-invoke": lambda body, model, provider: bedrock.invoke_faults(body, model),
    "cohere-v2": lambda body, model, provider: small.cohere_faults(body),
    "gemini-generate": lambda body, model, provider: gemini.generate_faults(body, model),
    "gemini-interactions": lambda body, model, provider: gemini.interactions_faults(body),
    "ollama-chat": lambda body, model, provider: small.ollama_faults(body),
    "openai-chat": lambda body, model, provider: openai.chat_faults(body, provider),
    "openai-responses": lambda body, model, provider: openai.responses_faults(body, provider),
}


def faults(format: str, body: Json, *, model: str = "", provider: str = "") -> list[str]:
    """All reasons for which the provider would reject this body."""
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError) as error:  # lone surrogates are a ValueError
        return [f"the body is not JSON: {error}"]
    return list(_CHECKS[format](body, model or str(body.get("model", "")), provider))
