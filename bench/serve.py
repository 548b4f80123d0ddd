"""What live chats and viewers cost a server, compared with pydantic-ai's adapters for the same protocols.

Each server runs in a process of its own and plays the same chat (`bench/_live_chat.py`): a tool call whose arguments
stream in, then an answer, at a fixed rate. The same clients read it over loopback HTTP, and check that all of it has
arrived. What is measured is everything that the server process does meanwhile: its CPU time, and the memory that it
takes in the middle of the answers. Bartack keeps the chats in a memory store, pydantic-ai keeps none.

- chats: clients with a chat of their own each, which they start and read in the protocol of the AI SDK or AG-UI.
- viewers: clients that follow one session on the live events of Bartack's page. pydantic-ai has no counterpart: the
  only stream of an answer is the response to the request that started it.
- stalled: the same in a session that begins with a long message, with and without viewers beside them that never read.

Bartack writes an answer to its viewers in batches, eight a second, with the pieces of a text joined; pydantic-ai writes
each delta by itself. Both wake up for each delta. What that costs alone is measured too: with one chat, when the
process has slept before every delta, it is most of what Bartack takes.

    python -m bench.serve             # everything; the first run also sets up the environment of pydantic-ai
    python -m bench.serve bartack     # only Bartack; the result file is not written
"""

import asyncio
import json
import os
import platform
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from bartack.app.platform import run_async
from bench._live_chat import ANSWER, ARGUMENTS, DELTAS, RATE, TOKEN
from bench.peers.environments import BARTACK, ROOT, CannotRun, command, sealed, versions

PEER = "pydantic-ai-ui"
PACKAGES = ("pydantic-ai-slim", "ag-ui-protocol", "uvicorn", "uvloop", "starlette")
RESULT = ROOT / "bench" / "results" / "serve.json"
CLIENTS = (1, 50, 200)
STALLED = 50
LONG = 1_000_000  # characters of the message that stalled viewers do not read
ROUNDS = 1  # a round has thousands of deltas; with more, the best counts
TARGET = 10
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Used(NamedTuple):
    """CPU seconds and bytes of memory of a process."""

    cpu_s: float
    memory: int

    @classmethod
    def of(cls, pid: int) -> "Used":
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return cls((int(fields[11]) + int(fields[12])) / _TICKS, pages * _PAGE)


class Cost(NamedTuple):
    """What one round cost: CPU seconds of the server, and the bytes that each client took."""

    cpu_s: float
    bytes_each: float


# -- clients


class Server:
    """A server process, and the clients that the measurements need."""

    def __init__(self, pid: int, url: str, http: aiohttp.ClientSession) -> None:
        self.pid, self.url, self._http = pid, url, http

    async def chat(self, protocol: str, name: str) -> None:
        """Start a chat and read it to its end."""
        body = _BODIES[protocol](name)
        async with self._http.post(f"{self.url}/api/{_PATHS[protocol]}", json=body) as response:
            assert response.status == 200, await response.text()
            events = [json.loads(line[6:]) for line in (await response.read()).split(b"\n") if line[:7] == b"data: {"]
        kinds = _KINDS[protocol]
        arrived = {kind: "".join(event[field] for event in events if event["type"] == kind) for kind, field in kinds}
        assert list(arrived.values()) == ["".join(ARGUMENTS), "".join(ANSWER)], arrived

    async def start(self, session: str, text: str = "go") -> None:
        """Start a run without reading it."""
        async with self._http.post(f"{self.url}/api/sessions/{session}/runs", json={"text": text}) as response:
            assert response.status == 202, await response.text()

    async def view(self, session: str) -> None:
        """Follow a session to the end of its run."""
        received = bytearray()
        async with self._http.get(f"{self.url}/api/sessions/{session}/events") as response:
            assert response.status == 200, await response.text()
            async for chunk in response.content.iter_any():
                received += chunk
                if b'"run_ended"' in received[-2 * len(chunk) :]:
                    break
        assert "".join(ANSWER).encode() in received

    def stall(self, session: str) -> socket.socket:
        """A viewer that never reads."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        viewer = socket.socket()
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        viewer.connect((host, int(port)))
        head = (
            f"GET /api/sessions/{session}/events HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        )
        viewer.sendall(f"{head}\r\n".encode())
        return viewer


def _ai_sdk_body(name: str) -> dict[str, Any]:
    prompt = {"id": f"p-{name}", "role": "user", "parts": [{"type": "text", "text": "go"}]}
    return {"id": name, "trigger": "submit-message", "messages": [prompt]}


def _ag_ui_body(name: str) -> dict[str, Any]:
    prompt = {"id": f"p-{name}", "role": "user", "content": "go"}
    nothing: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": name, "runId": f"r-{name}", "messages": [prompt], **nothing}


_PATHS = {"AI SDK": "ai-sdk/chat", "AG-UI": "ag-ui"}
_BODIES = {"AI SDK": _ai_sdk_body, "AG-UI": _ag_ui_body}
_KINDS = {  # the events that carry the arguments and the answer, and the field that has the text
    "AI SDK": (("tool-input-delta", "inputTextDelta"), ("text-delta", "delta")),
    "AG-UI": (("TOOL_CALL_ARGS", "delta"), ("TEXT_MESSAGE_CONTENT", "delta")),
}


@asynccontextmanager
async def server(name: str) -> AsyncIterator[Server]:
    """A server of Bartack or the peer that has played a chat of each protocol before."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener, tempfile.TemporaryDirectory() as home:
        words = command(name, "serve", listener.fileno())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = await asyncio.create_subprocess_exec(
            *words, env=sealed(home), cwd=ROOT, pass_fds=[listener.fileno()], stdout=asyncio.subprocess.DEVNULL
        )
        listener.close()  # if the server ends, connections are refused
        try:
            headers = {"authorization": f"Bearer {TOKEN}"}
            timeout = aiohttp.ClientTimeout(total=None)
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as http:
                running = Server(process.pid, url, http)
                for protocol in _PATHS:
                    await running.chat(protocol, f"warm-up-{_PATHS[protocol][:2]}")
                yield running
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


