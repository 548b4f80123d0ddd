"""What the tests of the page, the gateway and its clients share."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.web.browser import browser


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def _closed_browser() -> AsyncIterator[None]:
    """Closes the browser after the last test."""
    yield
    await browser.close()
