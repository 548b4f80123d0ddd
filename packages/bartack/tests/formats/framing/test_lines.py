"""One JSON value per line."""

import pytest

from bartack.formats.framing import Frame, FramingFault, Lines
from tests.formats.framing.framing_bytes import cut, read


def test_each_line_is_a_frame_as_soon_as_it_is_complete() -> None:
    framing = Lines()
    assert framing.feed(b'{"a": 1}\r\n{"b"') == [Frame(b'{"a": 1}')]
    assert framing.feed(b": 2}\n") == [Frame(b'{"b": 2}')]
    assert framing.end() == []


def test_blank_lines_and_a_byte_order_mark_are_skipped() -> None:
    assert read(Lines(), b"\xef\xbb\xbf1\n\n  \r\n2\n\n") == [Frame(b"1"), Frame(b"2")]


def test_the_last_line_needs_no_line_ending() -> None:
    assert read(Lines(), b"1\n", b"[DO", b"NE]") == [Frame(b"1"), Frame(b"[DONE]")]


def test_input_after_the_end_is_ignored() -> None:
    framing = Lines()
    assert read(framing) == []
    assert read(framing, b"1\n") == []


@pytest.mark.parametrize("body", [b'{\r\n  "error": {\n    "a": "}"\n\n  }\n}', b'{ \n"a": 1}'])
def test_an_indented_body_is_one_frame_before_and_between_lines(body: bytes) -> None:
    for place in range(len(body)):
        assert read(Lines(), *cut(body, [place])) == [Frame(body)]
    assert read(Lines(), b"1\n" + body + b"\n2\n") == [Frame(b"1"), Frame(body), Frame(b"2")]


def test_each_element_of_an_indented_array_is_a_frame() -> None:
    assert read(Lines(), b'[{\n"a": 1\n}\n,\n{}]') == [Frame(b'{\n"a": 1\n}'), Frame(b"{}")]


def test_an_incomplete_indented_body_is_truncated() -> None:
    assert read(Lines(), b'{\n"a": 1') == [FramingFault("truncated", "The JSON ended 9 bytes into a value.")]


def test_a_fault_in_an_indented_body_ends_the_stream() -> None:
    fault = FramingFault("malformed", "b'x' cannot begin a JSON object or array.")
    assert read(Lines(), b"{\n} x\n1\n", b"2\n") == [Frame(b"{\n}"), fault]


@pytest.mark.parametrize("place", range(14))
def test_a_line_over_the_limit_ends_the_stream(place: int) -> None:
    """D-3.11.2"""
    fault = FramingFault("too_long", "A line exceeds 5 bytes.")
    assert read(Lines(5), *cut(b"12345\n123456\n1\n", [place])) == [Frame(b"12345"), fault]
