"""A real Chromium for the tests of the page. Without one, or without playwright, they are skipped.

One browser serves all tests of a process, because its start costs more than most of them: each test has windows with
cookies and caches of their own. The browser belongs to the event loop of the session, so these tests run in that loop.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.web.serving import LIMIT_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = Path(__file__).parents[1] / "clients" / "web" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = os.environ.get("BARTACK_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium; install it, or set BARTACK_TEST_CHROMIUM to its path"
)
in_session_loop = pytest.mark.asyncio(loop_scope="session")
IN_BROWSER = [needs_browser, in_session_loop, pytest.mark.xdist_group("browser")]
"""The marks of tests with windows."""


def in_browser(test: Any) -> Any:
    """One such test, in a module with others."""
    for mark in IN_BROWSER:
        test = mark(test)
    return test


# Lists look for news every four seconds, which many tests wait for.
POLL_OFTEN = "{ const every = setInterval; window.setInterval = (act, ms) => every(act, ms / 10); }"


class Window:
    """One window, and what went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))
        page.on("console", self._read)
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _read(self, message: Any) -> None:
        is_network = "Failed to load resource" in message.text or "ERR_" in message.text
        if message.type == "error" and not is_network:
            self.problems.append(message.text)

    async def sign_in(self, url: str, code: str) -> None:
        await self.page.goto(f"{url}/#code={code}")
        await self.page.wait_for_selector("message-composer textarea")

    async def send(self, text: str, key: str = "Enter") -> None:
        await self.page.fill("#message", text)
        await self.page.press("#message", key)

    async def sees(self, text: str, where: str = "session-view") -> None:
        """Wait until the page contains the text."""
        await self.page.locator(where).get_by_text(text).first.wait_for()

    async def answered(self, text: str) -> None:
        """Wait until the page contains the text and the run has ended, so that the next message starts a new one."""
        await self.sees(text)
        await self.page.get_by_role("button", name="Send", exact=True).wait_for()

    async def has(self, count: int, selector: str) -> None:
        """Wait until this many elements match."""
        expect = pytest.importorskip("playwright.async_api").expect
        await expect(self.page.locator(selector)).to_have_count(count, timeout=LIMIT_S * 1000)

    async def scrolls_sideways(self) -> bool:
        script = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        is_wider: bool = await self.page.evaluate(script)
        return is_wider


class Browser:
    """The browser of this process, started when the first window is needed."""

    def __init__(self) -> None:
        self._exits = AsyncExitStack()
        self._chromium: Any = None

    async def new_context(self, **options: Any) -> Any:
        if self._chromium is None:
            playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
            driver = await self._exits.enter_async_context(playwright.async_playwright())
            self._chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            self._exits.push_async_callback(self._chromium.close)
        return await self._chromium.new_context(**options)

    async def close(self) -> None:
        await self._exits.aclose()
        self._chromium = None


browser = Browser()


@asynccontextmanager
async def windows(count: int = 1, **options: Any) -> AsyncIterator[list[Window]]:
    """Windows, each with cookies of its own."""
    async with AsyncExitStack() as exits:
        opened = []
        for _ in range(count):
            context = await browser.new_context(**options)
            exits.push_async_callback(context.close)
            await context.add_init_script(POLL_OFTEN)
            opened.append(Window(await context.new_page()))
        yield opened
