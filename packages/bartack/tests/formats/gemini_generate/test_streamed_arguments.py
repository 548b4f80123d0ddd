"""Streamed arguments, from JSON paths with values to JSON text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.formats.gemini_generate.streamed_arguments import OutOfOrder, StreamedArguments, path_steps

Json = dict[str, Any]


def written(*pieces: Json) -> Any:
    arguments = StreamedArguments()
    text = "".join(arguments.write(piece) for piece in pieces) + arguments.end()
    return json.loads(text) if text else None


def at(path: str, **value: Any) -> Json:
    return {"jsonPath": path, **value}


def test_values_of_every_type_become_json() -> None:
    assert written(
        at("$.s", stringValue='a"\n'),
        at("$.n", numberValue=0.5),
        at("$.b", boolValue=False),
        at("$.z", nullValue="NULL_VALUE"),
        at("$.y", nullValue=None),
    ) == {"s": 'a"\n', "n": 0.5, "b": False, "z": None, "y": None}


def test_lists_and_objects_open_and_close_with_their_paths() -> None:
    assert written(
        at("$.a.b[0].c", numberValue=1),
        at("$.a.b[0].d", numberValue=2),
        at("$.a.b[1].c", numberValue=3),
        at("$.e[0][0]", numberValue=4),
        at("$.e[1][0]", numberValue=5),
        at("$['f g']", numberValue=6),
        at('$["h\\"i"]', numberValue=7),
    ) == {"a": {"b": [{"c": 1, "d": 2}, {"c": 3}]}, "e": [[4], [5]], "f g": 6, 'h"i': 7}


def test_a_string_continues_until_its_last_piece() -> None:
    assert written(
        at("$.a", stringValue="x", willContinue=True),
        {"stringValue": "y", "willContinue": True},
        at("$.a", willContinue=True),
        at("$.a", stringValue=""),
        at("$.b", stringValue="z", willContinue=True),
        at("$.c", willContinue=True),
        at("$.d"),
    ) == {"a": "xy", "b": "z", "c": "", "d": None}


def test_no_pieces_give_no_text() -> None:
    assert written() is None


@pytest.mark.parametrize(
    "pieces",
    [
        [at("$.a", numberValue=1), at("$.a", numberValue=2)],
        [at("$.a", numberValue=1), at("$.a.b", numberValue=2)],
        [at("$.a.b", numberValue=1), at("$.a", numberValue=2)],
        [at("$.a.b", numberValue=1), at("$.c", numberValue=2), at("$.a.d", numberValue=3)],
        [at("$.a[1]", numberValue=1)],
        [at("$.a[0]", numberValue=1), at("$.a[2]", numberValue=2)],
        [at("$.a[0]", numberValue=1), at("$.a.b", numberValue=2)],
        [at("$.a.b", numberValue=1), at("$.a[0]", numberValue=2)],
        [at("$.a", stringValue="x", willContinue=True), at("$.a", numberValue=2)],
        [{"stringValue": "of nothing"}],
    ],
)
def test_a_piece_out_of_order_raises(pieces: list[Json]) -> None:
    with pytest.raises(OutOfOrder):
        written(*pieces)


@pytest.mark.parametrize("path", ["", "$", "a", "$[0]", "$.", "$.a[", "$.a[*]", "$..a", "$.a b]"])
def test_an_invalid_path_raises(path: str) -> None:
    with pytest.raises(OutOfOrder):
        path_steps(path)


def leaves(value: Any, path: str = "$") -> list[Json]:
    """The pieces in which a value would be streamed; empty lists and objects have none."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{path}['{escaped(key)}']")]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, f"{path}[{index}]")]
    if isinstance(value, str):
        return [at(path, stringValue=value[:2], willContinue=True), at(path, stringValue=value[2:])]
    kind = "nullValue" if value is None else "boolValue" if isinstance(value, bool) else "numberValue"
    return [at(path, **{kind: value})]


def escaped(key: str) -> str:
    return key.replace("\\", "\\\\").replace("'", "\\'")


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3) | st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3)
    ),
)


@given(st.dictionaries(st.text(max_size=3), VALUES, min_size=1, max_size=3))
def test_any_object_streamed_in_order_is_restored(value: Json) -> None:
    assert written(*leaves(value)) == value
