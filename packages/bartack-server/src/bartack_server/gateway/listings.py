"""The lists of models, in the shape that each client expects."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

__all__ = ["gemini_model", "gemini_models", "model_object", "models_list", "ollama_tags"]

_SINCE = datetime(2025, 1, 1, tzinfo=UTC)  # clients require a date; a name has none


def model_object(name: str) -> dict[str, Any]:
    """A model with the fields of OpenAI and of Anthropic; neither's clients mind those of the other."""
    return {
        "id": name,
        "object": "model",
        "created": int(_SINCE.timestamp()),
        "owned_by": "bartack",
        "type": "model",
        "display_name": name,
        "created_at": _SINCE.isoformat().replace("+00:00", "Z"),
    }


def models_list(names: Iterable[str]) -> dict[str, Any]:
    """The list for clients of OpenAI and Anthropic."""
    models = [model_object(name) for name in names]
    ids = [model["id"] for model in models]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return {"object": "list", "data": models, "has_more": False, "first_id": first, "last_id": last}


def gemini_models(names: Iterable[str]) -> dict[str, Any]:
    """The list for clients of Google."""
    return {"models": [gemini_model(name) for name in names]}


def gemini_model(name: str) -> dict[str, Any]:
    """A model for clients of Google."""
    methods = ["generateContent", "streamGenerateContent", "countTokens"]
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}


def ollama_tags(names: Iterable[str]) -> dict[str, Any]:
    """The list for clients of Ollama, which treat a model without a digest as broken."""
    return {
        "models": [
            {
                "name": name,
                "model": name,
                "modified_at": _SINCE.isoformat(),
                "size": 0,
                "digest": "",
                "details": {"format": "", "family": "", "families": [], "parameter_size": "", "quantization_level": ""},
            }
            for name in names
        ]
    }
