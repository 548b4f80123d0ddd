"""Kill processes that write to one store, one at a time while the others continue; no acknowledged entry may be lost.

    python -m lab.crash --store sqlite [--store jsonl] [--store postgres] [--kills 300]

`bartack.testing.kill_writers` does the killing and the checking. A PostgreSQL server of its own is killed, too, before
two of three kills. With --synchronous-commit off, the negative control, entries must be lost there.
"""

import argparse
import sys
from functools import partial

from bartack.store import open_store
from bartack.testing import KillReport, kill_writers
from lab.postgres_cluster import Cluster, temporary_address, temporary_cluster

KINDS = ("sqlite", "jsonl", "postgres")


def kill_files(kind: str, kills: int, seed: int) -> KillReport:
    """Kill the writers of a store in a temporary folder."""
    with temporary_address(kind) as address:
        return kill_writers(partial(open_store, address), kills, seed=seed)


def kill_server(cluster: Cluster, kills: int, seed: int, query: str = "") -> KillReport:
    """Kill the writers of a PostgreSQL store, and the server. `query` is added to the address."""

    def disturb(number: int) -> None:
        if number % 3:
            cluster.kill()
            cluster.start()

    return kill_writers(partial(open_store, f"{cluster.url}{query}"), kills, seed=seed, disturb=disturb)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--synchronous-commit", choices=["on", "off"], default="on", help="of PostgreSQL")
    options = parser.parse_args()
    failed = False
    for kind in options.store or KINDS:
        if kind == "postgres":
            is_weak = options.synchronous_commit == "off"
            with temporary_cluster() as cluster:
                report = kill_server(cluster, options.kills, options.seed, "?synchronous_commit=off" if is_weak else "")
        else:
            report = kill_files(kind, options.kills, options.seed)
        print(f"{kind}: {report}", *report.faults[:20], sep="\n  ", flush=True)
        failed |= bool(report.faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
