"""The tools and settings of a generateContent body -> our words for them; what we have no word for stays behind."""

from typing import Any

from bartack.formats.body_values import object_at, text_at
from bartack.formats.gemini_generate.encode_values import items_at
from bartack.formats.gemini_generate.thinking import EFFORTS, gemini_generation
from bartack.nouns.config import SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.parts import Continuation

__all__ = ["read_choice", "read_settings", "read_tools"]

_CHOICES: dict[str, ToolChoice] = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
_NUMBERS: dict[str, tuple[str, tuple[type, ...]]] = {
    "temperature": ("temperature", (int, float)),
    "topP": ("top_p", (int, float)),
    "maxOutputTokens": ("max_tokens", (int,)),
    "seed": ("seed", (int,)),
}


def read_tools(tools: Any, provider: str, model_id: str) -> tuple[ToolSpec, ...]:
    """The functions, and Google's own tools as they were declared."""
    specs: list[ToolSpec] = []
    for index, tool in enumerate(items_at(tools, "$.tools")):
        path = f"$.tools[{index}]"
        for key, value in object_at(tool, path).items():
            if key == "functionDeclarations":
                for place, one in enumerate(items_at(value, f"{path}.{key}")):
                    specs.append(_read_function(f"{path}.{key}[{place}]", one))
            else:
                specs.append(ToolSpec(key, {}, native=Continuation(provider, model_id, {key: value})))
    return tuple(specs)


def _read_function(path: str, declaration: Any) -> ToolSpec:
    more = dict(object_at(declaration, path))
    name = text_at(more.pop("name", None), f"{path}.name")
    older = _json_schema(more.pop("parameters", {}))
    schema = object_at(more.pop("parametersJsonSchema", older), f"{path}.parameters")
    return ToolSpec(name, schema, description=more.pop("description", None), extra=more or None)


def _json_schema(schema: Any) -> Any:
    """JSON Schema from the subset of OpenAPI that `parameters` and `responseSchema` take: types are in capitals."""
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


def read_settings(body: dict[str, Any], model_id: str) -> dict[str, Any]:
    """Our settings, taken out of `generationConfig`."""
    settings = dict(object_at(body.pop("generationConfig", {}), "$.generationConfig"))
    known: dict[str, Any] = {
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


def _read_thinking(settings: dict[str, Any], model_id: str) -> dict[str, Any]:
    """Thinking that is asked for and shown, which is what our word for it means."""
    wire = settings.get("thinkingConfig")
    if not isinstance(wire, dict):
        return {}
    more = dict(wire)
    budget, level = more.pop("thinkingBudget", None), more.pop("thinkingLevel", None)
    effort: Any = str(level).lower()
    is_shown = more.pop("includeThoughts", False) is True
    if more or is_shown == (budget == 0) or type(budget) not in (int, type(None)):
        return {}
    if level is None:
        thinking = ThinkingConfig(budget_tokens=budget)
    elif budget is None and effort in EFFORTS and gemini_generation(model_id) >= 3:
        thinking = ThinkingConfig(effort=effort)
    else:
        return {}
    del settings["thinkingConfig"]
    return {"thinking": thinking}


def read_choice(body: dict[str, Any]) -> dict[str, Any]:
    """The choice of tools, taken out of `toolConfig` where we have the same word for it."""
    settings = body.get("toolConfig")
    wire = settings.get("functionCallingConfig") if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or not isinstance(wire, dict):
        return {}
    match wire:
        case {"mode": "ANY", "allowedFunctionNames": [str(name)], **more} if not more:
            choice: ToolChoice = SpecificTool(name)
        case {"mode": "AUTO" | "ANY" | "NONE" as mode, **more} if not more:
            choice = _CHOICES[mode]
        case _:
            return {}
    body["toolConfig"] = {key: value for key, value in settings.items() if key != "functionCallingConfig"}
    return {"tool_choice": choice}
