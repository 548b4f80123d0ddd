"""The processes of lab/chaos.py: workers and web servers, each of which can be killed and replaced."""

import asyncio
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lab.postgres_cluster import free_port
from lab.repository import ROOT, import_path

__all__ = ["Process", "Processes", "Server"]

Process = asyncio.subprocess.Process


class Server(NamedTuple):
    """A web server, at an address that its successor keeps."""

    url: str
    words: tuple[str, ...]


class Processes:
    """The workers and the web servers on one store."""

    def __init__(
        self, address: str, engine: str, slots: int, log: Path, max_block_s: float, **environment: str
    ) -> None:
        self._on_store = ("--store", address, "--engine", engine)
        self._worker_options = ("--slots", str(slots), "--drain", "5", "--max-block", f"{max_block_s:g}")
        self._log = log  # what they print
        self._token = secrets.token_hex(32)
        self._environment = {
            **os.environ,
            "PYTHONPATH": import_path(),
            "BARTACK_WEB_TOKEN": self._token,
            "OPENAI_API_KEY": "none",  # the servers need a model, which they never call: workers do
            **environment,
        }
        self.workers: list[Process] = []
        self.servers: dict[Server, Process] = {}
        self._servers_changing = asyncio.Lock()

    @property
    def headers(self) -> dict[str, str]:
        """What a client of the servers sends."""
        return {"Authorization": f"Bearer {self._token}"}

    async def start_worker(self) -> None:
        words = ("worker", "--agents", "lab.chaos_agents:agents", *self._on_store)
        self.workers.append(await self._started(*words, *self._worker_options))

    async def start_server(self) -> None:
        port = free_port()
        words = ("serve", "--workers", "--no-tools", "--model", "openai:gpt-5", "--port", str(port), *self._on_store)
        server = Server(f"http://127.0.0.1:{port}", words)
        self.servers[server] = await self._started(*words)

    async def replace_worker(self, worker: Process) -> None:
        """Start another worker instead of one that was killed."""
        self.workers.remove(worker)
        await worker.wait()
        await self.start_worker()

    async def revive(self) -> int:
        """Start those again that have ended by themselves, as a service manager does; returns how many.

        A process that starts while the database is away ends with an error.
        """
        workers = [worker for worker in self.workers if worker.returncode is not None]
        for worker in workers:
            await self.replace_worker(worker)
        async with self._servers_changing:
            servers = [server for server, process in self.servers.items() if process.returncode is not None]
            for server in servers:
                self.servers[server] = await self._started(*server.words)
        return len(workers) + len(servers)

    async def replace_server(self, server: Server) -> None:
        """Kill a server, and start another one at the same address."""
        async with self._servers_changing:
            await _end(self.servers[server])
            self.servers[server] = await self._started(*server.words)

    async def close(self) -> None:
        for process in (*self.workers, *self.servers.values()):
            await _end(process)

    async def _started(self, *words: str) -> Process:
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bartack.cli", *words),
                cwd=ROOT,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
