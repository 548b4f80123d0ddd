"""Tools and settings of a generateContent body, written and read. Settings without a field of ours stay in the body.

The tools that Gemini executes are on ai.google.dev/gemini-api/docs/tools. Vertex AI has no file search.
"""

from collections.abc import Iterator
from typing import Any

from bartack.formats.body_values import Json, beyond, fields_at, items_at, object_at, present, text_at
from bartack.formats.gemini import LEVELS, gemini_generation, thinking_budget, thinking_level
from bartack.formats.losses import Losses
from bartack.formats.settings import (
    exact_fields,
    labelled,
    own_fields,
    refuse_several_answers,
    take_settings,
    with_exact,
    written_settings,
)
from bartack.formats.tools import HostedRows, hosted_row, note_tool_options
from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolChoice, ToolSpec
from bartack.nouns.parts import Continuation

__all__ = [
    "HOSTED",
    "NAME",
    "entries_at",
    "function_calling",
    "generation_config",
    "read_choice",
    "read_settings",
    "read_tools",
    "tools",
]

# -- the tools that Gemini executes


NAME = "gemini-generate"

_FILES = hosted_row(  # recorded
    {"fileSearch": {}}, fileSearch__fileSearchStoreNames="stores", fileSearch__topK="max_results"
)
_TOOLS = {  # recorded
    "web_search": hosted_row({"googleSearch": {}}),
    "web_fetch": hosted_row({"urlContext": {}}),
    "code_execution": hosted_row({"codeExecution": {}}),
}

# "Tool use with function calling is unsupported", of models before Gemini 3.
HOSTED = HostedRows(NAME, {"": {**_TOOLS, "file_search": _FILES}, "vertex": _TOOLS}, beside_functions=False)


_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_CHOICES: dict[str, ToolChoice] = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
_SETTINGS = {  # our setting -> Gemini's
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxOutputTokens",
    "stop_sequences": "stopSequences",
    "seed": "seed",
}
_WHOLE = ("maxOutputTokens", "seed")


# -- writing


def tools(specs: tuple[ToolSpec, ...], model_id: str, losses: Losses) -> list[Json]:
    """The entries of `tools`; consecutive functions share one."""
    entries: list[Json] = []
    has_functions = any(spec.is_function for spec in specs)
    for index, spec in enumerate(specs):
        if not spec.is_function:
            declared = HOSTED.declared(spec, f"tools[{index}]", model_id, losses, has_functions=has_functions)
            entries += [] if declared is None else [declared]
            continue
        if not entries or "functionDeclarations" not in entries[-1]:
            entries.append({"functionDeclarations": []})
        note_tool_options(spec, f"tools[{index}]", losses)
        fields = present(description=spec.description, parametersJsonSchema=spec.parameter_schema or None)
        function = {"name": spec.name, **fields, **own_fields(spec, NAME)}
        entries[-1]["functionDeclarations"].append(function)
    return entries


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
    settings = written_settings(config, _SETTINGS)
    if config.output_schema is not None:
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = config.output_schema
    if config.thinking is not None:
        exact = exact_fields(config.thinking, NAME)
        settings["thinkingConfig"] = exact.get("thinkingConfig") or _thinking(config.thinking, config.model_id)
    return settings


def _thinking(thinking: ThinkingConfig, model_id: str) -> Json:
    """A budget as it is; an effort as a level for Gemini 3, else as the budget that Google uses for it."""
    if thinking.budget_tokens is None and gemini_generation(model_id) >= 3:
        fields = present(thinkingLevel=thinking_level(thinking, model_id))
    else:
        fields = present(thinkingBudget=thinking_budget(thinking, model_id))
    return fields if fields.get("thinkingBudget") == 0 else {**fields, "includeThoughts": True}


# -- reading


