"""Act on the session of a live run from another process, at every await of the run, on a store of each kind.

    python -m lab.outside_hands [--store memory|sqlite|jsonl|postgres] [--every 1]

See tests/agent/hands.py for what is done and what must hold afterwards: each request takes effect exactly once, the run
survives, and nothing that is known is lost. With --every 5 only each fifth await is tried. A store in memory has no
other process; there a second task acts.
"""

import argparse
import asyncio
import sys

from bartack.store import SessionStore, open_store
from lab.postgres_cluster import temporary_address
from tests.agent.hands import ACTIONS, OtherProcess, acted_at
from tests.agent.kit import SlowStore


async def try_all(address: str, step: int) -> tuple[int, list[str]]:
    """How many places were tried, and what went wrong."""
    places, faults = 0, list[str]()
    outsider = await OtherProcess.start()
    for action in ACTIONS:
        place, is_reached = 1, True
        while is_reached:
            store_address = f"{address}{'?schema=' if address.startswith('postgresql:') else '_'}{action}_{place}"
            store: SessionStore = SlowStore() if address.startswith("memory:") else await open_store(store_address)
            try:
                is_reached = await acted_at(
                    place, action, store, store if isinstance(store, SlowStore) else outsider, store_address
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
                faults.append(f"{action} at await {place}: {type(error).__name__}: {error}")
            finally:
                await store.close()
            places += 1
            place += step
    await outsider.stop()
    return places, faults


def main() -> int:
    """Whether there were faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["memory", "sqlite", "jsonl", "postgres"], default="sqlite")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    with temporary_address(options.store) as address:
        places, faults = asyncio.run(try_all(address, options.every))
    for fault in faults[:20]:
        print(fault)
    print(f"{options.store}: {len(ACTIONS)} actions at {places} places, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
