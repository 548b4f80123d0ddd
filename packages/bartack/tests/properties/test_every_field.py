"""Every value of every event and request, replaced by odd ones: decoders and readers keep their laws (D-3.11).

`lab.fuzz` changes recordings at random; this changes small streams and requests one value at a
time, and omits none.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import settings

from bartack import user
from bartack.formats import FORMATS, ModelRequest, decoder, encode, format_named
from bartack.nouns import wire
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import Message
from lab.fuzz import TARGETS, assembled
from lab.fuzz_inputs import Event, changed_places, framed
from lab.fuzz_seeds import REQUESTS, STREAMS

CHECKS: dict[str, Callable[[Any], None]] = {target.name: target.check for target in TARGETS}
MARK = "<odd>"
ODD = [
    "null", "true", "-1", "1" + "0" * 400, "1.5", '""', r'"\udc00"', r'"\u0000\ufeff"', "[]", '["a"]',
    '[{"type": ["x"]}]', "{}", '{"id": ["a"], "id": {}}', r'{"\udc00": []}', "NaN", "1e999",
    *("[" * depth + "]" * depth for depth in (62, 400, 999)),
]  # fmt: skip
if settings().max_examples < 20:  # quick
    ODD = ODD[::3]


def streams_with(format: str, odd: str) -> Iterator[bytes]:
    """The stream, with each value of each event replaced by this JSON."""
    framing = format_named(format).framing
    bodies = [framed(Event(json.dumps(event).encode(), name), framing) for name, event in STREAMS[format]]
    for place, (name, event) in enumerate(STREAMS[format]):
        for changed in changed_places(event, MARK):
            data = json.dumps(changed).replace(f'"{MARK}"', odd).encode()
            yield b"".join([*bodies[:place], framed(Event(data, name), framing), *bodies[place + 1 :]])


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_with_any_odd_value_can_be_stored_and_sent_back(format: str, odd: str) -> None:
    """D-3.11, D-3.9.4"""
    config = ModelConfig("anthropic.claude-sonnet-4-5")
    for body in streams_with(format, odd):
        new_decoder = decoder(format)
        message = assembled([*new_decoder.receive_data(body), *new_decoder.receive_eof()])
        stored = wire.decode(Message, wire.encode(message))
        assert stored == message
        request = ModelRequest((user("a"), stored, user("b")), config=config, provider=format)
        msgspec.json.encode(encode(format, request).body)


def test_no_value_of_an_event_is_left_out() -> None:
    assert list(changed_places({"a": [1, {"b": 2}]}, 0)) == [
        {"a": 0},
        {"a": [0, {"b": 2}]},
        {"a": [1, 0]},
        {"a": [1, {"b": 0}]},
    ]


@pytest.mark.parametrize("odd", [json.loads(text) for text in ODD if len(text) < 1000], ids=ascii)
@pytest.mark.parametrize("format", FORMATS)
def test_a_request_with_any_odd_value_is_read_or_refused(format: str, odd: Any) -> None:
    """D-3.11.3"""
    for body in changed_places(REQUESTS[format], odd):
        CHECKS[f"read-{format}"](body)
