"""Incremental JSON, case by case. The laws for all texts are in properties/."""

import json
import math
import sys
from typing import Any

import pytest
from msgspec import UNSET

from bartack.stream.partial_json import MAX_DEPTH, JsonFault, PartialJson


def fed(*pieces: str, **limits: int) -> PartialJson:
    parser = PartialJson(**limits)
    for piece in pieces:
        parser.feed(piece)
    return parser


def finished(*pieces: str, **limits: int) -> PartialJson:
    parser = fed(*pieces, **limits)
    parser.finish()
    return parser


def test_arguments_grow_from_piece_to_piece() -> None:
    arguments = PartialJson()
    values = []
    for piece in ('{"city": "Par', 'is", "days": 1', "0}"):
        arguments.feed(piece)
        values.append(repr(arguments.value))
    assert values == ["{'city': 'Par'}", "{'city': 'Paris', 'days': 1}", "{'city': 'Paris', 'days': 10}"]
    assert arguments.complete


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", UNSET),
        (" \n", UNSET),
        ("{", {}),
        ('{"ci', {}),
        ('{"city"', {}),
        ('{"city":', {}),
        ('{"city": "', {"city": ""}),
        ('{"city": "Par', {"city": "Par"}),
        ('{"city": "Paris", "da', {"city": "Paris"}),
        ('{"city": "Paris", "days": [1, {"', {"city": "Paris", "days": [1, {}]}),
        ("[", []),
        ("[[", [[]]),
        ("[1,", [1]),
        ('["a", "b', ["a", "b"]),
    ],
)
def test_the_value_is_that_of_the_text_with_its_unfinished_end_removed(text: str, expected: object) -> None:
    assert fed(text).value == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-", UNSET),
        ("-0", 0),
        ("12", 12),
        ("1.", 1),
        ("1.5", 1.5),
        ("12e", 12),
        ("12e+", 12),
        ("12.5E-", 12.5),
        ("12e3", 12000.0),
        ('{"n": -', {}),
        ("[1, -", [1]),
    ],
)
def test_a_number_shows_its_longest_valid_prefix(text: str, expected: object) -> None:
    value = fed(text).value
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(("word", "meaning"), [("true", True), ("false", False), ("null", None)])
def test_a_literal_appears_when_it_is_complete(word: str, meaning: object) -> None:
    parser = PartialJson()
    for letter in word[:-1]:
        parser.feed(letter)
        assert parser.value is UNSET
    parser.feed(word[-1])
    assert parser.value is meaning
    assert parser.complete


@pytest.mark.parametrize("escape", ["\\", "\\u", "\\u00e", "\\ud83d", "\\ud83d\\", "\\ud83d\\u", "\\uD83D\\uDE0"])
def test_an_incomplete_escape_is_held_back(escape: str) -> None:
    assert fed('["a' + escape).value == ["a"]


def test_a_surrogate_pair_appears_as_one_character() -> None:
    assert fed('"\\ud83d', '\\ude00"').value == "\N{GRINNING FACE}"


@pytest.mark.parametrize("ending", ["x", "\\n", "\\u0041", "\\ud83d\\ude00", '"'])
def test_a_lone_high_surrogate_appears_when_what_follows_is_known(ending: str) -> None:
    text = '"\\ud83d' + ending
    assert fed(text).value == json.loads(text if ending == '"' else text + '"')


def test_the_value_of_a_repeated_key_remains_until_the_next_is_known() -> None:
    text = '{"a": [1], "b": 2, "a": -3'
    assert fed(text.removesuffix(": -3")).value == {"a": [1], "b": 2}
    assert fed(text.removesuffix("3")).value == {"a": [1], "b": 2}
    assert fed(text).value == {"a": -3, "b": 2}
    assert repr(fed(text + "}").value) == repr(json.loads(text + "}"))  # the keys keep their order too


