"""Values out of a JSON array, one by one."""

import pytest

from bartack.formats.framing import Frame, Framed, FramingFault, JsonArray
from tests.formats.framing.framing_bytes import cut, read


def test_an_element_is_returned_as_soon_as_it_is_complete() -> None:
    framing = JsonArray()
    assert framing.feed(b'[{"a": [1, {}]}') == [Frame(b'{"a": [1, {}]}')]
    assert framing.feed(b'\n,\n{"b"') == []
    assert framing.feed(b": 2}\n]\n") == [Frame(b'{"b": 2}')]
    assert framing.end() == []


def test_a_single_object_is_one_frame() -> None:
    body = b'{\n  "error": {"code": 400}\n}'
    assert read(JsonArray(), b"\xef\xbb\xbf " + body + b"\n") == [Frame(body)]


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b"", []),
        (b" [ ] ", []),
        (b'[1, "a]", null ,[2,[3]],"\\"" ]', [b"1", b'"a]"', b"null", b"[2,[3]]", b'"\\""']),
        (b'[{"a": "\\\\"}, {"}": "{["}]', [b'{"a": "\\\\"}', b'{"}": "{["}']),
        (b"{}{}[{}]", [b"{}", b"{}", b"{}"]),
    ],
)
def test_values_do_not_depend_on_how_the_bytes_are_split(body: bytes, values: list[bytes]) -> None:
    """D-3.11.1"""
    for place in range(len(body) + 1):
        assert read(JsonArray(), *cut(body, [place])) == [Frame(value) for value in values]
    assert read(JsonArray(), *cut(body, range(len(body)))) == [Frame(value) for value in values]


@pytest.mark.parametrize(
    ("body", "framed"),
    [
        (b'[{"a": "b', [FramingFault("truncated", "The JSON ended 8 bytes into a value.")]),
        (b"[{}", [Frame(b"{}"), FramingFault("truncated", "The JSON ended before the array's closing bracket.")]),
        (b"[1", [FramingFault("truncated", "The JSON ended 1 bytes into a value.")]),
        (b"error", [FramingFault("malformed", "b'e' cannot begin a JSON object or array.")]),
        (b"[1}, 2]", [Frame(b"1"), FramingFault("malformed", "b'}' cannot begin a JSON object or array.")]),
        (b"[]]", [FramingFault("malformed", "b']' cannot begin a JSON object or array.")]),
    ],
)
def test_values_before_a_fault_are_returned_and_the_rest_is_ignored(body: bytes, framed: Framed) -> None:
    framing = JsonArray()
    assert read(framing, body) == framed
    assert read(framing, b"[{}]") == []


@pytest.mark.parametrize("place", range(18))
def test_a_value_over_the_limit_is_a_fault(place: int) -> None:
    """D-3.11.2"""
    fault = FramingFault("too_long", "A JSON value exceeds 7 bytes.")
    pieces = cut(b'[{"a":1}, {"a":12}, {}]', [place])
    assert read(JsonArray(7), *pieces) == [Frame(b'{"a":1}'), fault]
