"""A session as one HTML file."""

import re
from pathlib import Path

from bartack import Agent, MemoryStore, ScriptedModel, Text, ToolCall, ToolResult, assistant, tool, user
from bartack.nouns.entries import ApprovalRequired
from bartack.session.decisions import Decision
from bartack.store import open_store
from bartack_server.web.document import html_document
from tests.web.agents import Gate, new_agent
from tests.web.browser import in_browser, windows

HOSTILE = '<script>window.pwned=1</script><img src=x onerror="window.pwned=1"> [x](javascript:window.pwned=1)'


async def session(gate: Gate) -> str:
    """A document with everything a session may contain."""
    store = MemoryStore()
    agent: Agent = new_agent(gate).with_store(store)
    for text in ("markdown", "think hard", "weather Paris", "picture Rome", f"raw {HOSTILE}", f"weather {HOSTILE}"):
        await agent.run(text, session="s")
    return html_document(await store.load("s"))


async def test_the_document_contains_everything_and_loads_nothing(gate: Gate) -> None:
    document = await session(gate)
    assert '<span class="hl-k">def </span>' in document
    assert "<strong>another</strong>" in document
    assert "Rain in Paris." in document
    assert 'src="data:image/png;base64,' in document
    assert re.search(r"(src|href)=\"(?!data:image|https?:)", document) is None
    assert "<script" not in document
    assert "&lt;script&gt;window.pwned=1" in document


@tool(requires_approval=True)
def command(command: str) -> ToolResult:
    """Run a command."""
    return ToolResult("any", f"ran {command}", metadata={"exit_code": 3})


async def test_the_document_shows_what_became_of_calls_and_runs() -> None:
    class Editor:
        async def decide(self, request: ApprovalRequired) -> Decision:
            return Decision("modify_args", arguments={"command": "ls\u202e"})

    store = MemoryStore()
    model = ScriptedModel([assistant(ToolCall("c1", "command", {"command": "rm"})), "Gone."])
    agent = Agent(model, tools=[command], approver=Editor(), store=store)
    await agent.run("clean", session="s")
    await agent.run(user(Text("A program wrote this.", synthetic=True)), session="s", model=ScriptedModel(["Seen."]))
    async with agent.stream("more", session="s", model=ScriptedModel(["Long answer."])) as run:
        run.abort("user")
        await run.wait()
    document = html_document(await store.load("s"))
    assert "rm" not in re.findall(r"<pre>(.*?)</pre>", document, re.DOTALL)[0]
    assert re.search(r'<tool-card class="failed">.*?<code class="brief">ls\\u202e</code>', document, re.DOTALL)
    assert re.search(r'<span class="t state">exit 3 · ', document)
    assert '<div class="notice">A program wrote this.</div>' in document
    assert "The run was stopped (user)." in document


@in_browser
async def test_a_browser_shows_the_document_with_its_style_and_runs_nothing(gate: Gate, tmp_path: Path) -> None:
    path = tmp_path / "session.html"
    path.write_text(await session(gate), encoding="utf-8")
    async with windows() as (window,):
        await window.page.goto(path.as_uri())
        assert await window.page.evaluate("window.pwned") is None
        style = "getComputedStyle(document.querySelector('.you .text')).borderRadius"
        assert "14px" in await window.page.evaluate(style)
        assert not await window.scrolls_sideways()
        assert window.problems == []


async def test_the_command_writes_the_document_without_redacted_content(gate: Gate, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from bartack.store.requests import redact
    from bartack_transcripts.commands.exports import app

    address = f"sqlite:{tmp_path / 'sessions.db'}"
    store = await open_store(address)
    await new_agent(gate).with_store(store).run("hello hunter2", session="s")
    for entry in await store.load("s"):
        if entry.fact.kind == "message":
            await redact(store, "s", entry.id)
    await store.close()
    out = tmp_path / "out.html"

    def run() -> int:
        return CliRunner().invoke(app, ["s", "--to", "html", "--store", address, "--out", str(out)]).exit_code

    import asyncio

    assert await asyncio.to_thread(run) == 0
    assert "<title>" in read(out)
    assert "hunter2" not in read(out)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
