"""Bartack compared with other libraries in one run on one machine: CPU per stream event, and storing a conversation.

    make lab NAME=peers                    # everything; the first run also sets up the peers' environments
    python -m bench.peers litellm strands  # only these peers; the result file is not written

The result is printed and, if it covers every peer, written to `bench/results/peers.json`.
"""

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from bench.peers import stores, streams
from bench.peers.environments import BARTACK, ROOT, versions
from bench.stream import EVENTS

RESULT = ROOT / "bench" / "results" / "peers.json"


def main(chosen: set[str]) -> None:
    peers = (*streams.PEERS, *stores.PEERS)
    peer_names = {peer.name for peer in peers}
    if unknown := chosen - peer_names:
        sys.exit(f"unknown peer: {', '.join(sorted(unknown))} (known: {', '.join(sorted(peer_names))})")
    names = chosen or peer_names
    result: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "cores": os.cpu_count(),
            "kind": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "versions": {BARTACK: {package: version(package) for package in ("bartack", "msgspec", "aiohttp", "apsw")}},
    }
    for peer in peers:
        if peer.name in names:
            result["versions"].setdefault(peer.name, {}).update(versions(peer.name, peer.packages))
    print(f"CPU microseconds per event of a stream of {EVENTS:,} events over loopback HTTP (multiple of Bartack's)")
    print("-: the peer does not support this format\n")
    result["streams"] = streams.measured(names)
    print(streams.table(result["streams"]), end="\n\n")
    print(*streams.verdicts(result["streams"]), sep="\n", end="\n\n")
    print(
        f"A conversation of {stores.TURNS:,} turns, stored message by message and read back (multiple of Bartack's)\n"
    )
    result["stores"] = stores.measured(names)
    print(stores.table(result["stores"]))
    if names == peer_names:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(set(sys.argv[1:]))
