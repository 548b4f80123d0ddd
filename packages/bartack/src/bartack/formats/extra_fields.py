"""Fields that a single format has: `extra` of a request's settings and tools.

A reader labels what it cannot translate with the name of its format: ``{"openai-chat": {"logit_bias": ...}}``. An
encoder writes the fields under its own name, and reports those of other formats as losses, so that no provider receives
a field that another one defined. Fields of the settings that have no label are the caller's own, for whichever model it
asks (``connect("anthropic:...", top_k=5)``). They are written as they are, and replace labelled ones.
"""

from collections.abc import Mapping
from typing import Any

from bartack.formats.losses import Losses
from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import ConfigError, PartValidationError
from bartack.nouns.requests import ModelRequest

__all__ = ["DECLARATION", "FORMATS", "labelled", "own_extra", "own_fields", "with_extra"]

# The field of a tool with its declaration, in a form that only its format has. Others declare the tool as a function.
DECLARATION = "declaration"
FORMATS = (
    "anthropic-messages",
    "openai-chat",
    "openai-responses",
    "gemini-generate",
    "gemini-interactions",
    "bedrock-converse",
    "bedrock-invoke",
    "cohere-v2",
    "ollama-chat",
)


def labelled(format: str, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `extra` of settings or a tool for fields that only this format has."""
    return {format: dict(fields)} if fields else None


def own_extra(request: ModelRequest, format: str, losses: Losses) -> dict[str, Any]:
    """The extra settings to write in this format; those of other formats, also of tools, are added to `losses`."""
    for index, spec in enumerate(request.tools):
        _add_foreign(spec.extra or {}, f"tools[{index}].extra", format, losses)
    extra = request.config.extra or {}
    _add_foreign(extra, "config.extra", format, losses)
    return {**_fields(extra, format), **{name: value for name, value in extra.items() if name not in FORMATS}}


def own_fields(spec: ToolSpec, format: str) -> dict[str, Any]:
    """The fields of a tool that only this format has."""
    return {name: value for name, value in _fields(spec.extra or {}, format).items() if name != DECLARATION}


def _add_foreign(extra: Mapping[str, Any], where: str, format: str, losses: Losses) -> None:
    for label in extra:
        if label in FORMATS and label != format:
            for name, value in _fields(extra, label).items():
                if name != DECLARATION and value not in (None, [], {}):
                    losses.add(f"{where}.{label}.{name}", name, f"only {label} has this field")


def _fields(extra: Mapping[str, Any], format: str) -> dict[str, Any]:
    fields = extra.get(format)
    return fields if isinstance(fields, dict) else {}


# -- writing them


# The conversation, by its name in any format. It comes from the messages of a request and from nowhere else.
_CONVERSATION = frozenset(
    ("messages", "input", "contents", "inputText", "system", "instructions", "systemInstruction", "system_instruction")
)
_TOOLS = frozenset(("tools", "toolConfig"))
# Lists of declarations, which grow. Any other list is one value, such as the dimensions of an image.
_DECLARATIONS = frozenset(("tools", "include", "betas", "anthropic_beta", "mcp_servers", "safetySettings"))
# A schema is one value, together with what describes it.
_SCHEMAS = frozenset(("responseSchema", "responseJsonSchema"))


def with_extra(body: dict[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The body with extra settings added: objects are merged, lists of declarations grow, other values are replaced.

    Raises `PartValidationError` for a setting that would replace the conversation or the tools of the request.
    """
    for key, value in (extra or {}).items():
        # What Bedrock adds to the model's own body would replace its fields.
        inner = value if key == "additionalModelRequestFields" and isinstance(value, dict) else {}
        if not _CONVERSATION.isdisjoint((key, *inner)):
            raise _setting_error(key, "a setting cannot replace the conversation; use messages and the system prompt")
        body[key] = _merged(key, body[key], value) if key in body else value
    return body


def _merged(key: str, ours: Any, value: Any) -> Any:
    is_schema = key in _SCHEMAS or (isinstance(value, dict) and "schema" in value)
    if isinstance(ours, dict) and isinstance(value, dict) and not is_schema:
        return ours | {
            name: _merged(name, ours[name], field) if name in ours else field for name, field in value.items()
        }
    if isinstance(ours, list) and isinstance(value, list) and key in _DECLARATIONS:
        return [*ours, *(item for item in value if item not in ours)]
    if key in _TOOLS:
        expected = "a list of further tools" if key == "tools" else "an object"
        raise _setting_error(key, f"a setting cannot replace the tools of the request; expected {expected}")
    return value


def _setting_error(key: str, message: str) -> PartValidationError:
    return ConfigError(message, path=f"$.config.extra.{key}")
