"""What the gateway costs: CPU time and latency per request and per streamed event, recorded in SQLite, beside a floor.

The upstream, the gateway and the floor are processes of their own on 127.0.0.1. The floor is a plain Starlette
application that sends the same response with as many events and does nothing else, on the same server. Small requests
have one short message; large ones have as many bytes as a request of Claude Code, most of them tool definitions. Run it
with `make bench` or `python -m bench.gateway`. The rounds are interleaved, and medians are shown.

`python -m bench.gateway VENV/bin/litellm` also measures LiteLLM's proxy, installed as `litellm[proxy]` in another
environment, and shows how many times the CPU time it needs, and how many times the latency it adds to the floor. It
checks no keys and records nothing.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bartack.models import connect
from bartack.store import open_store
from bartack.testing import ExpectedOutcome, Scenario, fault_server
from bartack.testing.faults import EVENT_WRITERS
from bartack_server.gateway import gateway
from bartack_server.gateway.keys import GatewayKey, add_key, digest_of

ROUNDS = 5
REQUESTS = 100
EVENTS = 500
KEY = "bt-bench"
LARGE = 47_000  # bytes
_TICKS = os.sysconf("SC_CLK_TCK")


def answer(events: int) -> bytes:
    """An answer with so many pieces of text."""
    write = EVENT_WRITERS["openai-chat"]
    return write.start() + b"".join(write.text("word ") for _ in range(events)) + write.finish("stop")


def serve_upstream(pipe: Connection) -> None:
    """Serve a short and a long answer on two ports."""

    async def main() -> None:
        short, long = (
            Scenario(name="-", format="openai-chat", steps=(answer(count),), outcome=ExpectedOutcome(end="done"))
            for count in (1, EVENTS)
        )
        async with fault_server(short) as first, fault_server(long) as second:
            pipe.send((first.base_url, second.base_url))
            await asyncio.Event().wait()

    asyncio.run(main())


def serve_app(pipe: Connection, urls: tuple[str, str] | None, folder: str = "") -> None:
    """Serve the gateway for these upstreams, with a store in the folder; or the floor."""

    async def floor(request: Request) -> Response:
        is_long = json.loads(await request.body())["model"] == "long"
        return Response(answer(EVENTS if is_long else 1), media_type="text/event-stream")

    async def main() -> None:
        app: Any = Starlette(routes=[Route("/{path:path}", floor, methods=["POST"])])
        if urls is not None:
            store = await open_store(Path(folder) / "sessions.db")
            await add_key(store, GatewayKey(id="b", name="b", digest=digest_of(KEY), created=store.environment.now()))
            models = [connect("openai-compatible:m", api_key="-", base_url=url) for url in urls]
            app = gateway({"short": models[:1], "long": models[1:]}, store=store, drafts=Path(folder) / "drafts")
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none"))
        task = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        pipe.send(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
        await task

    asyncio.run(main())


def start_litellm(command: str, urls: tuple[str, str], folder: Path) -> tuple[str, subprocess.Popen[bytes]]:
    """LiteLLM's proxy in front of the same upstreams, in one process."""
    models = [
        {"model_name": name, "litellm_params": {"model": "hosted_vllm/m", "api_base": url, "api_key": "-"}}
        for name, url in zip(("short", "long"), urls, strict=True)
    ]
    config = folder / "litellm.yaml"
    config.write_text(json.dumps({"model_list": models}), encoding="utf-8")  # JSON is YAML
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    variables = os.environ | {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # the proxy would download its table of prices
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    words = [command, "--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--telemetry", "False"]
    process = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while True:
        assert process.poll() is None, "LiteLLM has ended"
        with suppress(OSError):
            urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()
            return url, process
        time.sleep(0.5)


def cpu_s(pid: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def body_for(path: str, model: str, size: int) -> dict[str, Any]:
    """A request of about this size; each has a text of its own, and so a session of its own."""
    schema = {"type": "object", "properties": {f"field{index}": {"type": "string"} for index in range(20)}}
    tools: list[dict[str, Any]] = []
    while len(json.dumps(tools)) < size:
        tools.append({"name": f"tool{len(tools)}", "description": "A tool. " * 60, "input_schema": schema})
    if path.endswith("completions"):
        functions = [{"name": tool["name"], "parameters": tool["input_schema"]} for tool in tools]
        tools = [{"type": "function", "function": function} for function in functions]
    return {"model": model, "max_tokens": 100, "stream": True, "tools": tools, "messages": []}


async def measure(url: str, pid: int, path: str, model: str, size: int) -> tuple[float, float]:
    """CPU seconds of one request, and the median of the seconds that it took."""
    body = body_for(path, model, size)
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as http:
        began_s, began = cpu_s(pid), time.time()
        durations_s: list[float] = []
        for number in range(REQUESTS):
            body["messages"] = [{"role": "user", "content": f"Question {began} {number}"}]
            data, sent_s = json.dumps(body), time.perf_counter()
            async with http.post(url + path, data=data) as response:
                answer = await response.read()
                assert response.status == 200, answer
            durations_s.append(time.perf_counter() - sent_s)
        return (cpu_s(pid) - began_s) / REQUESTS, statistics.median(durations_s)


def main(litellm: str | None) -> None:
    """Print the costs."""
    context = multiprocessing.get_context("spawn")
    processes: list[Any] = []

    def start(target: Any, *arguments: Any) -> tuple[Any, int]:
        own, other = context.Pipe()
        process = context.Process(target=target, args=(other, *arguments), daemon=True)
        process.start()
        processes.append(process)
        return own.recv(), process.pid or 0

    with TemporaryDirectory() as folder:
        try:
            urls, _ = start(serve_upstream)
            servers = {"floor": start(serve_app, None), "gateway": start(serve_app, urls, folder)}
            if litellm is not None:
                url, process = start_litellm(litellm, urls, Path(folder))
                processes.append(process)
                servers["litellm"] = (url, process.pid)
            print_costs(servers)
        finally:
            for process in processes:
                process.terminate()


def print_costs(servers: Mapping[str, tuple[str, int]]) -> None:
    """Measure the servers in turn, and print the medians."""
    cases = [
        (f"{name} {kind}", path, model, size)
        for name, path in (("chat to chat", "/v1/chat/completions"), ("messages to chat", "/v1/messages"))
        for kind, model, size in (("small", "short", 0), ("47 KB", "short", LARGE), (f"{EVENTS} events", "long", 0))
    ]
    costs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for case, path, model, size in cases:
            for name, (url, pid) in servers.items():
                costs.setdefault((case, name), []).append(asyncio.run(measure(url, pid, path, model, size)))
    columns = "".join(f"{name:>15}" for name in servers)
    print(f"{'':32}{columns}   CPU ms per request (p50 of the latency in ms)")
    for case, *_ in cases:
        cpu, latency = (
            {name: statistics.median(round[kind] for round in costs[case, name]) * 1000 for name in servers}
            for kind in (0, 1)
        )
        cells = "".join(f"{f'{cpu[name]:7.2f} ({latency[name]:5.1f})':>15}" for name in servers)
        ratio = ""
        if "litellm" in servers:
            # Ratios within a round, because other work on the machine changes from one to the next.
            added = statistics.median(
                (other[1] - floor[1]) / max(own[1] - floor[1], 1e-6)
                for other, own, floor in zip(
                    *(costs[case, name] for name in ("litellm", "gateway", "floor")), strict=True
                )
            )
            ratio = f"   litellm : gateway = {cpu['litellm'] / cpu['gateway']:.1f} (added: {added:.1f})"
        print(f"{case:32}{cells}{ratio}")


if __name__ == "__main__":
    main(next(iter(sys.argv[1:]), None))
