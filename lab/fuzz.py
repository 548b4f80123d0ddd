"""Fuzz the wire formats: every decoder, request reader and encoder, with damaged recordings.

    python -m lab.fuzz [SECONDS] [--seed N] [--target NAME] [--save DIR]

The laws:

- A decoder turns any bytes, however they are cut, into the same ``start ... (done | error)``, which the assembler
  accepts. The answer can be stored, loaded and shown by every view, and the session continues with every format: the
  answer, its tool results and the next prompt are encoded for each.
- A reader, an encoder and `guess_format` return, or raise `PartValidationError`. What an encoder returns is JSON.
- The body of an error response, with any headers, becomes an error that can be stored.
- No input takes more than five seconds of CPU time.

An input is a recorded stream or request in which a few JSON values, or sometimes a few bytes, were replaced, moved,
repeated or removed. Without recordings, small built-in seeds are used. The same seed gives the same inputs. Failing
inputs are printed, one for each place that raised, so that they can become tests.
"""

import argparse
import itertools
import random
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from bartack import Entry, Text, ToolResult, stamped, tool_message, user
from bartack.formats import FORMATS, ModelRequest, decoder, encode, format_named, guess_format, read_request
from bartack.models.http_errors import error_from_body, error_from_response
from bartack.nouns import wire
from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start
from bartack.nouns.entries import StreamFailed
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message
from bartack.stream.assembler import MessageAssembler
from bartack.views import document, feed, ledger
from lab.fuzz_inputs import MAX_SEED, Corpus, Damage, Json, error_maker, framed, stream_maker
from lab.repository import ROOT

__all__ = ["TARGETS", "Crash", "Target", "fuzz", "main"]

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
_MAX_SECONDS = 5.0  # CPU time for one input; most take a millisecond

# -- targets


class Crash(NamedTuple):
    """An input that broke a law."""

    target: str
    input: str
    error: str
    where: str


class Target(NamedTuple):
    """Makes an input and checks the laws for it."""

    name: str
    make: Callable[[random.Random, Corpus], Json]
    check: Callable[[Json], None]


def _check_stream(format: str) -> Callable[[bytes], None]:
    def check(body: bytes) -> None:
        guess_format(body)
        deltas = _decoded(format, [body])
        assert _decoded(format, _cut(body)) == deltas, "the result depends on how the bytes are cut"
        message = assembled(deltas)
        _check_session(message, deltas[-1])
        calls = [call for call in message.tool_calls if call.executed_by == "client"]
        results = [tool_message(*(ToolResult(call.tool_call_id, "r") for call in calls))] if calls else []
        for history in ((user("a"), message), (user("a"), message, *results, user("b"), message)):
            for name in FORMATS:
                for provider in {name, format}:
                    _check_encoded(name, ModelRequest(history, config=_config(name), tools=_TOOLS, provider=provider))

    return check


def _decoded(format: str, pieces: list[bytes]) -> list[Delta]:
    decoding = decoder(format)
    return [*(delta for piece in pieces for delta in decoding.receive_data(piece)), *decoding.receive_eof()]


def _cut(body: bytes) -> list[bytes]:
    places = random.Random(zlib.crc32(body))
    cuts = [0, *sorted(places.randint(0, len(body)) for _ in range(4)), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(cuts)]


def _check_session(message: Message, end: Delta) -> None:
    """The answer, or the failure, as an entry: what is loaded is what was stored, and every view shows it."""
    failed = StreamFailed(error=end, parts=message.parts) if isinstance(end, Failed) else None
    fact = failed or stamped(message, id="m", timestamp=WHEN)
    entry = Entry(id="e", session_id="s", seq=1, parent_id=None, run_id="run", timestamp=WHEN, fact=fact)
    loaded = wire.decode(Entry, wire.encode(entry))
    assert loaded == entry, "the stored entry differs"
    for view in (ledger, feed, document):
        view.load(msgspec.json.decode(msgspec.json.encode(view.dump([loaded]))))


def _check_encoded(format: str, request: ModelRequest) -> None:
    body = encode(format, request).body
    sent_body = msgspec.json.decode(msgspec.json.encode(body))
    with suppress(PartValidationError):  # for what the provider itself may refuse, such as a call without an id
        read_request(format, sent_body, model_id="m")


def _config(format: str) -> ModelConfig:
    return ModelConfig("anthropic.claude-sonnet-4-5" if format == "bedrock-invoke" else "m")


def assembled(deltas: list[Delta]) -> Message:
    """The message of a stream; raises `AssertionError` or `StreamError` if it breaks the contract."""
    assert isinstance(deltas[0], Start), deltas[:1]
    assert isinstance(deltas[-1], Done | Failed), deltas[-1:]
    assembler = MessageAssembler("run")
    for seq, delta in enumerate(deltas):
        assembler.consume(MessageDelta("run", seq, delta, WHEN))
    return assembler.build_final_message() if isinstance(deltas[-1], Done) else assembler.snapshot()


def _sendable(body: Json) -> None:
    msgspec.json.encode(body)


def _request_maker(format: str) -> Callable[[random.Random, Corpus], Json]:
    def make(random: random.Random, corpus: Corpus) -> Json:
        body = random.choice(corpus.requests[format])
        return Damage(random, corpus).changed(body, random.choice((1, 1, 2, 4, 8)))

    return make


def _check_reader(format: str) -> Callable[[Json], None]:
    def check(body: Json) -> None:
        try:
            request = read_request(format, body, model_id="m")
        except PartValidationError:
            return
        wire.encode(request)
        for name in FORMATS:
            with suppress(PartValidationError):  # InvokeModel does not serve all models
                _sendable(encode(name, request).body)

    return check


