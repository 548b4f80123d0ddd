"""Laws of every writer: a decoder reads back what was written, a prefix with an error is an error, cuts do not matter.

The streams are those of a provider of another format, so continuation data is left out; how a format writes its own is
tested with recordings.
"""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.formats import decoder, writer
from bartack.formats.body_values import parsed_object
from bartack.nouns.deltas import Delta, Failed, MessageDelta, TextDelta, ThinkingDelta, ToolCallEnd
from bartack.nouns.errors import ErrorCode
from tests.formats.written import FORMATS, by_kind, content_of, message_of, reread, write_all
from tests.properties.strategies import streams
from tests.recordings.agreement import decoded

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def without_spaces(value: Any) -> Any:
    """JSON with parsed arguments; those of which nothing, or only a bracket, is left are empty."""
    match value:
        case {"arguments": "" | "{"}:
            return without_spaces({**value, "arguments": {}})
        case dict():
            return {key: without_spaces(item) for key, item in value.items()}
        case list():
            return [without_spaces(item) for item in value]
        case str():
            parsed = parsed_object(value)
            return value if parsed is None else parsed
    return value


def bare(stream: list[MessageDelta]) -> list[Delta]:
    return [stamped.delta for stamped in stream]


@pytest.mark.parametrize("format", FORMATS)
@given(stream=streams(end="done"))
def test_what_was_written_is_read_back(format: str, stream: list[MessageDelta]) -> None:
    deltas = bare(stream)
    assert content_of(reread(format, deltas, created=NOON)) == content_of(deltas)


@pytest.mark.parametrize("format", FORMATS)
@given(stream=streams(end="done"))
def test_the_pieces_are_those_of_the_stream(format: str, stream: list[MessageDelta]) -> None:
    """Text is written as it arrives, not collected."""
    deltas = bare(stream)

    def pieces(stream: list[Delta]) -> list[str]:
        return [
            delta.text_delta for delta in stream if isinstance(delta, TextDelta | ThinkingDelta) and delta.text_delta
        ]

    assert pieces(reread(format, deltas, created=NOON)) == pieces(deltas)


@pytest.mark.parametrize("format", FORMATS)
@given(stream=streams(end="done"), data=st.data())
def test_any_prefix_with_an_error_is_read_as_an_error(
    format: str, stream: list[MessageDelta], data: st.DataObject
) -> None:
    deltas = bare(stream)
    prefix = deltas[: data.draw(st.integers(1, len(deltas) - 1))]
    code = data.draw(st.sampled_from([ErrorCode.STREAM_TRUNCATED, ErrorCode.RATE_LIMITED, ErrorCode.AUTHENTICATION]))
    failed = reread(format, [*prefix, Failed(code, "broken", retryable=code.retryable)], created=NOON)[-1]
    assert isinstance(failed, Failed)
    if format != "ollama-chat":  # its errors have only a message
        assert failed.retryable == code.retryable


@pytest.mark.parametrize("format", FORMATS)
@given(stream=streams(), data=st.data())
def test_cutting_the_written_bytes_changes_nothing(
    format: str, stream: list[MessageDelta], data: st.DataObject
) -> None:
    body = write_all(writer(format, created=NOON), bare(stream))
    cut = data.draw(st.integers(0, len(body)))
    assert decoded(decoder(format), body[:cut], body[cut:]) == decoded(decoder(format), body)
    shortened = decoded(decoder(format), body[:cut])
    assert isinstance(shortened[-1], Failed) or decoded(decoder(format), body)[-1] == shortened[-1]


@pytest.mark.parametrize("format", FORMATS)
@given(stream=streams(end="done"))
def test_a_whole_response_is_the_joined_stream(format: str, stream: list[MessageDelta]) -> None:
    """The message and its stream give the same response, apart from losses of continuation data."""
    deltas = bare(stream)
    streamed, whole = writer(format, created=NOON, model_id="m"), writer(format, created=NOON, model_id="m")
    joined = streamed.joined([event for delta in deltas for event in streamed.events(delta)])
    assert without_spaces(whole.whole_response(message_of(deltas))) == without_spaces(joined)
    assert json.dumps(joined)


@pytest.mark.parametrize("format", FORMATS)
@given(stream=streams(end="done"), data=st.data())
def test_a_whole_response_is_read_back_and_an_incomplete_one_is_an_error(
    format: str, stream: list[MessageDelta], data: st.DataObject
) -> None:
    deltas = bare(stream)
    body = msgspec.json.encode(writer(format, created=NOON).whole_response(message_of(deltas)))
    read = decoded(decoder(format, framing="json-array"), body)
    assert by_kind(read) == by_kind(deltas)
    cut = data.draw(st.integers(0, len(body) - 1))
    assert isinstance(decoded(decoder(format, framing="json-array"), body[:cut])[-1], Failed)


@pytest.mark.parametrize("format", FORMATS)
@given(stream=streams(end="done"))
def test_no_call_of_the_client_ends_before_the_answer_is_complete(format: str, stream: list[MessageDelta]) -> None:
    deltas = bare(stream)
    read = decoder(format).receive_data(write_all(writer(format, created=NOON), deltas[:-1]))
    assert not any(isinstance(delta, ToolCallEnd) for delta in read)
