"""Write the golden traces: ten runs with a counting clock and ids, as canonical JSONL, one file each.

python lab/make_golden.py            # write tests/agent/golden/*.jsonl
python lab/make_golden.py --check    # exit 1 if they are out of date
"""

import asyncio
import sys

from bartack.store.transfer import export_session
from lab.repository import find_test
from tests.agent.kit import SESSION
from tests.agent.scenarios import SCENARIOS, Scenario, run_scenario

GOLDEN = find_test("agent/golden")


async def trace(scenario: Scenario) -> bytes:
    """The session as canonical JSONL."""
    store = await run_scenario(scenario)
    return b"".join([line async for line in export_session(store, SESSION)])


async def main(check: bool) -> int:
    """Write or compare every trace; returns how many differ."""
    different = 0
    for name, scenario in SCENARIOS.items():
        path = GOLDEN / f"{name}.jsonl"
        lines = await trace(scenario)
        if check and (not path.exists() or path.read_bytes() != lines):
            different += 1
            print(f"{name} differs")
        elif not check:
            path.write_bytes(lines)
            print(f"{name}: {len(lines.splitlines())} entries")
    return different


if __name__ == "__main__":
    sys.exit(asyncio.run(main("--check" in sys.argv[1:])) > 0)
