"""An independent reading of Gemini's two streams: generateContent chunks, and the events of the Interactions API.

In: the JSON objects of one stream, in order, without their framing. Out: a `PlainReading`.

Decisions for generateContent:
- A candidate's `finishReason` or the prompt's `blockReason` is the terminal signal.
- The last `usageMetadata` that has counts holds as a whole: earlier ones go up and down with server-side tools.
- `executableCode` is a server-side call named `code_execution`, a `toolCall` part one named after its `toolType`,
  generated media one named `image_output` (`audio_output`, ...). Their results are not calls, nor is grounding.
- Streamed arguments are JSON paths with values, so there is no argument text: `raw` is "".
- An empty text part is not content, even if it has a signature.
"""

from typing import Any

from tests.recordings.plain import PlainCall, PlainReading, PlainUsage, parsed_arguments

Json = dict[str, Any]

FINISH = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    # Vertex may send enum numbers. 1 to 4 mean the same in both of Google's schemas, the higher ones do not.
    "1": "stop",
    "2": "length",
    "3": "content_filter",
    "4": "content_filter",
}
STATUS = {"completed": "stop", "requires_action": "tool_calls", "incomplete": "length", "failed": "error"}


def read_chunks(chunks: list[Json]) -> PlainReading:
    reading = PlainReading()
    arguments = _StreamedArguments()
    for chunk in chunks:
        reading.model = chunk.get("modelVersion", reading.model)
        reading.response_id = chunk.get("responseId", reading.response_id)
        reading.usage = _chunk_usage(chunk.get("usageMetadata", {})) or reading.usage
        if "error" in chunk:
            reading.finish, reading.raw_finish = "error", None
            break
        if chunk.get("promptFeedback", {}).get("blockReason"):
            reading.finish, reading.raw_finish = "content_filter", str(chunk["promptFeedback"]["blockReason"])
        for candidate in chunk.get("candidates", []):
            if candidate.get("index", 0) != 0:
                continue
            for part in candidate.get("content", {}).get("parts", []):
                _read_part(part, reading, arguments)
            if candidate.get("finishReason"):
                reading.raw_finish = str(candidate["finishReason"])
                reading.finish = FINISH.get(reading.raw_finish, "other")
    return _with_client_calls(reading)


def _with_client_calls(reading: PlainReading) -> PlainReading:
    if reading.finish == "stop" and any(not call.server_side for call in reading.calls):
        reading.finish = "tool_calls"
    return reading


def _read_part(part: Json, reading: PlainReading, arguments: "_StreamedArguments") -> None:
    if part.get("thoughtSignature"):
        reading.continuation.append(part["thoughtSignature"])
    content = {key: value for key, value in part.items() if key not in {"thought", "thoughtSignature", "partMetadata"}}
    if not content:
        return
    if len(content) != 1:
        raise ValueError(f"a part with several contents: {sorted(content)}")
    [(kind, value)] = content.items()
    if kind == "text":
        _add_text(value, part.get("thought") is True, reading)
    elif kind == "functionCall":
        arguments.receive(value, reading)
    elif kind == "executableCode":
        _add_server_call("code_execution", {k: v for k, v in value.items() if k != "id"}, value.get("id"), reading)
    elif kind == "toolCall":
        _add_server_call(value["toolType"], value.get("args", {}), value.get("id"), reading)
    elif kind == "inlineData":
        _add_server_call(value["mimeType"].partition("/")[0] + "_output", {}, None, reading)
    elif kind not in {"codeExecutionResult", "toolResponse"}:
        raise ValueError(f"unknown part {kind!r}")


def _add_text(text: str, thought: bool, reading: PlainReading) -> None:
    if not text:
        return
    if thought:
        reading.thinking += text
        reading.saw("thinking")
    else:
        reading.text += text
        reading.saw("text")


def _add_server_call(name: str, arguments: Json, provider_id: str | None, reading: PlainReading) -> None:
    reading.calls.append(PlainCall(name, arguments, "", provider_id, server_side=True))
    reading.saw("tool_call")


class _StreamedArguments:
    """Assembles `functionCall` parts: usually one, several if Vertex AI streams the arguments.

    A part with a name opens a call; a part without one continues it. `willContinue` on the part means that the call
    continues, on a partial argument that its string does.
    """

    def __init__(self) -> None:
        self.call: PlainCall | None = None
        self.unfinished: set[str] = set()

    def receive(self, value: Json, reading: PlainReading) -> None:
        if "name" in value:
            self.call = PlainCall(value["name"], value.get("args", {}), "", value.get("id"), server_side=False)
            self.unfinished = set()
            reading.calls.append(self.call)
            reading.saw("tool_call")
        if self.call is None:
            raise ValueError("arguments of a call that never began")
        for piece in value.get("partialArgs", []):
            self._place(piece, self.call)
        if not value.get("willContinue"):
            self.call = None

    def _place(self, piece: Json, call: PlainCall) -> None:
        path = piece["jsonPath"]
        if "stringValue" in piece:
            value: object = piece["stringValue"]
        elif "numberValue" in piece:
            value = piece["numberValue"]
        elif "boolValue" in piece:
            value = piece["boolValue"]
        elif "nullValue" in piece:
            value = None
        else:
            raise ValueError(f"a partial argument without a value: {sorted(piece)}")
        _put(call.arguments, path_steps(path), value, append=path in self.unfinished)
        if piece.get("willContinue"):
            self.unfinished.add(path)
        else:
            self.unfinished.discard(path)