_TOOLS = (ToolSpec("f", {"type": "object"}),)
_readable: dict[str, list[Json]] = {}


def _noun_maker(format: str) -> Callable[[random.Random, Corpus], Json]:
    """Requests in our own JSON: those of the recordings, and histories with a decoded answer of the format."""

    def make(random: random.Random, corpus: Corpus) -> Json:
        if format not in _readable:
            _readable[format] = list(_request_nouns(format, corpus))
        seed = random.choice(_readable[format])
        return Damage(random, corpus).changed(seed, random.choice((1, 1, 2, 4, 8)))

    return make


def _request_nouns(format: str, corpus: Corpus) -> Iterator[Json]:
    for stream in corpus.streams[format]:
        decoding = decoder(format)
        framing = format_named(format).framing
        body = b"".join(framed(event, framing) for event in stream)
        message = assembled([*decoding.receive_data(body), *decoding.receive_eof()])
        history = (user("a"), message, Message("user", (Text("b"),)))
        if len(wire.encode(message)) < MAX_SEED:
            yield wire.dump(ModelRequest(history, config=ModelConfig("m"), tools=_TOOLS, provider=format))
    for body in corpus.requests[format]:
        with suppress(PartValidationError):  # some recorded requests were refused
            yield wire.dump(read_request(format, body, model_id="m"))


def _check_encoder(format: str) -> Callable[[Json], None]:
    def check(value: Json) -> None:
        try:
            request = wire.load(ModelRequest, value)
        except PartValidationError:
            return
        with suppress(PartValidationError):
            _sendable(encode(format, request).body)

    return check


def _check_error(response: Json) -> None:
    status, headers, body = response
    wire.encode(error_from_response(status, headers, body, received_at=WHEN))
    for framing in ("sse", "ndjson", "json-array", "aws"):
        failure = error_from_body(200, headers, body, framing, host="h", received_at=WHEN)
        if failure is not None:
            wire.encode(failure)


def _targets() -> Iterator[Target]:
    yield Target("errors", error_maker, _check_error)
    for name in FORMATS:
        yield Target(f"decode-{name}", stream_maker(name), _check_stream(name))
        yield Target(f"read-{name}", _request_maker(name), _check_reader(name))
        yield Target(f"encode-{name}", _noun_maker(name), _check_encoder(name))


# -- running


def fuzz(target: Target, corpus: Corpus, seed: int, number: int) -> Crash | None:
    """Check one input; the crash, or None if the laws held."""
    with _deeper_recursion():
        value = target.make(random.Random(f"{seed}-{target.name}-{number}"), corpus)
    started_at = time.process_time()
    try:
        target.check(value)
        seconds = time.process_time() - started_at
        assert seconds < _MAX_SECONDS, f"took {seconds:.1f} s of CPU time"
    except Exception as error:  # noqa: BLE001 (any exception is the finding)
        with _deeper_recursion():
            return Crash(target.name, repr(value), f"{type(error).__name__}: {error}"[:300], _place(error))
    return None


@contextmanager
def _deeper_recursion() -> Iterator[None]:
    """Raise the recursion limit, to create and print values nested as deeply as the code under test supports."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "bartack/" in frame.filename] or frames
    return f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno} {ours[-1].name}"


TARGETS: tuple[Target, ...] = tuple(_targets())


def main(arguments: list[str] | None = None) -> int:
    """Fuzz for some seconds, print a table, and return 1 if a law was broken."""
    parser = argparse.ArgumentParser(description="Fuzz the wire formats.")
    parser.add_argument("seconds", nargs="?", type=float, default=60, help="how much CPU time (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="the seed of an earlier run (default: random)")
    parser.add_argument("--target", default="", help="only targets whose name contains this")
    parser.add_argument("--save", type=Path, help="write failing inputs to this folder")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    targets = [target for target in TARGETS if options.target in target.name]
    corpus = Corpus()
    print(f"seed {seed}: {len(targets)} targets for {options.seconds:g} s of CPU time", flush=True)
    inputs, crashes = _run(targets, corpus, seed, options.seconds)
    for target in targets:
        print(f"{inputs[target.name]:>9,} inputs  {target.name}")
    for crash in crashes.values():
        print(f"\n{crash.target}: {crash.where}: {crash.error}\n{crash.input[:2000]}")
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        for number, crash in enumerate(crashes.values()):
            (options.save / f"{seed}-{number}-{crash.target}.txt").write_text("\n".join(crash), "utf-8")
    minutes = time.process_time() / 60
    print(f"\n{sum(inputs.values()):,} inputs, {minutes:.1f} CPU minutes, {len(crashes)} places that raised")
    return 1 if crashes else 0


def _run(
    targets: list[Target], corpus: Corpus, seed: int, seconds: float
) -> tuple[Counter[str], dict[tuple[str, str], Crash]]:
    inputs: Counter[str] = Counter()
    crashes: dict[tuple[str, str], Crash] = {}  # the shortest input for each place
    deadline = time.process_time() + seconds
    for number in itertools.count():
        for target in targets:
            if time.process_time() > deadline:
                return inputs, crashes
            crash = fuzz(target, corpus, seed, number)
            inputs[target.name] += 1
            if crash is not None:
                key = crash.target.partition("-")[0], crash.where
                if key not in crashes or len(crash.input) < len(crashes[key].input):
                    crashes[key] = crash
    return inputs, crashes


if __name__ == "__main__":
    sys.exit(main())
