"""Arguments against a schema from elsewhere, compared with jsonschema and with the official suite."""

import json
import sys
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack import ErrorCode, ToolError
from bartack.session.schema_check import ArgumentCheck, argument_check
from lab.repository import ROOT

SUITE = ROOT / ".venv" / "schema-suite"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 3, "title": "Name"},
        "n": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 10},
        "kind": {"enum": ["a", "b", 3, {"k": [False]}]},
        "one": {"const": 1},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 2},
        "pair": {"prefixItems": [{"type": "string"}, {"type": "number"}], "items": False},
        "either": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
        "single": {"oneOf": [{"type": "integer"}, {"minimum": 5}]},
        "all": {"allOf": [{"type": "number"}, {"maximum": 5}]},
        "never": {"not": {"type": ["string", "array"]}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"item": {"type": "object", "properties": {"x": {"type": "number", "exclusiveMinimum": 0}}}},
}
UNIQUE = {"properties": {"x": {"uniqueItems": True}}}


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jsonschema-rs were not installed."""
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)


def fault(schema: dict[str, Any], arguments: Any) -> str | None:
    check = argument_check(schema)
    try:
        check(arguments)
    except ToolError as error:
        return error.message if error.code is ErrorCode.TOOL_BAD_ARGUMENTS else error.code
    return None


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "missing required field `name` - at `$`"),
        ({"name": ""}, "length 0 is out of range (1 to 3) - at `$.name`"),
        ({"name": "abcd"}, "length 4 is out of range (1 to 3) - at `$.name`"),
        ({"name": 1}, "expected string, got integer - at `$.name`"),
        ({"name": "a", "n": 10}, "10 must be less than 10 - at `$.n`"),
        ({"name": "a", "n": -1}, "-1 must be at least 0 - at `$.n`"),
        ({"name": "a", "n": True}, "expected integer or null, got boolean - at `$.n`"),
        ({"name": "a", "kind": "c"}, "'c' is not one of ['a', 'b', 3, {'k': [False]}] - at `$.kind`"),
        ({"name": "a", "kind": {"k": [0]}}, "{'k': [0]} is not one of ['a', 'b', 3, {'k': [False]}] - at `$.kind`"),
        ({"name": "a", "one": True}, "expected 1, got True - at `$.one`"),
        ({"name": "a", "items": [{}, {"x": 0}]}, "0 must be more than 0 - at `$.items[1].x`"),
        ({"name": "a", "items": [{}, {}, {}]}, "length 3 is out of range (0 to 2) - at `$.items`"),
        ({"name": "a", "pair": ["x", "y"]}, "expected number, got string - at `$.pair[1]`"),
        ({"name": "a", "pair": ["x", 1, 2]}, "no value is allowed - at `$.pair[2]`"),
        (
            {"name": "a", "either": 1},
            "expected string, got integer - at `$.either`; or expected boolean, got integer - at `$.either`",
        ),
        ({"name": "a", "single": 5}, "matches 2 of the choices, and must match one - at `$.single`"),
        (
            {"name": "a", "single": 1.5},
            "expected integer, got number - at `$.single`; or 1.5 must be at least 5 - at `$.single`",
        ),
        ({"name": "a", "all": 6}, "6 must be at most 5 - at `$.all`"),
        ({"name": "a", "never": "x"}, "matches what is not allowed - at `$.never`"),
        ({"name": "a", "map": {"k": "v"}}, "expected integer, got string - at `$.map.k`"),
        ({"name": "a", "other": 1}, f"unknown field `other` (known: {', '.join(SCHEMA['properties'])}) - at `$`"),
    ],
)
def test_faults_are_reported_with_their_path(arguments: dict[str, Any], expected: str) -> None:
    assert fault(SCHEMA, arguments) == expected
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(arguments, SCHEMA)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.floats(-1, 11) | st.sampled_from(["", "a", "ab", "x", "ABCD"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "k"]), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), VALUES)


@given(ARGUMENTS)
def test_agrees_with_jsonschema(arguments: dict[str, Any]) -> None:
    assert (fault(SCHEMA, arguments) is None) == jsonschema.Draft202012Validator(SCHEMA).is_valid(arguments)


@given(ARGUMENTS)
def test_one_more_keyword_changes_the_checker_but_not_the_verdict(arguments: dict[str, Any]) -> None:
    assert (fault(SCHEMA, arguments) is None) == (fault({**SCHEMA, "minProperties": 0}, arguments) is None)


@pytest.mark.parametrize(
    ("schema", "bad", "good"),
    [
        ({"pattern": "^[a-z]*$"}, "A", "a"),
        ({"pattern": r"^\d$"}, "٣", "3"),
        ({"multipleOf": 0.01}, 0.005, 0.07),
        ({"uniqueItems": True}, [1, 1.0], [1, True]),
        ({"contains": {"const": 1}, "maxContains": 1}, [1, 1], [1, 2]),
        ({"minProperties": 1}, {}, {"a": 1}),
        ({"maxProperties": 0}, {"a": 1}, {}),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, {"a": 1}),
        ({"patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False}, {"b": None}, {"a": None}),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, {"a": 1, "b": 1}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, {"a": 1, "b": 1}),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}}, "a", None),
        ({"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}, {"b": 1}, {"a": 1}),
        ({"prefixItems": [True], "unevaluatedItems": False}, [1, 2], [1]),
        ({"$ref": "#short", "$defs": {"s": {"$anchor": "short", "maxLength": 1}}}, "ab", "a"),
        ({"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "type": "null"}}}, 1, None),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "null"}}}, 1, None),
        ({"$ref": "#/allOf/0", "allOf": [{"type": "null"}]}, 1, None),
    ],
)  # fmt: skip
def test_every_other_keyword_is_checked(schema: dict[str, Any], bad: Any, good: Any) -> None:
    if "$ref" not in schema and "$dynamicRef" not in schema:
        schema = {"properties": {"x": schema}}
        bad, good = {"x": bad}, {"x": good}
        assert "`$.x" in (fault(schema, bad) or "")
    assert fault(schema, bad) is not None
    assert fault(schema, good) is None


@pytest.mark.usefixtures("no_library")
def test_without_the_library_no_schema_is_half_checked() -> None:
    for schema in (UNIQUE, {"pattern": "a"}, {"$defs": {"x": {"if": True}}}, {"anyOf": [{"items": {"multipleOf": 2}}]}):
        with pytest.raises(ToolError, match=r"pip install 'bartack\[http\]'") as caught:
            argument_check(schema)
        assert caught.value.code is ErrorCode.MISSING_DEPENDENCY


@pytest.mark.parametrize("schema", [
    {"type": "hologram"}, {"type": []}, {"type": 5}, {"required": "name"}, {"enum": 1}, {"minimum": True},
    {"minimum": float("nan")}, {"maxLength": -1}, {"properties": {"x": 5}}, {"anyOf": []}, {"anyOf": [1]}, {"not": []},
    {"pattern": "("}, {"$schema": "https://example.com/mine"}, {"$ref": 5}, {"$ref": "#/$defs/none"},
    {"$ref": "https://example.com/x.json"}, {"$ref": "file:///etc/hostname"}, {"$ref": "other.json"},
    {"$ref": "#/title/x", "title": "t"}, {"default": object(), "if": True}, {1: 2}, {"if": {"title": "\ud800"}},
    [], True, None,
])  # fmt: skip
def test_an_invalid_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ToolError, match=r"^Invalid JSON Schema: ") as caught:
        argument_check(schema)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("arguments", [{"x": object()}, {1: 2}])
def test_arguments_that_are_not_json_are_refused(arguments: Any) -> None:
    assert fault(UNIQUE, arguments) is not None


def test_draft_7_is_read_as_such() -> None:
    base = {"$schema": DRAFT_7, "definitions": {"s": {"type": "string"}}}
    shared = {**base, "properties": {"x": {"$ref": "#/definitions/s"}}}
    assert fault(shared, {"x": 1}) == "expected string, got integer - at `$.x`"
    beside = {**base, "properties": {"x": {"$ref": "#/definitions/s", "maxLength": 1}}}
    assert fault(beside, {"x": "long"}) is None
    assert fault({**beside, "$schema": "https://json-schema.org/draft/2020-12/schema"}, {"x": "long"}) is not None
    assert fault({**base, "properties": {"x": {"items": [{"type": "null"}]}}}, {"x": [1]}) is not None
    assert fault({**base, "properties": {"x": {"prefixItems": [{"type": "null"}]}}}, {"x": [1]}) is None


def test_a_schema_that_refers_to_itself_terminates() -> None:
    assert "too deeply" in (fault({"$ref": "#/$defs/loop", "$defs": {"loop": {"$ref": "#/$defs/loop"}}}, {}) or "")
    tree: dict[str, Any] = {"properties": {"left": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert fault(tree, {"left": {"left": {"n": 1}}}) is None
    assert fault(tree, {"left": {"n": "1"}}) == "expected integer, got string - at `$.left.n`"
    circular: dict[str, Any] = {}
    circular["not"] = circular
    assert fault(circular, {}) is not None


def nested(levels: int, leaf: Any) -> Any:
    return leaf if levels == 0 else {"a": nested(levels - 1, leaf)}


@pytest.mark.parametrize("end", [{"type": "null"}, {"uniqueItems": True}])
@pytest.mark.parametrize("reference", ["pointer", "anchor", "id"])
def test_a_schema_that_unfolds_without_end_is_refused(end: dict[str, Any], reference: str) -> None:
    def ref(index: int) -> str:
        return {"pointer": f"#/$defs/d{index}", "anchor": f"#a{index}", "id": f"https://example.com/{index}"}[reference]

    names: dict[str, str] = {"pointer": {}, "anchor": {"$anchor": "a{}"}, "id": {"$id": "https://example.com/{}"}}[
        reference
    ]
    defs: dict[str, Any] = {
        f"d{index}": {
            **{word: name.format(index) for word, name in names.items()},
            "if": True,
            "dependentSchemas": {"a": {"$ref": ref(index + 1)}},
            "allOf": [{"$ref": ref(index + 1)}] * 2,
        }
        for index in range(40)
    }
    with pytest.raises(ToolError, match="too complex"):
        argument_check({"$ref": ref(0), "$defs": {**defs, "d40": end}})


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"not": schema}
    with pytest.raises(ToolError, match="too complex"):
        argument_check(schema)


def test_a_check_ends_however_often_a_schema_repeats_itself() -> None:
    twice: list[dict[str, Any]] = [
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#"}}, "required": []},
    ]
    assert fault({"allOf": twice}, nested(40, 1)) == "too complex to check"
    again = [{**shape, "required": [name]} for shape, name in zip(twice, "yz", strict=True)]
    assert fault({"anyOf": again, "uniqueItems": True}, nested(40, {})) == "they do not match the schema"
    assert fault({"uniqueItems": True, "properties": {"a": {"$ref": "#"}}}, nested(100, 1)) == "nested too deeply"


@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(a|aa)+\1$", "(?=(a+)+$)b"])
def test_a_pattern_cannot_take_forever(pattern: str) -> None:
    assert fault({"properties": {"x": {"pattern": pattern}}}, {"x": "a" * 5_000 + "b"}) is not None


@pytest.mark.skipif(not SUITE.exists(), reason="make .venv/schema-suite fetches the official suite")
def test_no_verdict_differs_from_the_official_suite() -> None:
    wrong: list[str] = []
    right, refused = 0, 0
    for file in sorted(SUITE.glob("*.json")):
        for group in json.loads(file.read_text(encoding="utf-8")):
            schema, cases = group["schema"], group["tests"]
            try:
                check = argument_check(schema)
            except ToolError as error:
                is_elsewhere = "http://localhost:1234/" in error.message  # documents of the suite's own server
                refused += len(cases)
                wrong += [] if is_elsewhere or isinstance(schema, bool) else [f"{file.name}: {error}"]
                continue
            for case in cases:
                is_right = is_accepted(check, case["data"]) == case["valid"]
                right += is_right
                wrong += [] if is_right else [f"{file.name}: {group['description']}: {case['description']}"]
    assert wrong == []
    assert right > 1_100
    assert refused < 100


def is_accepted(check: ArgumentCheck, value: Any) -> bool:
    try:
        check(value)
    except ToolError:
        return False
    return True
