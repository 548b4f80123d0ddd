"""What all decoders share, tested with a minimal format."""

import json
from typing import Any, ClassVar

import msgspec
import pytest

from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta
from bartack.nouns.errors import ErrorCode
from tests.formats.framing.framing_bytes import aws_message


class Word(msgspec.Struct):
    say: str | None = None
    finish: bool = False


class Words(Decoder):
    """``{"say": ...}`` is text, ``{"finish": true}`` is the reason, ``BYE`` or the end of the bytes is the end."""

    format: ClassVar[str] = "words"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(Word)

    def read(self, event: Word, frame: Frame) -> None:
        if event.say is not None:
            self.out.text(event.say)
        if event.finish:
            self.out.finish("stop")

    def read_unparsed(self, frame: Frame) -> bool:
        if frame.data == b"BYE":
            self.out.done()
        return frame.data in (b"BYE", b"HUM")

    def read_end(self) -> None:
        if self.out.finish_reason is None:
            self.truncated("a finish")
        else:
            self.out.done()


def sse(*payloads: str) -> bytes:
    return "".join(f"data: {payload}\n\n" for payload in payloads).encode()


def read(body: bytes, **options: Any) -> list[Delta]:
    decoder = Words(**options)
    return [*decoder.receive_data(body), *decoder.receive_eof()]


def text_event(text: str) -> str:
    return json.dumps({"say": text})


FINISH = '{"finish": true}'


def test_a_stream_is_start_content_and_done() -> None:
    """D-3.11"""
    assert read(sse(text_event("a"), FINISH)) == [Start("", "local", provider="words"), TextDelta("a"), Done("stop")]


def test_start_contains_the_provider_model_and_local_id() -> None:
    deltas = read(sse(text_event("a")), provider="acme", model_id="m", local_id="r1")
    assert deltas[0] == Start("m", "r1", provider="acme")


def test_without_the_terminal_signal_the_stream_is_truncated() -> None:
    """D-3.5"""
    last = read(sse(text_event("a")))[-1]
    assert last == Failed(ErrorCode.STREAM_TRUNCATED, "The stream ended before a finish.", retryable=True)


def test_an_empty_stream_is_truncated() -> None:
    """D-3.7, D-3.11"""
    start, last = read(b"")
    assert isinstance(start, Start)
    assert isinstance(last, Failed)


def test_a_payload_that_is_not_an_event_is_an_error() -> None:
    """D-3.11"""
    last = read(sse(text_event("a"), '{"say": 5}', text_event("b")))[-1]
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_MALFORMED
    assert "words" in last.message


@pytest.mark.parametrize("payload", ['{"say": "\\udx"}', '{"say": 5, "x": "\\ud83d"}', '"\\ud83d' + "[" * 5000])
def test_a_malformed_surrogate_escape_is_an_error(payload: str) -> None:
    last = read(sse(payload))[-1]
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_MALFORMED


def test_a_format_may_define_payloads_that_are_not_events() -> None:
    assert [type(delta) for delta in read(sse(text_event("a"), "HUM", "BYE", text_event("late")))] == [
        Start,
        TextDelta,
        Done,
    ]


def test_input_after_the_end_is_ignored() -> None:
    """D-3.1"""
    decoder = Words()
    assert isinstance(decoder.receive_data(sse("BYE"))[-1], Done)
    assert decoder.receive_data(sse(text_event("late"))) == []
    assert decoder.receive_eof() == []


def test_an_incomplete_last_event_is_truncated_not_malformed() -> None:
    """D-3.5"""
    last = read(sse(text_event("a")) + b'data: {"sa')[-1]
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_TRUNCATED


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (aws_message({}, text_event("a").encode())[:-4] + b"\x00\x00\x00\x00", ErrorCode.STREAM_MALFORMED),
        (aws_message({}, text_event("a").encode())[:-1], ErrorCode.STREAM_TRUNCATED),
    ],
    ids=["checksum", "cut"],
)
def test_a_framing_fault_ends_the_stream(body: bytes, code: ErrorCode) -> None:
    last = read(body, framing="aws")[-1]
    assert isinstance(last, Failed)
    assert last.error_code is code


def test_a_fault_after_the_finish_does_not_discard_the_answer() -> None:
    body = aws_message({}, text_event("a").encode()) + aws_message({}, FINISH.encode())
    assert isinstance(read(body + b"\x00" * 20, framing="aws")[-1], Done)


def test_an_escaped_surrogate_pair_split_between_events_is_joined() -> None:
    body = sse('{"say": "a\\ud83d"}', '{"say": "\\ude00b"}', FINISH)
    text = "".join(delta.text_delta for delta in read(body) if isinstance(delta, TextDelta))
    assert text == "a😀b"


def test_a_format_without_such_payloads_rejects_them() -> None:
    class Plain(Words):
        read_unparsed = Decoder.read_unparsed

    decoder = Plain()
    assert isinstance(decoder.receive_data(sse("HUM"))[-1], Failed)


def test_reading_stops_at_the_event_that_ends_the_stream() -> None:
    """D-3.1"""

    class Curt(Words):
        def read(self, event: Word, frame: Frame) -> None:
            super().read(event, frame)
            self.out.done()

    deltas = Curt().receive_data(sse(text_event("a"), text_event("b")))
    assert [type(delta) for delta in deltas] == [Start, TextDelta, Done]


def test_a_decoder_can_report_to_the_emitter_of_another() -> None:
    outer = Words()
    inner = Words(out=outer.out)
    inner.receive_frame(Frame(text_event("a").encode()))
    assert [type(delta) for delta in outer.out.take()] == [Start, TextDelta]
