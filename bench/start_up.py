"""The time of `bartack --help` compared with `import rich`, and of `sessions list` with `import asyncio, aiohttp`.

The aims are at most three times as long, and as long: a command that only reads needs no client.

Each runs in a fresh interpreter; the medians of the child's processor time are compared.
"""

import os
import statistics
import subprocess
import sys

ROUNDS = 7
AIM = 3.0
LISTING_AIM = 1.0


def milliseconds(*words: str) -> float:
    """The median processor time of one command."""
    runs = []
    for _ in range(ROUNDS):
        before = os.times()
        subprocess.run([sys.executable, *words], capture_output=True, check=True)
        after = os.times()
        runs.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(runs) * 1000


def main() -> None:
    nothing, rich = milliseconds("-c", "pass"), milliseconds("-c", "import rich")
    page = milliseconds("-m", "bartack.cli", "--help")
    client = milliseconds("-c", "import asyncio, aiohttp")
    listing = milliseconds("-m", "bartack.cli", "sessions", "list", "--store", "memory:")
    print(f"python -c pass       {nothing:6.1f} ms")
    print(f"import rich          {rich:6.1f} ms")
    print(f"bartack --help          {page:6.1f} ms")
    print(f"bartack --help / rich   {page / rich:6.2f}      (aim: at most {AIM})")
    print(f"import aiohttp          {client:6.1f} ms")
    print(f"bartack sessions list   {listing:6.1f} ms")
    print(f"sessions list / aiohttp {listing / client:6.2f}      (aim: at most {LISTING_AIM})")


if __name__ == "__main__":
    main()
