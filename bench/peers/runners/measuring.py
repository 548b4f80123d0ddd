"""What every runner of a stream does: time a few streams and print what they cost, one JSON line a case.

It runs in the peer's own environment, so it uses the standard library alone. Called as

    python -m bench.peers.runners.stream_<peer> SERVER EVENTS ROUNDS

The peer is imported and its client made before the clock starts, and each case streams a little first, so that what is
measured is the cost of a stream in a process that has been running.
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
ENOUGH_SECONDS = 2.5  # of CPU for one case: a slow peer needs no further rounds to be told from a fast one
PROMPT = "go"

Stream = Callable[[], Awaitable[int]]
Case = Callable[[str], Stream]  # the address of a server -> a stream that tells how many characters it brought


def measure(cases: Mapping[tuple[str, str], Case]) -> None:
    """Run each case, named by its way and its format, and print its result."""
    server, events, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with contextlib.redirect_stdout(sys.stderr):  # a peer may print too
        asyncio.run(_measure(cases, server, events, rounds))


async def _measure(cases: Mapping[tuple[str, str], Case], server: str, events: int, rounds: int) -> None:
    for (way, name), case in cases.items():
        for content in CONTENTS:
            result: dict[str, object] = {"way": way, "format": name, "content": content, "events": events}
            try:
                result |= await _timed(case, f"{server}/{name}/{content}", events, rounds)
            except Exception as fault:  # noqa: BLE001 - a peer's fault is a line of the table, and the next case goes on
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
