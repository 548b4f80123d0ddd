"""The time of `bartack --help` compared with `python -c "import rich"`. The aim is at most three times as long.

Each runs in a fresh interpreter; the medians of the child's processor time are compared.
"""

import os
import statistics
import subprocess
import sys

ROUNDS = 15
AIM = 3.0


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
    print(f"python -c pass       {nothing:6.1f} ms")
    print(f"import rich          {rich:6.1f} ms")
    print(f"bartack --help          {page:6.1f} ms")
    print(f"bartack --help / rich   {page / rich:6.2f}      (aim: at most {AIM})")


if __name__ == "__main__":
    main()
