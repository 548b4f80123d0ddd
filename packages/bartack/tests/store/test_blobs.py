"""Long strings extracted from JSON text, checked against `json.loads`."""

import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.store import blobs

STRINGS = st.text() | st.sampled_from(
    [
        "$blob",
        "$$blob",
        '{"$blob":"' + "a" * 64 + '"}',
        '"$blob"',
        '\\"$blob',
        "z" * 5000,
        "z" * 5000 + '"$blob',
        '"$blob' + "z" * 50,
        "\\" * 2500,
        "\\" * 2501 + '"',
        '"' * 1500 + "z" * 300,
        'line "quoted"\n' * 1200,
    ]
)
JSON = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STRINGS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["$blob", "$$blob", "$blo"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def dumped_in_ascii(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def escaped(text: str) -> str:
    return "$" + text if text.removesuffix("blob").strip("$") == "" and text.endswith("$blob") else text


def extracted_by_value(
    value: object, limit: int, dump: Callable[[object], bytes], extracted: dict[str, bytes]
) -> object:
    """What `extract` should leave of a value, found without looking at its text."""
    match value:
        case str():
            blob = dump(escaped(value))[1:-1]
            if len(blob) <= limit:
                return escaped(value)
            extracted[blobs.digest(blob)] = blob
            return {"$blob": blobs.digest(blob)}
        case list():
            return [extracted_by_value(item, limit, dump, extracted) for item in value]
        case dict():
            return {escaped(key): extracted_by_value(item, limit, dump, extracted) for key, item in value.items()}
        case _:
            return value


@pytest.mark.parametrize("dump", [msgspec.json.encode, dumped_in_ascii])
@pytest.mark.parametrize("limit", [16, 300, blobs.BLOB_LIMIT])
@given(value=JSON)
def test_extracted_strings_are_those_a_json_parser_finds(
    limit: int, dump: Callable[[object], bytes], value: object
) -> None:
    text = dump(value)
    extracted: dict[str, bytes] = {}
    stored = blobs._without_strings(blobs._WORD.sub(rb'"$\1"', text), limit, extracted)
    expected: dict[str, bytes] = {}
    assert json.loads(stored) == extracted_by_value(json.loads(text), limit, dump, expected)
    assert extracted == expected
    assert set(blobs.referenced(stored)) == set(extracted)
    assert blobs.restore_blobs(stored, extracted.__getitem__) == text


def test_long_strings_are_stored_once_and_keys_stay() -> None:
    long, key = "x" * (blobs.BLOB_LIMIT + 1), "k" * (blobs.BLOB_LIMIT + 1)
    text = msgspec.json.encode({key: long, "again": [long, "x" * blobs.BLOB_LIMIT]})
    stored, extracted = blobs.extract_blobs(text)
    assert list(extracted.values()) == [long.encode()]
    assert len(blobs.referenced(stored)) == 2
    assert blobs.restore_blobs(stored, extracted.__getitem__) == text


def test_an_entry_of_many_long_strings_stays_below_a_megabyte() -> None:
    text = msgspec.json.encode([f"{number:05}" * 2000 for number in range(200)])
    stored, extracted = blobs.extract_blobs(text)
    assert len(text) > blobs.ENTRY_LIMIT > len(stored)
    assert blobs.restore_blobs(stored, extracted.__getitem__) == text


@pytest.mark.parametrize("broken", [b'"', b'"a', b'"a\\"', b'"a\\', b'"\\"\\'])
def test_broken_text_raises_instead_of_hanging(broken: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        blobs._without_strings(broken, 0, {})
