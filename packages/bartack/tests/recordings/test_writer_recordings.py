"""Every recorded answer, decoded and written in each format: a client reads the same answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bartack.formats import decoder, writer
from bartack.nouns.deltas import Delta, Done, Failed
from tests.formats.written import FORMATS, by_kind, content_of, message_of, reread, write_all
from tests.recordings.agreement import FRAMINGS, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_openai import CHAT_APIS, RESPONSES_APIS
from tests.recordings.oracle_others import APIS
from tests.recordings.plain import case_dirs, load_case

FORMAT_OF = (
    dict.fromkeys(CHAT_APIS, "openai-chat")
    | dict.fromkeys(RESPONSES_APIS, "openai-responses")
    | {api: api for api in APIS}
)


def recorded(api: str) -> Iterator[tuple[Path, list[Delta]]]:
    """The decoded answers of one API."""
    for case_dir in case_dirs(api):
        case = load_case(case_dir)
        if case.http_status < 400:
            yield case_dir, decoded(decoder(FORMAT_OF[api], framing=FRAMINGS[Path(case.file).suffix]), case.body)


@pytest.mark.parametrize("api", sorted(FORMAT_OF))
@pytest.mark.parametrize("format", FORMATS)
def test_a_client_reads_the_recorded_answer(recordings: Path, format: str, api: str) -> None:
    for case_dir, deltas in recorded(api):
        read = reread(format, deltas)
        if isinstance(deltas[-1], Done):
            assert content_of(read) == content_of(deltas), case_dir
        else:
            assert isinstance(read[-1], Failed), case_dir


@pytest.mark.parametrize("format", ["anthropic-messages", "ollama-chat"])
def test_an_answer_of_the_same_format_is_read_with_all_its_continuation_data(recordings: Path, format: str) -> None:
    for case_dir, deltas in recorded(format):
        if isinstance(deltas[-1], Done):
            read = reread(format, deltas)
            assert message_of(read).parts == message_of(deltas).parts, case_dir
            assert read[-1] == deltas[-1], case_dir


@pytest.mark.parametrize("api", sorted(FORMAT_OF))
@pytest.mark.parametrize("format", FORMATS)
def test_a_client_reads_the_recorded_answer_from_a_whole_response(recordings: Path, format: str, api: str) -> None:
    for case_dir, deltas in recorded(api):
        if isinstance(deltas[-1], Done):
            message = message_of(deltas)
            body = msgspec.json.encode(writer(format).whole_response(message))
            read = decoded(decoder(format, framing="json-array"), body)
            assert by_kind(read) == by_kind(deltas), case_dir


SECRETS = {
    "anthropic-messages": "signature",
    "gemini-generate": "thoughtSignature",
    "openai-chat": "extra_content",
    "openai-responses": "encrypted_content",
}


@pytest.mark.parametrize("api", [api for api in FORMAT_OF if FORMAT_OF[api] in SECRETS])
def test_what_a_provider_wants_back_unchanged_reaches_the_client(recordings: Path, api: str) -> None:
    """Signatures and ciphertexts, in their order; the ids of items and calls may change."""
    format = FORMAT_OF[api]
    for case_dir, deltas in recorded(api):
        if isinstance(deltas[-1], Done):
            assert secrets_in(reread(format, deltas), format) == secrets_in(deltas, format), case_dir


def secrets_in(deltas: list[Delta], format: str) -> list[Any]:
    data = [part.continuation.data for part in message_of(deltas).parts if part.continuation is not None]
    return [value for value in values_of(data, SECRETS[format]) if value]


def values_of(value: Any, key: str) -> Iterator[Any]:
    """Every value under this key, at any depth."""
    if isinstance(value, dict):
        yield from (item for name, item in value.items() if name == key)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from values_of(item, key)


@pytest.mark.parametrize("format", FORMATS)
def test_written_answers_may_be_cut_anywhere(recordings: Path, format: str) -> None:
    for api in APIS:
        for case_dir, deltas in list(recorded(api))[:3]:
            body = write_all(writer(format), deltas)
            assert_cuts_change_nothing(lambda: decoder(format), body)
            assert case_dir.is_dir()
