"""What live viewers cost a server: CPU for each delta that is delivered, and memory for each viewer and live chat.

The server runs in a process of its own and is measured from outside. Its model streams an answer at a fixed rate; the
viewers read it over HTTP as server-sent events. What a run costs without viewers is subtracted.

    python -m bench.serve
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec

from bartack import Agent, MemoryStore, ScriptedModel
from bartack.app.event_loop import run_async
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.deltas import Delta
from bartack.web import app
from bartack.web.server import Address, bound_socket, serve

TOKEN = "bench-token-" + "x" * 32
PIECES, RATE = 400, 100.0  # deltas of an answer, and deltas per second
VIEWERS = (1, 50, 200)
CHATS = 200
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


# -- the server


class PacedModel(ScriptedModel):
    """Sends a piece of its answer every hundredth of a second."""

    def __init__(self) -> None:
        super().__init__(["word " * PIECES] * 10_000, chunk_chars=5)

    async def _batches(self, response: ScriptedResponse) -> AsyncGenerator[Sequence[Delta], None]:
        async for batch in super()._batches(response):
            await asyncio.sleep(1 / RATE)
            yield batch


async def run_server() -> None:
    address = Address()
    listener = bound_socket(address)
    origins = address.origins(listener.getsockname()[1])
    application = app(Agent(PacedModel()), store=MemoryStore(), token=TOKEN, hosts=origins)
    await serve(application, address, listener, lambda: print(origins[0], flush=True))


# -- the measurement


class Used(NamedTuple):
    """CPU seconds and bytes of memory of a process."""

    cpu_s: float
    memory: int

    @classmethod
    def of(cls, pid: int) -> "Used":
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return cls((int(fields[11]) + int(fields[12])) / _TICKS, pages * _PAGE)


async def view(http: aiohttp.ClientSession, url: str, session: str) -> int:
    """Follow a session to the end of its run; how many deltas arrived."""
    deltas = 0
    timeout = aiohttp.ClientTimeout(sock_read=60)
    async with http.get(f"{url}/api/sessions/{session}/events", timeout=timeout) as response:
        kind = b""
        async for line in response.content:
            if line.startswith(b"event: "):
                kind = line[7:].strip()
            elif line.startswith(b"data: ") and kind == b"deltas":
                deltas += len(msgspec.json.decode(line[6:]))
            elif line.startswith(b"data: ") and b'"kind":"run_ended"' in line:
                break
    return deltas


async def start(http: aiohttp.ClientSession, url: str, session: str) -> None:
    async with http.post(f"{url}/api/sessions/{session}/runs", json={"text": "go"}) as response:
        assert response.status == 202, await response.text()


@asynccontextmanager
async def server() -> AsyncIterator[tuple[int, str, aiohttp.ClientSession]]:
    """The id of a server process, its address, and a client with its token."""
    words = (sys.executable, "-m", "bench.serve", "--server")
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        headers = {"authorization": f"Bearer {TOKEN}"}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=headers, connector=connector) as http:
            await start(http, url, "warm-up")
            await view(http, url, "warm-up")
            yield process.pid, url, http
    finally:
        process.terminate()
        await process.wait()


async def one_session(viewers: int) -> tuple[float, int, int]:
    """CPU seconds of a run with this many viewers, the deltas delivered, and the memory that the viewers took."""
    async with server() as (pid, url, http):
        before = Used.of(pid)
        await start(http, url, "s")
        tasks = [asyncio.create_task(view(http, url, "s")) for _ in range(viewers)]
        await asyncio.sleep(PIECES / RATE * 0.8)
        during = Used.of(pid)
        delivered = sum(await asyncio.gather(*tasks))
        await ended(http, url, "s")
        return Used.of(pid).cpu_s - before.cpu_s, delivered, during.memory - before.memory


async def many_sessions(chats: int) -> tuple[float, int, int]:
    """The same for many sessions that are live at once, with a viewer each."""
    async with server() as (pid, url, http):
        before = Used.of(pid)
        names = [f"s{number}" for number in range(chats)]
        for name in names:
            await start(http, url, name)
        tasks = [asyncio.create_task(view(http, url, name)) for name in names]
        await asyncio.sleep(1.0)
        during = Used.of(pid)
        delivered = sum(await asyncio.gather(*tasks))
        return Used.of(pid).cpu_s - before.cpu_s, delivered, during.memory - before.memory


async def ended(http: aiohttp.ClientSession, url: str, session: str) -> None:
    state = "running"
    while state != "idle":
        await asyncio.sleep(0.05)
        async with http.get(f"{url}/api/sessions/{session}") as response:
            state = (await response.json())["state"]


async def main() -> None:
    print(f"an answer of {PIECES} deltas, {RATE:.0f} a second; memory store")
    alone = (await one_session(0))[0]
    print(f"   0 viewers  {alone:6.2f} s CPU")
    for viewers in VIEWERS:
        cpu_s, delivered, memory = await one_session(viewers)
        report(f"{viewers:4} viewers", cpu_s, (cpu_s - alone) / delivered, memory / viewers)
    cpu_s, delivered, memory = await many_sessions(CHATS)
    report(f"{CHATS:4} chats  ", cpu_s, cpu_s / delivered, memory / CHATS)


def report(name: str, cpu_s: float, each_s: float, memory: float) -> None:
    print(f"{name}  {cpu_s:6.2f} s CPU  {each_s * 1e6:6.1f} us per delivered delta  {memory / 1024:6.0f} KiB each")


if __name__ == "__main__":
    run_async(run_server() if "--server" in sys.argv else main())
