"""The law: every block that a provider sent goes back to it, or the loss report names it with its path.

A recorded request is read, stored as JSON, loaded, repaired and encoded; each value in its messages has to be in the
new one. A recorded answer is decoded, stored, loaded, repaired and encoded; everything that the encoder alone would
write has to be in the request. Where a format has blocks, these are also joined from the recording without the decoder,
and each of them has to be in the request as it is, or the report has to name the part that it became.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.formats import Encoded, ModelRequest, decoder, encode, format_named, read_request
from bartack.formats.format import HistoryRules
from bartack.formats.framing import FramingName, sniff
from bartack.formats.losses import Losses
from bartack.nouns.config import ModelConfig
from bartack.nouns.errors import BartackError
from bartack.nouns.messages import Message, user
from bartack.nouns.wire import dump, load
from tests.recordings.agreement import assembler_of, decoded
from tests.recordings.plain import case_dirs, load_case
from tests.recordings.raw_answers import BLOCKS, raw_blocks

CHAT = (
    "openai",
    "azure-openai",
    "perplexity",
    "groq",
    "mistral",
    "deepseek",
    "openrouter",
    "xai",
    "zai",
    "cerebras",
    "openai-compat",
)
API_FORMATS = {
    "anthropic-messages": "anthropic-messages",
    "bedrock-converse": "bedrock-converse",
    "gemini-generate": "gemini-generate",
    "openai-responses": "openai-responses",
    "openai-compat-responses": "openai-responses",
    **{f"{vendor}-chat": "openai-chat" for vendor in CHAT},
    "azure-openai-responses": "openai-responses",
    "xai-responses": "openai-responses",
    "bedrock-invoke": "bedrock-invoke",
    "cohere-v2": "cohere-v2",
    "gemini-interactions": "gemini-interactions",
    "ollama-chat": "ollama-chat",
}
HISTORY = ("messages", "input", "contents", "system", "instructions", "systemInstruction")
# Words for what is true without them, which our bodies leave out.
DEFAULTS = {"success", "message", "input_text", "text", "auto"}


def values_in(value: Any) -> Iterator[str]:
    """Every text and number; a text that is JSON is taken apart, and base64 has one alphabet."""
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:
            inner = None
        if isinstance(inner, dict | list):
            yield from values_in(inner)
        elif value.strip() and value not in DEFAULTS:
            yield value.replace("-", "+").replace("_", "/")
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from values_in(item)
    elif value is not None and not isinstance(value, bool):  # false is a default as well
        yield str(value)


def stored(request: ModelRequest) -> ModelRequest:
    return load(ModelRequest, json.loads(json.dumps(dump(request))))


def assert_complete(name: str, original: Any, encoded: Encoded) -> bool:
    """Whether every value of the original is in the body; if not, a loss has to name the message."""
    missing = set(values_in(original)) - set(values_in(encoded.body))
    places = [loss.where for loss in encoded.report.losses if loss.where.startswith(("history[", "messages["))]
    assert not missing or places, f"{name}: {sorted(missing)[:3]}"
    return not missing


@pytest.mark.parametrize("api", API_FORMATS)
def test_every_value_of_a_recorded_request_goes_back(api: str, recordings: Path) -> None:
    format, provider, incomplete = API_FORMATS[api], api.removesuffix("-chat"), []
    paths = [case_dir / "request.json" for folder in (api, f"{api}-requests") for case_dir in case_dirs(folder)]
    for path in filter(Path.exists, paths):
        meta = json.loads((path.parent / "meta.json").read_text("utf-8"))
        body = json.loads(path.read_text("utf-8"))
        if meta["http_status"] >= 400 or body.get("n", 1) > 1:  # several answers are refused
            continue
        request = read_request(format, body, provider=provider, model_id=meta.get("model") or "m")
        history = {key: body[key] for key in HISTORY if key in body}
        encoded = encode(format, stored(request), rules=with_any_id(format, request))
        if not assert_complete(path.parent.name, history, encoded):
            incomplete.append(path.parent.name)
    assert not incomplete, "a value is lost, and named in the report"


def with_any_id(format: str, request: ModelRequest) -> HistoryRules:
    """The rules of a format, except those for ids and names, which are replaced everywhere alike."""
    rules = format_named(format).history_rules(request.provider or format, request.config.model_id)
    return replace(rules, call_id_pattern=None, tool_name_pattern=None)


@pytest.mark.parametrize("api", API_FORMATS)
def test_every_block_of_a_recorded_answer_goes_back(api: str, recordings: Path) -> None:
    format, provider, checked = API_FORMATS[api], api.removesuffix("-chat"), 0
    for case_dir in case_dirs(api):
        case = load_case(case_dir)
        framing: FramingName | None = "lines" if case.file == "response.chunks.jsonl" else sniff(case.body)
        assembler = assembler_of(decoded(decoder(format, framing=framing, provider=provider), case.body))
        try:
            answer = assembler.build_final_message()
        except BartackError:  # an error response, or a stream that was cut off
            continue
        answer = load(Message, json.loads(json.dumps(dump(answer))))
        model = answer.meta.model.model if answer.meta is not None and answer.meta.model is not None else ""
        config = ModelConfig("anthropic.claude-opus-4-8" if format == "bedrock-invoke" else model or "m")
        request = ModelRequest((user("Hi"), answer, user("Go on")), config=config, provider=provider)
        alone = format_named(format).encode(request, Losses(provider))
        key = next(key for key in ("messages", "input", "contents") if key in alone)
        assert_complete(case_dir.name, alone[key], encode(format, request))
        checked += 1
    assert checked


RAW = {api: format for api, format in API_FORMATS.items() if format in BLOCKS}
# What is the same without it: our bodies leave it out.
IMPLIED: dict[str, Any] = {
    "args": {},
    "citations": [],
    "annotations": [],
    "logprobs": [],
    "summary": [],
    "content": None,
    "thoughtSignature": "",
}


@pytest.mark.parametrize("api", RAW)
def test_every_block_as_the_provider_sent_it_goes_back(api: str, recordings: Path) -> None:
    format, provider, checked = RAW[api], api, 0
    for case_dir in case_dirs(api):
        case = load_case(case_dir)
        framing: FramingName | None = "lines" if case.file == "response.chunks.jsonl" else sniff(case.body)
        assembler = assembler_of(decoded(decoder(format, framing=framing, provider=provider), case.body))
        try:
            answer = assembler.build_final_message()
        except BartackError:
            continue
        answer = load(Message, json.loads(json.dumps(dump(answer))))
        model = answer.meta.model.model if answer.meta is not None and answer.meta.model is not None else ""
        request = ModelRequest((user("Hi"), answer, user("Go on")), config=ModelConfig(model or "m"), provider=provider)
        encoded = encode(format, request, rules=with_any_id(format, request))
        sent = [plain(block) for block in blocks_in(encoded.body)]
        missing = [block for block in map(plain, raw_blocks(format, case)) if block not in sent]
        reported = {loss.where for loss in encoded.report.losses if ".parts[" in loss.where}
        assert len(missing) <= len(reported), f"{case_dir.name}: {missing[0]}"
        checked += 1
    assert checked


def blocks_in(body: dict[str, Any]) -> Iterator[Any]:
    """The items of a request, and the blocks of its turns."""
    for turn in next(body[key] for key in ("messages", "input", "contents") if key in body):
        yield turn
        yield from turn.get("content") or turn.get("parts") or []


def plain(value: Any) -> Any:
    """The value without what it implies; argument text is JSON."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: plain(item) for name, item in value.items() if IMPLIED.get(name, ...) != item and item is not None}
    if isinstance(fields.get("arguments"), str):
        fields["arguments"] = json.loads(fields["arguments"] or "{}")
    return fields
