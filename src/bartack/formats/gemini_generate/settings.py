"""Tools and settings of a generateContent body, written and read. Settings without a field of ours stay in the body."""

from typing import Any

from bartack.formats.body_values import list_at, object_at, own_fields, text_at
from bartack.formats.gemini import LEVELS, gemini_generation, thinking_budget, thinking_level
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.parts import Continuation

__all__ = ["function_calling", "generation_config", "items_at", "read_choice", "read_settings", "read_tools", "tools"]

Json = dict[str, Any]

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_CHOICES: dict[str, ToolChoice] = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
_NUMBERS: dict[str, tuple[str, tuple[type, ...]]] = {
    "temperature": ("temperature", (int, float)),
    "topP": ("top_p", (int, float)),
    "maxOutputTokens": ("max_tokens", (int,)),
    "seed": ("seed", (int,)),
}


# -- writing


def tools(specs: tuple[ToolSpec, ...], losses: Losses) -> list[Json]:
    """The entries of `tools`; consecutive functions share one."""
    entries: list[Json] = []
    for index, spec in enumerate(specs):
        if spec.native is not None:
            data = losses.continuation(f"tools[{index}]", spec.native)
            entries += [data] if data else []
            continue
        if not entries or "functionDeclarations" not in entries[-1]:
            entries.append({"functionDeclarations": []})
        entries[-1]["functionDeclarations"].append(_declaration(spec))
    return entries


def _declaration(spec: ToolSpec) -> Json:
    declaration: Json = {"name": spec.name}
    if spec.description is not None:
        declaration["description"] = spec.description
    if spec.parameter_schema:
        declaration["parametersJsonSchema"] = spec.parameter_schema
    return {**declaration, **own_fields(spec, "gemini-generate")}


def function_calling(config: ModelConfig, specs: tuple[ToolSpec, ...]) -> Json:
    """The `functionCallingConfig`; empty if the default applies."""
    choice = config.tool_choice
    if isinstance(choice, SpecificTool):
        return {"mode": "ANY", "allowedFunctionNames": [choice.tool_name]}
    if choice in (None, "auto") and any(spec.strict for spec in specs):
        return {"mode": "VALIDATED"}  # AUTO that adheres to the schemas, as ANY does anyway
    return {} if choice is None else {"mode": _MODES[choice]}


def generation_config(config: ModelConfig) -> Json:
    """The `generationConfig`; empty if nothing is set."""
    settings: Json = {
        "temperature": config.temperature,
        "topP": config.top_p,
        "maxOutputTokens": config.max_tokens,
        "stopSequences": None if config.stop_sequences is None else list(config.stop_sequences),
        "seed": config.seed,
    }
    if config.output_schema is not None:
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = config.output_schema
    if config.thinking is not None:
        settings["thinkingConfig"] = _thinking(config.thinking, config.model_id)
    return {key: value for key, value in settings.items() if value is not None}


def _thinking(thinking: ThinkingConfig, model_id: str) -> Json:
    """A budget as it is; an effort as a level for Gemini 3, else as the budget that Google uses for it."""
    fields: Json = {}
    if thinking.budget_tokens is None and gemini_generation(model_id) >= 3:
        fields["thinkingLevel"] = thinking_level(thinking, model_id)
    else:
        fields["thinkingBudget"] = thinking_budget(thinking, model_id)
    if fields.get("thinkingBudget") != 0:
        fields["includeThoughts"] = True
    return {key: value for key, value in fields.items() if value is not None}


# -- reading


def items_at(value: Any, path: str) -> list[Any]:
    """The value as a list, a single object as a list of one. Raises `PartValidationError` for anything else."""
    return [value] if isinstance(value, dict) else list_at(value, path)