# -- measurements


async def measured(name: str, protocol: str, clients: int, *, stalled: int | None = None) -> Cost:
    """One round: clients with a chat each or, for the protocol "page", viewers of one session."""
    async with server(name) as target:
        before = Used.of(target.pid)
        viewers: list[socket.socket] = []
        if protocol == "page":
            await target.start("s", "go" if stalled is None else "x" * LONG)
            viewers = [target.stall("s") for _ in range(stalled or 0)]
            tasks = [asyncio.create_task(target.view("s")) for _ in range(clients)]
        else:
            tasks = [asyncio.create_task(target.chat(protocol, f"s{number}")) for number in range(clients)]
        await asyncio.sleep(DELTAS / RATE * 0.8)
        during = Used.of(target.pid)
        await asyncio.gather(*tasks)
        cost = Cost(Used.of(target.pid).cpu_s - before.cpu_s, (during.memory - before.memory) / max(clients, 1))
        for viewer in viewers:
            viewer.close()
        return cost


async def best(name: str, protocol: str, clients: int, *, stalled: int | None = None) -> dict[str, Any]:
    """The best of some rounds as a row of the result."""
    rounds = [await measured(name, protocol, clients, stalled=stalled) for _ in range(ROUNDS)]
    row: dict[str, Any] = {"server": name, "protocol": protocol, "clients": clients}
    if stalled is not None:
        row["stalled"] = stalled
    cpu_s = min(cost.cpu_s for cost in rounds)
    micros = round(cpu_s / clients / DELTAS * 1e6, 1)
    return row | {
        "cpu_seconds": round(cpu_s, 2),
        "microseconds": micros,
        "kib_each": round(min(cost.bytes_each for cost in rounds) / 1024),
    }


async def wake_ups(chats: int) -> float:
    """Microseconds of CPU per delta in a process that does nothing but wake up for it."""
    words = [sys.executable, "-m", "bench._live_chat", str(chats)]
    process = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return round(float(output) / chats / DELTAS * 1e6, 1)


async def main(only: set[str]) -> None:
    print(f"{DELTAS} deltas for each client, {RATE:.0f} a second; CPU time of the server per delivered delta")
    alone = {chats: await wake_ups(chats) for chats in CLIENTS}
    print("wake-ups alone:", ", ".join(f"{micros} us with {chats} chats" for chats, micros in alone.items()))
    rows: list[dict[str, Any]] = []
    names = [name for name in (BARTACK, PEER) if not only or name in only]
    for protocol in ("AI SDK", "AG-UI"):
        for clients in CLIENTS:
            for name in names:
                try:
                    rows.append(await best(name, protocol, clients))
                except CannotRun as fault:
                    rows.append({"server": name, "protocol": protocol, "clients": clients, "fault": str(fault)})
                _compare(rows)
                print(shown(rows[-1]), flush=True)
    if BARTACK in names:
        for clients in CLIENTS:
            rows.append(await best(BARTACK, "page", clients))
            print(shown(rows[-1]), flush=True)
        for stalled in (0, STALLED):
            rows.append(await best(BARTACK, "page", CLIENTS[1], stalled=stalled))
            print(shown(rows[-1]), flush=True)
    if len(names) == 2:
        RESULT.write_text(json.dumps({**_about(), "wake_ups": alone, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        ratios = [row["ratio"] for row in rows if "ratio" in row]
        reached = sum(ratio >= TARGET for ratio in ratios)
        print(f"{TARGET} times less CPU than pydantic-ai: reached in {reached} of {len(ratios)} cases")


def _compare(rows: list[dict[str, Any]]) -> None:
    """Add to the last row how many times Bartack's CPU it took."""
    row = rows[-1]
    for own in rows[:-1]:
        is_same = (own["protocol"], own["clients"]) == (row["protocol"], row["clients"])
        if is_same and own["server"] == BARTACK and "fault" not in row:
            row["ratio"] = round(row["cpu_seconds"] / own["cpu_seconds"], 1)


def shown(row: dict[str, Any]) -> str:
    kind = "viewers" if row["protocol"] == "page" else "chats"
    title = f"{row['server']:16}{row['protocol']:8}{row['clients']:4} {kind:8}"
    if "fault" in row:
        return f"{title} could not be run: {row['fault']}"
    ratio = f"  {row['ratio']:5.1f} times" if "ratio" in row else ""
    stalled = f"  beside {row['stalled']} stalled ones" if "stalled" in row else ""
    return (
        f"{title}{row['cpu_seconds']:7.2f} s{row['microseconds']:8.1f} us{row['kib_each']:7} KiB each{ratio}{stalled}"
    )


def _about() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "cores": os.cpu_count(),
            "kind": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "versions": {
            BARTACK: {package: version(package) for package in ("bartack", "uvicorn", "uvloop", "starlette")},
            PEER: versions(PEER, PACKAGES),
        },
        "deltas": DELTAS,
        "rate": RATE,
    }


if __name__ == "__main__":
    run_async(main(set(sys.argv[1:])))
