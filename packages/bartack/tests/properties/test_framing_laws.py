"""Laws of the framings: any bytes in any cuts, compared with a slow and simple implementation of each."""

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.formats.framing import (
    FRAMINGS,
    AwsEventStream,
    Frame,
    FramingFault,
    FramingName,
    JsonArray,
    Lines,
    ServerSentEvents,
    sniff,
)
from tests.formats.framing.framing_bytes import aws_message, cut, read

NAMES: list[FramingName] = list(FRAMINGS)

# Pieces that are significant to some framing, so that random bytes get past the first error.
TOKENS = [
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b": ",
        b":",
        b" ",
        b"\xef\xbb\xbf",
        b"data: ",
        b"data:",
        b"event: a",
        b"error: 1",
    ),
    *(b"{", b"}", b"[", b"]", b",", b'"', b"\\", b"{}", b'{"a": 1}', b"[{", b"1", b"x", b"\x00", b"\xff"),
    aws_message({":event-type": "a", "b": 1}, b"{}"),
]
bodies = st.one_of(st.binary(max_size=80), st.lists(st.sampled_from(TOKENS), max_size=40).map(b"".join))
places = st.lists(st.integers(0, 120), max_size=12)
limits = st.sampled_from([3, 8, 20, 1000])


@pytest.mark.parametrize("name", NAMES)
@given(body=bodies, places=places, limit=limits)
def test_any_cut_of_any_bytes_gives_the_same_frames_and_a_fault_is_last(
    name: FramingName, body: bytes, places: list[int], limit: int
) -> None:
    framed = read(FRAMINGS[name](limit), body)
    assert read(FRAMINGS[name](limit), *cut(body, places)) == framed
    assert read(FRAMINGS[name](limit), *cut(body, range(len(body)))) == framed
    assert all(isinstance(item, Frame) for item in framed[:-1])
    assert all(len(item.data) <= limit for item in framed if isinstance(item, Frame))


@given(body=bodies)
def test_any_bytes_can_be_sniffed(body: bytes) -> None:
    assert sniff(body) in (None, "sse", "ndjson", "json-array", "aws")


class Plain(NamedTuple):
    """The state of the simple reader: the three buffers of the standard's section on interpreting an event stream."""

    events: list[tuple[str, str]]
    data: str = ""
    event_type: str = ""


def read_line(state: Plain, line: str) -> Plain:
    if not line:
        if state.data == "":
            return Plain(state.events)
        return Plain([*state.events, (state.event_type, state.data[:-1])])
    if line.startswith(":"):
        return state
    field, _, value = line.partition(":") if ":" in line else (line, "", "")
    value = value[1:] if value.startswith(" ") else value
    if field == "event":
        return state._replace(event_type=value)
    if field == "data":
        return state._replace(data=state.data + value + "\n")
    return state


def plain_lines(text: str) -> list[str]:
    """The complete lines."""
    lines, line, place = [], "", 0
    while place < len(text):
        if text[place] in "\r\n":
            place += 2 if text[place : place + 2] == "\r\n" else 1
            lines.append(line)
            line = ""
        else:
            line += text[place]
            place += 1
    return lines


def plain_events(body: bytes) -> list[tuple[str, str]]:
    state = Plain([])
    for line in plain_lines(body.decode("utf-8-sig")):
        state = read_line(state, line)
    return state.events


# No line begins like a JSON body, and none is `error`: there we differ from the standard, on purpose.
values = st.text(st.sampled_from('aé "{}[]:,\\0'), max_size=8)
fields = st.sampled_from(["data", "event", "id", "retry", "", "Data", " data", "foo"])
lines = st.one_of(st.just(""), fields, st.builds("{}{}{}".format, fields, st.sampled_from([":", ": ", ":  "]), values))
texts = st.lists(st.tuples(lines, st.sampled_from(["\n", "\r\n", "\r"])), max_size=30).map(
    lambda drawn: "".join(line + end for line, end in drawn)
)


@given(text=texts, has_mark=st.booleans(), places=places)
def test_events_agree_with_a_simple_implementation_of_the_standard(
    text: str, has_mark: bool, places: list[int]
) -> None:
    # The last event always ends: one cut short is discarded by the standard, not by us. (Of the three LF, the first may
    # be half of a CRLF and the second end a line.)
    body = b"\xef\xbb\xbf" * has_mark + text.encode() + b"\n\n\n"
    framed = read(ServerSentEvents(), *cut(body, places))
    assert [(item.event, item.data.decode()) for item in framed if isinstance(item, Frame)] == plain_events(body)
    assert not any(isinstance(item, FramingFault) for item in framed)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.sampled_from('a"\\{}[],\né'), max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text('a"\\}]', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
layouts = st.sampled_from([None, 0, 2])


@given(values=st.lists(json_values, max_size=6), indent=layouts, places=places)
def test_the_elements_of_an_array_agree_with_json_loads(
    values: list[object], indent: int | None, places: list[int]
) -> None:
    body = json.dumps(values, indent=indent, ensure_ascii=False).encode()
    framed = read(JsonArray(), *cut(body, places))
    assert [json.loads(item.data) for item in framed if isinstance(item, Frame)] == values
    assert len(framed) == len(values)


@given(value=st.dictionaries(st.text(max_size=3), json_values, max_size=4), indent=layouts, places=places)
def test_a_json_body_instead_of_a_stream_is_one_frame(value: object, indent: int | None, places: list[int]) -> None:
    body = json.dumps(value, indent=indent).encode()
    for framing in (ServerSentEvents(), JsonArray(), Lines()):
        (frame,) = read(framing, *cut(body, places))
        assert isinstance(frame, Frame)
        assert json.loads(frame.data) == value


@given(values=st.lists(json_values, max_size=6), line_end=st.sampled_from([b"\n", b"\r\n", b"\n\n"]), places=places)
def test_the_lines_of_ndjson_agree_with_json_loads(values: list[object], line_end: bytes, places: list[int]) -> None:
    body = line_end.join(json.dumps(value).encode() for value in values)
    framed = read(Lines(), *cut(body, places))
    assert [json.loads(item.data) for item in framed if isinstance(item, Frame)] == values


header_values = st.one_of(
    st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=9), st.binary(max_size=9), st.uuids()
)
message_values = st.tuples(st.dictionaries(st.text(max_size=9), header_values, max_size=4), st.binary(max_size=40))


@given(messages=st.lists(message_values, max_size=4), places=places)
def test_messages_of_an_independent_encoder_are_read(
    messages: list[tuple[dict[str, bool | int | str | bytes], bytes]], places: list[int]
) -> None:
    body = b"".join(aws_message(headers, payload) for headers, payload in messages)
    framed = read(AwsEventStream(), *cut(body, places))
    assert [(item.headers, item.data) for item in framed if isinstance(item, Frame)] == messages
    assert len(framed) == len(messages)


@given(messages=st.lists(message_values, min_size=1, max_size=3), drawn=st.data())
def test_one_flipped_bit_is_a_fault_and_never_another_frame(
    messages: list[tuple[dict[str, bool | int | str | bytes], bytes]], drawn: st.DataObject
) -> None:
    body = bytearray(b"".join(aws_message(headers, payload) for headers, payload in messages))
    good = read(AwsEventStream(), bytes(body))
    bit = drawn.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8
    *before, last = read(AwsEventStream(), bytes(body))
    assert isinstance(last, FramingFault)
    assert before == good[: len(before)]
