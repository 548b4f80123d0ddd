"""Permission modes: they apply to one session, in one process, and mean what they mean in the terminal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bartack import Agent, MemoryStore, ScriptedModel, ToolCall, assistant
from bartack.queues import StoreQueue
from bartack.tools import LocalRuntime, file_tools
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from tests.web.browser import in_session_loop, needs_browser, windows
from tests.web.serving import Client, is_entry, served

WRITE = assistant(ToolCall("w", "write_file", {"path": "a.txt", "text": "1"}))
RUN = assistant(ToolCall("r", "run_command", {"command": "touch ran"}))


@asynccontextmanager
async def coding_client(folder: Path, *script: Any, **options: Any) -> AsyncIterator[Client]:
    """A client of an agent that works in this folder, without a sandbox."""
    agent = Agent(ScriptedModel([*script, "Done."]), tools=file_tools(), runtime=LocalRuntime(folder, sandbox="off"))
    async with served(app(agent, store=MemoryStore(), **options)) as client:
        yield client


async def outcome(client: Client, **body: Any) -> list[dict[str, Any]]:
    """The decisions of a run, up to its end or a question that nobody has decided."""
    started = await client.post("/sessions/s/runs", text="go", **body)
    async with client.events("s", started["position"]) as events:
        asked = await events.until(is_entry("approval_required"))
        entries = asked + await events.until(lambda event: event.event == "entry" and event.data["kind"] != "custom")
    return [event.data["payload"] for event in entries if event.data.get("kind") == "approval_decided"]


@pytest.mark.parametrize(("mode", "decision"), [("edit", "approve"), ("yes", "approve"), ("plan", "deny")])
async def test_a_new_session_begins_in_the_chosen_mode(tmp_path: Path, mode: str, decision: str) -> None:
    async with coding_client(tmp_path, WRITE) as client:
        (decided,) = await outcome(client, mode=mode)
        assert (decided["decision"], decided["decidedBy"]) == (decision, f"{mode} mode")
        async with client.events("s") as events:
            await events.until(is_entry("run_ended"))
        assert (tmp_path / "a.txt").exists() is (decision == "approve")
        assert (await client.get("/sessions/s"))["mode"] == mode


async def test_in_edit_mode_a_command_is_asked_about(tmp_path: Path) -> None:
    async with coding_client(tmp_path, RUN) as client:
        started = await client.post("/sessions/s/runs", text="go", mode="edit")
        async with client.events("s", started["position"]) as events:
            await events.until(is_entry("approval_required"))
        assert (await client.get("/sessions/s"))["state"] == "waiting"
        assert not (tmp_path / "ran").exists()


async def test_another_mode_decides_about_the_open_question(tmp_path: Path) -> None:
    async with coding_client(tmp_path, WRITE) as client:
        started = await client.post("/sessions/s/runs", text="go")
        async with client.events("s", started["position"]) as events:
            await events.until(is_entry("approval_required"))
            assert (await client.post("/sessions/s/mode", mode="plan")) == {"mode": "plan"}
            assert (await client.get("/sessions/s"))["state"] == "waiting", "what was asked before stays with the user"
            await client.post("/sessions/s/mode", mode="edit")
            await events.until(is_entry("run_ended"))
        assert (tmp_path / "a.txt").read_text() == "1"


async def test_only_agents_that_work_on_files_here_have_modes(tmp_path: Path, client: Client) -> None:
    await client.post("/sessions/s/runs", text="hello")
    assert (await client.get("/sessions/s"))["modes"] == []
    status, answer, _ = await client.send("POST", "/api/sessions/s/mode", json={"mode": "yes"})
    assert (status, answer["error"]["path"]) == (400, "$.mode")
    async with coding_client(tmp_path) as coding, coding_client(tmp_path, queue=StoreQueue) as queued:
        names = [[mode["name"] for mode in (await at.get("/agents"))["items"][0]["modes"]] for at in (coding, queued)]
    assert names == [["ask", "plan", "edit", "yes"], []], "without a sandbox, and with workers"


async def test_a_session_that_does_not_exist_has_no_mode(tmp_path: Path) -> None:
    async with coding_client(tmp_path, WRITE) as client:
        status, _, _ = await client.send("POST", "/api/sessions/none/mode", json={"mode": "yes"})
        assert status == 404
        status, _, _ = await client.send("POST", "/api/sessions/s/runs", json={"text": "", "mode": "yes"})
        assert status == 400
        await client.post("/sessions", id="s")
        assert (await client.get("/sessions/s"))["mode"] == "ask"


async def test_a_deleted_session_leaves_no_mode_behind(tmp_path: Path) -> None:
    async with coding_client(tmp_path) as client:
        await client.post("/sessions", id="s")
        await client.post("/sessions/s/mode", mode="yes")
        await client.send("DELETE", "/api/sessions/s")
        await client.post("/sessions", id="s")
        assert (await client.get("/sessions/s"))["mode"] == "ask"


@needs_browser
@in_session_loop
@pytest.mark.xdist_group("browser")
async def test_the_page_shows_and_switches_the_mode(tmp_path: Path) -> None:
    script: list[Any] = [WRITE, "Wrote it.", RUN, "It was refused."]
    agent = Agent(ScriptedModel(script), tools=file_tools(), runtime=LocalRuntime(tmp_path, sandbox="off"))
    application = app(agent, store=MemoryStore(), models=["anthropic:claude-sonnet-4-6", "ollama:qwen3"])
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows(viewport={"width": 1440, "height": 900}) as (window,):
        page = window.page
        await window.sign_in(client.url, application.access.code)
        await window.has(3, ".top [role=radio]")
        assert await page.get_by_role("radio").all_inner_texts() == ["Ask", "Plan", "Edit"]
        await page.get_by_role("radio", name="Edit").click()
        await window.send("write it")
        await window.answered("Wrote it.")
        assert "edit mode" in await page.locator("tool-card").inner_text()
        await page.locator("message-composer").get_by_role("button", name="Mode Edit").click()
        await page.get_by_role("button", name="Plan").click()
        await page.locator(".top [aria-checked=true]", has_text="Plan").wait_for()
        await window.send("run it")
        await window.answered("It was refused.")
        assert "Refused" in await page.locator("tool-card").last.inner_text()

        await page.set_viewport_size({"width": 390, "height": 844})
        await page.locator("message-composer").get_by_role("button", name="Model scripted").click()
        offered = await page.locator(".pop .opt").all_inner_texts()
        assert [text for text in offered if "$" in text or "free" in text] == offered[1:], "prices"
        assert window.problems == []
