"""Act on the session of a live run from outside, at every await of the run, on a store of each kind.

    python scripts/outside_hands.py [--store memory|sqlite|jsonl|postgres] [--every 1]

See tests/agent/hands.py for what is done and what must hold afterwards: each request takes effect exactly once, the run
survives, and nothing that is known is lost. With --every 5 only each fifth await is tried.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bartack.store import SessionStore, open_store
from scripts.postgres_cluster import Cluster, find_programs
from tests.agent.hands import ACTIONS, acted_at
from tests.agent.kit import SlowStore


async def opened(kind: str, address: str) -> tuple[SessionStore, SessionStore]:
    """Two handles on an empty store."""
    if kind == "memory":
        store = SlowStore()
        return store, store
    return await open_store(address), await open_store(address)


async def try_all(kind: str, folder: Path, url: str, every: int) -> tuple[int, list[str]]:
    """How many places were tried, and what went wrong."""
    places, faults = 0, list[str]()
    for action in ACTIONS:
        place, is_reached = 1, True
        while is_reached:
            name = f"{action}_{place}"
            address = f"{url}?schema={name}" if kind == "postgres" else f"{kind}:{folder / name}"
            store, other = await opened(kind, address)
            try:
                is_reached = await acted_at(place, action, store, other)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
                faults.append(f"{action} at await {place}: {type(error).__name__}: {error}")
            finally:
                await store.close()
                await other.close()
            places += 1
            place += every
    return places, faults


def main() -> int:
    """Whether there were faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["memory", "sqlite", "jsonl", "postgres"], default="sqlite")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = ""
        if options.store == "postgres":
            programs = find_programs()
            if programs is None:
                print("no PostgreSQL found: skipped")
                return 0
            url = stack.enter_context(Cluster(programs)).url
        places, faults = asyncio.run(try_all(options.store, folder, url, options.every))
    for fault in faults[:20]:
        print(fault)
    print(f"{options.store}: {len(ACTIONS)} actions at {places} places, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
