"""An independent reading of recorded Chat Completions and Responses streams, of OpenAI and compatible vendors.

In: a case folder. Out: the `PlainReading` of plain.py. Whole bodies, the json module, no state machine and no Bartack:
slow and obvious on purpose, because the decoders are checked against it.

Chat: the answer is the sum of `choices[0].delta`. It ended if a finish_reason or `[DONE]` was sent. `[DONE]` alone
is enough because Snowflake's complete answers carry no finish_reason at all; a finish_reason alone is enough because
Cerebras, Perplexity and Writer send no `[DONE]`. The last finish_reason holds: gateways repeat and correct it.

Responses: the answer is the list of items, each from its `response.output_item.done`. Items are distinguished by
output_index, since some servers change the item id on every event. `response.completed.output` is not used: some
servers leave it empty, and its ciphertexts and ids differ from those of the items.
"""

import json
from pathlib import Path
from typing import Any

from tests.recordings.plain import (
    Case,
    PlainCall,
    PlainReading,
    PlainUsage,
    json_lines,
    load_case,
    parsed_arguments,
    sse_events,
)

CHAT_APIS = (
    "openai-chat",
    "azure-openai-chat",
    "groq-chat",
    "mistral-chat",
    "deepseek-chat",
    "xai-chat",
    "zai-chat",
    "openrouter-chat",
    "perplexity-chat",
    "cerebras-chat",
    "openai-compat-chat",
)
RESPONSES_APIS = ("openai-responses", "azure-openai-responses", "openai-compat-responses", "xai-responses")

Json = dict[str, Any]


def read_stream(api: str, case_dir: Path) -> PlainReading:
    """What the recorded stream contains; an HTTP error is a reading with nothing but finish "error"."""
    case = load_case(case_dir)
    if case.file == "response.json":
        return PlainReading(finish="error")
    if api in CHAT_APIS:
        return _read_chat(case)
    if api in RESPONSES_APIS:
        return _read_responses(case)
    raise ValueError(f"{api} uses neither chat nor responses")


def oracle_error(body: bytes, meta: Json) -> tuple[int, str | None, str]:
    """Of an HTTP error: the status, the provider's own code for it (code, else type) and its message."""
    return (meta["http_status"], *_error_code_and_message(json.loads(body)))


def stream_error(case_dir: Path) -> tuple[str | None, str] | None:
    """Of an error inside a stream: the provider's own code for it and its message; None if there is no such error."""
    for event in _payloads(load_case(case_dir))[0]:
        if _is_error(event):
            return _error_code_and_message(event["response"] if event.get("type") == "response.failed" else event)
    return None


# -- shared by both formats


def _payloads(case: Case) -> tuple[list[Json], bool]:
    """Every JSON payload of the body, and whether `[DONE]` was among them."""
    if case.file == "response.sse":
        texts = [data for _, data in sse_events(case.body)]
    else:
        texts = json_lines(case.body)
    return [json.loads(text) for text in texts if text.strip() != "[DONE]"], "[DONE]" in (t.strip() for t in texts)


def _is_error(event: Json) -> bool:
    """Chat: an `error` in any payload (vLLM: `object: error`). Responses: `error` and `response.failed` events."""
    kinds = event.get("object"), event.get("type")
    return bool(event.get("error")) or "error" in kinds or "response.failed" in kinds


def _error_code_and_message(payload: Json) -> tuple[str | None, str]:
    """Shapes: {error: {code, type, message}}, flat {code, message}, xAI {code, error: text}, ChatGPT {detail: text}."""
    inner = payload.get("error")
    error = inner if isinstance(inner, dict) else payload
    word = error.get("code") or error.get("type")
    message = inner if isinstance(inner, str) else error.get("message") or error["detail"]
    return None if word is None else str(word), message


def _count(holder: Json | None, *names: str) -> int | None:
    for name in names:
        value = (holder or {}).get(name)
        if value is not None:
            return int(value)
    return None


