"""The look of the page: nothing is clipped or overlaps, at every width and in both themes, in all of its states."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bartack import Agent, MemoryStore, ScriptedModel, Text, Thinking, ToolCall, assistant
from bartack.nouns.deltas import Failed, Start, TextDelta
from bartack.nouns.errors import ErrorCode
from bartack.tools import LocalRuntime, file_tools
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from tests.web.agents import GATE, Gate, GatedModel, new_agent
from tests.web.browser import IN_BROWSER, Window, windows
from tests.web.serving import Client, served
from tests.web.test_api import state_is

pytestmark = IN_BROWSER

SETTLES_S = 30.0  # only a fault takes this long
SIZES = ((390, 844), (768, 1024), (1440, 900), (2560, 1300))

FAULTS = Path(__file__).with_name("faults.js").read_text(encoding="utf-8")

RICH = r"""# Plan

Some text with **bold**, `code_that_is_quite_long_indeed()` and a link to https://example.com/a/very/long/path/that/goes/on.

```python
def merge(self, other: "Histogram") -> "Histogram":
    return Histogram([a + b for a, b in zip(self.counts, other.counts)], self.bounds)  # a long line of code
```

| Estimate | Traces | Report | On united bounds | Error |
|---|--:|--:|--:|--:|
| p50 | 92 ms | 118 ms | 93 ms | 1.1 % |

- [x] Reproduce
- [ ] Merge on the union of the bounds, with the total unchanged

$$
\hat{x}_q = b_i + (b_{i+1} - b_i) \cdot \frac{qN - \sum_{j<i} n_j}{n_i}
$$

> Quoted.

1. one
2. two[^1]

