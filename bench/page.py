"""What an answer costs on the page of `bartack serve`, in a session of 2,000 messages and in an empty one.

A real Chromium opens the session, sends a message and shows the answer as it grows, at a fixed rate. Measured are the
CPU time of the page's process in the browser and of the server, each without what both take when nothing happens; the
time until the session can be used; and the bytes of the answer's events, against its text with the markup that it is
rendered to.

    python -m bench.page
"""

import asyncio
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
from playwright.async_api import CDPSession, Page, async_playwright

from bartack import Agent, Message, ScriptedModel, ToolCall, Usage, assistant, open_store, tool
from bartack.app.platform import run_async
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.deltas import Delta
from bartack.nouns.messages import Meta
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from bartack_server.web.markdown import markdown_blocks
from bartack_server.web.server import Address, serve
from bench.peers.environments import ROOT

TURNS = 500  # of the long session, with four messages each
STEPS = 5  # calls of a tool before the answer
ROUNDS = 3
RATE = 50.0  # deltas per second
EARLIER = "**Answer**\n\n- one\n- two, with `code`\n\nAnd a paragraph that takes more than one line on most screens."
ANSWER = (
    """\
## What changed

The retry now waits **0.2 s**, then twice as long each time, and gives up after the third attempt.

- it reads `Retry-After` if the server sends it
- it never repeats a `POST` that may have been received

```python
def upload(client, body, attempts=3):
    for attempt in range(attempts):
        response = client.put("/files", body)
        if response.status != 503:
            return response.status
        time.sleep(0.2 * 2**attempt)
    raise Unavailable(attempts)
```

| status | retried |
|---|---|
| 503 | yes |
| 400 | no |

"""
    * 4
    + "That is all."
)
TOKEN = "bench-token-" + "x" * 32
IS_OPEN = """() => document.querySelector('session-view .title span')?.textContent
    && !document.querySelector('session-view .skeleton')"""
_META = Meta(usage=Usage(input_tokens=1200, output_tokens=300))
_TICKS = os.sysconf("SC_CLK_TCK")


class PacedModel(ScriptedModel):
    """Answers in pieces of six characters, at a fixed rate."""

    async def _batches(self, response: ScriptedResponse) -> AsyncGenerator[Sequence[Delta], None]:
        async for batch in super()._batches(response):
            await asyncio.sleep(1 / RATE)
            yield batch


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"Nothing at {place}.\n" * 20


def _script(answer: str, calls: int) -> list[Message]:
    """The answers of one turn: some with a call, then one without."""
    steps = [ToolCall(f"step{number}", "look", {"place": f"step {number}"}) for number in range(calls)]
    return [*(assistant("I look there first.", step, meta=_META) for step in steps), assistant(answer, meta=_META)]


class Cost(NamedTuple):
    """What one answer took."""

    browser_s: float
    server_s: float
    opening_s: float


# -- the server


