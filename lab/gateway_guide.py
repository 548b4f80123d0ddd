"""Follow docs/guides/gateway.md with the real programs, and draw docs/pictures/gateway-claude.png.

    python -m lab.gateway_guide            run the commands of "Run Claude Code on any model", and of that for Codex
    python -m lab.gateway_guide --picture  draw the page with a conversation of Claude Code while it goes on

The commands are those of the guide, word for word, in a new home. Only the first is left out, which installs what is
here already, and the program gets a prompt, so that it ends by itself. The model of the guide is a scripted one on this
machine. The programs are installed from npm in `.interop`; the picture needs Chromium.
"""

import asyncio
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from playwright.async_api import async_playwright

from bartack import Agent, MemoryStore, ScriptedModel, Text, Thinking, ToolCall, assistant
from bartack.models import GuardedStream
from bartack.models.guard import guarded_batches
from bartack.nouns.deltas import Delta, Done, Start, TextDelta
from bartack.nouns.requests import ModelRequest
from bartack.store.files import make_folder
from bartack_server.gateway import gateway
from bartack_server.gateway.check import CHECKED, output_of, served, set_up
from bartack_server.gateway.keys import GatewayKey, add_key, digest_of, new_secret
from bartack_server.web import app as page_app
from bartack_server.web.access import TokenAccess
from lab import scripted_model
from lab.draw_web import FILES, PICTURES, take
from lab.interop import INSTALLED, install_programs
from lab.repository import ROOT

GUIDE = ROOT / "docs" / "guides" / "gateway.md"
PROGRAMS = {  # the heading of the guide, and what the program needs to end by itself
    "claude": ("Run Claude Code on any model", ("-p", "{prompt}")),
    "codex": ("Run Codex on any model", ("exec", "--skip-git-repo-check", "{prompt}")),
}
ANSWER = "The guide works."
PROMPT = "Uploads fail when the server answers 503. Find out why, and make them retry."
LIMIT_S = 120


def commands_under(heading: str) -> list[str]:
    """The commands of the guide under a heading, without their comments."""
    section = GUIDE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    block = section.partition("```console\n")[2].partition("```")[0]
    return [line.removeprefix("$ ").partition("  #")[0].strip() for line in block.splitlines()]


async def follow(program: str, home: Path, model: scripted_model.ScriptedModel) -> str:
    """What a program prints if its user follows the guide, in a new home."""
    make_folder(home)
    heading, words = PROGRAMS[program]
    install, serve, settings, start = commands_under(heading)
    assert install == "pip install bartack-server", install
    paths = (str(Path(sys.executable).parent), str(INSTALLED / "node_modules" / ".bin"), os.environ["PATH"])
    variables = {"HOME": str(home), "PATH": os.pathsep.join(paths)} | dict(CHECKED[program].variables)
    upstreams = {
        "OPENAI_API_KEY": "x",
        "OPENAI_BASE_URL": f"{model.url}/v1",
        "ANTHROPIC_API_KEY": "x",
        "ANTHROPIC_BASE_URL": f"{model.url}/v1",
    }
    server = await asyncio.create_subprocess_exec(
        *shlex.split(serve), env=variables | upstreams, cwd=home, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            printed = await server.stdout.readuntil(b"once: ") + await server.stdout.readline()
        key = printed.decode().split()[-1]
        prompt = f"Please look. {scripted_model.script({'text': ANSWER})}"
        arguments = shlex.join(word.format(prompt=prompt) for word in words)
        script = f"{settings}\n{start} {arguments}".replace("bt-...", key)
        return await output_of(["bash", "-euc", script], variables, home)
    finally:
        server.terminate()
        await server.wait()


async def follow_all() -> int:
    """Follow the guides; 0 if every program prints the answer of the model."""
    status = 0
    with TemporaryDirectory(prefix="bartack-guide-") as folder, scripted_model.ScriptedModel() as model:
        thread = Thread(target=model.serve_forever)
        thread.start()
        try:
            for program in PROGRAMS:
                output = await follow(program, Path(folder, program), model)
                has_worked = ANSWER in re.sub(r"@@.*?@@", "", output, flags=re.DOTALL)  # Codex repeats its prompt
                status |= not has_worked
                print(f"{'ok  ' if has_worked else 'FAIL'} {program}" + ("" if has_worked else f"\n{output}"))
        finally:
            model.shutdown()
            thread.join()
    return status


class HeldModel(ScriptedModel):
    """Plays the script, and then begins an answer that it does not finish before `finished` is set."""

    def __init__(self) -> None:
        edit = {"command": "grep -n status upload.py", "description": "Look for the status"}
        super().__init__(
            [
                assistant(
                    Thinking("First I run the check, to see it fail."),
                    Text("I run the check and read the code."),
                    ToolCall("c1", "Bash", {"command": "python3 check_upload.py", "description": "Run the check"}),
                    ToolCall("c2", "Bash", edit),
                ),
            ]
        )
        self.finished = asyncio.Event()

    def respond(self, request: ModelRequest) -> GuardedStream:
        if request.tools and self.calls:
            return guarded_batches(self._last(), request.metadata, self._environment)
        return super().respond(request) if request.tools else ScriptedModel(["A title"]).respond(request)

    async def _last(self) -> AsyncIterator[list[Delta]]:
        yield [Start("m", "r"), TextDelta("`upload()` gives up on the first response.")]
        await self.finished.wait()
        yield [TextDelta(" I will repeat it."), Done("stop")]


@asynccontextmanager
async def conversation(folder: Path, store: MemoryStore, model: HeldModel) -> AsyncIterator[None]:
    """Claude Code, working on a project through a gateway; at the end, the model finishes its answer."""
    secret = new_secret()
    await add_key(store, GatewayKey(id="k", name="me", digest=digest_of(secret), created=store.environment.now()))
    async with served(gateway(default=[model], store=store)) as url:
        variables = set_up("claude", folder / "home", folder / "work", url=url, key=secret)
        for name, content in FILES.items():
            (folder / "work" / name).write_text(content, encoding="utf-8")
        executable = str(INSTALLED / "node_modules" / ".bin" / "claude")
        words = [executable, "-p", PROMPT, "--allowedTools", "Bash"]
        running = asyncio.ensure_future(output_of(words, variables, folder / "work"))
        try:
            yield
        finally:
            model.finished.set()
            output = await running
        assert "I will repeat it." in output, output


async def draw() -> int:
    """Draw the picture."""
    store, model = MemoryStore(), HeldModel()
    page_of_store = page_app(Agent(ScriptedModel([]), name="coder"), store=store)
    assert isinstance(page_of_store.access, TokenAccess)
    with TemporaryDirectory(prefix="bartack-guide-") as folder:
        async with served(page_of_store) as url, async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": 1440, "height": 900})
            async with conversation(Path(folder), store, model):
                await page.goto(f"{url}/#code={page_of_store.access.code}")
                await page.locator("session-list").get_by_text("Uploads fail").first.click(timeout=LIMIT_S * 1000)
                await page.get_by_text("expected 3 attempts").first.wait_for(state="attached", timeout=LIMIT_S * 1000)
                await take(page, "gateway-claude", "light")
            await page.get_by_text("I will repeat it.").wait_for(timeout=LIMIT_S * 1000)  # without a reload
            await browser.close()
    print(f"Wrote {PICTURES / 'gateway-claude.png'}")
    return 0


if __name__ == "__main__":
    install_programs()
    sys.exit(asyncio.run(draw() if "--picture" in sys.argv[1:] else follow_all()))
