"""The fixed cost of a model call: the first call in a process against the second, and the CPU of later ones.

The server is another process on 127.0.0.1. For the first two calls it waits 300 ms before its first byte, as a fast
model does; what the first one costs more is imports, connection and price data. The later calls are answered at once.
Run it with `make bench` or `python -m bench.model_call`. Each round is a fresh interpreter; medians are shown.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection

from bench._measuring import server_process

ROUNDS = 5
CALLS = 300
WAIT_SECONDS = 0.3


def serve(pipe: Connection) -> None:
    """Serve one short answer, slowly and at once, on two ports."""
    from bartack.testing import ExpectedOutcome, Scenario, Stall, fault_server  # noqa: PLC0415 - only the server needs it
    from bartack.testing.faults import EVENT_WRITERS  # noqa: PLC0415 - only the server needs it

    say = EVENT_WRITERS["anthropic-messages"]
    body = say.start() + say.text("Hi") + say.finish("stop")

    async def main() -> None:
        fast = Scenario(name="fast", format=say.format, steps=(body,), outcome=ExpectedOutcome(end="done"))
        slow = Scenario(
            name="slow", format=say.format, steps=(Stall(WAIT_SECONDS), body), outcome=ExpectedOutcome(end="done")
        )
        async with fault_server(slow) as first, fault_server(fast) as second:
            pipe.send((first.base_url, second.base_url))
            await asyncio.Event().wait()

    asyncio.run(main())


async def measure(slow: str, fast: str) -> dict[str, float]:
    """Milliseconds in this process: of its first two calls, and of CPU for each later one."""
    from bartack.models import connect  # noqa: PLC0415 - timed by bench.start_up
    from bartack.nouns.messages import user  # noqa: PLC0415 - timed by bench.start_up

    async def call(base_url: str) -> None:
        async with connect("anthropic:claude-sonnet-4-5", api_key="none", base_url=base_url) as model:
            async for _ in model.stream([user("Hello")]):
                pass

    times = []
    for _ in range(2):
        start = time.perf_counter()
        await call(slow)
        times.append((time.perf_counter() - start) * 1000)
    async with connect("anthropic:claude-sonnet-4-5", api_key="none", base_url=fast) as model:
        start = time.process_time()
        for _ in range(CALLS):
            async for _ in model.stream([user("Hello")]):
                pass
        cpu = (time.process_time() - start) / CALLS * 1000
    return {"first": times[0], "second": times[1], "cpu": cpu}


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(measure(*sys.argv[1:3]))))
        return
    with server_process(serve) as urls:
        command = [sys.executable, "-m", "bench.model_call", *urls]
        runs = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(ROUNDS)]
    first, second, cpu = (statistics.median(run[name] for run in runs) for name in ("first", "second", "cpu"))
    print(f"first call            {first:7.1f} ms, {WAIT_SECONDS * 1000:.0f} ms of them waiting for the server")
    print(f"second call           {second:7.1f} ms")
    print(f"first - second        {first - second:7.1f} ms")
    print(f"CPU of a later call   {cpu:7.2f} ms")


if __name__ == "__main__":
    main()
