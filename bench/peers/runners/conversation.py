"""The conversation that every store has to keep, and the measurement shared by the store runners.

Runners execute in the peer's environment, so this uses only the standard library. Called as

    python -m bench.peers.runners.store_<peer> FOLDER TURNS

A turn is four messages: a question, a tool call, its result and an answer. They are stored one at a time, as an agent
stores them, so that a crash between two messages loses neither.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

BLOCK = 512  # bytes, the unit of st_blocks


class Record(NamedTuple):
    role: Literal["user", "call", "result", "assistant"]
    turn: int
    text: str  # of a call: the city it asks for

    @property
    def call_id(self) -> str:
        return f"call_{self.turn:06}"


def conversation(turns: int) -> Iterator[Record]:
    for turn in range(turns):
        city = f"City {turn}"
        yield Record("user", turn, f"What is the weather in {city}, and what should I wear for a walk this afternoon?")
        yield Record("call", turn, city)
        report = {"city": city, "sky": "cloudy", "celsius": turn % 30, "wind_kmh": turn % 50, "rain": [0.1] * 12}
        yield Record("result", turn, json.dumps(report))
        yield Record(
            "assistant", turn, f"In {city} it is cloudy with {turn % 30} degrees. " + "Take a light coat. " * 10
        )


def measure(
    store: str, write: Callable[[Path, list[Record]], object], read: Callable[[Path], int], *, durable: bool
) -> None:
    """Time `write` and then `read`, which returns the number of messages it found, and print the result.

    `durable`: a message is synced to disk by the time the call that stores it returns.
    """
    folder, turns = Path(sys.argv[1]), int(sys.argv[2])
    records = list(conversation(turns))
    result: dict[str, Any] = {"store": store, "turns": turns, "durable": durable}
    start, cpu = time.perf_counter(), time.process_time()
    write(folder, records)
    result |= _since(start, cpu, "write")
    result["megabytes"] = round(sum(path.stat().st_blocks for path in folder.rglob("*")) * BLOCK / 1e6, 3)
    start, cpu = time.perf_counter(), time.process_time()
    count = read(folder)
    result |= _since(start, cpu, "read")
    if count != len(records):
        raise AssertionError(f"read {count} of {len(records)} messages")
    print(json.dumps(result))


def _since(start: float, cpu: float, what: str) -> dict[str, float]:
    return {
        f"{what}_seconds": round(time.perf_counter() - start, 4),
        f"{what}_cpu_seconds": round(time.process_time() - cpu, 4),
    }
