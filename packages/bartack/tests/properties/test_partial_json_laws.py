"""Laws of incremental JSON, for every text and every way of cutting it."""

import copy
import json
import re
from typing import Any, NoReturn

from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import UNSET

from bartack.stream.partial_json import JsonFault, PartialJson

characters = st.characters(codec=None, exclude_categories=()) | st.sampled_from('"\\/\b\n\N{GRINNING FACE}\ud83d\ude00')
strings = st.text(characters, max_size=6)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    indent = draw(st.sampled_from([None, 0, 2]))
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " :\r\n")]))
    return json.dumps(draw(values), indent=indent, ensure_ascii=draw(st.booleans()), separators=separators)


@st.composite
def damaged_texts(draw: st.DrawFn) -> str:
    """JSON with one span replaced, mostly by JSON tokens; it may still be JSON."""
    text = draw(json_texts())
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 3)))
    patch = draw(st.text(st.sampled_from('{}[]",:\\ueE+-.019truflsn \n\x01\ufeffNaI'), max_size=4))
    return text[:start] + patch + text[end:]


# Members of one object that share keys, which json.dumps would never write.
repeating_texts = st.lists(
    st.tuples(st.sampled_from(['"a"', '"b"']), values.map(json.dumps)), min_size=2, max_size=5
).map(lambda members: "{" + ",".join(f"{key}: {value}" for key, value in members) + "}")
near_json = st.text('[]{}",:\\u0d8c-1.eE tn', max_size=30)
any_texts = json_texts() | damaged_texts() | repeating_texts | near_json | st.text()


def cut(text: str, data: st.DataObject) -> list[str]:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8), label="cuts"))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def fed(*pieces: str) -> PartialJson:
    parser = PartialJson()
    for piece in pieces:
        parser.feed(piece)
    return parser


def state(parser: PartialJson) -> tuple[str, bool, JsonFault | None]:
    """The visible state; `repr` distinguishes 1, 1.0 and True, and infinities."""
    return repr(parser.value), parser.complete, parser.fault


def refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def loads(text: str) -> Any:
    return json.loads(text, parse_constant=refuse)


def is_json(text: str) -> bool:
    try:
        loads(text)
    except ValueError:
        return False
    return True


def repeats_a_key(text: str) -> bool:
    objects: list[list[tuple[str, Any]]] = []
    json.loads(text, object_pairs_hook=objects.append)
    return any(len(dict(members)) < len(members) for members in objects)


def closed(text: str) -> str:
    """The text with every open string and container closed, read character by character."""
    closers: list[str] = []
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "[{":
            closers.append("]" if character == "[" else "}")
        elif character in "]}":
            closers.pop()
    return text + '"' * in_string + "".join(reversed(closers))


def best_value(text: str) -> Any:
    """The value by its definition: drop the shortest end that leaves JSON once everything is closed."""
    for end in range(len(text), 0, -1):
        candidate = closed(text[:end])
        is_open = candidate.startswith('"', end) and candidate != text
        held_back = is_open and re.search(r"(?<!\\)(?:\\\\)*\\u[dD][89abAB]..$", text[:end])
        if not held_back and is_json(candidate):
            return loads(candidate)
    return UNSET


def grows_into(earlier: Any, later: Any) -> bool:
    """`later` is `earlier`, extended only at its end (numbers may take any new value: 1, 12, 12e3)."""
    match earlier, later:
        case (list(), list()):
            before, following = list(enumerate(earlier)), list(enumerate(later))
        case (dict(), dict()):
            before, following = list(earlier.items()), list(later.items())
        case (str(), str()):
            return later.startswith(earlier)
        case (bool() | None, _):
            return later is earlier
        case _:
            return earlier is UNSET or type(later) in (int, float)
    if not before:
        return True
    last = len(before) - 1
    return (
        len(following) > last
        and repr(before[:last]) == repr(following[:last])
        and before[last][0] == following[last][0]
        and grows_into(before[last][1], following[last][1])
    )


@given(json_texts() | repeating_texts, st.data())
def test_a_complete_text_cut_anywhere_has_the_value_of_json_loads(text: str, data: st.DataObject) -> None:
    parser = fed(*cut(text, data))
    parser.finish()
    assert state(parser) == (repr(loads(text)), True, None)


@given(any_texts, st.data())
def test_cutting_and_reading_the_value_change_nothing(text: str, data: st.DataObject) -> None:
    parser = PartialJson()
    length = 0
    for piece in cut(text, data):
        parser.feed(piece)
        length += len(piece)
        if data.draw(st.booleans(), label="look"):
            assert state(parser) == state(fed(text[:length]))
    assert state(parser) == state(fed(text))


@given(json_texts())
@example('{"a": [1.5e3, {"b": "x\\n"}], "c": "\\ud83d\\ude00", "d": -0.5}')
def test_the_value_only_grows(text: str) -> None:
    assume(not repeats_a_key(text))  # escaped, two keys of a dict may become one: "\\ud83d" "\\ude00" side by side
    parser = PartialJson()
    earlier: Any = UNSET
    for character in text:
        parser.feed(character)
        later: Any = parser.value
        assert grows_into(earlier, later), (earlier, later)
        earlier = copy.deepcopy(later)
    assert repr(earlier) == repr(loads(text))


@given(any_texts.filter(lambda text: len(text) < 200))
@example('{"a": 1, "a": "\\ud83d\\u00')
@example('["\\\\ud83d')
def test_the_value_is_that_of_the_text_with_its_unfinished_end_removed(text: str) -> None:
    parser = PartialJson()
    for count, character in enumerate(text, start=1):
        parser.feed(character)
        if parser.failed:
            break
        assert repr(parser.value) == repr(best_value(text[:count]))


@given(any_texts)
def test_a_text_is_complete_or_invalid_exactly_as_in_json_loads(text: str) -> None:
    parser = fed(text)
    parser.finish()
    assert parser.complete == is_json(text)
    assert parser.failed != parser.complete


@given(any_texts)
def test_the_fault_is_at_the_first_invalid_character(text: str) -> None:
    parser = fed(text)
    if parser.fault is not None:
        before = fed(text[: parser.fault.position])
        assert not before.failed
        assert repr(before.value) == repr(parser.value)
        assert fed(text[: parser.fault.position + 1]).fault == parser.fault


@given(any_texts)
def test_the_value_is_within_json(text: str) -> None:
    value = fed(text).value
    if value is not UNSET:
        assert repr(json.loads(json.dumps(value))) == repr(value)
