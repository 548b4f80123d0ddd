"""The settings of a request: what is the same in all formats when they are written, and read back.

**Rows.** A format declares once which of our settings it has, as a row with our name and its own. `written_settings`
and `take_settings` use the same rows, so a setting that is written is also read. What a reader does not take stays in
the body.

**Extra fields.** These are fields that a single format has: `extra` of a request's settings and tools. A reader labels
what it cannot translate with the name of its format: ``{"openai-chat": {"logit_bias": ...}}``. An encoder writes the
fields under its own name, and reports those of other formats as losses, so that no provider receives a field that
another one defined. Fields of the settings that have no label are the caller's own, for whichever model it asks
(``connect("anthropic:...", top_k=5)``). They are written as they are, and replace labelled ones.

**Thinking.** Some formats take an effort, others a token budget. A reader takes the meaning of a client's setting,
whatever the model: an effort or a budget. Where the encoder of its format would not write that as the client did, the
exact form is kept beside it, in `ThinkingConfig.extra` under the name of the format, and is written in place of the
encoder's own. Other formats see only the meaning.

| budget | effort |      | effort | budget |
|---|---|---|---|---|
| 0 | none |             | minimal | 1,024 |
| to 4,096 | low |       | low | 2,048 |
| to 12,288 | medium |   | medium | 8,192 |
| more | high |          | high | 16,384 |
|  |  |                   | max | 24,000 |

The limits lie between the budgets, the largest of which leaves 8,000 tokens of the default `max_tokens` of Claude for
the answer. ``max`` is never derived from a budget, because few models accept it. Formats whose
provider publishes a table of its own use that one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from bartack.formats.body_values import Json, beyond, object_of, present, texts_at
from bartack.formats.losses import Losses
from bartack.nouns.config import CacheConfig, ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.errors import ConfigError, PartValidationError
from bartack.nouns.requests import ModelRequest

__all__ = [
    "BUDGETS",
    "DECLARATION",
    "FORMATS",
    "WORDS",
    "breakpoint_for",
    "budget_of",
    "effort_of",
    "exact_fields",
    "labelled",
    "note_settings",
    "note_unsupported",
    "own_extra",
    "own_fields",
    "refuse_several_answers",
    "take_settings",
    "with_exact",
    "with_extra",
    "written_settings",
]

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


# -- rows


def written_settings(config: ModelConfig, names: Mapping[str, str]) -> Json:
    """The settings that have a value, by the format's names for them."""
    return present(**{theirs: getattr(config, ours) for ours, theirs in names.items()})


def take_settings(
    fields: Json, names: Mapping[str, str], path: str, check: Callable[[Any, str], Any] = lambda value, path: value
) -> Json:
    """Our settings, removed from the fields at this path. `check` is for values other than stop sequences.

    Raises `PartValidationError` for stop sequences that are no texts, and as `check` does.
    """
    settings = {}
    for ours, theirs in names.items():
        if fields.get(theirs) is not None:
            read = texts_at if ours == "stop_sequences" else check
            settings[ours] = read(fields.pop(theirs), f"{path}.{theirs}")
    return settings


def refuse_several_answers(count: Any, path: str) -> None:
    """Raises `PartValidationError` if a request asks for several answers at once, which a message cannot hold."""
    if count not in (None, 1):
        raise PartValidationError(f"several answers to one request are not supported, got {count!r}", path=path)


def note_settings(config: ModelConfig, losses: Losses, *supported: str) -> None:
    """Add the settings that only some providers have to `losses`, except for those that are supported here."""
    settings = {
        "service_tier": ("config.serviceTier", config.service_tier),
        "verbosity": ("config.verbosity", config.verbosity),
        "ttl": ("config.cacheConfig.ttl", None if config.cache_config is None else config.cache_config.ttl),
    }
    for name, (where, value) in settings.items():
        if value is not None and name not in supported:
            losses.add(where, f"{name} {value!r}", "not supported by the provider")


_UNSUPPORTED = {  # settings that some APIs lack
    "seed": ("config.seed", "seed"),
    "stop_sequences": ("config.stopSequences", "stop sequences"),
    "parallel_tool_calls": ("config.parallelToolCalls", "one call at a time"),
}


