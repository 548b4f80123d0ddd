"""The page of `bartack serve` in a real browser, answered by the local model with real weights."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.models.test_local_real import weights
from tests.web.browser import in_session_loop, needs_browser, windows
from tests.web.serving import LIMIT_S

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (bartack[local])")
pytestmark = [needs_browser, in_session_loop, pytest.mark.xdist_group("local-model")]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """The address and the code that the command prints."""
    words = ["serve", "--model", "local:qwen2.5-coder-0.5b", "--no-tools", "--port", "0"]
    words += ["--store", f"sqlite:{folder / 'sessions.db'}"]
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bartack", *words, stdout=asyncio.subprocess.PIPE, env=environment, cwd=folder
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            printed = (await process.stdout.readline()).decode()
        found = re.search(r"Open (http://\S+)/#code=(\S+)", printed)
        assert found is not None, printed
        yield found[1], found[2]
    finally:
        process.terminate()
        await process.wait()


async def test_the_local_model_answers_in_the_page(tmp_path: Path) -> None:
    weights("qwen2.5-coder-0.5b")
    async with serving(tmp_path) as (url, code), windows() as (window,):
        page = window.page
        await window.sign_in(url, code)
        await window.send("Say hello in one short sentence.")
        await page.wait_for_selector("session-view [role=log] .say")
        answer = str(await page.locator("[role=log] .say").first.inner_text())
        assert answer.strip()
        await window.sees("tokens")
        assert "qwen2.5-coder-0.5b" in str(await page.locator(".top .model-name").inner_text())
        await page.reload()
        await page.wait_for_selector("session-view [role=log] .say")
        assert await page.locator("[role=log] .say").first.inner_text() == answer
        assert window.problems == []
