"""Arguments against a hand-written schema, compared with jsonschema."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack import ErrorCode, ToolError
from bartack.session.schema_check import check_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^[a-z]*$"},
        "n": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 10},
        "kind": {"enum": ["a", "b", 3]},
        "one": {"const": "x"},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 2},
        "either": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
        "all": {"allOf": [{"type": "number"}, {"maximum": 5}]},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"item": {"type": "object", "properties": {"x": {"type": "number", "exclusiveMinimum": 0}}}},
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "missing required field `name`"),
        ({"name": ""}, "length 0"),
        ({"name": "abcd"}, "length 4"),
        ({"name": "A"}, "pattern"),
        ({"name": 1}, r"expected string, got integer - at `\$\.name`"),
        ({"name": "a", "n": 10}, r"less than 10 - at `\$\.n`"),
        ({"name": "a", "n": -1}, "at least 0"),
        ({"name": "a", "n": True}, "expected integer or null, got boolean"),
        ({"name": "a", "kind": "c"}, "not one of"),
        ({"name": "a", "one": "y"}, "expected 'x'"),
        ({"name": "a", "items": [{}, {"x": 0}]}, r"more than 0 - at `\$\.items\[1\]\.x`"),
        ({"name": "a", "items": [{}, {}, {}]}, "length 3"),
        ({"name": "a", "either": 1}, "expected string.*; or expected boolean"),
        ({"name": "a", "all": 6}, "at most 5"),
        ({"name": "a", "map": {"k": "v"}}, r"`\$\.map\.k`"),
        ({"name": "a", "other": 1}, "unknown field `other`"),
    ],
)
def test_faults_are_reported_with_their_path(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ToolError, match=expected) as caught:
        check_arguments(arguments, SCHEMA)
    assert caught.value.code is ErrorCode.TOOL_BAD_ARGUMENTS
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(arguments, SCHEMA)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.floats(-1, 11) | st.sampled_from(["", "a", "ab", "x", "ABC"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "k"]), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), VALUES))
def test_agrees_with_jsonschema(arguments: dict[str, Any]) -> None:
    valid = jsonschema.Draft202012Validator(SCHEMA).is_valid(arguments)
    try:
        check_arguments(arguments, SCHEMA)
    except ToolError:
        assert not valid
    else:
        assert valid


def test_a_schema_that_refers_to_itself_terminates() -> None:
    schema: dict[str, Any] = {"$ref": "#/$defs/loop", "$defs": {"loop": {"$ref": "#/$defs/loop"}}}
    with pytest.raises(ToolError, match="too deeply"):
        check_arguments({}, schema)


def test_false_allows_nothing_and_unknown_keywords_are_ignored() -> None:
    with pytest.raises(ToolError, match="no value is allowed"):
        check_arguments({"x": 1}, {"properties": {"x": False}})
    check_arguments(
        {"x": 1}, {"properties": {"x": {"type": "hologram", "contentEncoding": "odd", "$ref": "#/$defs/no"}}}
    )


def test_a_schema_may_refer_to_its_root() -> None:
    tree: dict[str, Any] = {"properties": {"left": {"$ref": "#"}, "n": {"type": "integer"}}}
    check_arguments({"left": {"left": {"n": 1}}}, tree)
    with pytest.raises(ToolError, match=r"`\$\.left\.n`"):
        check_arguments({"left": {"n": "1"}}, tree)
