"""Draw docs/pictures/web-*.png: the page of `bartack serve` in a real Chromium, with a scripted model and real tools.

    python -m lab.draw_web

It needs Chromium (``apt-get install chromium``). The agent works in a project of two files in a temporary folder.
"""

import asyncio
import os
import shutil
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from playwright.async_api import Page, async_playwright

from bartack import Agent, MemoryStore, ScriptedModel, Text, Thinking, ToolCall, Usage, assistant
from bartack.nouns.entries import SessionHeader
from bartack.nouns.messages import Meta
from bartack.tools import LocalRuntime, file_tools
from bartack.tools.approval import by_tool
from bartack_server.web import app
from bartack_server.web.access import TokenAccess

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
PROMPT = "Uploads fail when the server answers 503. Make them retry, at most three times, and show me the tests."
FILES = {
    "upload.py": '''\
"""Send a body to the server."""


def upload(client, body):
    response = client.put("/files", body)
    return response.status
''',
    "check_upload.py": """\
import sys

from upload import upload


class Busy:
    calls = 0

    def put(self, url, body):
        self.calls += 1
        self.status = 200 if self.calls == 3 else 503
        return self


client = Busy()
upload(client, b"x")
if client.calls != 3:
    sys.exit(f"FAILED: expected 3 attempts, got {client.calls}")
""",
}
OLD = '    response = client.put("/files", body)\n    return response.status\n'
NEW = """\
    for _ in range(ATTEMPTS):
        response = client.put("/files", body)
        if response.status != 503:
            break
    return response.status
"""
ANSWER = r"""Done. An upload is repeated at most three times, and only after a 503:

```python
def test_upload_is_repeated_while_the_server_is_busy() -> None:
    client = Busy(failures=2)
    assert upload(client, b"x") == 200  # the third attempt
    assert client.calls == 3
```

With a probability $p$ that one request fails, an upload now fails with

$$
P = p^3 = \prod_{i=1}^{3} p_i
$$

| p | before | now |
|--:|--:|--:|
| 10 % | 10 % | 0.1 % |
| 30 % | 30 % | 2.7 % |

- [x] Retry after 503
- [ ] Wait between the attempts, see https://www.rfc-editor.org/rfc/rfc9110
"""
PROJECT = "code/mailer"  # in the home directory
EARLIER = (
    ("Draft of the release notes", None, PROJECT),
    ("Port the parser to msgspec", "codex", "code/feeds"),
    ("Why is the index rebuilt twice?", "claude-code", "code/search"),
)


def script() -> list[Any]:
    def used(tokens: int) -> Meta:
        return Meta(usage=Usage(input_tokens=tokens, output_tokens=tokens // 9, cache_read_tokens=tokens // 2))

    return [
        assistant(
            Thinking("First I read the code, then I run the check to see it fail."),
            ToolCall("c1", "read_file", {"path": "upload.py"}),
            ToolCall("c2", "run_command", {"command": "python3 check_upload.py"}),
            meta=used(1800),
        ),
        assistant(
            Text(
                "There is no retry yet: `upload()` gives up on the first response. I will repeat the request for 503 "
                "only, and keep the number of attempts in one place."
            ),
            ToolCall("c3", "edit_file", {"path": "upload.py", "old": OLD, "new": NEW}),
            meta=used(2600),
        ),
        assistant(Text(ANSWER), meta=used(3100)),
    ]


async def shoot(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    store = MemoryStore()
    for number, (title, origin, directory) in enumerate(EARLIER):
        header = SessionHeader(title=title, origin=origin, metadata={"directory": str(Path.home() / directory)})
        await store.create_session(f"earlier {number}", header)
        await Agent(ScriptedModel(["Done."]), store=store).run(title, session=f"earlier {number}")
    agent = Agent(
        ScriptedModel(script()),
        tools=file_tools(),
        runtime=LocalRuntime(folder),
        approval=by_tool({"run_command": "never"}),
        name="coder",
    )
    application = app(agent, store=store)
    assert isinstance(application.access, TokenAccess)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(application, lifespan="on", ws="none", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": 1440, "height": 900})
            await page.goto(f"{url}/#code={application.access.code}")
            await page.fill("#message", PROMPT)
            await page.press("#message", "Enter")
            await page.wait_for_selector("tool-card.ask")
            await page.get_by_role("button", name="Inspect").click()
            await page.wait_for_selector("run-inspector .lane")
            await page.wait_for_selector("session-list .pill.ask")
            await take(page, "web-light", "light")
            await take(page, "web-dark", "dark")
            await page.get_by_role("tab", name="State").click()
            await page.get_by_role("button", name="Widen the inspector").click()
            await page.wait_for_selector("run-inspector .lit")
            await take(page, "web-states", "light")
            await page.get_by_role("button", name="Widen the inspector").click()
            await page.get_by_role("button", name="Close the inspector").click()
            await page.set_viewport_size({"width": 390, "height": 844})
            await take(page, "web-phone", "light")
            await page.set_viewport_size({"width": 768, "height": 1024})
            await take(page, "web-tablet", "dark")
            await page.set_viewport_size({"width": 2560, "height": 1300})
            await page.get_by_role("button", name="Inspect").click()
            await page.wait_for_selector("run-inspector .lane")
            await take(page, "web-wide", "light")
            await page.get_by_role("button", name="Close the inspector").click()
            await page.set_viewport_size({"width": 1440, "height": 900})
            await page.get_by_role("button", name="Approve").click()
            await page.get_by_role("button", name="Send", exact=True).wait_for()
            await page.locator(".said").last.hover()
            await take(page, "web-answer", "light")
            await page.evaluate("location.hash = ''")
            await page.wait_for_selector(".hello")
            await page.get_by_role("button", name="Settings").click()
            await take(page, "web-new", "dark")
            await browser.close()
        application.service.closing.set()
        server.should_exit = True
        await serving


async def take(page: Page, name: str, scheme: Any) -> None:
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    await page.wait_for_timeout(400)  # for the layout
    await page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    with TemporaryDirectory() as home:
        os.environ["HOME"] = home  # directories are shown relative to it
        project = Path(home, PROJECT)
        project.mkdir(parents=True)
        asyncio.run(shoot(project))
