"""A program of this folder that runs in Node with the packages of `package.json`, driven by JSON lines."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LIMIT_S = 600.0  # seconds; only a hang takes this long


class NpmClient:
    """A running program. Each command gets one reply."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, do: str, **arguments: Any) -> Any:
        """Send a command and wait for its reply."""
        self.send({"do": do, **arguments})
        return await self.receive()

    def send(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")

    def kill(self) -> None:
        """Kill the program immediately."""
        self._process.kill()

    async def receive(self) -> Any:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), LIMIT_S)
        if not line:
            assert self._process.stderr is not None
            raise AssertionError((await self._process.stderr.read()).decode())
        return json.loads(line)


def node() -> str:
    """The path of Node; the test is skipped without it or the packages."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("Node.js is not installed")
    if not (HERE / "node_modules").is_dir():
        pytest.skip("run `npm ci` in tests/clients/ui to install the clients")
    return path


@asynccontextmanager
async def npm_client(program: str, *arguments: str) -> AsyncIterator[NpmClient]:
    process = await asyncio.create_subprocess_exec(
        node(),
        "--no-warnings",
        str(HERE / program),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    try:
        yield NpmClient(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