def _finish(common: str, reading: PlainReading, refused: bool) -> str:
    """A plain stop is a refusal if the model refused, and `tool_calls` if the client has calls to answer."""
    if common != "stop":
        return common
    if any(not call.server_side for call in reading.calls):
        return "tool_calls"
    return "refusal" if refused else "stop"


# -- chat completions

_CHAT_FINISH = {
    "stop": "stop",
    "eos": "stop",  # Together
    "end_turn": "stop",
    "length": "length",
    "model_length": "length",  # Mistral: the context is full
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "sensitive": "content_filter",  # Z.ai
    "error": "error",  # OpenRouter, Mistral
    "network_error": "error",  # Z.ai
}


def _read_chat(case: Case) -> PlainReading:
    chunks, done = _payloads(case)
    reading = PlainReading()
    calls: list[_ChatCall] = []
    refused = False
    for chunk in chunks:
        # Azure's first chunk and every chunk of Snowflake have "" here; Groq's compound changes the id each time.
        reading.model = reading.model or chunk.get("model") or None
        reading.response_id = reading.response_id or chunk.get("id") or None
        _read_chat_usage(chunk, reading)
        for choice in chunk.get("choices") or []:
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            _read_thinking(delta, reading)
            _read_content(delta.get("content"), reading)
            refused = refused or bool(delta.get("refusal"))
            _read_content(delta.get("refusal"), reading)
            _read_chat_calls(delta, reading, calls)
            reading.raw_finish = choice.get("finish_reason") or reading.raw_finish
    reading.calls = [call.plain() for call in calls]
    if any(_is_error(chunk) for chunk in chunks):
        reading.finish, reading.raw_finish = "error", None
    elif reading.raw_finish is not None:
        reading.finish = _finish(_CHAT_FINISH.get(reading.raw_finish, "other"), reading, refused)
    elif done:
        reading.finish = _finish("stop", reading, refused)
    return reading


def _add_text(text: str, reading: PlainReading) -> None:
    if text:
        reading.text += text
        reading.saw("text")


def _add_thinking(text: str, reading: PlainReading) -> None:
    if text:
        reading.thinking += text
        reading.saw("thinking")


def _read_content(content: str | list[Json] | None, reading: PlainReading) -> None:
    """A string, or Mistral's list of chunks, of which `thinking` contains a nested list of text chunks."""
    if isinstance(content, str):
        _add_text(content, reading)
        return
    for piece in content or []:
        if piece["type"] == "thinking":
            _add_thinking("".join(inner.get("text", "") for inner in piece["thinking"]), reading)
        elif piece["type"] == "text":
            _add_text(piece["text"], reading)


def _read_thinking(delta: Json, reading: PlainReading) -> None:
    """One of three fields; if a delta has several, they are equal, so the first non-empty one counts."""
    details = delta.get("reasoning_details") or []
    detailed = "".join(detail.get("text") or detail.get("summary") or "" for detail in details)
    _add_thinking(delta.get("reasoning_content") or delta.get("reasoning") or detailed, reading)
    for detail in details:
        opaque = [detail.get(name) for name in ("id", "signature", "data")]
        reading.continuation += [text for text in opaque if text and text not in reading.continuation]


class _ChatCall:
    def __init__(self, key: tuple[str, object], server_side: bool) -> None:
        self.key = key
        self.server_side = server_side
        self.name = ""
        self.id: str | None = None
        self.texts: list[str] = []
        self.value: Json | None = None  # arguments that came as a JSON object

    def add(self, name: str | None, call_id: str | None, arguments: str | Json | None) -> None:
        self.name = self.name or name or ""
        self.id = self.id or call_id or None
        if isinstance(arguments, dict):
            self.value = arguments
        elif arguments:
            self.texts.append(arguments)

    def plain(self) -> PlainCall:
        raw = "".join(self.texts)
        arguments = parsed_arguments(raw) if self.value is None else self.value
        return PlainCall(self.name, arguments, raw, self.id, self.server_side)


