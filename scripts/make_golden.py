"""Write the golden traces: ten runs with a counting clock and ids, as canonical JSONL, one file each.

python scripts/make_golden.py            # write tests/agent/golden/*.jsonl
python scripts/make_golden.py --check    # exit 1 if they are out of date
"""

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "agent" / "golden"
sys.path.insert(0, str(ROOT))

from bartack.store.transfer import export_session  # noqa: E402 - needs the root in sys.path
from tests.agent.kit import SESSION  # noqa: E402 - needs the root in sys.path
from tests.agent.scenarios import SCENARIOS, Scenario, run_scenario  # noqa: E402 - needs the root in sys.path


async def trace(scenario: Scenario) -> bytes:
    """The session as canonical JSONL."""
    store = await run_scenario(scenario)
    return b"".join([line async for line in export_session(store, SESSION)])


async def main(check: bool) -> int:
    """Write or compare every trace; returns how many differ."""
    different = 0
    for name, scenario in SCENARIOS.items():
        path = GOLDEN / f"{name}.jsonl"
        made = await trace(scenario)
        if check and (not path.exists() or path.read_bytes() != made):
            different += 1
            print(f"{name} differs")
        elif not check:
            path.write_bytes(made)
            print(f"{name}: {len(made.splitlines())} entries")
    return different


if __name__ == "__main__":
    sys.exit(asyncio.run(main("--check" in sys.argv[1:])) > 0)
