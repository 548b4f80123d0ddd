"""What is drawn again under someone's hands: focus, pressed buttons, open details, selections and scrolling survive."""

import asyncio
from typing import Any

from bartack import Agent, MemoryStore, ScriptedModel, Text, Thinking, ToolCall, assistant
from bartack.queues import StoreQueue
from bartack.store.requests import note
from bartack_server.web import WebApp, app
from bartack_server.web.access import TokenAccess
from bartack_server.workers import Worker
from tests.web.agents import GATE, Gate, GatedModel, new_agent, weather
from tests.web.browser import IN_BROWSER, Window, windows
from tests.web.serving import Client, served
from tests.web.test_api import finished

pytestmark = IN_BROWSER


async def entered(application: WebApp, client: Client, window: Window, session: str = "") -> None:
    assert isinstance(application.access, TokenAccess)
    await window.sign_in(client.url, application.access.code)
    if session:
        await window.page.evaluate(f"location.hash = 'session={session}'")


async def refreshed(window: Window, path: str) -> None:
    """Wait until a list has been loaded again, and drawn."""
    for _ in range(2):  # the first may have been drawn already
        async with window.page.expect_response(f"**/api/{path}"):
            pass


async def test_a_session_is_opened_by_a_click_during_which_the_list_is_refreshed(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    async with served(application) as client, windows() as (window,):
        page = window.page
        await finished(client, "a", "about a")
        await entered(application, client, window)
        link = page.locator("session-list a", has_text="about a")
        await link.hover()
        await page.mouse.down()
        await refreshed(window, "sessions?*")
        await page.mouse.up()
        await window.sees("You said: about a")
        await link.focus()
        await finished(client, "c", "about c")
        await window.sees("about c", "session-list")
        assert await link.evaluate("(one) => one === document.activeElement")
        assert window.problems == []


async def test_the_status_of_workers_keeps_the_focus_and_stays_open(gate: Gate) -> None:
    store = MemoryStore()
    agent = new_agent(gate, "chat")
    application = app(agent, store=store, queue=StoreQueue)
    worker = Worker(StoreQueue(store), {"chat": agent}, store)
    async with served(application) as client, windows() as (window,):
        working = asyncio.create_task(worker.run())
        page = window.page
        await client.post("/sessions/s/runs", text="slow walk")
        await entered(application, client, window)
        await page.locator("worker-status summary").click()
        link = page.locator("worker-status a")
        await link.focus()
        await refreshed(window, "workers")
        assert await link.evaluate("(one) => one === document.activeElement")
        gate.open()
        await link.wait_for(state="detached")
        await window.sees("runs per minute", "worker-status")
        worker.stop()
        await working
        assert window.problems == []


async def test_branches_are_switched_with_the_keyboard(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    async with served(application) as client, windows() as (window,):
        page = window.page
        await finished(client, "s", "one")
        await client.post("/sessions/s/runs", text="two")
        head = (await client.get("/sessions/s/entries"))["items"][0]["id"]
        for text in ("three", "four"):
            await finished(client, "s", text, head=head)
        await entered(application, client, window, "s")
        await window.sees("3 / 3")
        await page.get_by_role("button", name="Previous branch").focus()
        await page.keyboard.press("Enter")
        await window.sees("2 / 3")
        await page.keyboard.press("Enter")
        await window.sees("1 / 3")
        await window.sees("You said: one")
        assert window.problems == []


LINES = "\n\n".join(f"Line {number}." for number in range(200))


async def test_reading_an_answer_is_not_disturbed_when_it_ends(gate: Gate) -> None:
    """Thinking that was unfolded stays so, and nothing scrolls away."""
    said = assistant(Thinking("Deep thoughts."), Text(f"{LINES} {GATE} The end."))
    model = GatedModel(gate, [said])
    application = app(Agent(model), store=MemoryStore())
    async with served(application) as client, windows() as (window,):
        page = window.page
        await entered(application, client, window)
        await window.send("go")
        await page.locator(".answer .thought summary").click()
        line = page.locator(".answer").get_by_text("Line 100.")
        await line.wait_for()
        await line.evaluate("(one) => one.scrollIntoView()")
        place = await line.bounding_box()
        gate.open()
        await window.answered("The end.")
        await window.has(0, ".answer *")
        assert await page.locator("details.thought[open]").count() == 1
        assert await page.get_by_text("Line 100.").bounding_box() == place
        assert window.problems == []


async def test_the_inspector_can_be_used_while_a_run_is_live(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    async with served(application) as client, windows(viewport={"width": 1440, "height": 900}) as (window,):
        page = window.page
        await finished(client, "s", "first")
        await client.post("/sessions/s/runs", text="slow walk")
        await entered(application, client, window, "s")
        await page.wait_for_selector(".answer .caret")
        await page.get_by_role("button", name="Inspect").click()

        async def keeps(locator: Any) -> None:
            """The element is the same one, with the focus, after new entries were shown."""
            await locator.focus()
            handle = await locator.element_handle()
            for number in range(2):  # once the second has arrived, the first has been drawn
                async with page.expect_response("**/api/sessions/s"):
                    await note(application.service.store, "s", "n", {"number": number})
            assert await handle.evaluate("(one) => one.isConnected && one === document.activeElement")

        await keeps(page.get_by_label("Run"))
        await page.get_by_role("tab", name="Entries").click()
        entry = page.locator("run-inspector details.entry", has_text="run_ended")
        await entry.locator("summary").click()
        await keeps(entry.locator("pre"))
        await page.get_by_role("tab", name="Views").click()
        await keeps(page.locator("run-inspector .three pre").first)
        await page.get_by_role("tab", name="Request").click()
        await keeps(page.get_by_label("Model call"))
        await page.get_by_role("tab", name="State").click()
        await keeps(page.locator("run-inspector .diagram").first)
        gate.open()
        await window.answered("the rest of the answer.")
        assert window.problems == []


async def test_the_steps_of_a_sub_agent_can_be_read_while_it_works(gate: Gate) -> None:
    thinks = assistant(Thinking("Deep thoughts."), ToolCall("w1", "weather", {"city": "Rome"}))
    helper = Agent(GatedModel(gate, [thinks, f"Then {GATE} it rains."]), tools=[weather]).as_tool("helper", "Helps.")
    outer = ScriptedModel([assistant(ToolCall("h1", "helper", {"prompt": "go"})), "All done."])
    application = app(Agent(outer, tools=[helper]), store=MemoryStore())
    async with served(application) as client, windows() as (window,):
        page = window.page
        await entered(application, client, window)
        await window.send("go")
        await page.locator("sub-agent > details > summary").click()
        thought = await page.locator("sub-agent .thought summary").element_handle()
        await thought.click()
        await refreshed(window, "sessions/**/entries?cursor=*")
        assert await thought.evaluate("(one) => one.parentElement.open && one === document.activeElement")
        gate.open()
        await window.answered("All done.")
        assert window.problems == []
