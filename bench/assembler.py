"""The cost of one delta in the assembler as the stream grows, which should be constant.

Prints microseconds per delta for a stream of text and a stream of tool arguments, compared with decoding the delta's
JSON with msgspec in the same run. The aim is at most three times that. This only measures; it never fails.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from bartack import MessageAssembler, MessageDelta, Start, TextDelta, ToolCallArgs, ToolCallStart
from bartack.nouns.wire import encode
from bartack.stream.contract import StreamLimits

SIZES = (500, 2_000, 8_000, 32_000, 128_000)  # deltas
ROUNDS = 3  # the best counts; processor time, to reduce the influence of other load
AIM = 3.0
PIECE = "some"  # four characters: about one token
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = StreamLimits(max_args_chars=len(PIECE) * max(SIZES))


def text_stream(size: int) -> list[MessageDelta]:
    return [MessageDelta("run", seq, TextDelta(PIECE), NOW) for seq in range(2, size + 2)]


def args_stream(size: int) -> list[MessageDelta]:
    return [MessageDelta("run", seq, ToolCallArgs("call", PIECE), NOW) for seq in range(2, size + 2)]


def micros_per_item(work: Callable[[], float], size: int) -> float:
    """The best of several rounds; `work` returns the seconds it took."""
    return min(work() for _ in range(ROUNDS)) / size * 1e6


def consuming(stream: list[MessageDelta]) -> Callable[[], float]:
    def work() -> float:
        assembler = MessageAssembler(limits=LIMITS)
        assembler.consume(MessageDelta("run", 0, Start("model", "request"), NOW))
        assembler.consume(MessageDelta("run", 1, ToolCallStart("call", "tool"), NOW))
        begin = time.process_time()
        for delta in stream:
            assembler.consume(delta)
        return time.process_time() - begin

    return work


def decoding(stream: list[MessageDelta]) -> Callable[[], float]:
    texts = [encode(delta) for delta in stream]

    def work() -> float:
        begin = time.process_time()
        for text in texts:
            msgspec.json.decode(text)
        return time.process_time() - begin

    return work


def main() -> None:
    print(f"{'deltas':>8} {'text':>9} {'arguments':>10} {'msgspec':>9} {'text / msgspec':>15}")
    for size in SIZES:
        stream = text_stream(size)
        text = micros_per_item(consuming(stream), size)
        args = micros_per_item(consuming(args_stream(size)), size)
        decode = micros_per_item(decoding(stream), size)
        print(f"{size:8,} {text:6.2f} us {args:7.2f} us {decode:6.2f} us {text / decode:15.2f}")
    print(f"(aim: at most {AIM} times the decoding, and the same at every size)")


if __name__ == "__main__":
    main()
