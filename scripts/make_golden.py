"""Write the golden traces: ten runs with counted time and ids, as canonical JSONL, one file each.

python scripts/make_golden.py            # write tests/agent/golden/*.jsonl
python scripts/make_golden.py --check    # exit 1 if they differ from what the code does now
"""

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "agent" / "golden"
sys.path.insert(0, str(ROOT))

from bartack.store.transfer import export_session  # noqa: E402 - as the two above
from tests.agent.kit import SESSION  # noqa: E402 - the root comes first
from tests.agent.scenes import SCENES, Scene, played  # noqa: E402 - the root comes first


async def trace(scene: Scene) -> bytes:
    """The whole session, a canonical line for each entry."""
    store = await played(scene)
    return b"".join([line async for line in export_session(store, SESSION)])


async def main(check: bool) -> int:
    """Write or compare every trace; the number of those that differ."""
    different = 0
    for name, scene in SCENES.items():
        path = GOLDEN / f"{name}.jsonl"
        made = await trace(scene)
        if check and (not path.exists() or path.read_bytes() != made):
            different += 1
            print(f"{name} differs")
        elif not check:
            path.write_bytes(made)
            print(f"{name}: {len(made.splitlines())} entries")
    return different


if __name__ == "__main__":
    sys.exit(asyncio.run(main("--check" in sys.argv[1:])) > 0)
