"""The measurement shared by the stream runners: time a few streams and print their cost, one JSON line per case.

Runners execute in the peer's environment, so this uses only the standard library. Called as

    python -m bench.peers.runners.stream_<peer> SERVER EVENTS ROUNDS

The peer is imported and its client created before the clock starts, and each case starts with a short warm-up stream,
so that the cost measured is that of a stream in a running process.
"""

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

CONTENTS = ("text", "arguments")
WARM_UP = 200  # events
ENOUGH_SECONDS = 2.5  # of CPU for one case: a slow peer needs no further rounds
PROMPT = "go"

Stream = Callable[[], Awaitable[int]]
Case = Callable[[str], Stream]  # the address of a server -> a stream that returns the number of characters received


def measure(cases: Mapping[tuple[str, str], Case]) -> None:
    """Run each case, keyed by API and format, and print its result."""
    server, events, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with contextlib.redirect_stdout(sys.stderr):  # a peer may print too
        asyncio.run(_measure(cases, server, events, rounds))


async def _measure(cases: Mapping[tuple[str, str], Case], server: str, events: int, rounds: int) -> None:
    for (way, name), case in cases.items():
        for content in CONTENTS:
            result: dict[str, object] = {"way": way, "format": name, "content": content, "events": events}
            try:
                result |= await _timed(case, f"{server}/{name}/{content}", events, rounds)
            except Exception as fault:  # noqa: BLE001 - a failing peer is a row of the table and does not stop the rest
                result["fault"] = f"{type(fault).__name__}: {fault}"
            print(json.dumps(result), file=sys.__stdout__, flush=True)


async def _timed(case: Case, place: str, events: int, rounds: int) -> dict[str, object]:
    await case(f"{place}/{WARM_UP}")()
    stream = case(f"{place}/{events}")
    costs: list[float] = []
    characters = 0
    while len(costs) < rounds and sum(costs) < ENOUGH_SECONDS:
        gc.collect()
        start = time.process_time()
        characters = await stream()
        costs.append(time.process_time() - start)
    return {"cpu_seconds": costs, "characters": characters}
