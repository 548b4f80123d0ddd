"""The settings with which other programs use the gateway, as their own documentation describes them.

They can be printed, as lines for a shell or a part of a settings file, or written to the settings file of the program,
whose other settings are left as they are. `default` is a model name like any other: the gateway sends it to the model
of ``--to``.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bartack.nouns.errors import ConfigError
from bartack.store.files import make_folder, write_file

__all__ = ["PROGRAMS", "ProgramSettings", "settings_for", "write_settings"]


class ProgramSettings(NamedTuple):
    """The settings of one program."""

    path: str  # its settings file, in the home of the user
    text: str  # to print
    merged: Callable[[str], str]  # the settings file with them, from the one without


def settings_for(program: str, *, url: str, key: str, model: str) -> ProgramSettings:
    """The settings of a program for the gateway at this URL."""
    return PROGRAMS[program](url, key, model)


def write_settings(settings: ProgramSettings, home: Path) -> Path:
    """Add the settings to those of the program; returns the path of the file.

    Raises `ConfigError` if the file cannot be read or written.
    """
    path = home / settings.path
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        make_folder(path.parent)
        write_file(path, settings.merged(text).encode())  # for the owner only: it contains the key
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be changed: {error}. Add the settings by hand.") from error
    return path


def _exports(variables: Mapping[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


# -- settings files


def _merged_json(addition: Mapping[str, Any], text: str) -> str:
    """Raises `ValueError` for a file that is not a JSON object, or has comments."""
    settings = json.loads(text) if text.strip() else {}
    if not isinstance(settings, dict):
        raise ValueError("it is not a JSON object")
    return json.dumps(_merged(settings, addition), indent=2) + "\n"


def _merged(settings: Mapping[str, Any], addition: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(settings)
    for name, value in addition.items():
        own = merged.get(name)
        merged[name] = _merged(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
    return merged


def _merged_variables(variables: Mapping[str, str], text: str) -> str:
    names = tuple(f"{name}=" for name in variables)
    lines = [line for line in text.splitlines() if not line.strip().removeprefix("export ").startswith(names)]
    return "\n".join([*lines, *(f"{name}={json.dumps(value)}" for name, value in variables.items())]) + "\n"


def _merged_toml(values: Mapping[str, str], table: str, table_lines: tuple[str, ...], text: str) -> str:
    """Values at the top and a table at the end. Nothing else of the file changes, comments included."""
    lines, header = [], ""
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            header = line.strip()
        is_old_value = not header and line.partition("=")[0].strip() in values
        if header != table and not is_old_value:
            lines.append(line)
    top = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([*top, *lines, "", table, *table_lines]) + "\n"


# -- programs


def _claude(url: str, key: str, model: str) -> ProgramSettings:
    """Experimental features are off: other models do not know them, and they cost tokens."""
    variables = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": key,
        "ANTHROPIC_MODEL": model,
        **{f"ANTHROPIC_DEFAULT_{role}_MODEL": model for role in ("OPUS", "SONNET", "HAIKU", "FABLE")},
        "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
    }
    return ProgramSettings(".claude/settings.json", _exports(variables), partial(_merged_json, {"env": variables}))


def _codex(url: str, key: str, model: str) -> ProgramSettings:
    values = {"model": model, "model_provider": "bartack"}
    table = "[model_providers.bartack]"
    lines = (
        'name = "Bartack"',
        f"base_url = {json.dumps(f'{url}/v1')}",
        'env_key = "BARTACK_GATEWAY_KEY"',
        'wire_api = "responses"',
    )
    top = "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    text = f"# In ~/.codex/config.toml:\n{top}\n\n{table}\n" + "\n".join(lines)
    text += f"\n\n# In the shell: export BARTACK_GATEWAY_KEY={shlex.quote(key)}"
    return ProgramSettings(".codex/config.toml", text, partial(_merged_toml, values, table, lines))


def _gemini(url: str, key: str, model: str) -> ProgramSettings:
    variables = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": key, "GEMINI_MODEL": model}
    return ProgramSettings(".gemini/.env", _exports(variables), partial(_merged_variables, variables))


def _qwen(url: str, key: str, model: str) -> ProgramSettings:
    variables = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key, "OPENAI_MODEL": model}
    return ProgramSettings(".qwen/.env", _exports(variables), partial(_merged_variables, variables))


def _opencode(url: str, key: str, model: str) -> ProgramSettings:
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
    text = f"// In ~/.config/opencode/opencode.json:\n{json.dumps(settings, indent=2)}"
    return ProgramSettings(".config/opencode/opencode.json", text, partial(_merged_json, settings))


def _pi(url: str, key: str, model: str) -> ProgramSettings:
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": key,
        "models": [
            {"id": model, "name": model, "input": ["text", "image"], "contextWindow": 200000, "maxTokens": 32000}
        ],
    }
    settings = {"providers": {"bartack": provider}}
    text = f"// In ~/.pi/agent/models.json:\n{json.dumps(settings, indent=2)}"
    return ProgramSettings(".pi/agent/models.json", text, partial(_merged_json, settings))


PROGRAMS: Mapping[str, Callable[[str, str, str], ProgramSettings]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "qwen": _qwen,
    "pi": _pi,
}