@pytest.mark.parametrize(
    "text",
    [
        ' {"a": [1, -2.5e3, true, false, null, "x\\n\\u00e9\\/"], "b": {"c": {}, "d": []}} \r\n\t',
        "[0, -0, -0.0, 0e0, 1E400, -1e999, 123456789012345678901234567890]",
        '"\\ud83d\\ude00 \\ude00 \\ud83d"',
        '"\x7f\u2028\N{GRINNING FACE}"',
        '""',
        '{"": ""}',
        "null",
    ],
)
def test_a_complete_text_has_the_value_of_json_loads(text: str) -> None:
    for parser in (finished(text), finished(*text)):
        assert parser.complete
        assert repr(parser.value) == repr(json.loads(text))


def test_reading_the_value_between_pieces_changes_nothing() -> None:
    text = '{"a": [1.5, "xy", 20], "b": "\\n", "a": {"c": tru'
    parser = PartialJson()
    for count, character in enumerate(text, start=1):
        parser.feed(character)
        parser.feed("")
        assert parser.value == parser.value == fed(text[:count]).value


def test_containers_are_live_and_never_rebuilt() -> None:
    parser = fed('{"list": [1')
    value: Any = parser.value
    items = value["list"]
    parser.feed('2, "x')
    looked_again: Any = parser.value
    assert looked_again is value
    assert looked_again["list"] is items
    assert items == [12, "x"]


def test_a_container_is_complete_with_its_last_bracket() -> None:
    assert not fed('{"a": 1').complete
    assert fed('{"a": 1', "}").complete
    assert fed('{"a": 1', "}", "  \n").complete
    parser = fed('{"a": 1', "}", "  \n", "x")
    assert not parser.complete
    assert parser.fault == JsonFault(11, "the end of the text")
    assert parser.value == {"a": 1}


def test_a_bare_number_is_complete_when_something_follows() -> None:
    assert not fed("12").complete
    assert fed("12 ").complete
    parser = finished("12")
    assert parser.complete
    assert parser.value == 12
    parser.finish()
    assert parser.complete
    parser.feed("3")
    assert parser.fault == JsonFault(2, "the end of the text")
    assert parser.value == 12


@pytest.mark.parametrize(
    ("text", "fault", "expected"),
    [
        ("", JsonFault(0, "a value"), UNSET),
        ("[1", JsonFault(2, "',' or ']'"), [1]),
        ("[1.", JsonFault(3, "a digit"), [1]),
        ("[1,", JsonFault(3, "a value"), [1]),
        ("-", JsonFault(1, "a digit"), UNSET),
        ("tru", JsonFault(3, "the rest of true, false or null"), UNSET),
        ('{"a', JsonFault(3, "the rest of the string"), {}),
        ('"a\\', JsonFault(3, "the rest of the string"), "a"),
        ('{"a": 1', JsonFault(7, "',' or '}'"), {"a": 1}),
    ],
)
def test_an_incomplete_text_is_a_fault_only_when_finished(text: str, fault: JsonFault, expected: object) -> None:
    assert not fed(text).failed
    parser = finished(text)
    assert parser.failed
    assert not parser.complete
    assert parser.fault == fault
    assert parser.value == expected