def note_unsupported(config: ModelConfig, losses: Losses, api: str, *settings: str) -> None:
    """Add these settings to `losses`, as far as they ask for something that the API cannot do."""
    for name in settings:
        where, what = _UNSUPPORTED[name]
        value = getattr(config, name)
        if value is not None and value != () and not (name == "parallel_tool_calls" and value):
            losses.add(where, what, f"not supported by {api}")


def breakpoint_for(cache: CacheConfig, losses: Losses) -> Json:
    """A breakpoint of the cache as Anthropic marks it."""
    if cache.ttl == "24h":
        losses.add("config.cacheConfig.ttl", "ttl '24h'", "the longest is an hour, which is sent")
    return {"type": "ephemeral", **({} if cache.ttl is None else {"ttl": "5m" if cache.ttl == "5m" else "1h"})}


# -- thinking


Effort = Literal["none", "minimal", "low", "medium", "high", "max"]

BUDGETS: dict[str, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "max": 24_000}
_LIMITS: tuple[tuple[int, Effort], ...] = ((0, "none"), (4096, "low"), (12_288, "medium"))
WORDS: dict[str, Effort] = {  # the words of all providers
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}


def effort_of(thinking: ThinkingConfig) -> Effort | None:
    """The effort, or the one nearest to the budget; None for the provider's default."""
    if thinking.effort is not None or thinking.budget_tokens is None:
        return thinking.effort
    return next((effort for limit, effort in _LIMITS if thinking.budget_tokens <= limit), "high")


def budget_of(thinking: ThinkingConfig) -> int | None:
    """The budget, or the one for the effort; None for the provider's default."""
    return BUDGETS.get(thinking.effort or "") if thinking.budget_tokens is None else thinking.budget_tokens


def with_exact(thinking: ThinkingConfig, format: str, fields: Json) -> ThinkingConfig:
    """The setting with the fields that a client wrote for it in this format."""
    return ThinkingConfig(effort=thinking.effort, budget_tokens=thinking.budget_tokens, extra={format: fields})


def exact_fields(thinking: ThinkingConfig | None, format: str) -> Json:
    """The fields of this format that a client wrote for the setting; empty if the encoder writes its own."""
    return {} if thinking is None else object_of(thinking.extra or {}, format)


# -- extra fields


def labelled(format: str, fields: Mapping[str, Any]) -> Json | None:
    """The `extra` of settings or a tool for fields that only this format has."""
    return {format: dict(fields)} if fields else None


def own_extra(request: ModelRequest, format: str, losses: Losses) -> Json:
    """The extra settings to write in this format; those of other formats, also of tools, are added to `losses`."""
    for index, spec in enumerate(request.tools):
        _add_foreign(spec.extra or {}, f"tools[{index}].extra", format, losses)
    extra = request.config.extra or {}
    _add_foreign(extra, "config.extra", format, losses)
    return {**object_of(extra, format), **beyond(extra, *FORMATS)}


def own_fields(spec: ToolSpec, format: str) -> Json:
    """The fields of a tool that only this format has."""
    return {name: value for name, value in object_of(spec.extra or {}, format).items() if name != DECLARATION}


def _add_foreign(extra: Mapping[str, Any], where: str, format: str, losses: Losses) -> None:
    for label in extra:
        if label in FORMATS and label != format:
            for name, value in object_of(extra, label).items():
                if name != DECLARATION and value not in (None, [], {}):
                    losses.add(f"{where}.{label}.{name}", name, f"only {label} has this field")


# The conversation, by its name in any format. It comes from the messages of a request and from nowhere else.
_CONVERSATION = frozenset(
    ("messages", "input", "contents", "inputText", "system", "instructions", "systemInstruction", "system_instruction")
)
_TOOLS = frozenset(("tools", "toolConfig"))
# Lists of declarations, which grow. Any other list is one value, such as the dimensions of an image.
_DECLARATIONS = frozenset(("tools", "include", "betas", "anthropic_beta", "mcp_servers", "safetySettings"))
# A schema is one value, together with what describes it.
_SCHEMAS = frozenset(("responseSchema", "responseJsonSchema"))


def with_extra(body: Json, extra: Mapping[str, Any] | None) -> Json:
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
