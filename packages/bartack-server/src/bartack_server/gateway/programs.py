"""The settings with which other programs use the gateway, as their own documentation describes them.

`default` is a name like any other: the gateway sends it to the model of ``--to``.
"""

import json
import shlex
from collections.abc import Callable, Mapping

__all__ = ["PROGRAMS", "settings_for"]


def settings_for(program: str, *, url: str, key: str, model: str) -> str:
    """Lines for a shell, or for the settings file that the first line names."""
    return PROGRAMS[program](url, key, model)


def _exports(**variables: str) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _claude(url: str, key: str, model: str) -> str:
    """Experimental features are off: other models do not know them, and they cost tokens."""
    roles = ("OPUS", "SONNET", "HAIKU")
    return _exports(
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_AUTH_TOKEN=key,
        ANTHROPIC_MODEL=model,
        **{f"ANTHROPIC_DEFAULT_{role}_MODEL": model for role in roles},
        CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS="1",
    )


def _codex(url: str, key: str, model: str) -> str:
    table = (
        "# In ~/.codex/config.toml:",
        f"model = {json.dumps(model)}",
        'model_provider = "bartack"',
        "",
        "[model_providers.bartack]",
        'name = "Bartack"',
        f"base_url = {json.dumps(f'{url}/v1')}",
        'env_key = "BARTACK_GATEWAY_KEY"',
        'wire_api = "responses"',
        "",
        f"# In the shell: export BARTACK_GATEWAY_KEY={shlex.quote(key)}",
    )
    return "\n".join(table)


def _gemini(url: str, key: str, model: str) -> str:
    return _exports(GOOGLE_GEMINI_BASE_URL=url, GEMINI_API_KEY=key, GEMINI_MODEL=model)


def _qwen(url: str, key: str, model: str) -> str:
    return _exports(OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY=key, OPENAI_MODEL=model)


def _opencode(url: str, key: str, model: str) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Bartack",
        "options": {"baseURL": f"{url}/v1", "apiKey": key},
        "models": {model: {}},
    }
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"bartack": provider},
        "model": f"bartack/{model}",
    }
    return f"// In opencode.json:\n{json.dumps(settings, indent=2)}"


def _pi(url: str, key: str, model: str) -> str:
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": key,
        "models": [
            {"id": model, "name": model, "input": ["text", "image"], "contextWindow": 200000, "maxTokens": 32000}
        ],
    }
    return f"// In ~/.pi/agent/models.json:\n{json.dumps({'providers': {'bartack': provider}}, indent=2)}"


PROGRAMS: Mapping[str, Callable[[str, str, str], str]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "qwen": _qwen,
    "pi": _pi,
}