@pytest.mark.parametrize(
    ("text", "fault", "expected"),
    [
        ("x", JsonFault(0, "a value"), UNSET),
        ("\ufeff[]", JsonFault(0, "a value"), UNSET),
        ("[\u00a01]", JsonFault(1, "a value or ']'"), []),
        ("[\x0b1]", JsonFault(1, "a value or ']'"), []),
        ("[\u0661]", JsonFault(1, "a value or ']'"), []),
        ("[1\u0661]", JsonFault(2, "',' or ']'"), [1]),
        ("NaN", JsonFault(0, "a value"), UNSET),
        ("[Infinity]", JsonFault(1, "a value or ']'"), []),
        ("-Infinity", JsonFault(1, "a digit"), UNSET),
        ("nul!", JsonFault(3, "the rest of true, false or null"), UNSET),
        ("[1.x", JsonFault(3, "a digit"), [1]),
        ("[1.5.2]", JsonFault(4, "',' or ']'"), [1.5]),
        ("[1e5e", JsonFault(4, "',' or ']'"), [1e5]),
        ("01", JsonFault(1, "the end of the text"), 0),
        ("[1,]", JsonFault(3, "a value"), [1]),
        ("[1}", JsonFault(2, "',' or ']'"), [1]),
        ("{,", JsonFault(1, "a key in double quotes or '}'"), {}),
        ('{"a" 1', JsonFault(5, "':'"), {}),
        ('{"a": 1,}', JsonFault(8, "a key in double quotes"), {"a": 1}),
        ('{"a": 1]', JsonFault(7, "',' or '}'"), {"a": 1}),
        ('"a\nb"', JsonFault(2, "a character or escape allowed in a string"), "a"),
        ('"a\\x"', JsonFault(3, "a character or escape allowed in a string"), "a"),
        ('"a\\u00g0"', JsonFault(6, "a character or escape allowed in a string"), "a"),
        ('"\\ud83d\\x', JsonFault(8, "a character or escape allowed in a string"), ""),
        ('"\\ud83d\n', JsonFault(7, "a character or escape allowed in a string"), ""),
    ],
)
def test_the_first_fault_is_located_and_the_value_is_kept(text: str, fault: JsonFault, expected: object) -> None:
    for parser in (fed(text), fed(*text)):
        assert parser.failed
        assert parser.fault == fault
        assert parser.value == expected
        parser.feed(', "more": 1}')
        parser.finish()
        assert parser.fault == fault
        assert parser.value == expected


def test_nesting_beyond_the_limit_is_a_fault() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert fed(deepest).value == json.loads(deepest)
    assert fed(deepest).complete
    assert fed("[" * 100_000).fault == JsonFault(64, "at most 64 levels")
    parser = fed('{"a": [{', max_depth=2)
    assert parser.fault == JsonFault(7, "at most 2 levels")
    assert parser.value == {"a": []}


def test_text_beyond_the_limit_is_a_fault_and_the_rest_is_shown() -> None:
    for parser in (fed("[1, 2, 3]", max_chars=5), fed(*"[1, 2, 3]", max_chars=5)):
        assert parser.fault == JsonFault(5, "at most 5 characters")
        assert parser.value == [1, 2]
    assert fed("[1, 2]", max_chars=6).complete
    assert fed("[x, 2]", max_chars=2).fault == JsonFault(1, "a value or ']'")
    assert fed('"' + "a" * (1 << 20)).fault == JsonFault(1 << 20, "at most 1048576 characters")


@pytest.mark.parametrize("sign", ["", "-"])
def test_the_length_of_a_number_is_limited_as_in_python(sign: str) -> None:
    longest = sign + "7" * sys.get_int_max_str_digits()
    assert finished(longest).complete
    assert finished(longest).value == json.loads(longest)
    for parser in (fed(longest + "7"), fed(longest, "7")):
        assert parser.fault == JsonFault(len(longest), "a number of at most 4300 characters")
        assert parser.value == int(longest)


def test_without_an_integer_limit_in_python_the_default_applies() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert fed("7" * 5000).fault == JsonFault(4300, "a number of at most 4300 characters")
    finally:
        sys.set_int_max_str_digits(before)


def test_a_huge_exponent_is_infinity_as_in_json_loads() -> None:
    assert finished("-1e999").value == -math.inf


def test_the_parser_does_not_read_finished_text_again() -> None:
    parser = fed("[" + "1," * 50_000)
    long_string = fed('"' + "x" * 50_000)
    for _ in range(3):
        parser.feed("23")
        long_string.feed("xx")
        assert parser.value
        assert long_string.value
        assert parser._tail in {"23", "2323", "232323"}
        assert long_string._chunks is not None
        assert len(long_string._chunks) == 1
