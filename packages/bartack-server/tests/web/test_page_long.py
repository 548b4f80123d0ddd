"""A session with thousands of messages: the page draws its end, and earlier messages when someone scrolls to them."""

from bartack import Agent, MemoryStore, ScriptedModel, assistant, user
from bartack.store.session_store import next_entries
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from tests.web.browser import IN_BROWSER, windows
from tests.web.serving import served

pytestmark = IN_BROWSER

TURNS = 1000
DRAWN = 40
ROWS = "session-view [role=log] > :is(.you, .said)"


async def store_with_a_long_session() -> MemoryStore:
    store = MemoryStore()
    await store.create_session("long")
    tail = await store.tail_of("long")
    facts = [
        message
        for number in range(TURNS)
        for message in (user(f"Question {number}"), assistant(f"**Answer** {number}\n\n- one\n- two"))
    ]
    await store.append("long", next_entries("long", tail, facts, store.environment), tail.entry_id)
    return store


async def test_the_end_of_a_long_session_is_drawn_and_more_of_it_on_demand() -> None:
    application = app(Agent(ScriptedModel(["The newest answer."])), store=await store_with_a_long_session())
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows(viewport={"width": 1440, "height": 900}) as (window,):
        page = window.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/entries?" in request.url else None)
        await window.sign_in(client.url, application.access.code)
        await page.goto(f"{client.url}/#session=long")
        await window.answered(f"Answer {TURNS - 1}")
        await window.has(DRAWN, ROWS)
        assert "limit=60" in asked[0], "what is shown first does not wait for the rest"

        await page.locator(".talk").evaluate("talk => { talk.scrollTop = 100 }")
        await window.has(2 * DRAWN, ROWS)
        await page.locator(".talk").evaluate("talk => { talk.scrollTop = talk.scrollHeight }")
        await window.send("go on")
        await window.answered("The newest answer.")
        await window.has(DRAWN, ROWS)
        first = await page.locator(ROWS).first.text_content() or ""  # its layout may be left out
        assert f"{TURNS - DRAWN // 2 + 1}" in first, "the earliest ones are left out"

        for _ in range(8):  # beyond what was loaded ahead
            before = await page.locator(ROWS).count()
            await page.get_by_role("button", name="Show earlier").click()
            await page.wait_for_function(
                "([rows, before]) => document.querySelectorAll(rows).length > before", arg=[ROWS, before]
            )
        assert len(asked) > 2
        texts = await page.locator(ROWS).all_text_contents()
        numbers = [int(text.split()[1]) for text in texts if text.startswith("Question")]
        assert numbers == list(range(numbers[0], TURNS)), "none is missing or drawn twice"
        assert window.problems == []
