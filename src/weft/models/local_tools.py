"""Tools for a small model: it is not asked to call them in its own way, but led there, one short question at a time.

Asked freely, a model of half a billion parameters calls tools that it should not, forgets to call those that it must,
and after a result calls again without end. What works, each step a generation of its own:

1. the **router**: one word out of a fixed list, the names of the tools and "none", enforced by a grammar. Examples made
   of the tools' descriptions, told as earlier turns, go before the request. The word "none" comes too easily to such a
   model, so it has a handicap. On the 16 requests that prompt and handicap were chosen with, 8 of 10 tools were found
   and 1 of 6 plain requests went to a tool (without the handicap 6 and none); on 18 others, with other tools, 6 of 10
   were found and no plain request went astray (without it 4 and none).
2. the **arguments**: JSON under the schema of the chosen tool, enforced too, and bounded where the schema is not.
3. the **answer**, when the result is there: without tools, and with the calls and results told as plain text of the
   user, because a model that sees calls in a conversation writes more of them.

Everything here is a function of the conversation; `weft.models.local` does the generating.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from weft.config import SpecificTool, ToolChoice, ToolSpec
from weft.errors import ErrorCode, ModelError
from weft.messages import Message
from weft.parts import FileRef, Image, Text, Thinking, ToolCall, ToolResult
from weft.repair import RULES, repair
from weft.tool_state import output_text

__all__ = ["NONE", "Route", "arguments_body", "bounded", "next_step", "plain_history", "router_body"]

Json = dict[str, Any]

NONE = "none"
_NONE_HANDICAP = -1.0  # of the logarithm of its probability; what is plain talk lies 3 and more apart
_REQUEST_LIMIT = 2000  # characters of a request that the router is shown
_RESULT_LIMIT = 8000  # characters of one result
_STRING_LIMIT, _ARRAY_LIMIT = 2000, 50  # 2000 is also the most that a grammar repeats
_PLAIN_REQUESTS = ("Hello!", "Thank you.", "What can you do?", "Explain how rivers form.")


class Route(NamedTuple):
    """The router has to choose among these tools, or none of them where it may."""

    tools: tuple[ToolSpec, ...]
    may_decline: bool


# -- what comes next


def next_step(
    messages: Sequence[Message], tools: Sequence[ToolSpec], choice: ToolChoice | None, *, rounds: int
) -> Route | ToolSpec | None:
    """A choice to be made, a tool to be called, or None: the answer. Raises `ModelError` for a tool nobody offered.

    Left to itself a model calls tools at most `rounds` times for one request of the user; then it has to answer.
    """
    ours = tuple(tool for tool in tools if tool.native is None)
    match choice:
        case SpecificTool(tool_name=name):
            named = next((tool for tool in ours if tool.name == name), None)
            if named is None:
                raise ModelError(f"there is no tool {name!r} to choose", code=ErrorCode.INVALID_REQUEST)
            return named
        case "required":
            if not ours:
                raise ModelError("a tool is required, and there is none", code=ErrorCode.INVALID_REQUEST)
            return ours[0] if len(ours) == 1 else Route(ours, may_decline=False)
        case "none":
            return None
        case _:
            return Route(ours, may_decline=True) if ours and _rounds_of(messages) < rounds else None


def _rounds_of(messages: Sequence[Message]) -> int:
    """How often tools have been called since the user last spoke."""
    rounds = 0
    for message in reversed(messages):
        if message.role == "user":
            break
        rounds += any(call.executed_by == "client" for call in message.tool_calls)
    return rounds


# -- the two questions


def router_body(messages: Sequence[Message], route: Route) -> Json:
    """The request for one word: the name of a tool, or none."""
    listed = "\n".join(_described(tool) for tool in route.tools)
    otherwise = f" Say {NONE} if it is only talk." if route.may_decline else ""
    turns = [_turn("system", f"You can use tools:\n{listed}\n\nSay which tool the message asks for.{otherwise}")]
    plain = [(text, NONE) for text in _PLAIN_REQUESTS] if route.may_decline else []
    told = [(tool.description or tool.name.replace("_", " "), tool.name) for tool in route.tools]
    for request, word in (*plain[:-1], *told, *plain[-1:]):
        turns += [_turn("user", request), _turn("assistant", word)]
    turns.append(_turn("user", _last_request(messages)))
    words = [tool.name for tool in route.tools] + ([NONE] if route.may_decline else [])
    return {
        **_question(turns, max_tokens=64),
        "grammar": f"root ::= {' | '.join(map(json.dumps, words))}",
        "logit_bias": [[NONE, _NONE_HANDICAP]] if route.may_decline else [],
    }


def arguments_body(messages: Sequence[Message], tool: ToolSpec, *, max_tokens: int) -> Json:
    """The request for a tool's arguments."""
    schema = bounded(tool.parameter_schema)
    names = ", ".join(schema.get("properties", {}))
    task = (
        f"You call the tool {_described(tool)}\nIts arguments are {names}. Write them as JSON, taken from the message."
    )
    turns = [_turn("system", task)]
    turns += [_turn(message.role, message.text) for message in plain_history(messages) if message.role != "system"]
    form = {"type": "json_schema", "json_schema": {"name": "arguments", "schema": schema}}
    return {**_question(turns, max_tokens=max_tokens), "response_format": form}


