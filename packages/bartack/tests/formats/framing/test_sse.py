"""Server-sent events: the standard, the extensions, the limits."""

import pytest

from bartack.formats.framing import Frame, Framed, FramingFault, ServerSentEvents
from tests.formats.framing.framing_bytes import cut, read


def events(*pieces: bytes, limit: int = 1000) -> Framed:
    return read(ServerSentEvents(limit), *pieces)


def test_an_event_is_complete_at_its_blank_line() -> None:
    framing = ServerSentEvents()
    assert framing.feed(b'data: {"a": 1}\n') == []
    assert framing.feed(b"\n") == [Frame(b'{"a": 1}')]


def test_one_chunk_may_contain_many_events_and_part_of_the_next() -> None:
    framing = ServerSentEvents()
    assert framing.feed(b"data: 1\n\nevent: ping\ndata: 2\n\nda") == [Frame(b"1"), Frame(b"2", "ping")]
    assert framing.feed(b"ta: 3\n\n") == [Frame(b"3")]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_all_three_line_endings_work_wherever_they_are_split(line_end: bytes) -> None:
    """D-3.11.1"""
    body = line_end.join([b"event: a", b"data: 1", b"data: 2", b"", b": note", b"data: 3", b"", b""])
    for place in range(len(body)):
        assert events(*cut(body, [place])) == [Frame(b"1\n2", "a"), Frame(b"3")]


def test_an_empty_chunk_between_cr_and_lf_changes_nothing() -> None:
    assert events(b"data: 1\r", b"", b"\ndata: 2\r\n\r\n") == [Frame(b"1\n2")]


def test_a_cr_at_the_end_of_a_chunk_ends_the_event_at_once() -> None:
    framing = ServerSentEvents()
    assert framing.feed(b"data: 1\r\n\r") == [Frame(b"1")]
    assert framing.feed(b"\ndata: 2\r\n\r\n") == [Frame(b"2")]


def test_one_space_after_the_colon_is_not_part_of_the_value() -> None:
    assert events(b"data:1\ndata: 2\ndata:  3\n\n") == [Frame(b"1\n2\n 3")]


def test_a_field_without_a_colon_has_an_empty_value() -> None:
    assert events(b"data\n\ndata\ndata\n\n") == [Frame(b""), Frame(b"\n")]
    assert events(b"event: a\nevent\ndata: 1\n\n") == [Frame(b"1")]


def test_comments_ids_retries_and_unknown_fields_are_skipped() -> None:
    assert events(b": note\nid: 7\nretry: 10\nfoo: bar\nbaz\n data: 0\ndata: 1\n\n") == [Frame(b"1")]


def test_an_event_without_data_is_ignored_with_its_name() -> None:
    assert events(b"event: ping\n\ndata: 1\n\n") == [Frame(b"1")]


def test_the_event_name_may_follow_the_data_and_the_last_one_wins() -> None:
    assert events(b"event: a\ndata: 1\nevent: b\n\n") == [Frame(b"1", "b")]


def test_invalid_utf8_is_replaced_in_a_name_and_kept_in_data() -> None:
    assert events(b"event: \xff\ndata: \xff\n\n") == [Frame(b"\xff", "�")]


@pytest.mark.parametrize("place", range(5))
def test_a_byte_order_mark_at_the_start_is_skipped(place: int) -> None:
    assert events(*cut(b"\xef\xbb\xbfdata: 1\n\n", [place])) == [Frame(b"1")]


def test_only_one_complete_byte_order_mark_is_skipped() -> None:
    assert events(b"\xef\xbb\xbf\xef\xbb\xbfdata: 1\n\n") == []
    assert events(b"\xef\xbb", b"data: 1\n\n") == []
    assert events(b"\xef\xbb") == []


@pytest.mark.parametrize("cut_end", [b"", b"\n"])
def test_the_last_event_needs_no_blank_line(cut_end: bytes) -> None:
    framing = ServerSentEvents()
    assert framing.feed(b"event: x\ndata: [DONE]" + cut_end) == []
    assert framing.end() == [Frame(b"[DONE]", "x")]


def test_input_after_the_end_is_ignored() -> None:
    framing = ServerSentEvents()
    assert read(framing, b"") == []
    assert read(framing, b"data: 1\n\n") == []


