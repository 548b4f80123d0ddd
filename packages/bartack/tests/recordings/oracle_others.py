"""An independent reading of every recorded stream that is not in an OpenAI format.

In: the API (the name of the recordings' folder) and a case folder. Out: the `PlainReading` of the whole body. The
oracle modules beside this one read the formats; here the framing is removed. Nothing of Bartack is imported. A case
recorded as an HTTP error reads as `finish="error"` and nothing else; `oracle_error` reads the error itself.
"""

import json
from pathlib import Path
from typing import Any

from tests.recordings import oracle_anthropic, oracle_bedrock, oracle_gemini, oracle_small
from tests.recordings.plain import Case, PlainReading, json_lines, load_case, sse_events

APIS = (
    "anthropic-messages",
    "bedrock-converse",
    "bedrock-invoke",
    "cohere-v2",
    "gemini-generate",
    "gemini-interactions",
    "ollama-chat",
)
READERS = {
    "anthropic-messages": oracle_anthropic.read_events,
    "cohere-v2": oracle_small.read_cohere,
    "gemini-generate": oracle_gemini.read_chunks,
    "gemini-interactions": oracle_gemini.read_interaction,
    "ollama-chat": oracle_small.read_ollama,
}


def read_stream(api: str, case_dir: Path) -> PlainReading:
    """What the recorded stream contains. Raises ValueError on anything unknown."""
    case = load_case(case_dir)
    if case.http_status >= 400:
        return PlainReading(finish="error")
    return read_body(api, case)


def read_body(api: str, case: Case) -> PlainReading:
    if case.file == "response.bin":
        events = oracle_bedrock.frames(case.body)
        return oracle_bedrock.read_invoke(events) if api == "bedrock-invoke" else oracle_bedrock.read_converse(events)
    if api == "bedrock-converse":
        return oracle_bedrock.read_converse(oracle_bedrock.named_events(_objects(case)))
    return READERS[api](_objects(case))


def _objects(case: Case) -> list[dict[str, Any]]:
    if case.file == "response.sse":
        return [json.loads(data) for _, data in sse_events(case.body) if data != "[DONE]"]
    if case.file == "response.json":
        array: list[dict[str, Any]] = json.loads(case.body)
        return array
    return [json.loads(line) for line in json_lines(case.body)]


def oracle_error(body: bytes, meta: dict[str, object]) -> tuple[int, str | None, str]:
    """An HTTP error as (status, the provider's own type or code, its message).

    Anthropic has a type, Google a status. Bedrock's type is in a header, which the recordings lack: None.
    """
    status = meta["http_status"]
    assert isinstance(status, int)
    value = json.loads(body)
    if isinstance(value, list):  # Google wraps an error of its array form in an array, too
        value = value[0]
    error = value.get("error", value)
    if isinstance(error, str):  # Ollama
        return status, None, error
    return status, error.get("type") or error.get("status"), error["message"]