[^1]: A note.
"""


class Site:
    """A server, and a window that is signed in."""

    def __init__(self, client: Client, window: Window) -> None:
        self.client, self.window, self.page = client, window, window.page

    async def check(self) -> None:
        """Look at what is shown at each width, in both themes."""
        for width, height in SIZES:
            await self.page.set_viewport_size({"width": width, "height": height})
            for scheme in ("light", "dark"):
                await self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                assert await self.faults() == [], (width, scheme)
            assert not await self.window.scrolls_sideways(), width
        await self.page.set_viewport_size({"width": 1440, "height": 900})

    async def faults(self) -> list[str]:
        """The faults that stay: a part that loads data for a new width is drawn a moment after the others."""
        faults: list[str] = await self.page.evaluate(FAULTS)
        deadline = time.monotonic() + SETTLES_S
        while faults and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
            faults = await self.page.evaluate(FAULTS)
        return faults


async def site_of(agent: Agent[Any, Any] | Mapping[str, Agent[Any, Any]]) -> AsyncIterator[Site]:
    application = app(agent, store=MemoryStore())
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows(viewport={"width": 1440, "height": 900}) as (window,):
        await window.sign_in(client.url, application.access.code)
        yield Site(client, window)
        assert window.problems == []


@pytest_asyncio.fixture(loop_scope="session")
async def site(gate: Gate) -> AsyncIterator[Site]:
    async for made in site_of(new_agent(gate)):
        yield made


async def test_an_empty_page_and_its_settings(site: Site) -> None:
    await site.window.sees("What should be done?")
    await site.check()
    await site.page.get_by_role("button", name="Settings").click()
    await site.page.get_by_role("radio", name="Dark").click()
    assert await site.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 23, 22)"
    await site.page.get_by_role("radio", name="Compact").click()
    await site.page.keyboard.press("Escape")
    assert await site.page.evaluate("document.activeElement.ariaLabel") == "Settings", "the focus returns"
    await site.page.reload()
    await site.page.wait_for_selector(".hello")
    assert await site.page.evaluate("document.documentElement.dataset.theme") == "dark"
    await site.check()


async def test_a_rich_answer_queued_messages_and_a_stopped_run(gate: Gate) -> None:
    model = GatedModel(gate, [assistant(Thinking("Hm."), Text(RICH)), f"Waiting for it {GATE} more"])
    async for site in site_of(Agent(model)):
        await site.window.send("Explain it, please. " * 6)
        await site.window.answered("A note.")
        await site.page.locator(".said").last.hover()
        await site.check()
        await site.window.send("go on")
        await site.page.wait_for_selector(".answer .caret")
        await site.window.send("steer it somewhere else, with a text that is too long for one line " * 3)
        await site.window.send("and then this", key="Alt+Enter")
        await site.window.has(2, ".outstanding li")
        await site.check()
        await site.page.locator("#message").press("Escape")
        await site.window.sees("You stopped this run.")
        await site.window.has(1, ".note")


async def test_a_question_a_failed_command_and_a_denied_call(tmp_path: Path) -> None:
    script: list[Any] = [
        assistant(ToolCall("c1", "run_command", {"command": "echo one; echo two; exit 3"})),
        assistant(
            ToolCall("c2", "write_file", {"path": "src/a/long/path/to/a/file/histogram.py", "text": "x = 1\n" * 30})
        ),
        "Fine.",
    ]
    async for site in site_of(Agent(ScriptedModel(script), tools=file_tools(), runtime=LocalRuntime(tmp_path))):
        await site.window.send("Go")
        await site.page.wait_for_selector("tool-card.ask")
        await site.check()
        await site.page.get_by_role("button", name="Approve A").click()
        await site.window.sees("exit 3")
        await site.page.locator("tool-card.ask", has_text="Write this file?").wait_for()
        await site.check()
        await site.page.get_by_role("button", name="Deny").click()
        await site.window.answered("Fine.")
        await site.window.sees("You denied")
        await site.check()


async def test_the_page_says_at_once_what_it_waits_for(gate: Gate) -> None:
    async for site in site_of(Agent(GatedModel(gate, [f"{GATE} late"]))):
        await site.window.send("hello")
        await site.page.locator(".now", has_text="Waiting for").wait_for()
        await site.window.sees("hello", ".you")
        await site.check()
        gate.open()
        await site.window.answered("late")
        await site.page.locator(".now").wait_for(state="hidden")


async def test_a_failed_attempt_is_folded_with_its_text() -> None:
    failed: list[Any] = [
        Start("m", "1"),
        TextDelta("Half an ans"),
        Failed(ErrorCode.CONNECTION_FAILED, "Cut off.", retryable=True),
    ]
    async for site in site_of(Agent(ScriptedModel([failed, "Whole."]))):
        await site.window.send("hello")
        await site.window.answered("Whole.")
        await site.window.sees("Retried once: Cut off.")
        assert not await site.page.get_by_text("Half an ans").is_visible()
        await site.page.get_by_role("button", name="Inspect").click()
        await site.window.has(1, ".lane.cut .track line.cut")
        await site.check()


async def test_a_selection_in_an_answer_survives_its_growth_and_its_end(gate: Gate) -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(80))
    async for site in site_of(Agent(GatedModel(gate, [f"Look:\n\n```python\n{code}\n{GATE}\n```\n\nThe end."]))):
        await site.window.send("go")
        await site.window.sees("line_79")
        await site.page.evaluate("""() => {
          const text = document.querySelector(".answer pre code").firstChild;
          getSelection().setBaseAndExtent(text, 0, text, 6);
          window.code = text;
        }""")
        gate.open()
        await site.window.answered("The end.")
        await site.window.has(0, ".answer *")
        assert await site.page.evaluate("getSelection().toString()") == "line_0"
        assert await site.page.evaluate("window.code.isConnected && window.code.data.includes('line_79')")
        assert await site.page.evaluate("CSS.highlights.get('code-n').size") > 50


async def test_a_session_is_renamed_exported_and_deleted_with_undo(site: Site) -> None:
    page = site.page
    await site.window.send("hello")
    await site.window.answered("You said: hello")
    await page.locator(".title").click()
    await page.get_by_label("Title").fill("Another name")
    await page.keyboard.press("Enter")
    await site.window.sees("Another name", "session-list")
    await page.get_by_role("button", name="More about this session").click()
    async with page.expect_download() as download:
        await page.get_by_text("Export as a page").click()
    assert (await download.value).suggested_filename == "session.html"
    for is_undone in (True, False):
        await page.get_by_role("button", name="More about this session").click()
        await page.locator(".pop").get_by_text("Delete").click()
        await page.locator("session-list .row").wait_for(state="detached")
        if is_undone:
            await page.get_by_role("button", name="Undo").click()
            await site.window.sees("You said: hello")
    await page.locator(".toast").wait_for(state="detached")
    assert (await site.client.get("/sessions"))["items"] == []


async def test_an_answer_is_copied_and_regenerated_on_a_branch(site: Site) -> None:
    page = site.page
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await site.window.send("raw *one* two")
    await site.window.answered("one two")
    await page.locator(".said").hover()
    await page.get_by_role("button", name="Copy answer").click()
    await page.locator("[title=Copied]").wait_for()
    assert await page.evaluate("navigator.clipboard.readText()") == "*one* two"
    await page.get_by_role("button", name="Regenerate").click()
    await site.window.sees("2 / 2")
    await site.window.answered("one two")
    await page.get_by_role("button", name="Open the request").click()
    await site.window.sees("As it was sent.", "run-inspector")


async def test_what_is_behind_a_drawer_cannot_be_reached(site: Site) -> None:
    page = site.page
    await site.window.send("hello")
    await site.window.answered("You said: hello")
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.get_by_role("button", name="Sessions").click()
    assert await page.evaluate("document.querySelector('main').inert")
    await page.keyboard.press("Escape")
    assert not await page.evaluate("document.querySelector('main').inert")
    assert await page.evaluate("document.activeElement.ariaLabel") == "Sessions"
    box = await page.locator(".title").bounding_box()
    assert box["width"] > 60, "the title gives way last"


async def test_sessions_are_searched_with_the_words_marked_and_pinned(site: Site) -> None:
    await site.client.post("/sessions/a/runs", text="about umbrellas and rain")
    await state_is(site.client, "a", "idle")
    page = site.page
    await page.locator("session-list input[type=search]").fill("umbrellas")
    await page.locator("session-list mark", has_text="umbrellas").first.wait_for()
    await site.check()
    await page.get_by_role("button", name="Failures").click()
    await site.window.sees("Nothing found.", "session-list")
    await page.get_by_role("button", name="Failures").click()
    await page.get_by_role("button", name="Last 7 days").click()
    await page.locator("session-list mark", has_text="umbrellas").first.wait_for()
    await page.locator("session-list input[type=search]").fill("nothing like it")
    await site.window.sees("Nothing found.", "session-list")
    await page.locator("session-list input[type=search]").fill("")
    await page.locator("session-list .row").click()
    await page.get_by_role("button", name="More about this session").click()
    await page.get_by_text("Pin", exact=True).click()
    await site.window.sees("Pinned", "session-list")


async def test_what_all_sessions_used_is_shown_by_day_and_by_model(site: Site) -> None:
    await site.client.post("/sessions/a/runs", text="hello")
    await state_is(site.client, "a", "idle")
    page = site.page
    await page.get_by_role("button", name="Usage").click()
    await page.locator(".usage tfoot", has_text="150").wait_for()
    await site.check()
    await page.get_by_role("radio", name="Model").click()
    await page.locator(".usage tbody", has_text="scripted").wait_for()


async def test_two_branches_are_compared_side_by_side(site: Site) -> None:
    page = site.page
    await site.window.send("raw one answer")
    await site.window.answered("one answer")
    await page.locator(".you").hover()
    await page.get_by_role("button", name="Edit this message").click()
    await site.window.send("weather Paris")
    await site.window.answered("The tool returned")
    await page.get_by_role("button", name="Compare branches").click()
    table = page.locator("run-inspector .against")
    await table.get_by_role("row", name="Tool calls 0 1").wait_for()
    await site.window.sees("one answer", "run-inspector section[aria-label='The first run']")
    await site.window.sees("Rain in Paris", "run-inspector section[aria-label='The second run']")
    assert "differs" in (await table.locator("tr", has_text="Tool calls").get_attribute("class") or "")
    await site.check()
    newest = await page.locator("select[aria-label='The second run']").input_value()
    await page.locator("select[aria-label='The first run']").select_option(newest)
    await table.get_by_role("row", name="Tool calls 1 1").wait_for()


async def test_one_run_has_nothing_to_be_compared_with(site: Site) -> None:
    await site.window.send("hello")
    await site.window.answered("You said: hello")
    await site.page.get_by_role("button", name="Inspect").click()
    await site.page.get_by_role("tab", name="Compare").click()
    await site.window.sees("There is one run only.", "run-inspector")


async def test_a_wide_window_shows_the_timeline_beside_the_request_of_a_step(site: Site) -> None:
    page = site.page
    await page.set_viewport_size({"width": 2560, "height": 1300})
    await site.window.send("weather Paris")
    await site.window.answered("The tool returned")
    await page.get_by_role("button", name="Inspect").click()
    await page.locator(".lane", has_text="model 1").click()
    await page.locator(".lane[aria-pressed=true]", has_text="model 1").wait_for()
    assert await page.get_by_role("tab", name="Timeline").get_attribute("aria-selected") == "true"
    assert (await page.get_by_label("Model call").locator("option:checked").inner_text()).startswith("Model call 1")
    await site.check()
    await page.locator(".lane", has_text="model 1").click()
    assert await page.get_by_role("tab", name="Request").get_attribute("aria-selected") == "true", "at 1440 pixels"


async def test_the_agent_of_a_new_session_is_chosen(gate: Gate, tmp_path: Path) -> None:
    coder = Agent(ScriptedModel(["From the coder."]), tools=file_tools(), runtime=LocalRuntime(tmp_path), name="coder")
    async for site in site_of({"helper": new_agent(gate), "coder": coder}):
        await site.page.locator(".setup select").select_option("coder")
        await site.window.sees(tmp_path.name, ".setup")
        await site.check()
        await site.window.send("hello")
        await site.window.answered("From the coder.")
        await site.window.sees("coder", ".where")


HIDE = """() => {
  Object.defineProperty(document, 'hidden', { get: () => window.isHidden, configurable: true });
  window.isHidden = false;
  window.Notification = class { static permission = 'granted';
    constructor(title, options) {
      const line = document.body.appendChild(document.createElement('p'));
      line.className = 'told';
      line.textContent = `${title}: ${options.body}`;
      window.last = this;
    }
    close() {}
  };
  localStorage.setItem('bartack.notify', 'on');
}"""


async def test_a_hidden_window_tells_what_happens_in_any_session(site: Site) -> None:
    page = site.page
    await site.client.post("/sessions/other/runs", text="pay 5 Ann")
    await state_is(site.client, "other", "waiting")
    await site.window.sees("pay 5 Ann", "session-list")
    await page.evaluate(HIDE)
    await page.evaluate("isHidden = true; document.dispatchEvent(new Event('visibilitychange'))")
    await site.client.post("/sessions/second/runs", text="pay 7 Bob")
    await page.locator(".told", has_text="An approval waits: pay 7 Bob").wait_for()
    for question in (await site.client.get("/sessions/other/requests"))["items"]:
        await site.client.post(
            "/sessions/other/requests", type="decide", toolCallId=question["toolCallId"], decision="deny"
        )
    await page.locator(".told", has_text="A run has ended: pay 5 Ann").wait_for()
    await site.window.has(2, ".told")
    await page.locator(".row.unread", has_text="pay 5 Ann").wait_for()
    await page.evaluate("isHidden = false; last.onclick()")
    await page.locator(".row[aria-current]", has_text="pay 5 Ann").wait_for()
    await site.window.has(0, ".row.unread")


async def test_a_wide_table_and_what_follows_it_keep_their_distance(gate: Gate) -> None:
    wide = "| " + " | ".join(f"column{number}" for number in range(20)) + " |\n" + "|---" * 20 + "|\n\n> quoted\n"
    async for site in site_of(Agent(ScriptedModel([wide]))):
        await site.window.send("go")
        await site.window.answered("quoted")
        gap = """() => document.querySelector('blockquote').getBoundingClientRect().top
          - document.querySelector('.wide').getBoundingClientRect().bottom"""
        assert await site.page.evaluate(gap) >= 8
        await site.check()


async def test_the_best_match_of_a_search_comes_first(site: Site) -> None:
    await site.client.post("/sessions/best/runs", text="umbrella umbrella umbrella")
    await state_is(site.client, "best", "idle")
    await site.client.post("/sessions/late/runs", text="a long text about rain that has one umbrella among other words")
    await state_is(site.client, "late", "idle")
    await site.page.locator("session-list .row", has_text="a long text").wait_for()
    rows = site.page.locator("session-list .row .name")
    assert "a long text" in await rows.first.inner_text(), "the list itself begins with the latest"
    await site.page.locator("session-list input[type=search]").fill("umbrella")
    await site.window.sees("Found in 2 sessions", "session-list")
    assert "umbrella umbrella" in await rows.first.inner_text()


async def test_a_hit_of_a_search_opens_its_message_on_its_branch(site: Site) -> None:
    page = site.page
    await site.window.send("first about umbrellas")
    await site.window.answered("You said: first about umbrellas")
    await page.locator(".you").hover()
    await page.get_by_role("button", name="Edit this message").click()
    await site.window.send("second about bicycles")
    await site.window.answered("You said: second about bicycles")
    [session] = (await site.client.get("/sessions"))["items"]
    for number in range(30):  # more than is drawn at first
        await site.client.post(f"/sessions/{session['id']}/runs", text=f"more {number}")
        await state_is(site.client, session["id"], "idle")
    search = page.locator("session-list input[type=search]")
    await search.fill("bicycles")
    await page.locator("a.hit", has_text="You said").click()
    found = page.locator(".found", has_text="You said: second about bicycles")
    await found.wait_for()
    expect = pytest.importorskip("playwright.async_api").expect
    await expect(found).to_be_in_viewport()
    await site.check()
    await search.fill("umbrellas")
    await page.locator("a.hit", has_text="You said").click()
    await page.locator(".found", has_text="You said: first about umbrellas").wait_for()
    assert await page.locator(".branches .num").first.inner_text() == "1 / 2"
    await site.window.has(1, ".found")


async def test_a_search_is_restricted_to_a_tool_and_a_model(site: Site) -> None:
    await site.client.post("/sessions/tool/runs", text="weather Paris")
    await site.client.post("/sessions/talk/runs", text="hello Paris")
    for name in ("tool", "talk"):
        await state_is(site.client, name, "idle")
    page = site.page
    await page.locator("session-list input[type=search]").fill("Paris")
    await site.window.sees("Found in 2 sessions", "session-list")
    await page.get_by_label("Tool", exact=True).fill("weather")
    await page.keyboard.press("Enter")
    await site.window.sees("Found in 1 session", "session-list")
    await site.window.has(1, "#known-tools option[value=weather]")
    await page.get_by_label("Model", exact=True).fill("another")
    await page.keyboard.press("Enter")
    await site.window.sees("Nothing found.", "session-list")
    await site.check()
