"""Chat through the gateway in Open WebUI, a chat page for any API of OpenAI, installed from PyPI in `.interop`.

The page must list the models of the gateway, send a message to the second one, and show its answer as it was written;
the gateway must have recorded the conversation. It needs Chromium and about
3 GB. What the page would load to run models itself (PyTorch and others) is left out.

    python -m lab.gateway_chat_page [SCREENSHOT.png]
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
from playwright.async_api import async_playwright

from bartack import ScriptedModel
from bartack.nouns.messages import Message
from bartack_server.gateway import gateway
from bartack_server.gateway.check import served, store_with_key
from lab.gateway_programs import Wiretap
from lab.interop import INSTALLED

FOLDER = INSTALLED / "open-webui"
VERSION = "0.12.4"
# Left out are those that load models, which the page starts without.
UNUSED = ("accelerate", "einops", "faster-whisper", "opencv", "rapidocr", "sentence-transformers", "transformers")
START_S, LIMIT_MS = 180, 60_000
PROMPT, ANSWER = "Hello there", "Hello from the gateway \u2713."


def install() -> str:
    """The command of Open WebUI, which is installed if it is not."""
    command = FOLDER / "bin" / "open-webui"
    if command.exists():
        return str(command)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
    python = str(FOLDER / "bin" / "python")
    pip = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "--no-deps", f"open-webui=={VERSION}"], check=True)
    program = "import importlib.metadata as m; print(*m.requires('open-webui'), sep='\\n')"
    lines = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.splitlines()
    needed = [line for line in lines if "extra ==" not in line and not line.startswith(UNUSED)]
    subprocess.run([*pip, *needed], check=True)
    return str(command)


def environment(folder: Path, url: str, key: str) -> dict[str, str]:
    """One user without a password, one API, and nothing from the network."""
    return os.environ | {
        "DATA_DIR": str(folder),
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "-",
        "OPENAI_API_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "ENABLE_OLLAMA_API": "False",
        "RAG_EMBEDDING_ENGINE": "openai",
        "OFFLINE_MODE": "True",
        "ANONYMIZED_TELEMETRY": "false",
    }


async def chat(url: str, picture: str | None) -> list[str]:
    """Chat on the page; returns the models that it offers."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1000, "height": 640})
        page.set_default_timeout(LIMIT_MS)
        await page.goto(url)
        await page.get_by_text("Okay, Let's Go!").click()
        await page.locator("#model-selector-model-button").click()
        options = page.locator("[id^=model-option-]")
        await options.nth(1).wait_for()
        models = [await option.get_attribute("data-value") or "" for option in await options.all()]
        await options.nth(1).click()
        await page.locator("#chat-input").click()
        await page.keyboard.type(PROMPT)
        await page.keyboard.press("Enter")
        await page.get_by_text(ANSWER).first.wait_for()
        if picture is not None:
            await page.wait_for_timeout(1000)  # the notices that cover the corner fade
            await page.screenshot(path=picture)
        await browser.close()
        return models


async def until_answered(url: str) -> None:
    async with asyncio.timeout(START_S), aiohttp.ClientSession() as http:
        while True:
            with suppress(aiohttp.ClientError):
                async with http.get(f"{url}/health") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.5)


async def main(picture: str | None) -> int:
    """0 if the page works."""
    command = install()
    store, key = await store_with_key()
    models = {name: [ScriptedModel([ANSWER] * 20)] for name in ("first", "second")}
    app = gateway(models, store=store)
    tap = Wiretap(app)
    with TemporaryDirectory(prefix="bartack-chat-page-") as folder:
        async with AsyncExitStack() as stack:
            gateway_url = await stack.enter_async_context(served(app, tap))
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = str(listener.getsockname()[1])
            words = [command, "serve", "--host", "127.0.0.1", "--port", port]
            variables = environment(Path(folder), gateway_url, key)
            with (Path(folder) / "log.txt").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *words, env=variables, cwd=folder, stdout=log, stderr=log
                )
            try:
                await until_answered(f"http://127.0.0.1:{port}")
                listed = await chat(f"http://127.0.0.1:{port}", picture)
            finally:
                process.terminate()
                await process.wait()
        sessions = [await store.entries(info.id) for info in (await store.sessions()).items]
    problems = [] if listed == ["first", "second"] else [f"the page lists {listed}"]
    texts = [[entry.fact.text for entry in session if isinstance(entry.fact, Message)] for session in sessions]
    if [PROMPT, ANSWER] not in texts:
        problems.append(f"the conversation is not among the sessions: {texts}")
    print(f"{len(tap.exchanges)} requests, {len(sessions)} sessions")
    print("\n".join(problems) or f"ok   Open WebUI {VERSION}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(next(iter(sys.argv[1:]), None))))
