"""An independent reading of Cohere's v2 chat events and Ollama's chat lines.

In: the JSON objects of one stream, in order, without their framing. Out: a `PlainReading`.

Decisions for Cohere: `message-end` is the terminal signal. `tool_plan` is thinking: the model announces what it will
do. `usage.tokens` counts what the model read, cached tokens included; `billed_units` is what is charged. A finish
reason of ERROR, ERROR_TOXIC or TIMEOUT is an in-band error.

Decisions for Ollama: `done: true` is the terminal signal, and its line may have content, too. Arguments are an
object, mostly without a call id.
"""

from typing import Any

from tests.recordings.plain import PlainCall, PlainReading, PlainUsage, parsed_arguments

Json = dict[str, Any]

COHERE_FINISH = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR": "error",
    "ERROR_TOXIC": "error",
    "TIMEOUT": "error",
}
OLLAMA_FINISH = {"stop": "stop", "length": "length"}


def read_cohere(events: list[Json]) -> PlainReading:
    reading = PlainReading()
    calls: dict[int, PlainCall] = {}
    for event in events:
        kind = event["type"]
        delta = event.get("delta", {})
        if kind == "message-start":
            reading.response_id = event.get("id")
        elif kind in {"content-start", "content-delta"}:
            content = delta["message"]["content"]
            _add(reading, content.get("text", ""), content.get("thinking", ""))
        elif kind == "tool-plan-delta":
            _add(reading, "", delta["message"]["tool_plan"])
        elif kind == "tool-call-start":
            opened = delta["message"]["tool_calls"]
            function = opened["function"]
            calls[event["index"]] = PlainCall(function["name"], None, function["arguments"], opened["id"], False)
            reading.saw("tool_call")
        elif kind == "tool-call-delta":
            calls[event["index"]].raw += delta["message"]["tool_calls"]["function"]["arguments"]
        elif kind == "message-end":
            reading.raw_finish = delta["finish_reason"]
            reading.finish = COHERE_FINISH.get(delta["finish_reason"], "other")
            reading.usage = _cohere_usage(delta.get("usage"))
        elif kind not in {"content-end", "tool-call-end", "citation-start", "citation-end", "debug"}:
            raise ValueError(f"unknown event {kind!r}")
    for call in calls.values():
        call.arguments = parsed_arguments(call.raw)
        reading.calls.append(call)
    return _with_calls(reading)


def _add(reading: PlainReading, text: str, thinking: str) -> None:
    if thinking:
        reading.thinking += thinking
        reading.saw("thinking")
    if text:
        reading.text += text
        reading.saw("text")


def _with_calls(reading: PlainReading) -> PlainReading:
    if reading.finish == "stop" and reading.calls:
        reading.finish = "tool_calls"
    return reading


def _cohere_usage(usage: Json | None) -> PlainUsage | None:
    if not usage or "tokens" not in usage:
        return None
    tokens = usage["tokens"]
    cached = usage.get("cached_tokens")
    cache_read = None if cached is None else int(cached)
    return PlainUsage(int(tokens["input_tokens"]), int(tokens["output_tokens"]), cache_read)


def read_ollama(lines: list[Json]) -> PlainReading:
    reading = PlainReading()
    for line in lines:
        if "error" in line:
            reading.finish, reading.raw_finish = "error", None
            break
        reading.model = line["model"]
        message = line["message"]
        _add(reading, message.get("content", ""), message.get("thinking", ""))
        for call in message.get("tool_calls", []):
            function = call["function"]
            reading.calls.append(PlainCall(function["name"], function["arguments"], "", call.get("id"), False))
            reading.saw("tool_call")
        if line["done"]:
            reading.raw_finish = line.get("done_reason")
            reading.finish = OLLAMA_FINISH.get(line.get("done_reason", ""), "other")
            if "eval_count" in line:
                # Older servers do not count a cached prompt.
                reading.usage = PlainUsage(line.get("prompt_eval_count", 0), line["eval_count"])
    return _with_calls(reading)
