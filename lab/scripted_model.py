"""A model on loopback that answers as its prompts say, in the APIs of Anthropic, OpenAI and Google.

A prompt has its answers in it, as `script` writes them: the first one is for the request with the prompt, the next one
for the request with the results of the first, and so on. Every request is kept.
"""

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
_SCRIPT = re.compile(r"@@(\[.*?\]) ?@@", re.DOTALL)  # Qwen Code takes what begins with @ for a path, after a space
_OF_MODEL = ("reasoning", "function_call")  # items of the Responses API without a role


def script(*answers: Json) -> str:
    """Text for a prompt. An answer has `think`, `text`, and `tools`, which are pairs of a name and arguments."""
    return f"@@{json.dumps(list(answers))}@@"


class ScriptedModel(ThreadingHTTPServer):
    """The server, on a free port. `requests` are the bodies of all requests to a model so far, and `exchanges` their
    paths and bytes, with those of the responses."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Json] = []
        self.exchanges: list[tuple[str, bytes, bytes]] = []

    @property
    def url(self) -> str:
        """Its address, without the path of an API."""
        return f"http://127.0.0.1:{self.server_port}"


def _turns(body: Json) -> Iterator[tuple[str, str]]:
    """Who spoke, and what: a user, the model, or a tool."""
    for item in body.get("messages") or body.get("input") or body.get("contents") or ():
        role, content = item.get("role"), item.get("content") or item.get("parts") or ""
        pieces = [{"text": content}] if isinstance(content, str) else content
        text = "\n".join(piece["text"] for piece in pieces if isinstance(piece.get("text"), str))
        if role in ("assistant", "model") or item.get("type") in _OF_MODEL:
            yield "model", ""
        elif role == "user" and text:
            yield "user", text
        else:
            yield "tool", ""


def _answer(body: Json) -> Json:
    """The answer that the last script has for this request."""
    answers, number, before = [], 0, ""
    for speaker, text in _turns(body):
        scripts = _SCRIPT.findall(text)
        if scripts:
            answers, number = json.loads(scripts[-1]), 0
        number += speaker == "model" and before != "model"
        before = speaker
    return answers[number] if number < len(answers) else {"text": "There is no answer."}


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedModel

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"object": "list", "data": [], "models": []}))

    def do_POST(self) -> None:
        data = self._body()
        body = json.loads(data)
        path = self.path.partition("?")[0]
        for end, answer in _APIS.items():
            if re.search(end, path):
                self.server.requests.append(body)
                number = len(self.server.requests)
                events = answer(_answer(body), number, body.get("model", "scripted"))
                lines = [f"event: {name}\n" * bool(name) + f"data: {json.dumps(data)}\n\n" for name, data in events]
                is_stream = body.get("stream", "stream" in path.lower())
                assert is_stream, f"{path} without a stream"
                self.server.exchanges.append((path, data, "".join(lines).encode()))
                self._send("text/event-stream", "".join(lines))
                return
        self._send("application/json", json.dumps({"input_tokens": 1000, "totalTokens": 1000}))

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        pieces: list[bytes] = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


Events = Iterator[tuple[str, Json]]


def _calls(answer: Json, number: int) -> Iterator[tuple[str, str, Json]]:
    for index, (name, arguments) in enumerate(answer.get("tools", ())):
        yield f"call_{number}_{index}", name, arguments


def _anthropic(answer: Json, number: int, model: str) -> Events:
    usage = {"input_tokens": 100, "cache_read_input_tokens": 20, "output_tokens": 10}
    start = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield "message_start", {"type": "message_start", "message": {**start, "stop_reason": None, "usage": usage}}
    blocks: list[tuple[Json, list[Json]]] = []
    if text := answer.get("think"):
        signed = {"type": "signature_delta", "signature": f"c2lnbmVkLQ{number:02}"}
        begin = {"type": "thinking", "thinking": "", "signature": ""}
        blocks.append((begin, [{"type": "thinking_delta", "thinking": text}, signed]))
    if text := answer.get("text"):
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]))
    for id, name, arguments in _calls(answer, number):
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        blocks.append(({"type": "tool_use", "id": f"toolu_{id}", "name": name, "input": {}}, [delta]))
    for index, (block, deltas) in enumerate(blocks):
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    reason = "tool_use" if answer.get("tools") else "end_turn"
    yield "message_delta", {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _responses(answer: Json, number: int, model: str) -> Events:
    items: list[Json] = []
    if text := answer.get("think"):
        summary = [{"type": "summary_text", "text": text}]
        items.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": f"e{number}"})
    if text := answer.get("text"):
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    for id, name, arguments in _calls(answer, number):
        call = {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": id}
        items.append({"id": f"fc_{id}", "status": "completed", **call})
    response: Json = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "model": model}
    yield "response.created", {"type": "response.created", "response": {**response, "output": []}}
    for index, item in enumerate(items):
        for event in ("response.output_item.added", "response.output_item.done"):
            yield event, {"type": event, "output_index": index, "item": item}
    usage = {"input_tokens": 120, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 10}
    usage |= {"output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 130}
    done = {**response, "status": "completed", "output": items, "usage": usage}
    yield "response.completed", {"type": "response.completed", "response": done}


def _chat(answer: Json, number: int, model: str) -> Events:
    calls = [
        {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (id, name, arguments) in enumerate(_calls(answer, number))
    ]
    delta: Json = {"role": "assistant", "content": answer.get("text")}
    delta |= {"reasoning_content": answer["think"]} if "think" in answer else {}
    delta |= {"tool_calls": calls} if calls else {}
    chunk: Json = {"id": f"chat-{number}", "object": "chat.completion.chunk", "created": 1, "model": model}
    yield "", {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 120, "completion_tokens": 10, "total_tokens": 130}
    yield "", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}


def _gemini(answer: Json, number: int, model: str) -> Events:
    parts: list[Json] = [{"text": answer["think"], "thought": True}] if "think" in answer else []
    parts += [{"text": answer["text"]}] if "text" in answer else []
    for id, name, arguments in _calls(answer, number):
        parts.append({"functionCall": {"id": id, "name": name, "args": arguments}, "thoughtSignature": "c2ln"})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 120, "candidatesTokenCount": 10, "thoughtsTokenCount": 2, "totalTokenCount": 132}
    yield "", {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": str(number)}


_APIS = {
    "/messages$": _anthropic,
    "/responses$": _responses,
    "/chat/completions$": _chat,
    ":(?:stream)?[gG]enerateContent$": _gemini,
}