def _read_chat_calls(delta: Json, reading: PlainReading, calls: list[_ChatCall]) -> None:
    for executed in delta.get("executed_tools") or []:
        # Groq's own tools: sent once when called and once more, whole, with the output.
        key = ("executed", executed["index"])
        if not any(call.key == key for call in calls):
            calls.append(_ChatCall(key, server_side=True))
            calls[-1].add(executed.get("name") or executed["type"], None, executed.get("arguments"))
            reading.saw("tool_call")
    fragments = list(delta.get("tool_calls") or [])
    if delta.get("function_call"):  # the form before tool calls: one call, no id
        fragments.append({"index": "function_call", "function": delta["function_call"]})
    for fragment in fragments:
        call = _call_of(fragment, calls)
        if call is None:
            call = _ChatCall(("client", fragment.get("index")), server_side=False)
            calls.append(call)
            reading.saw("tool_call")
        function = fragment.get("function") or {}
        call.add(function.get("name"), fragment.get("id"), function.get("arguments"))


def _call_of(fragment: Json, calls: list[_ChatCall]) -> _ChatCall | None:
    """The call that a fragment continues: the latest at its index, unless the fragment brings another id."""
    for call in reversed(calls):
        if call.key == ("client", fragment.get("index")):
            new_id = fragment.get("id")  # absent, null or "" on a continuation
            return call if not new_id or call.id in (None, new_id) else None
    return None


