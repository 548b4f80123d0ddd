"""Which model answers when nobody names one: the vendor whose key is in the environment, else the local model.

The vendors are asked in this order. Each has one model here, a capable one of its middle class. Such a row ages; the
command line takes another model with ``--model``, ``BARTACK_MODEL`` or its configuration file.
"""

import os
from typing import NamedTuple

from bartack.models.vendors import VENDORS

__all__ = ["MODELS", "DefaultModel", "default_model"]

MODELS = {
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5.5",
    "google": "gemini-3.5-flash",
    "mistral": "mistral-medium-latest",
    "xai": "grok-4.3",
    "deepseek": "deepseek-v4-flash",
    "groq": "openai/gpt-oss-120b",
    "openrouter": "anthropic/claude-sonnet-4.6",
    "cohere": "command-a-03-2025",
    "cerebras": "gpt-oss-120b",
    "perplexity": "sonar-pro",
    "zai": "glm-4.6",
    "together": "Qwen/Qwen3.7-Plus",
    "fireworks": "accounts/fireworks/models/gpt-oss-120b",
    "huggingface": "openai/gpt-oss-120b",
}


class DefaultModel(NamedTuple):
    """A name for `bartack.connect`, and why it is this one."""

    name: str
    reason: str


def default_model() -> DefaultModel:
    """The model of the first vendor whose key is set; without any key the local model."""
    for vendor, model_id in MODELS.items():
        for variable in VENDORS[vendor].key_names:
            if os.environ.get(variable, "").strip():
                return DefaultModel(f"{vendor}:{model_id}", f"{variable} is set")
    return DefaultModel("local", "no API key is set")
