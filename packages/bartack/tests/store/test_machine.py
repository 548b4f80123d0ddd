"""Random walks over every store, chosen by Hypothesis, which looks for the shortest one that fails."""

import asyncio
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.testing.store_checks_list import StoreWalk
from tests.counting import counting_environment
from tests.store.postgres_server import require_server
from tests.store.stores import KINDS, PERSISTENT, opener


async def walk(kind: str, folder: Path, chance: Random, steps: int) -> None:
    open_store = opener(kind, folder, counting_environment())
    walk = StoreWalk(await open_store(), chance, open_store if kind in PERSISTENT else None)
    try:
        for _ in range(steps):
            await walk.step()
    finally:
        await walk.store.close()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(chance=st.randoms(use_true_random=False), steps=st.integers(1, 25))
def test_a_store_is_a_list_after_any_steps(kind: str, chance: Random, steps: int) -> None:
    if kind == "postgres":
        require_server()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        asyncio.run(walk(kind, Path(folder), chance, steps))
