"""The time of `import bartack` compared with `import msgspec`. The aim is at most three times as long.

Each import runs in a fresh interpreter, and the medians of the processor time are compared. `--slowest` lists the
slowest modules.
"""

import statistics
import subprocess
import sys

ROUNDS = 15
AIM = 3.0
TIMED = "import time; begin = time.process_time(); import {}; print(time.process_time() - begin)"


def milliseconds(module: str) -> float:
    """The median time of one import."""
    command = [sys.executable, "-c", TIMED.format(module)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(ROUNDS)]
    return statistics.median(float(run.stdout) for run in runs) * 1000


def slowest(module: str, count: int = 15) -> list[str]:
    """The modules whose own code takes longest, as reported by ``-X importtime``."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.removeprefix("import time:").split("|") for line in run.stderr.splitlines()[1:]]
    own = sorted(((int(line[0]), line[2].strip()) for line in lines), reverse=True)
    return [f"{micros / 1000:8.2f} ms  {name}" for micros, name in own[:count]]


def main() -> None:
    times = {module: milliseconds(module) for module in ("msgspec", "bartack")}
    for module, ms in times.items():
        print(f"import {module:8} {ms:7.1f} ms")
    ratio = times["bartack"] / times["msgspec"]
    print(f"bartack / msgspec  {ratio:7.2f}      (aim: at most {AIM})")
    if "--slowest" in sys.argv:
        print("\n".join(slowest("bartack")))


if __name__ == "__main__":
    main()