def read_tools(entries: Any, provider: str, model_id: str) -> tuple[ToolSpec, ...]:
    """The functions, and Google's own tools as they were declared."""
    specs: list[ToolSpec] = []
    for index, entry in enumerate(items_at(entries, "$.tools")):
        path = f"$.tools[{index}]"
        for key, value in object_at(entry, path).items():
            if key == "functionDeclarations":
                for number, one in enumerate(items_at(value, f"{path}.{key}")):
                    specs.append(_read_function(f"{path}.{key}[{number}]", one))
            else:
                specs.append(ToolSpec(key, {}, native=Continuation(provider, model_id, {key: value})))
    return tuple(specs)


def _read_function(path: str, declaration: Any) -> ToolSpec:
    more = dict(object_at(declaration, path))
    name = text_at(more.pop("name", None), f"{path}.name")
    older = _json_schema(more.pop("parameters", {}))
    schema = object_at(more.pop("parametersJsonSchema", older), f"{path}.parameters")
    description = more.pop("description", None)
    return ToolSpec(name, schema, description=description, extra={"gemini-generate": more} if more else None)


def _json_schema(schema: Any) -> Any:
    """JSON Schema from the subset of OpenAPI that `parameters` and `responseSchema` take, with types in capitals."""
    if isinstance(schema, list):
        return [_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _json_schema(value) for key, value in schema.items()}
    if isinstance(plain.get("type"), str):
        plain["type"] = plain["type"].lower()
        if plain.pop("nullable", False) is True:
            plain["type"] = [plain["type"], "null"]
    return plain


def read_settings(body: Json, model_id: str) -> Json:
    """Our settings, removed from the body's `generationConfig`."""
    settings = dict(object_at(body.pop("generationConfig", {}), "$.generationConfig"))
    known: Json = {
        ours: settings.pop(theirs) for theirs, (ours, types) in _NUMBERS.items() if type(settings.get(theirs)) in types
    }
    stops = settings.get("stopSequences")
    if isinstance(stops, list) and all(isinstance(stop, str) for stop in stops):
        known["stop_sequences"] = tuple(settings.pop("stopSequences"))
    if settings.get("responseMimeType") == "application/json":
        schema = settings.get("responseJsonSchema", _json_schema(settings.get("responseSchema")))
        if isinstance(schema, dict):
            known["output_schema"] = schema
            for name in ("responseMimeType", "responseJsonSchema", "responseSchema"):
                settings.pop(name, None)
    known |= _read_thinking(settings, model_id)
    if settings:
        body["generationConfig"] = settings
    return known


def _read_thinking(settings: Json, model_id: str) -> Json:
    """Thinking that is both requested and shown, which is what our setting means."""
    given = settings.get("thinkingConfig")
    if not isinstance(given, dict):
        return {}
    more = dict(given)
    budget, level = more.pop("thinkingBudget", None), more.pop("thinkingLevel", None)
    effort: Any = str(level).lower()
    is_shown = more.pop("includeThoughts", False) is True
    if more or is_shown == (budget == 0) or type(budget) not in (int, type(None)):
        return {}
    if level is None:
        thinking = ThinkingConfig(budget_tokens=budget)
    elif budget is None and effort in LEVELS and gemini_generation(model_id) >= 3:
        thinking = ThinkingConfig(effort=effort)
    else:
        return {}
    del settings["thinkingConfig"]
    return {"thinking": thinking}


def read_choice(body: Json) -> Json:
    """Our tool choice, removed from the body's `toolConfig`."""
    settings = body.get("toolConfig")
    given = settings.get("functionCallingConfig") if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or not isinstance(given, dict):
        return {}
    match given:
        case {"mode": "ANY", "allowedFunctionNames": [str(name)], **more} if not more:
            choice: ToolChoice = SpecificTool(name)
        case {"mode": "AUTO" | "ANY" | "NONE" as mode, **more} if not more:
            choice = _CHOICES[mode]
        case _:
            return {}
    body["toolConfig"] = {key: value for key, value in settings.items() if key != "functionCallingConfig"}
    return {"tool_choice": choice}