def _question(turns: list[Json], *, max_tokens: int) -> Json:
    """A question with one right answer: nothing is left to chance."""
    return {
        "messages": turns,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _turn(role: str, text: str) -> Json:
    return {"role": role, "content": text}


def _described(tool: ToolSpec) -> str:
    names = ", ".join((tool.parameter_schema or {}).get("properties", {}))
    return f"{tool.name}({names}): {tool.description or tool.name.replace('_', ' ')}"


def _last_request(messages: Sequence[Message]) -> str:
    spoken = (message.text for message in reversed(messages) if message.role == "user")
    return next((text for text in spoken if text.strip()), "")[:_REQUEST_LIMIT]


# -- schemas


def bounded(schema: Json) -> Json:
    """The schema with an end to every text and list, so that a model cannot write on for ever; and without patterns
    that have no anchors, which a grammar cannot enforce."""
    if not schema:
        return {"type": "object", "properties": {}}
    result = {key: _bounded_under(key, value) for key, value in schema.items()}
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "string" in kinds and not {"enum", "const", "format"} & schema.keys():
        result["maxLength"] = min(schema.get("maxLength", _STRING_LIMIT), _STRING_LIMIT)
    if "array" in kinds:
        result.setdefault("maxItems", max(_ARRAY_LIMIT, schema.get("minItems", 0)))
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not (pattern.startswith("^") and pattern.endswith("$")):
        del result["pattern"]
    return result


def _bounded_under(key: str, value: Any) -> Any:
    match key, value:
        case "properties" | "$defs" | "definitions", dict():
            return {name: _bounded_schema(one) for name, one in value.items()}
        case "items" | "additionalProperties", _:
            return _bounded_schema(value)
        case "anyOf" | "oneOf" | "allOf" | "prefixItems", list():
            return [_bounded_schema(one) for one in value]
        case _:
            return value


def _bounded_schema(value: Any) -> Any:
    return bounded(value) if isinstance(value, dict) and value else value


# -- the conversation as plain text


def plain_history(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation in text alone, as any chat template takes it: one system message, then user and assistant in
    turn. What tools did is told by the user; thinking is left out."""
    sound = repair(messages, RULES["openai-chat"]).messages
    system = "\n\n".join(message.text for message in sound if message.role == "system")
    start = (Message("system", (Text(system),)),) if system.strip() else ()
    return repair((*start, *_spoken(sound))).messages


def _spoken(messages: Sequence[Message]) -> Iterator[Message]:
    calls = {call.tool_call_id: call for message in messages for call in message.tool_calls}
    last = len(messages) - 1
    for at, message in enumerate(messages):
        match message.role:
            case "user":
                yield Message("user", tuple(_written(message.parts)))
            case "assistant":
                yield Message("assistant", tuple(part for part in _written(message.parts) if part.text.strip()))
            case "tool":
                told = [_told(calls[result.tool_call_id], result) for result in message.tool_results]
                wish = ["Answer me from this, in whole sentences."] if at == last else []
                yield Message("user", (Text("\n\n".join(told + wish)),))
            case "system":
                pass


def _written(parts: Iterable[Any]) -> Iterator[Text]:
    for part in parts:
        match part:
            case Text():
                yield Text("" if part.ignored else part.text)
            case FileRef(data=bytes(data), mime_type=str(kind)) if kind.startswith("text/"):
                yield Text(f"{part.path}:\n{data.decode('utf-8', 'replace')}")
            case FileRef():
                yield Text(f"[the file {part.path}]")
            case Image():
                yield Text("[a picture, which you cannot see]")
            case Thinking() | ToolCall():
                pass


def _told(call: ToolCall, result: ToolResult) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    text = output_text(result)
    if len(text) > _RESULT_LIMIT:
        text = f"{text[:_RESULT_LIMIT]} [and {len(text) - _RESULT_LIMIT} characters more]"
    how = "It failed" if result.is_error else "Its result"
    return f"(The tool {call.tool_name} was run for this with {arguments}. {how}: {text})"