def _read_chat_usage(chunk: Json, reading: PlainReading) -> None:
    usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage")
    if not usage:
        return
    input_tokens, output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
    if input_tokens == output_tokens == 0 and reading.usage is not None:
        return  # Cloudflare follows the real figures with a row of zeros
    into = usage.get("prompt_tokens_details") or usage.get("prompt_token_details")  # Mistral uses both spellings
    out = usage.get("completion_tokens_details")
    reasoning = _count(out, "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(usage, "reasoning_tokens")
    # xAI counts reasoning beside completion tokens; it shows only in the total.
    beside = reasoning is not None and usage.get("total_tokens") == input_tokens + output_tokens + reasoning
    cached = _count(into, "cached_tokens")
    if cached is None:  # DeepSeek, Mistral, Together
        cached = _count(usage, "prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens")
    reading.usage = PlainUsage(
        input=input_tokens,
        output=output_tokens + (reasoning if beside and reasoning is not None else 0),
        cache_read=cached,
        cache_write=_count(into, "cache_write_tokens"),
        reasoning=reasoning,
    )


# -- responses

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_RESULTS = ("shell_call_output", "tool_search_output", "program_output")  # results that are items of their own
_NO_CALL = ("message", "reasoning", "compaction", *_RESULTS)


def _read_responses(case: Case) -> PlainReading:
    events, _ = _payloads(case)
    reading = PlainReading()
    items = _final_items(events)
    indexes: list[int] = []
    for event in events:
        response = event.get("response") or {}
        reading.model = reading.model or response.get("model") or None
        reading.response_id = reading.response_id or response.get("id") or None
        kind = _kind_of_content(event, indexes)
        if kind is not None:
            reading.saw(kind)
            if event["output_index"] not in indexes:
                indexes.append(event["output_index"])
    for index in indexes:
        _read_item(items[index], case.api, reading)
    for item in items.values():
        opaque = [item.get("encrypted_content"), item.get("fingerprint")]
        opaque += [item.get("id")] if item["type"] == "reasoning" else []
        reading.continuation += [text for text in opaque if text]
    refused = any(part.get("refusal") for item in items.values() for part in item.get("content") or [])
    _read_end(events, reading, refused)
    return reading


def _final_items(events: list[Json]) -> dict[int, Json]:
    """Each item by output_index, from its `done` event or, if that is missing, as added (parallel mcp_list_tools)."""
    items: dict[int, Json] = {}
    for event in events:
        if event["type"] in ("response.output_item.added", "response.output_item.done"):
            items[event["output_index"]] = event["item"]
    return items


def _kind_of_content(event: Json, indexes: list[int]) -> str | None:
    """The kind of content that an event shows; a `done` item counts if nothing of it was shown before."""
    kind = event["type"]
    if kind in ("response.output_text.delta", "response.refusal.delta"):
        return "text" if event["delta"] else None
    if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
        return "thinking" if event["delta"] else None
    if kind == "response.output_item.added":
        return None if event["item"]["type"] in _NO_CALL else "tool_call"
    if kind == "response.output_item.done" and event["output_index"] not in indexes:
        item = event["item"]
        if item["type"] == "message":
            return "text" if _text_of(item) else None
        if item["type"] == "reasoning":
            return "thinking" if _thinking_of(item) else None
        return None if item["type"] in _NO_CALL else "tool_call"
    return None


def _text_of(item: Json) -> str:
    return "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])


def _thinking_of(item: Json) -> str:
    return "".join(part["text"] for part in [*(item.get("summary") or []), *(item.get("content") or [])])


def _read_item(item: Json, api: str, reading: PlainReading) -> None:
    if item["type"] == "message":
        reading.text += _text_of(item)
    elif item["type"] == "reasoning":
        reading.thinking += _thinking_of(item)
    else:
        reading.calls.append(_item_call(item, api))


def _item_call(item: Json, api: str) -> PlainCall:
    """One call of any type; provider tools are named after their item type, less `_call`."""
    kind, raw = item["type"], ""
    arguments: object | None
    if kind == "custom_tool_call":
        raw = item["input"]
        arguments = {"input": raw}
    elif isinstance(item.get("arguments"), str):  # functions, MCP, and xAI's web search
        raw = item["arguments"]
        arguments = parsed_arguments(raw)
    else:
        arguments = _built_in_input(item)
    if kind == "mcp_approval_request":  # a question, not a call of the tool that it names
        asked = {"server_label": item["server_label"], "name": item["name"], "arguments": arguments}
        return PlainCall(kind, asked, "", item["id"], server_side=False)
    name = item.get("name") or kind.removesuffix("_call")
    return PlainCall(name, arguments, raw, item.get("call_id") or item["id"], _provider_runs(item, api))


def _built_in_input(item: Json) -> Json:
    for field in ("arguments", "action", "operation"):  # tool search; web search, shells, computer; patches
        if isinstance(item.get(field), dict):
            value: Json = item[field]
            return value
    return {name: item[name] for name in ("queries", "code", "server_label") if name in item}


def _provider_runs(item: Json, api: str) -> bool:
    """Whether the provider executes the call."""
    kind = item["type"]
    if kind == "custom_tool_call":
        return api == "xai-responses"  # xAI accepts no custom tools from clients: these are parts of its X search
    if kind == "shell_call":
        environment = item.get("environment") or {}
        return bool(environment.get("type", "local") != "local")
    if kind == "tool_search_call":
        return bool(item["execution"] == "server")
    return kind not in ("function_call", "local_shell_call", "apply_patch_call", "computer_call")


def _read_end(events: list[Json], reading: PlainReading, refused: bool) -> None:
    ends = [event for event in events if event["type"] in ("response.completed", "response.incomplete")]
    for event in events:
        usage = (event.get("response") or {}).get("usage")
        if usage:
            reading.usage = PlainUsage(
                input=usage["input_tokens"],
                output=usage["output_tokens"],
                cache_read=_count(usage.get("input_tokens_details"), "cached_tokens"),
                cache_write=_count(usage.get("input_tokens_details"), "cache_write_tokens"),
                reasoning=_count(usage.get("output_tokens_details"), "reasoning_tokens"),
            )
    if any(_is_error(event) for event in events):
        reading.finish = "error"
    elif ends:
        response = ends[-1]["response"]
        reason = (response.get("incomplete_details") or {}).get("reason")
        reading.raw_finish = reason or response["status"]
        common = "stop" if ends[-1]["type"] == "response.completed" else _INCOMPLETE.get(str(reason), "other")
        reading.finish = _finish(common, reading, refused)