def path_steps(path: str) -> list[str | int]:
    """`$.a[0]['b c']` as `["a", 0, "b c"]`: the normalized and dotted paths of RFC 9535, no wildcards."""
    steps: list[str | int] = []
    remaining = path.removeprefix("$")
    while remaining:
        if remaining[0] == ".":
            ends = [place for place in (remaining.find(".", 1), remaining.find("[", 1)) if place > 0]
            end = min(ends, default=len(remaining))
            steps.append(remaining[1:end])
        elif remaining[:2] in {"['", '["'}:
            end = remaining.index(remaining[1] + "]", 2) + 2
            steps.append(remaining[2 : end - 2])
        elif remaining[0] == "[":
            end = remaining.index("]") + 1
            steps.append(int(remaining[1 : end - 1]))
        else:
            raise ValueError(f"not a JSON path: {path!r}")
        remaining = remaining[end:]
    return steps


def _put(root: Any, steps: list[str | int], value: Any, append: bool) -> None:
    """Set the value at the path, or append to it if it is a string, creating the lists and objects on the way."""
    node = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(step, int):
            node += [None] * (step + 1 - len(node))
        if following is None:
            node[step] = node[step] + value if append else value
            return
        missing = node[step] is None if isinstance(step, int) else step not in node
        if missing:
            node[step] = [] if isinstance(following, int) else {}
        node = node[step]


def _chunk_usage(counts: Json) -> PlainUsage | None:
    """`promptTokenCount` includes cached tokens; tool prompts and thoughts are counted separately."""
    if "promptTokenCount" not in counts:
        return None
    thoughts = counts.get("thoughtsTokenCount")
    return PlainUsage(
        input=counts["promptTokenCount"] + counts.get("toolUsePromptTokenCount", 0),
        output=counts.get("candidatesTokenCount", 0) + (thoughts or 0),
        cache_read=counts.get("cachedContentTokenCount"),
        reasoning=thoughts,
    )


def read_interaction(events: list[Json]) -> PlainReading:
    """The Interactions API. `interaction.completed` is the terminal signal, whatever status it reports."""
    reading = PlainReading()
    steps: dict[int, Json] = {}
    for event in events:
        kind = event["event_type"]
        reading.usage = _interaction_usage(event.get("metadata", {}).get("usage")) or reading.usage
        if kind == "interaction.created":
            reading.model, reading.response_id = event["interaction"].get("model"), event["interaction"]["id"]
        elif kind == "step.start":
            steps[event["index"]] = {**event["step"], "deltas": []}
        elif kind == "step.delta":
            steps[event["index"]]["deltas"].append(event["delta"])
        elif kind == "interaction.completed":
            reading.raw_finish = event["interaction"]["status"]
            reading.finish = STATUS.get(event["interaction"]["status"], "other")
            reading.usage = _interaction_usage(event["interaction"].get("usage")) or reading.usage
        elif kind == "error":
            reading.finish, reading.raw_finish = "error", None
        elif kind not in {"interaction.status_update", "step.stop"}:
            raise ValueError(f"unknown event {kind!r}")
    for step in steps.values():
        _read_step(step, reading)
    return _with_client_calls(reading)


def _read_step(step: Json, reading: PlainReading) -> None:
    kind, deltas = step["type"], step["deltas"]
    reading.continuation += [piece["signature"] for piece in [step, *deltas] if piece.get("signature")]
    if kind == "thought":
        for delta in deltas:
            if delta["type"] == "thought_summary":
                _add_text(delta["content"]["text"], True, reading)
    elif kind == "model_output":
        for delta in deltas:
            if delta["type"] == "text":
                _add_text(delta["text"], False, reading)
            elif delta["type"] in {"image", "audio", "video", "document"}:
                _add_server_call(delta["type"] + "_output", {}, None, reading)
    elif kind == "function_call":
        # Recorded as `arguments`; Google's own client calls the field `partial_arguments`.
        raw = "".join(delta.get("arguments") or delta.get("partial_arguments") or "" for delta in deltas)
        arguments = parsed_arguments(raw) if raw else step.get("arguments", {})
        reading.calls.append(PlainCall(step["name"], arguments, raw, step.get("id"), server_side=False))
        reading.saw("tool_call")
    elif kind.endswith("_call"):
        inputs = [piece["arguments"] for piece in [step, *deltas] if piece.get("arguments")]
        names = [piece["name"] for piece in [step, *deltas] if piece.get("name")]
        name = names[-1] if names else kind.removesuffix("_call")
        _add_server_call(name, inputs[-1] if inputs else {}, step.get("id"), reading)
    elif not kind.endswith("_result"):
        raise ValueError(f"unknown step {kind!r}")


def _interaction_usage(counts: Json | None) -> PlainUsage | None:
    if not counts:
        return None
    return PlainUsage(
        input=counts["total_input_tokens"] + counts.get("total_tool_use_tokens", 0),
        output=counts["total_output_tokens"] + counts.get("total_thought_tokens", 0),
        cache_read=counts.get("total_cached_tokens"),
        reasoning=counts.get("total_thought_tokens"),
    )
