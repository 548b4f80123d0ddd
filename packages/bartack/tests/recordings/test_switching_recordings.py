"""A conversation moves from one provider to another, and back: recorded answers as the history of any format's request.

D-3.9: continuation data (signatures, ciphertext, item ids, blocks of provider tools) is sent back byte for byte to the
provider it came from, and to no other. The answers are those of recorded streams; of several with the same kinds of
continuation data, only the first is used.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bartack.formats import Encoded, ModelRequest, decoder, encode
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Done
from bartack.nouns.messages import Message, tool_message, user
from bartack.nouns.parts import ToolResult
from bartack.nouns.wire import dump
from tests.formats.validity.checks import faults
from tests.properties.answers import LEFT, MODELS
from tests.recordings.agreement import FRAMINGS, assembler_of, decoded
from tests.recordings.oracle_openai import CHAT_APIS
from tests.recordings.plain import case_dirs, load_case, recordings_root

APIS = {format: (format,) for format in MODELS} | {
    "openai-chat": CHAT_APIS,
    "openai-responses": ("openai-responses", "openai-compat-responses", "azure-openai-responses", "xai-responses"),
}
FEWEST = 8  # characters: shorter strings occur everywhere
WORDS = frozenset(("type", "field", "arguments"))
NOTES = frozenset(("container", "groundingMetadata", "urlContextMetadata", "citations", "search_results"))
SEALED = frozenset(("signature", "thoughtSignature", "encrypted_content", "redactedContent", "data"))

pytestmark = pytest.mark.skipif(
    not recordings_root().is_dir(),
    reason=f"no recordings at {recordings_root()}; BARTACK_RECORDINGS names their folder",
)


def provider_of(api: str, format: str) -> str:
    return api.removesuffix("-chat") if format == "openai-chat" else api


@cache
def answers(format: str) -> list[tuple[str, str, Message]]:
    """Provider, model and answer of each recording that carries something new, in the order of their names."""
    shapes: dict[Any, tuple[str, str, Message]] = {}
    for api in APIS[format]:
        for case_dir in case_dirs(api):
            case = load_case(case_dir)
            if case.http_status < 400:
                provider, model = provider_of(api, format), str(case.meta.get("model") or MODELS[format])
                options: dict[str, Any] = {"framing": FRAMINGS[Path(case.file).suffix]}
                model_option = {"model_id": model} if format == "bedrock-invoke" else {}
                deltas = decoded(decoder(format, provider=provider, **options, **model_option), case.body)
                if isinstance(deltas[-1], Done):
                    message = assembler_of(deltas).build_final_message()
                    shapes.setdefault((provider, shape(message)), (provider, model, message))
    return list(shapes.values())


def shape(message: Message) -> tuple[Any, ...]:
    parts = [(part.kind, sorted(part.continuation.data) if part.continuation else []) for part in message.parts]
    return tuple(sorted({(kind, *keys) for kind, keys in parts}))


def secrets(message: Message) -> set[str]:
    """The strings that occur only in continuation data."""
    visible = [replace(part, continuation=None) for part in message.parts]
    visible_json = json.dumps(dump(replace(message, parts=tuple(visible), meta=None)), ensure_ascii=False)
    texts = {text for part in message.parts if part.continuation for _, text in strings(part.continuation.data)}
    return {text for text in texts if len(text) >= FEWEST and quoted(text) not in visible_json}


def sealed(message: Message) -> set[str]:
    """Signatures and ciphertext."""
    data = [part.continuation.data for part in message.parts if part.continuation]
    return {text for item in data for key, text in strings(item) if key in SEALED}


def strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every string with its key, except keywords of the format and data about an answer that no request repeats."""
    if isinstance(value, str) and key not in WORDS:
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in NOTES:
                yield from strings(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, key)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def sent(format: str, provider: str, model: str, answer: Message, *later: Message) -> Encoded:
    results = [ToolResult(call.tool_call_id, "42") for call in answer.tool_calls if call.executed_by == "client"]
    following = [tool_message(*results)] if results else [user("Go on.")]
    messages = (user("Hi"), answer, *following, *later)
    return encode(format, ModelRequest(messages, config=ModelConfig(model), provider=provider))


@pytest.mark.parametrize("origin", MODELS)
@pytest.mark.parametrize("target", MODELS)
def test_an_answer_is_sent_to_another_provider_without_its_continuation_data(origin: str, target: str) -> None:
    """D-3.9.3: there are no faults, no secrets, and a loss for every part that carried one."""
    for provider, _, answer in answers(origin):
        encoded = sent(target, f"{target} elsewhere" if origin == target else target, MODELS[target], answer)
        assert faults(target, encoded.body, model=MODELS[target]) == [], provider
        body = json.dumps(encoded.body, ensure_ascii=False)
        assert not [text for text in secrets(answer) if quoted(text) in body], provider
        places = {loss.where for loss in encoded.report.losses}
        # Repair has dropped the parts at history[1].parts; the places of the others are those of the message as sent.
        sent_parts = [
            (number, part) for number, part in enumerate(answer.parts) if f"history[1].parts[{number}]" not in places
        ]
        for place, (number, part) in enumerate(sent_parts):
            if part.continuation is not None:
                assert places & {f"messages[1].parts[{place}]", "history[1]"}, (provider, number, part)


@pytest.mark.parametrize("format", MODELS)
def test_an_answer_goes_back_to_its_provider_with_its_secrets(format: str) -> None:
    """D-3.9.2: signatures and ciphertext byte for byte, also after another provider has answered; anything else that
    cannot be sent back is reported."""
    between = Message("assistant", tuple(make("other0001") for make in LEFT["elsewhere"]))
    for provider, model, answer in answers(format):
        encoded = sent(format, provider, model, answer, between, user("And you?"))
        assert faults(format, encoded.body, model=model, provider=provider.removesuffix("-responses")) == [], provider
        body = json.dumps(encoded.body, ensure_ascii=False)
        assert not [text for text in sealed(answer) if quoted(text) not in body], provider
        if [text for text in secrets(answer) if quoted(text) not in body]:
            assert [loss for loss in encoded.report.losses if loss.where.startswith(("messages[1]", "history[1]"))]