def test_an_error_line_is_a_frame_after_the_pending_event() -> None:
    assert events(b'event: a\ndata: 1\nerror: {"b": 2}\ndata: 3\n\n') == [
        Frame(b"1", "a"),
        Frame(b'{"b": 2}', "error"),
        Frame(b"3"),
    ]
    assert events(b"error:\n\n") == []


def test_a_bare_json_line_is_a_frame_after_the_pending_event() -> None:
    framing = ServerSentEvents()
    assert framing.feed(b'event: a\ndata: 1\n{"error": 2}\n') == [Frame(b"1", "a"), Frame(b'{"error": 2}')]
    assert framing.feed(b"data: 3\n\n") == [Frame(b"3")]


@pytest.mark.parametrize("before", [b"", b"\n", b"data: 1\n\n"])
def test_an_indented_json_body_is_one_frame(before: bytes) -> None:
    body = b'{\n  "error": {\n\n    "data:": "}"\n  }\n}'
    assert events(before + body)[-1:] == [Frame(body.replace(b"\n\n", b"\n"))]


@pytest.mark.parametrize("body", [b'[{"a": 1},\n{"b": 2}]\n', b'[\n  {"a": 1},\n  {"b": 2}\n]'])
def test_each_element_of_a_bare_array_is_a_frame(body: bytes) -> None:
    assert events(body, b"\ndata: 3\n\n") == [Frame(b'{"a": 1}'), Frame(b'{"b": 2}'), Frame(b"3")]


@pytest.mark.parametrize("field", [b"data: 1\n", b"event: a\ndata: 1\n", b": note\ndata: 1\n", b"id: 1\ndata: 1\n"])
def test_a_field_ends_an_incomplete_json_body(field: bytes) -> None:
    items = events(b"{broken\n" + field + b'\n{"a": 1}\n')
    assert [item.data for item in items if isinstance(item, Frame)] == [b"1", b'{"a": 1}']


@pytest.mark.parametrize("line", [b'{"a": 1} and so on', b"[info] loaded", b"[DONE]", b"<html>", b"[{}}"])
def test_lines_that_are_not_json_are_unknown_fields(line: bytes) -> None:
    assert events(line + b"\ndata: 1\n\n")[-1] == Frame(b"1")


def test_an_incomplete_bare_body_is_truncated() -> None:
    assert events(b'data: 1\n\n{"error": ') == [
        Frame(b"1"),
        FramingFault("truncated", "The JSON ended 11 bytes into a value."),
    ]


@pytest.mark.parametrize(
    ("body", "element"),
    [
        (b"data: 4567", "A line"),
        (b": note to nobody\n\ndata: 1\n\n", "A line"),
        (b"data: 456\ndata: 4567\n\ndata: 1\n\n", "A line"),
        (b"data: 456\ndata: 456\ndata: 456\n\ndata: 1\n\n", "An event"),
        (b'{\n"a":1,\n"b":2}\n\ndata: 1\n\n', "A JSON value"),
    ],
)
@pytest.mark.parametrize("place", range(12))
def test_a_line_or_event_over_the_limit_ends_the_stream(body: bytes, element: str, place: int) -> None:
    """D-3.11.2"""
    pieces = cut(b"data: 0\n\n" + body, [9 + place])
    assert events(*pieces, limit=9) == [Frame(b"0"), FramingFault("too_long", f"{element} exceeds 9 bytes.")]


def test_a_body_over_the_limit_ends_the_stream() -> None:
    assert events(b'{"a": 1}\n{"abcdef": 1}\n\ndata: 1\n\n', limit=9) == [
        Frame(b'{"a": 1}'),
        FramingFault("too_long", "A line exceeds 9 bytes."),
    ]
    assert events(b'{"abc":\n10}\n', b"data: 1\n\n", limit=9) == [
        FramingFault("too_long", "A JSON value exceeds 9 bytes.")
    ]


def test_a_line_of_exactly_the_limit_is_accepted() -> None:
    assert events(b"data: 456\ndata: 456\n\n", b"data: 456", limit=9) == [Frame(b"456\n456"), Frame(b"456")]