def entries_at(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """The items of a list, or a single object, with their paths. Raises `PartValidationError` for anything else."""
    return items_at([value] if isinstance(value, dict) else value, path)


def read_tools(entries: Any, provider: str, model_id: str) -> tuple[ToolSpec, ...]:
    """The functions, and Google's own tools as they were declared."""
    specs: list[ToolSpec] = []
    for entry, path in entries_at(entries, "$.tools"):
        for key, value in fields_at(entry, path).items():
            if key == "functionDeclarations":
                declarations = entries_at(value, f"{path}.{key}")
                specs += [_read_function(where, declaration) for declaration, where in declarations]
            else:
                specs.append(ToolSpec(key, {}, native=Continuation(provider, model_id, {key: value})))
    return tuple(specs)


def _read_function(path: str, declaration: Any) -> ToolSpec:
    remaining = fields_at(declaration, path)
    name = text_at(remaining.pop("name", None), f"{path}.name")
    older = _json_schema(remaining.pop("parameters", {}))
    schema = object_at(remaining.pop("parametersJsonSchema", older), f"{path}.parameters")
    description = remaining.pop("description", None)
    return ToolSpec(name, schema, description=description, extra=labelled(NAME, remaining))


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
    settings = dict(object_at(body.pop("generationConfig", None) or {}, "$.generationConfig"))
    refuse_several_answers(settings.pop("candidateCount", None), "$.generationConfig.candidateCount")
    readable = {ours: theirs for ours, theirs in _SETTINGS.items() if _is_readable(theirs, settings.get(theirs))}
    fields = take_settings(settings, readable, "$.generationConfig")
    if settings.get("responseMimeType") == "application/json":
        schema = settings.get("responseJsonSchema", _json_schema(settings.get("responseSchema")))
        if isinstance(schema, dict):
            fields["output_schema"] = schema
            for name in ("responseMimeType", "responseJsonSchema", "responseSchema"):
                settings.pop(name, None)
    fields |= _read_thinking(settings, model_id)
    if settings:
        body["generationConfig"] = settings
    return fields


def _is_readable(name: str, value: Any) -> bool:
    """Whether a setting has a type that Google documents. Others stay in the body, for Google to refuse."""
    if name == "stopSequences":
        return isinstance(value, list) and all(isinstance(stop, str) for stop in value)
    return type(value) is int or (type(value) is float and name not in _WHOLE)


def _read_thinking(settings: Json, model_id: str) -> Json:
    """The thinking that is requested, and its exact form if we would write it differently (hidden thoughts, say).

    A negative budget leaves the amount to the model.
    """
    exact = settings.get("thinkingConfig")
    if not isinstance(exact, dict):
        return {}
    budget, level = exact.get("thinkingBudget"), exact.get("thinkingLevel")
    effort: Any = str(level).lower()
    if level is not None and effort in LEVELS:
        thinking = ThinkingConfig(effort=effort)
    elif level is None and type(budget) is int:
        thinking = ThinkingConfig(budget_tokens=budget) if budget >= 0 else ThinkingConfig()
    elif level is None and exact.get("includeThoughts") is True and budget is None:
        thinking = ThinkingConfig()
    else:
        return {}
    del settings["thinkingConfig"]
    is_same = _thinking(thinking, model_id) == {**exact, **({} if level is None else {"thinkingLevel": effort})}
    return {"thinking": thinking if is_same else with_exact(thinking, NAME, {"thinkingConfig": exact})}


def read_choice(body: Json) -> Json:
    """Our tool choice, removed from the body's `toolConfig`."""
    settings = body.get("toolConfig")
    config = settings.get("functionCallingConfig") if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or not isinstance(config, dict):
        return {}
    match config:
        case {"mode": "ANY", "allowedFunctionNames": [str(name)], **more} if not more:
            choice: ToolChoice = SpecificTool(name)
        case {"mode": "AUTO" | "ANY" | "NONE" as mode, **more} if not more:
            choice = _CHOICES[mode]
        case _:
            return {}
    body["toolConfig"] = beyond(settings, "functionCallingConfig")
    return {"tool_choice": choice}
