"""How long a search over all sessions takes: 20,000 sessions of coding agents in a SQLite file.

Each has a prompt, a call, a long result and an answer, about 4 kB. The queries:

(a) a name that occurs in one session.
(b) a word that occurs in every hundredth session.
(c) words that occur in every session: 40,000 entries match.
(d) the beginning of a word, which occurs in every session.
(e) the word of (b), but only of one agent and project, and only in results.

Milliseconds of time and of CPU, the median of five. Run it with `make bench` or `python -m bench.search [sessions]`.
"""

import asyncio
import random
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from bartack.app.sessions import SessionFilter
from bartack.nouns.entries import Fact, SessionHeader
from bartack.nouns.messages import assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.store import SessionStore, next_entries, open_store
from bartack.store.ranking import ALL_ENTRIES, SearchFilter, search_sessions
from bartack.store.session_store import SessionAppend

SESSIONS = 20_000
BATCH = 500  # sessions of one transaction
REPEATS = 5
WORDS = [f"{first}{second}" for first in "bcdfglmnprst" for second in ("arrow", "inder", "older", "utton", "essage")]


def facts(number: int, choice: random.Random) -> list[Fact]:
    """A short session. Every hundredth one is about invoices, and all of them about settings."""
    topic = "invoice" if number % 100 == 0 else "report"
    lines = "\n".join(" ".join(choice.choices(WORDS, k=12)) for _ in range(30))
    header = SessionHeader(
        title=f"Change the {topic}",
        origin=("codex", "pi")[number % 2],
        metadata={"directory": f"/srv/{number % 20}"},
    )
    return [
        header,
        user(f"Change the {topic} of module_{number} in the settings."),
        assistant(ToolCall("c1", "bash", {"command": f"cat src/module_{number}.py"})),
        tool_message(ToolResult("c1", f"class {topic}_writer:\n{lines}")),
        assistant(f"The settings in src/module_{number}.py are changed. {lines[:400]}"),
    ]


async def fill(store: SessionStore, count: int) -> None:
    """Store this many sessions."""
    choice = random.Random(1)
    for start in range(0, count, BATCH):
        appends = []
        for number in range(start, min(start + BATCH, count)):
            id = f"session-{number:05}"
            entries = next_entries(id, None, facts(number, choice), store.environment)
            appends.append(SessionAppend(id, entries, None))
        await store.append_all([append.session_id for append in appends], partial(iter, appends))


async def main(count: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        store = await open_store(path)
        await fill(store, count)
        size = path.stat().st_size / count / 1000
        print(f"{count:,} sessions, {size:.1f} kB each")
        queries = {
            "(a) src/module_777.py": ("src/module_777.py", ALL_ENTRIES),
            "(b) invoice": ("invoice", ALL_ENTRIES),
            "(c) settings": ("settings", ALL_ENTRIES),
            "(d) sett*": ("sett*", ALL_ENTRIES),
        }
        for name, (text, chosen) in queries.items():
            await measure(store, name, text, chosen)
        accepts = SessionFilter(store, "codex", Path("/srv/0")).accepts
        await measure(store, "(e) invoice, filtered", "invoice", SearchFilter(accepts, tool="bash"))
        await store.close()


async def measure(store: SessionStore, name: str, text: str, chosen: SearchFilter) -> None:
    """Print how long a search takes."""
    times, cpu = [], []
    sessions = 0
    for _ in range(REPEATS):
        started, used = time.perf_counter(), time.process_time()
        sessions = len(await search_sessions(store, text, chosen=chosen))
        times.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    print(
        f"{name}: {statistics.median(times) * 1e3:.0f} ms, {statistics.median(cpu) * 1e3:.0f} ms of CPU, "
        f"{sessions} sessions shown"
    )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS))
