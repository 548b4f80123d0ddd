"""What a fresh agent pays for an old session, as every web request does: a session of 500 turns in a SQLite file.

(a) floor: decoding the bytes of its entries with msgspec, into plain dictionaries.
(b) opening: from the store to a `SessionView`, which has all that a run needs to start. Target: at most 3 times (a).
(c) opening, and the messages of the first request: (b), and decoding what the model sees.

Once with a context that only grew, and once with a compacted one. All numbers are CPU of this process.
Run it with `make bench` or `python -m bench.open_session [turns]`.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bartack import AgentConfig, ContextConfig
from bartack.agent import Agent
from bartack.agent.session_view import SessionView
from bartack.session.context import ContextInput, ContextManager
from bartack.store import SessionStore, open_store
from bench.agent import Model, look

ROUNDS = 7
CONTEXTS = {"growing": ContextConfig(compaction=False), "compacted": ContextConfig(max_tokens=8000)}


async def best(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds of CPU, the best of several rounds."""
    durations = []
    for _ in range(ROUNDS):
        start = time.process_time()
        await work()
        durations.append(time.process_time() - start)
    return min(durations) * 1000


async def measure(store: SessionStore, config: ContextConfig) -> tuple[int, list[float]]:
    """The number of entries, and the milliseconds of (a), (b) and (c)."""
    texts = (await store.load("old")).texts

    async def floor() -> None:
        for text in texts:
            msgspec.json.decode(text)

    async def opening() -> SessionView:
        return await SessionView.load(store, "old")

    async def first_request() -> None:
        view = await opening()
        ContextManager(config).build_context(ContextInput(fold=view.context))

    return len(texts), [await best(work) for work in (floor, opening, first_request)]


async def main(turns: int) -> None:
    print(f"{'context':10} {'entries':>8} {'(a) floor':>10} {'(b) open':>10} {'(c) request':>12} {'b/a':>6} {'c/a':>6}")
    for name, config in CONTEXTS.items():
        with tempfile.TemporaryDirectory() as folder:
            store = await open_store(Path(folder) / "sessions.db")
            agent = Agent(Model(), tools=[look], store=store, config=AgentConfig(context=config))
            for number in range(turns):
                await agent.run(f"Look at place {number}", session="old")
            count, (a, b, c) = await measure(store, config)
            print(f"{name:10} {count:8,} {a:7.1f} ms {b:7.1f} ms {c:9.1f} ms {b / a:6.2f} {c / a:6.2f}")
            await store.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