async def serve_sessions(path: str, number: int) -> None:
    listener = socket.socket(fileno=number)
    store = await open_store(path)
    try:
        history = Agent(ScriptedModel(_script(EARLIER, calls=1) * TURNS), tools=[look], store=store)
        for _ in range(TURNS):
            await history.run("Look there", session="long")
        agent = Agent(PacedModel(_script(ANSWER, STEPS) * 2 * (ROUNDS + 1), chunk_chars=6), tools=[look], store=store)
        application = app(agent, store=store, token=TOKEN)
        access = application.access
        assert isinstance(access, TokenAccess)
        await serve(application, Address(), listener, lambda: print(access.code, flush=True))
    finally:
        await store.close()


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@asynccontextmanager
async def server() -> AsyncIterator[tuple[int, str, str]]:
    """The id of the process, the address, and the code that signs in."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, tempfile.TemporaryDirectory() as home:
        words = [sys.executable, "-m", "bench.page", f"{home}/sessions.db", str(listener.fileno())]
        process = await asyncio.create_subprocess_exec(
            *words, cwd=ROOT, pass_fds=[listener.fileno()], stdout=asyncio.subprocess.PIPE
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            assert process.stdout is not None
            yield process.pid, url, (await process.stdout.readline()).decode().strip()
        finally:
            process.terminate()
            await process.wait()


# -- the browser


async def busy_s(page: CDPSession) -> float:
    """The seconds that the page has been busy."""
    metrics = (await page.send("Performance.getMetrics"))["metrics"]
    seconds: float = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
    return seconds


async def run_over(page: Page) -> None:
    """Wait for the end of the run. Looking for a button by its role would cost more than showing the answer."""
    is_live = "!document.querySelector('message-composer [title^=Stop]').hidden"
    while not await page.evaluate(is_live):  # noqa: ASYNC110 - the page has no event for it
        await asyncio.sleep(0.05)
    while await page.evaluate(is_live):  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    await asyncio.sleep(1)


async def answered(page: Page, cdp: CDPSession, pid: int, session: str, url: str) -> Cost:
    """Open the session, send a message, and watch the answer."""
    await page.goto("about:blank")
    await page.goto(f"{url}/#session={session}")
    await page.wait_for_function(IS_OPEN)
    opening_s = await page.evaluate("performance.now() / 1000")
    await asyncio.sleep(2)
    marks = await busy_s(cdp), cpu_of(pid)
    await page.fill("#message", "go on")
    await page.press("#message", "Enter")
    await run_over(page)
    return Cost(await busy_s(cdp) - marks[0], cpu_of(pid) - marks[1], opening_s)


async def new_session(url: str) -> str:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as http, http.post(f"{url}/api/sessions", json={}) as response:
        name: str = (await response.json())["id"]
        return name


async def bytes_of_answer(url: str) -> tuple[int, int]:
    """The bytes of the events from the start of the answer to its entry, and of its text and markup."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.post(f"{url}/api/sessions/bytes/runs", json={"text": "go on"}) as response:
            assert response.status == 202
        received = b""
        async with http.get(f"{url}/api/sessions/bytes/events", params={"html": "1"}) as response:
            async for chunk in response.content.iter_any():
                received += chunk
                if b'"run_ended"' in chunk:
                    break
    frames = [frame for frame in received.split(b"\n\n") if frame.startswith(b"data:") and b"look" not in frame]
    answer = sum(len(frame) + 2 for frame in frames)
    return answer, sum(len(block.encode()) for block in markdown_blocks(ANSWER))


async def main() -> None:
    async with server() as (pid, url, code), async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = await (await browser.new_context(viewport={"width": 1440, "height": 900})).new_page()
        await page.goto(f"{url}/#code={code}")
        await page.wait_for_selector("message-composer textarea")
        cdp = await page.context.new_cdp_session(page)
        await cdp.send("Performance.enable")
        costs: dict[str, list[Cost]] = {"empty": [], "long": []}
        for _ in range(ROUNDS):
            for name, rounds in costs.items():
                session = "long" if name == "long" else await new_session(url)
                rounds.append(await answered(page, cdp, pid, session, url))
        await browser.close()
        medians = {name: Cost(*map(statistics.median, zip(*rounds, strict=True))) for name, rounds in costs.items()}
        print(f"{'':8}{'empty':>8}{'long':>8}{'ratio':>8}")
        for what, empty, long in zip(Cost._fields, medians["empty"], medians["long"], strict=True):
            print(f"{what.removesuffix('_s'):8}{empty:6.2f} s{long:6.2f} s{long / empty:8.2f}")
        sent, markup = await bytes_of_answer(url)
        print(f"bytes of an answer / text and markup {sent / markup:5.2f}  ({sent:,} / {markup:,})")


if __name__ == "__main__":
    run_async(main() if len(sys.argv) < 2 else serve_sessions(sys.argv[1], int(sys.argv[2])))
