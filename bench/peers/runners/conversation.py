"""The conversation that every store keeps, and what every runner of a store does with it.

It runs in the peer's own environment, so it uses the standard library alone. Called as

    python -m bench.peers.runners.store_<peer> FOLDER TURNS

A turn is four messages: the user asks, the assistant calls a tool, the tool answers, the assistant answers. Each is
given to the store by itself, as an agent does, that nothing be lost when it dies between two of them.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

BLOCK = 512  # bytes, the unit of st_blocks


class Said(NamedTuple):
    role: Literal["user", "call", "result", "assistant"]
    turn: int
    text: str  # of a call: the city it asks for

    @property
    def call_id(self) -> str:
        return f"call_{self.turn:06}"


def conversation(turns: int) -> Iterator[Said]:
    for turn in range(turns):
        city = f"City {turn}"
        yield Said("user", turn, f"What is the weather in {city}, and what should I wear for a walk this afternoon?")
        yield Said("call", turn, city)
        report = {"city": city, "sky": "cloudy", "celsius": turn % 30, "wind_kmh": turn % 50, "rain": [0.1] * 12}
        yield Said("result", turn, json.dumps(report))
        yield Said("assistant", turn, f"In {city} it is cloudy with {turn % 30} degrees. " + "Take a light coat. " * 10)


def measure(
    store: str, write: Callable[[Path, list[Said]], object], read: Callable[[Path], int], *, durable: bool
) -> None:
    """Time `write` and then `read`, which tells how many messages it found, and print the result.

    `durable` says whether a message is synced to the disk when the call that stored it returns.
    """
    folder, turns = Path(sys.argv[1]), int(sys.argv[2])
    said = list(conversation(turns))
    result: dict[str, Any] = {"store": store, "turns": turns, "durable": durable}
    start, cpu = time.perf_counter(), time.process_time()
    write(folder, said)
    result |= _since(start, cpu, "write")
    result["megabytes"] = round(sum(path.stat().st_blocks for path in folder.rglob("*")) * BLOCK / 1e6, 3)
    start, cpu = time.perf_counter(), time.process_time()
    found = read(folder)
    result |= _since(start, cpu, "read")
    if found != len(said):
        raise AssertionError(f"{found} of {len(said)} messages came back")
    print(json.dumps(result))


def _since(start: float, cpu: float, what: str) -> dict[str, float]:
    return {
        f"{what}_seconds": round(time.perf_counter() - start, 4),
        f"{what}_cpu_seconds": round(time.process_time() - cpu, 4),
    }
