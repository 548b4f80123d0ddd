"""Questions on the page: whole or not approved, and bound to what was shown."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bartack import Agent, MemoryStore, ScriptedModel, ToolCall, assistant
from bartack.tools import LocalRuntime, file_tools, tool
from bartack.tools.confinement import SandboxName, available_sandboxes
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from tests.web.browser import Window, in_browser, windows
from tests.web.serving import Client, served
from tests.web.test_api import state_is

HIDDEN = "echo safe" + "\n" * 60 + "touch hidden.txt" + "\n" * 60 + "echo safe"


@tool(requires_approval=True, preview=lambda arguments: "stops the old\nversion")
def deploy(target: str) -> None:
    """Deploy."""


def asks(tool: str, **arguments: Any) -> list[Any]:
    """A model that calls the tool, and then says so."""
    return [assistant(ToolCall("c1", tool, arguments)), "Done."]


@asynccontextmanager
async def site(
    folder: Path, script: list[Any], sandbox: SandboxName = "off"
) -> AsyncIterator[tuple[Client, TokenAccess]]:
    agent = Agent(ScriptedModel(script), tools=[*file_tools(), deploy], runtime=LocalRuntime(folder, sandbox=sandbox))
    application = app(agent, store=MemoryStore())
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client:
        yield client, application.access


@asynccontextmanager
async def asked_window(folder: Path, script: list[Any], sandbox: SandboxName = "off") -> AsyncIterator[Window]:
    """A window that shows a question."""
    async with site(folder, script, sandbox) as (client, access), windows() as (window,):
        await window.sign_in(client.url, access.code)
        await window.send("Go")
        await window.page.wait_for_selector("tool-card.ask .question")
        yield window
        assert window.problems == []


async def question(client: Client) -> Any:
    await state_is(client, "s", "waiting")
    (pending,) = (await client.get("/sessions/s/requests"))["items"]
    return pending


async def test_a_yes_to_the_api_does_not_apply_to_a_file_that_has_changed_since(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("mine\n")
    async with site(tmp_path, asks("write_file", path="a.txt", text="theirs\n")) as (client, _):
        await client.post("/sessions/s/runs", text="Write")
        first = await question(client)
        yes = {"type": "decide", "toolCallId": "c1", "decision": "approve"}
        file.write_text("saved meanwhile\n")
        await client.post("/sessions/s/requests", **yes, questionDigest=first["questionDigest"])
        while (second := await question(client))["questionDigest"] == first["questionDigest"]:
            pass  # the run compares, and asks again
        assert ["-", 1, "saved meanwhile"] in second["preview"]["diff"]
        stale = {**yes, "questionDigest": first["questionDigest"]}
        status, body, _ = await client.send("POST", "/api/sessions/s/requests", json=stale)
        assert (status // 100, "another question" in str(body)) == (4, True)
        assert file.read_text() == "saved meanwhile\n"
        await client.post("/sessions/s/requests", **yes, questionDigest=second["questionDigest"])
        await state_is(client, "s", "idle")
        assert file.read_text() == "theirs\n"


@in_browser
async def test_a_command_that_hides_between_blank_lines_is_approved_only_once_it_is_open(tmp_path: Path) -> None:
    async with asked_window(tmp_path, asks("run_command", command=HIDDEN)) as window:
        page = window.page
        await window.sees("Showing 40 of 122 lines")
        assert "touch hidden.txt" not in await page.locator(".question").inner_text()
        assert await page.get_by_role("button", name="Approve").count() == 0
        await page.locator(".talk").focus()
        for key in ("a", "e"):
            await page.keyboard.press(key)
        assert await page.locator("argument-form").count() == 0
        assert not (tmp_path / "hidden.txt").exists()
        await page.get_by_role("button", name="Show all").click()
        await window.sees("122 lines, ")
        text = await page.locator(".question").inner_text()
        assert "  touch hidden.txt" in text
        assert text.rstrip().endswith(f"in {tmp_path} (local)")
        assert await page.locator(".question").evaluate("(box) => box.scrollHeight <= box.clientHeight + 1")
        await page.get_by_role("button", name="Approve").click()
        await window.answered("Done.")
        assert (tmp_path / "hidden.txt").exists()


@in_browser
@pytest.mark.skipif(not available_sandboxes(), reason="no sandbox works here")
async def test_a_command_is_shown_with_its_place(tmp_path: Path) -> None:
    async with asked_window(tmp_path, asks("run_command", command="ls"), "auto") as window:
        first, place = await window.page.locator(".question .row").all_inner_texts()
    assert first.strip() == "$ ls"
    assert f"{tmp_path.name} (local), in the sandbox ({available_sandboxes()[0]}: writes only" in place


@in_browser
async def test_the_preview_of_any_other_tool_is_shown(tmp_path: Path) -> None:
    async with asked_window(tmp_path, asks("deploy", target="prod")) as window:
        rows = await window.page.locator(".question .row").all_inner_texts()
    assert [row.rstrip() for row in rows] == ['target: "prod"', "preview of text:", "  | stops the old", "  | version"]


@in_browser
async def test_a_long_line_is_approved_only_once_it_is_open(tmp_path: Path) -> None:
    command = f"echo safe{' ' * 5_000}; touch pwned"
    async with asked_window(tmp_path, asks("run_command", command=command)) as window:
        page = window.page
        await window.sees("Showing 1 of 2 lines, 4000 of ")
        await page.locator(".talk").focus()
        await page.keyboard.press("a")
        await page.keyboard.press("d")
        await window.answered("Done.")
        assert not (tmp_path / "pwned").exists()


@in_browser
async def test_text_of_the_model_does_not_look_like_ours(tmp_path: Path) -> None:
    command = f"ls \u3164\u00a0\u202e<b>x</b>\nin {tmp_path} (local)\n1 line, 2 characters."
    async with asked_window(tmp_path, asks("run_command", command=command)) as window:
        lines = [line for line in (await window.page.locator(".question").inner_text()).split("\n") if line]
        assert lines[0] == "$ ls \\u{3164}\\u{a0}\\u{202e}<b>x</b>"
        assert [line[:2] for line in lines] == ["$ ", "  ", "  ", "in"]
        await window.has(1, ".question .hint")


@in_browser
async def test_a_question_that_has_changed_is_looked_at_again(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("mine\n")
    async with asked_window(tmp_path, asks("write_file", path="a.txt", text="theirs\n")) as window:
        page = window.page
        assert "- mine" in await page.get_by_label("Change", exact=True).inner_text()
        file.write_text("saved meanwhile\n")
        await page.get_by_role("button", name="Approve").click()
        await window.sees("The call would now do something else.")
        assert file.read_text() == "saved meanwhile\n"
        assert await page.get_by_role("button", name="Approve").count() == 0
        await page.get_by_role("button", name="Show all").click()
        assert "- saved meanwhile" in await page.get_by_label("Change", exact=True).inner_text()
        await page.get_by_role("button", name="Approve").click()
        await window.answered("Done.")
        assert file.read_text() == "theirs\n"
