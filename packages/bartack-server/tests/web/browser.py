"""A real Chromium for the tests of the page. Without one, or without playwright, they are skipped."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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


@asynccontextmanager
async def windows(count: int = 1, **options: Any) -> AsyncIterator[list[Window]]:
    """Windows of one browser, each with cookies of its own."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            opened = [Window(await (await browser.new_context(**options)).new_page()) for _ in range(count)]
            yield opened
        finally:
            await browser.close()
