"""msgspec's own reading and writing of entries gives the same bytes, values and errors as the dialect (D-2.4)."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from bartack.nouns import wire
from bartack.nouns.entries import Entry, MessageDeltaBatch
from bartack.nouns.errors import PartValidationError
from bartack.nouns.native import DECLINED, NativeCodec
from lab.fuzz_inputs import changed_places
from tests.properties import strategies
from tests.sample_session import SESSION

MARK = "<odd>"
ODD = [
    *("null", "true", "0", "1", "-1", "1.0", "1.5", "1e2", "-0.0", "1" + "0" * 400, "9" * 5000, "NaN", "1e999"),
    *('""', '"client"', '"x"', r'"\udc00"', r'"\u0000"', '"2026-01-01T12:00:00+09:00"', '"2026-01-01T12:00:00"'),
    *('"2026-01-01T12:00:00+00:00"', "[]", '["a"]', "[null]", "{}", '{"extra": null}', '{"extra": {"a": 1}}'),
    '{"kind": "text", "payload": {"text": "a"}, "x": 1}',
    '{"kind": "text", "payload": {"text": "a"}, "kind": "thinking"}',
    '{"id": ["a"], "id": {}}',
    *('{"a":' * depth + "1" + "}" * depth for depth in (63, 64, 65, 66, 70, 400, 3000)),
    *("[" * depth + "]" * depth for depth in (63, 64, 65)),
]
ODD_VALUES: list[Any] = [
    *(None, True, 0, 1, 2**70, 10**400, 1.5, float("nan"), float("inf"), "".join(["cli", "ent"]), "\ud800", b"a"),
    *({1, 2}, (1,), [1], {}, {"a": {"b": 1}}, {"a": "\ud800"}, {"a": object()}, {1: 2}, object()),
    *(strategies.NOON, strategies.NOON.replace(tzinfo=None), strategies.NOON.time()),
    *(type("Name", (str,), {})("x"), ("".join(["a", "b"]),), SESSION[0], SESSION[4].fact),
]


def outcome(work: Any, *arguments: Any) -> Any:
    """What a call returns, with its types, or the error that it raises."""
    try:
        value = work(*arguments)
    except PartValidationError as error:
        return type(error), str(error), error.path, error.code, error.rule
    except (TypeError, AttributeError) as error:  # a noun with a value that no type checker accepts
        return type(error)
    return value if isinstance(value, bytes) else (value, repr(value))


def dialect_encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(wire.dump(value))
    except ValueError as error:
        raise PartValidationError(f"not JSON: {error}") from None


def dialect_decode(text: bytes) -> Any:
    return wire.load(Entry, wire.parse(text))


def assert_same_reading(text: bytes) -> None:
    assert outcome(wire.decode, Entry, text) == outcome(dialect_decode, text), text[:500]


@given(strategies.entries)
def test_an_entry_is_written_and_read_alike(entry: Entry) -> None:
    text = dialect_encode(entry)
    assert wire.encode(entry) == text
    assert_same_reading(text)
    assert wire.decode(Entry, text.decode()) == entry


@given(strategies.struct(MessageDeltaBatch))
def test_a_batch_of_deltas_is_written_and_read_alike(batch: MessageDeltaBatch) -> None:
    text = dialect_encode(batch)
    assert wire.encode(batch) == text
    assert outcome(wire.decode, MessageDeltaBatch, text) == outcome(wire.load, MessageDeltaBatch, wire.parse(text))


@given(strategies.sessions(), st.data())
def test_damaged_entries_are_read_alike(entries: list[Entry], data: st.DataObject) -> None:
    text = wire.encode(data.draw(st.sampled_from(entries)))
    places = list(changed_places(json.loads(text), MARK))
    odd = data.draw(st.sampled_from(ODD))
    assert_same_reading(json.dumps(data.draw(st.sampled_from(places))).replace(f'"{MARK}"', odd).encode())


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_an_odd_value_in_any_place_is_read_alike(odd: str) -> None:
    for entry in SESSION:
        for changed in changed_places(json.loads(wire.encode(entry)), MARK):
            assert_same_reading(json.dumps(changed).replace(f'"{MARK}"', odd).encode())


@pytest.mark.parametrize("key", ["x", "extra", "fact", "kind", "payload", "toolCallId", "tool_call_id", ""])
def test_an_odd_key_in_any_object_is_read_alike(key: str) -> None:
    for entry in SESSION:
        data = json.loads(wire.encode(entry))
        for changed in changed_places(data, {key: 1}):
            assert_same_reading(json.dumps(changed).encode())
        values: list[Any] = [None, {}, "text"]
        for value in values:
            assert_same_reading(json.dumps(data | {key: value}).encode())
            assert_same_reading(json.dumps(data | {"payload": data["payload"] | {key: value}}).encode())


@pytest.mark.parametrize("odd", ODD_VALUES, ids=range(len(ODD_VALUES)))
def test_an_odd_value_in_any_field_is_written_alike(odd: Any) -> None:
    for entry in SESSION:
        for noun, name in _places(entry):
            value = getattr(noun, name)
            force_setattr(noun, name, odd)
            try:
                assert outcome(wire.encode, entry) == outcome(dialect_encode, entry), (noun.__class__, name, odd)
            finally:
                force_setattr(noun, name, value)


def _places(value: Any) -> list[tuple[Any, str]]:
    """Every field of every noun in a value."""
    if isinstance(value, tuple):
        return [place for item in value for place in _places(item)]
    if not isinstance(value, msgspec.Struct):
        return []
    names = value.__struct_fields__
    return [*((value, name) for name in names), *(place for name in names for place in _places(getattr(value, name)))]


def test_entries_without_anything_unusual_are_never_left_to_the_dialect() -> None:
    codec = NativeCodec(Entry)
    for entry in SESSION:
        text = codec.encode(entry)
        assert codec.decode(text) == entry
    with pytest.raises(DECLINED):
        codec.decode(text.replace(b'"id"', b'"ID"', 1))


def test_threads_that_read_and_write_first_get_the_same() -> None:
    """Code is made when it is first needed, which may be in several threads at once."""
    texts = [dialect_encode(entry) for entry in SESSION]
    for _ in range(5):
        codec = NativeCodec(Entry)
        together = Barrier(4)

        def work(codec: NativeCodec = codec, together: Barrier = together) -> list[bytes]:
            together.wait()
            return [
                codec.encode_by_kind[type(entry.fact)](codec.decode(text))
                for entry, text in zip(SESSION, texts, strict=True)
            ]

        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(work) for _ in range(4)]
        assert all(future.result() == texts for future in futures)


FIRST_USE = """
import sys
from threading import Barrier, Thread, get_ident
import msgspec
from bartack.nouns import wire
from bartack.nouns.entries import Entry, MessageDeltaBatch

made_in, new_decoder = [], msgspec.json.Decoder
msgspec.json.Decoder = lambda noun: (made_in.append(get_ident()), new_decoder(noun))[1]
texts = {Entry: sys.argv[1], MessageDeltaBatch: sys.argv[2]}
together = Barrier(8)

def read(noun):
    together.wait()
    assert wire.encode(wire.decode(noun, texts[noun])).decode() == texts[noun]

threads = [Thread(target=read, args=(noun,)) for noun in [*texts] * 4]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(made_in), len({*made_in}))
"""


def test_decoders_are_made_in_one_thread() -> None:
    """msgspec crashes the interpreter if two threads make decoders for the same classes at the same time."""
    texts = [dialect_encode(noun).decode() for noun in (SESSION[0], MessageDeltaBatch(deltas=()))]
    done = subprocess.run([sys.executable, "-c", FIRST_USE, *texts], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("2 1\n", "", 0)
