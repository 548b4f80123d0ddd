"""Signatures, encrypted and redacted reasoning: from the stream through storage back into a request, byte for byte.

The recorded answers of every provider are decoded, stored as canonical JSON, read back and encoded for the same
provider; what the oracle lists as continuation must be in the request unchanged.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bartack import Entry, Message, ModelConfig, stamped, user
from bartack.formats import ModelRequest, decoder, encode
from bartack.formats.framing import FramingName, sniff
from bartack.nouns import wire
from tests.recordings import oracle_openai, oracle_others
from tests.recordings.agreement import assembler_of, decoded
from tests.recordings.plain import PlainReading, case_dirs, load_case

FORMATS = {
    "anthropic-messages": "anthropic-messages",
    "bedrock-converse": "bedrock-converse",
    "gemini-generate": "gemini-generate",
    "gemini-interactions": "gemini-interactions",
    "openai-responses": "openai-responses",
    "azure-openai-responses": "openai-responses",
    "openrouter-chat": "openai-chat",
}
PROVIDERS = {"openrouter-chat": "openrouter"}  # where the format's own name is not the provider's
SEALED = 64  # signatures and ciphertexts are longer; ids go back only where they still mean something
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def reading_of(api: str, case_dir: Path) -> PlainReading:
    if FORMATS[api].startswith("openai"):
        return oracle_openai.read_stream(api, case_dir)
    return oracle_others.read_stream(api, case_dir)


def through_storage(message: Message) -> Message:
    fact = stamped(message, id="m1", timestamp=NOW)
    text = wire.encode(Entry(id="e1", session_id="s", seq=1, timestamp=NOW, fact=fact))
    back = wire.decode(Entry, text).fact
    assert back == fact
    assert isinstance(back, Message)
    return back


def texts_in(value: object) -> Iterator[str]:
    """Every text in a request body."""
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from texts_in(item)
        case list():
            for item in value:
                yield from texts_in(item)


@pytest.mark.parametrize("api", FORMATS)
def test_continuation_data_is_returned_byte_for_byte(api: str, recordings: Path) -> None:
    """D-3.9, D-3.9.1, D-3.9.2"""
    format, provider, checked = FORMATS[api], PROVIDERS.get(api, FORMATS[api]), 0
    for case_dir in case_dirs(api):
        case = load_case(case_dir)
        if case.http_status >= 400:
            continue
        reading = reading_of(api, case_dir)
        sealed = [text for text in reading.continuation if len(text) >= SEALED]
        if not sealed or reading.finish in ("error", "truncated"):
            continue
        framing: FramingName | None = "lines" if case.file == "response.chunks.jsonl" else sniff(case.body)
        assembler = assembler_of(decoded(decoder(format, framing=framing, provider=provider), case.body))
        answer = through_storage(assembler.build_final_message())
        config = ModelConfig(reading.model or "model")
        messages = (user("hi"), answer, user("go on"))
        body = encode(format, ModelRequest(messages, config=config, provider=provider)).body
        body_text = "\n".join(texts_in(body))
        for text in sealed:
            assert text in body_text, f"{case_dir.name}: {text[:40]}"
        checked += 1
    assert checked, f"no recording of {api} has anything to give back"
