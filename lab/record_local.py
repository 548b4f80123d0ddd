"""Record responses of a real server in three wire formats: llama.cpp's HTTP server with a local model.

    python -m lab.record_local [folder]

For each case it writes ``<format>/<case>.request.json`` with the body that was sent, and the bytes that were received:
``.response.sse``, or ``.response.<status>.json`` for an error. Nothing is edited. Temperature 0 and a seed make the
text the same on every run; ids and times differ. The models have to be downloaded first, with ``bartack models pull``.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bartack.models.weights import known_model
from lab.repository import find_test

OWN = find_test("recordings/own")
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "anthropic-messages": "/v1/messages",
    "openai-responses": "/v1/responses",
}
TINY, DEFAULT = "smollm2-135m", "qwen2.5-coder-0.5b"
SAME = {"stream": True, "temperature": 0, "seed": 7}
HELLO, STORY, WEATHER = "Say hello.", "Tell me a story.", "What is the weather in Paris?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: dict[str, Any] = {"name": "get_weather", "description": "The weather of a city."}
# By default the model writes its calls as plain text. A bias makes its marker for a call likely, token 151657; if it is
# too likely, a call never ends. The server accepts the bias in two of the three formats.
CALL = {"max_tokens": 60, "parallel_tool_calls": False, "logit_bias": [[151657, 23]]}
ENDLESS_CALL = {"max_tokens": 24, "logit_bias": [[151657, 26]]}


class Case(NamedTuple):
    """One request to the server with one model."""

    format: str
    name: str
    model: str
    body: dict[str, Any]


def conversation(text: str) -> list[dict[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def cases() -> list[Case]:
    """For every format: an answer, one cut at its limit, one with a tool, and a rejected request."""
    chat = {"stream_options": {"include_usage": True}, **SAME}
    question = {"messages": conversation(WEATHER)}
    chat_tools = [{"type": "function", "function": {**TOOL, "parameters": SCHEMA}}]
    messages_tools = [{**TOOL, "input_schema": SCHEMA}]
    responses_tools = [{"type": "function", **TOOL, "parameters": SCHEMA}]
    return [
        Case("openai-chat", "text", DEFAULT, {"messages": conversation(HELLO), "max_tokens": 32, **chat}),
        Case("openai-chat", "no_usage", TINY, {"messages": conversation(HELLO), "max_tokens": 8, **SAME}),
        Case("openai-chat", "length", TINY, {"messages": conversation(STORY), "max_tokens": 8, **chat}),
        Case("openai-chat", "tool_call", DEFAULT, {**question, "tools": chat_tools, **CALL, **chat}),
        Case("openai-chat", "cut_call", DEFAULT, {**question, "tools": chat_tools, **ENDLESS_CALL, **chat}),
        Case("openai-chat", "refused", TINY, {"messages": "none", **chat}),
        Case("anthropic-messages", "text", DEFAULT, {"messages": conversation(HELLO), "max_tokens": 32, **SAME}),
        Case("anthropic-messages", "length", TINY, {"messages": conversation(STORY), "max_tokens": 8, **SAME}),
        Case("anthropic-messages", "tools", DEFAULT, {**question, "tools": messages_tools, "max_tokens": 60, **SAME}),
        Case("anthropic-messages", "refused", TINY, {"max_tokens": 8, **SAME}),
        Case("openai-responses", "text", DEFAULT, {"input": HELLO, "max_output_tokens": 32, **SAME}),
        Case("openai-responses", "length", TINY, {"input": STORY, "max_output_tokens": 8, **SAME}),
        Case("openai-responses", "tool_call", DEFAULT, {"input": WEATHER, "tools": responses_tools, **CALL, **SAME}),
        Case("openai-responses", "refused", TINY, {"input": 5, **SAME}),
    ]


@contextmanager
def served(model: str, *, context_window: int = 2048) -> Iterator[str]:
    """The URL of a local server for this known model, on a free port."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when the library is loaded
    import xllamacpp  # noqa: PLC0415 - an extra

    params = xllamacpp.CommonParams()
    params.model.path = str(known_model(model).path)
    params.model_alias = {model}  # otherwise responses contain the path
    params.n_ctx = context_window
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity = -1
    params.warmup = False
    params.n_threads_http = 2
    server: Any = xllamacpp.Server(params)
    try:
        yield server.listening_address
    finally:
        del server  # stops it


def fetch(url: str, body: bytes) -> tuple[int, bytes]:
    """The status and the body of a response."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", "Connection": "close"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def record(case: Case, address: str, folder: Path) -> None:
    """Send one request, and store it with its response."""
    place = folder / case.format
    place.mkdir(parents=True, exist_ok=True)
    request = json.dumps({"model": case.model, **case.body}, indent=1).encode()
    status, received = fetch(address + PATHS[case.format], request)
    kind = "sse" if status == 200 else f"{status}.json"
    (place / f"{case.name}.request.json").write_bytes(request)
    (place / f"{case.name}.response.{kind}").write_bytes(received)
    print(f"{case.format}/{case.name}: {status}, {len(received)} bytes")


def main() -> None:
    """Record every case."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else OWN
    missing = [name for name in (TINY, DEFAULT) if not known_model(name).is_downloaded]
    if missing:
        sys.exit(f"error: not downloaded: {', '.join(missing)}. Run: bartack models pull NAME")
    for model in (TINY, DEFAULT):
        with served(model) as address:
            for case in cases():
                if case.model == model:
                    record(case, address, folder)


if __name__ == "__main__":
    main()
