"""The page in a real browser: chat, approvals, branches, two windows, lost connections, hostile text."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.routing import Mount

from bartack import Agent, FileRef, Image, MemoryStore, ScriptedModel, Text, ToolCall, ToolResult, assistant, tool
from bartack.nouns.entries import SessionHeader
from bartack.queues import StoreQueue
from bartack.store.requests import note
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from bartack_server.workers import Worker
from tests.web.agents import PNG, Gate, abandoned_session, new_agent
from tests.web.browser import AXE, IN_BROWSER, Window, windows
from tests.web.serving import LIMIT_S, Client, served, server_process
from tests.web.test_api import finished, state_is

pytestmark = IN_BROWSER
SIZES = [(390, 844), (820, 1180), (1440, 900)]


class Site:
    """A server in this process, and its links."""

    def __init__(self, client: Client, access: TokenAccess) -> None:
        self.client = client
        self._access = access

    async def enter(self, window: Window) -> None:
        await window.sign_in(self.client.url, self._access.code)


@pytest_asyncio.fixture(loop_scope="session")
async def site(gate: Gate) -> AsyncIterator[Site]:
    application = app(new_agent(gate), store=MemoryStore())
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client:
        yield Site(client, application.access)


async def test_a_conversation_with_tools_approvals_and_attachments(site: Site) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        assert "code" not in page.url
        await window.send("markdown")
        await window.answered("It will")
        assert await page.evaluate("CSS.highlights.get('code-k').size") > 0, "code is highlighted"
        await window.has(2, ".say table td")
        await window.send("think hard")
        await window.answered("Thought about hard.")
        assert not await page.locator("details.thought .say").is_visible(), "thinking is folded"
        await page.set_input_files("message-composer input[type=file]", [file("dot.png", PNG), file("n.txt", b"x")])
        await window.send("weather Paris")
        await window.answered("The tool returned: Rain in Paris.")
        await window.has(1, ".you .files img")
        await window.has(1, ".you .files a")
        assert "weather, done" in str(await page.locator("tool-card").get_attribute("aria-label"))

        await window.send("pay 5 Bob")
        await page.wait_for_selector("tool-card.ask")
        await page.locator(".talk").focus()
        await page.keyboard.press("a")
        await window.answered("The tool returned: paid 5 to Bob")
        await window.send("pay 7 Bob")
        await page.wait_for_selector("tool-card.ask")
        await page.get_by_role("button", name="Deny").focus()
        await page.keyboard.press("Enter")
        await window.answered("The tool failed: The call was denied")
        assert await page.evaluate("document.activeElement.className") == "talk", "where the keys work"
        await window.send("pay 9 Bob")
        await page.wait_for_selector("tool-card.ask")
        await page.get_by_role("button", name="Edit first E").click()
        await page.get_by_label("amount").fill("many")
        await page.get_by_role("button", name="Approve with these arguments").click()
        await window.sees("amount must be a number.")
        await page.get_by_label("amount").fill("2")
        await page.get_by_label("urgent").check()
        await page.get_by_role("button", name="Approve with these arguments").click()
        await window.answered("The tool returned: paid 2 to Bob at once")
        await window.send("helper pay 3 Ann")
        await page.wait_for_selector("tool-card.ask")  # of the sub-agent
        await page.get_by_role("button", name="Approve A").click()
        await window.sees("The tool returned: The tool returned: paid 3 to Ann")
        await window.has(0, "tool-card.ask")
        inner = page.locator("tool-card:has(> .box > sub-agent)").last
        await inner.locator("sub-agent summary").first.click()
        await inner.locator("sub-agent tool-card", has_text="pay").wait_for()
        assert await inner.locator("sub-agent .b.go").count() == 0, "the outer card asks"
        await window.sees("tokens")
        assert window.problems == []
        assert window.hosts == {site.client.url.removeprefix("http://")}


def file(name: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": data}


async def test_calls_are_allowed_from_now_on_in_one_session(site: Site) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await window.send("pay 5 Bob")
        await page.wait_for_selector("tool-card.ask")
        await page.get_by_role("button", name="Always").click()
        await window.sees("in this session until the server stops")
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Edit first E").click()
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Always").click()
        await page.get_by_role("button", name="every call of pay").click()
        await window.sees("The tool returned: paid 5 to Bob")
        await window.send("pay 6 Bob")
        await window.sees("The tool returned: paid 6 to Bob")
        await window.sees("Allowed here without asking, until the server stops: every call of pay.")
        await page.get_by_role("button", name="Ask again").click()
        await page.locator(".allowed").wait_for(state="hidden")
        await window.send("pay 7 Bob")
        await page.wait_for_selector("tool-card.ask")
        assert window.problems == []


async def test_a_question_keeps_the_focus_when_more_answers_are_offered(site: Site) -> None:
    async with windows() as (window,):
        page, focused = window.page, asyncio.Event()

        async def hold(route: Any) -> None:
            await focused.wait()
            await route.continue_()

        await page.route("**/requests?*", hold)
        await site.enter(window)
        await window.send("pay 5 Bob")
        await page.get_by_role("button", name="Deny").focus()
        focused.set()
        await page.get_by_role("button", name="Always").wait_for()
        await page.keyboard.press("Enter")
        await window.answered("The tool failed: The call was denied")
        assert window.problems == []


@tool
def attach() -> ToolResult:
    """Attach files."""
    drawing = Image("image/svg+xml", data=b"<svg/>")
    return ToolResult("any", (Text("Here."), drawing, FileRef("only-a-name.txt"), FileRef("notes.txt", data=b"x")))


async def test_only_images_that_browsers_show_and_files_that_are_here_are_loaded() -> None:
    application = app(
        Agent(ScriptedModel([assistant(ToolCall("c1", "attach", {})), "Done."]), tools=[attach]), store=MemoryStore()
    )
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows() as (window,):
        page = window.page
        await Site(client, application.access).enter(window)
        await window.send("go")
        await window.answered("Done.")
        assert await page.locator("tool-card .files a").all_inner_texts() == ["image/svg+xml", "notes.txt"]
        assert await page.locator("tool-card .files span").all_inner_texts() == ["only-a-name.txt"]
        await window.has(0, "tool-card img")
        assert window.problems == []


@tool(requires_approval=True)
def change(
    path: str, old: str, new: str, *, everywhere: bool = False, mode: Literal["text", "raw"] = "text", version: int = 0
) -> str:
    """Change a file."""
    return f"{path} {old} {new} {everywhere} {mode} {version}"


async def test_what_is_approved_is_shown_in_full_and_not_changed_by_the_form() -> None:
    given = {"path": "a\u202egnp.exe", "old": "one", "new": "two", "everywhere": True, "version": 10**19 + 1}
    agent = Agent(ScriptedModel([assistant(ToolCall("c1", "change", given)), "Done."]), tools=[change])
    application = app(agent, store=MemoryStore())
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows() as (window,):
        page = window.page
        await Site(client, application.access).enter(window)
        await window.send("change it")
        shown = await page.get_by_label("Question", exact=True).inner_text()
        assert [line for line in shown.splitlines() if line] == [
            'path: "a\\u202egnp.exe"',
            'old: "one"',
            'new: "two"',
            "everywhere: true",
            "version: 10000000000000000001",
        ]
        await window.sees("5 lines, ")
        await page.get_by_role("button", name="Edit first E").click()
        assert await page.locator("argument-form select").evaluate("(one) => one.selectedOptions[0].text") == ""
        await page.get_by_role("button", name="Approve with these arguments").click()
        await window.sees("Done.")
        (session,) = (await client.get("/sessions"))["items"]
        entries = (await client.get(f"/sessions/{session['id']}/entries"))["items"]
        assert [one["payload"]["arguments"] for one in entries if one["kind"] == "tool_started"] == [given]
        assert window.problems == []


async def test_a_run_whose_start_is_not_loaded_can_be_stopped(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows() as (window,):
        await client.post("/sessions/s/runs", text="slow walk")
        for number in range(220):  # more than a page
            await note(application.service.store, "s", "n", {"number": number})
        await Site(client, application.access).enter(window)
        await window.page.evaluate("location.hash = 'session=s'")
        await window.page.get_by_role("button", name="Stop").click()
        await window.sees("You stopped this run.")
        await window.page.get_by_role("button", name="Send").wait_for()
        assert window.problems == []


async def test_a_live_answer_is_steered_queued_and_stopped(site: Site, gate: Gate) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await window.send("slow walk")
        await page.wait_for_selector(".answer .caret")
        assert "Steer the run" in await page.locator("#message").get_attribute("placeholder")
        await window.send("and then", key="Alt+Enter")
        await window.sees("after this run", ".outstanding")
        await page.get_by_role("button", name="Inspect").click()
        lane = page.locator("run-inspector .lane", has_text="model 1")
        await lane.get_by_text(" s", exact=False).wait_for()  # it grows
        await page.get_by_role("button", name="Close the inspector").click()
        gate.open()
        await window.sees("You said: and then")
        await window.has(0, ".outstanding li")
        await window.has(1, ".you .edit")  # a branch before what joined the run would deliver it again
        await window.has(0, ".answer *")  # the stored answer replaces the one that arrived
        gate.path.unlink()
        await window.send("slow again")
        await page.wait_for_selector(".answer .caret")
        await page.locator("session-list input[type=search]").press("Escape")  # that of the search
        await page.locator("#message").press("Escape")
        await window.sees("You stopped this run.")
        await window.sees("Slowly: ag")
        entries = await site.client.get(f"/sessions/{page.url.partition('session=')[2]}/entries", limit=200)
        assert [entry["kind"] for entry in entries["items"]].count("abort_requested") == 1
        assert window.problems == []


async def test_an_edited_message_begins_a_branch_and_both_can_be_seen(site: Site) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await window.send("first")
        await window.answered("You said: first")
        await page.set_input_files("message-composer input[type=file]", [file("dot.png", PNG), file("n.txt", b"x")])
        await window.send("second")
        await window.answered("You said: second")
        await page.locator(".you", has_text="second").hover()
        await page.locator(".you", has_text="second").get_by_role("button", name="Edit this message").click()
        await window.send("other")
        await window.sees("You said: other")
        await window.sees("2 / 2")
        await window.has(1, ".you .files img")  # its attachments are sent again
        await window.has(1, ".you .files a")
        await window.has(0, "message-composer .chip")
        assert await page.get_by_text("You said: second").count() == 0
        await page.get_by_role("button", name="Previous branch").click()
        await window.sees("You said: second")
        await window.sees("1 / 2")
        assert await page.get_by_text("You said: first").count() == 1
        assert window.problems == []


async def test_sessions_are_listed_and_found_and_reopened(site: Site) -> None:
    await site.client.post("/sessions/a/runs", text="about umbrellas")
    await site.client.post("/sessions/b/runs", text="about bicycles")
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await window.sees("about umbrellas", "session-list")
        await page.locator(".talk").focus()
        await page.keyboard.press("/")
        await page.keyboard.type("bicycles")
        await page.locator("session-list a", has_text="umbrellas").wait_for(state="detached")
        await page.locator("session-list a.row", has_text="bicycles").click()
        await window.sees("You said: about bicycles")
        await page.reload()
        await window.sees("You said: about bicycles")
        entries = (await site.client.get("/sessions/b/entries"))["items"]
        said = next(one for one in entries if one["kind"] == "message")
        await site.client.post("/sessions/b/requests", type="redact", entryId=said["id"])
        await page.locator(".you", has_text="bicycles").wait_for(state="detached")
        await window.sees("You said: about bicycles")  # the answer is another entry
        assert window.problems == []


async def test_a_page_that_loads_slowly_does_not_take_the_focus_from_what_was_chosen_meanwhile(site: Site) -> None:
    async with windows() as (window,):
        page, held, release = window.page, asyncio.Event(), asyncio.Event()

        async def hold(route: Any) -> None:
            held.set()
            await release.wait()
            await route.continue_()

        await page.route("**/api/agents", hold, times=1)
        await site.enter(window)
        await asyncio.wait_for(held.wait(), LIMIT_S)
        await page.locator("session-list input[type=search]").focus()
        release.set()
        await page.get_by_text("New session").first.wait_for()
        await page.wait_for_selector(".setup")
        await page.keyboard.type("umbrella")
        assert await page.locator("session-list input[type=search]").input_value() == "umbrella"
        assert window.problems == []


async def test_a_session_that_loads_slowly_does_not_disturb_those_opened_after_it(site: Site) -> None:
    for name in ("a", "b", "c"):
        await finished(site.client, name, f"about {name}")
    async with windows() as (window,):
        page, held, release = window.page, asyncio.Event(), asyncio.Event()

        async def hold(route: Any) -> None:
            held.set()
            await release.wait()
            await route.continue_()

        await page.route("**/api/sessions/a", hold, times=1)
        await site.enter(window)
        await page.evaluate("location.hash = 'session=a'")
        await asyncio.wait_for(held.wait(), LIMIT_S)
        await page.evaluate("location.hash = 'session=b'")
        await window.sees("You said: about b")
        async with page.expect_response("**/api/sessions/a"):
            release.set()
        await page.evaluate("location.hash = 'session=c'")
        await window.sees("You said: about c")
        await finished(site.client, "b", "for b alone")
        await finished(site.client, "c", "for c alone")
        await window.sees("You said: for c alone")
        assert await page.get_by_text("for b alone").count() == 0
        async with asyncio.timeout(LIMIT_S):  # until the server has noticed who left
            while await viewers(site.client) != {"a": 0, "b": 0, "c": 1}:
                pass
        assert window.problems == []


async def viewers(client: Client) -> dict[str, int]:
    return {one["id"]: one["viewers"] for one in (await client.get("/sessions"))["items"]}


async def test_two_windows_stay_in_step(site: Site, gate: Gate) -> None:
    async with windows(2) as (one, two):
        await site.enter(one)
        await site.enter(two)
        await one.send("slow walk")
        await one.page.wait_for_selector(".answer .caret")
        await two.page.locator("session-list a").first.click()
        await two.page.wait_for_selector(".answer .caret")
        await two.send("from the other window", key="Alt+Enter")
        await one.sees("after this run", ".outstanding")
        gate.open()
        for window in (one, two):
            await window.sees("You said: from the other window")
        shown = [await window.page.locator("[role=log]").inner_text() for window in (one, two)]
        assert shown[0] == shown[1]
        assert one.problems + two.problems == []


async def test_a_call_is_approved_in_another_window(site: Site) -> None:
    async with windows(2) as (one, two):
        await site.enter(one)
        await site.enter(two)
        await one.send("pay 5 Bob")
        await one.page.wait_for_selector("tool-card.ask")
        await two.page.locator("session-list a", has_text="pay 5 Bob").click()
        await two.page.get_by_role("button", name="Approve A").click()
        for window in (one, two):
            await window.sees("The tool returned: paid 5 to Bob")
            await window.has(0, "tool-card.ask")
        assert one.problems + two.problems == []


async def test_another_model_is_chosen_by_its_name(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore(), models=["scripted:scripted", "ollama:other"])
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows() as (window,):
        page = window.page
        await Site(client, application.access).enter(window)
        await window.send("first")
        await window.sees("You said: first")
        await page.locator(".top").get_by_title("Model of the next answer").click()
        await page.locator(".pop .opt", has_text="other").click()
        await window.sees("ollama:other", "[role=log]")
        assert await page.locator(".top .model-name").inner_text() == "other"
        assert window.problems == []


async def test_a_lost_connection_comes_back_without_a_gap_or_a_repeat(site: Site, gate: Gate) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await window.send("slow walk")
        await page.wait_for_selector(".answer .caret")
        await page.context.set_offline(True)
        await page.evaluate("window.dispatchEvent(new Event('offline'))")
        gate.open()
        async with site.client.events(page.url.partition("session=")[2]) as stream:
            await stream.until(lambda event: event.event == "entry" and event.data["kind"] == "run_ended")
        await page.context.set_offline(False)
        await window.sees("and the rest of the answer.")
        assert await page.get_by_text("and the rest of the answer.").count() == 1
        assert await page.get_by_text("slow walk", exact=True).locator("visible=true").count() >= 1
        await window.has(0, ".banner:not([hidden])")


class SilentNetwork:
    """A proxy whose connections can fall silent, as they do when a network is gone: nobody closes them."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._silent: list[asyncio.Event] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def fall_silent(self) -> None:
        for one in self._silent:
            one.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent = asyncio.Event()
        self._silent.append(silent)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pipe(reader, inner_writer, silent), self._pipe(inner_reader, writer, silent))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silent: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not silent.is_set():
                    writer.write(data)
            writer.close()


async def test_a_connection_that_falls_silent_is_replaced(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows() as (window,):
        network = SilentNetwork(client.url)
        async with network as url:
            await window.page.clock.install()
            await window.sign_in(url, application.access.code)
            await window.send("slow walk")
            await window.page.wait_for_selector(".answer .caret")
            network.fall_silent()
            gate.open()
            (session,) = (await client.get("/sessions"))["items"]
            await state_is(client, session["id"], "idle")
            await window.page.clock.fast_forward(60_000)
            await window.answered("and the rest of the answer.")
            await window.has(1, ".say")
            assert window.problems == []


async def test_a_hidden_window_gives_its_connection_up_and_comes_back(site: Site, gate: Gate) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await window.send("helper slow walk")
        await page.locator("sub-agent summary").click()  # which needs no connection of its own
        await window.sees("slow walk", "sub-agent")
        await page.evaluate(HIDE, True)
        async with asyncio.timeout(LIMIT_S):
            while set((await viewers(site.client)).values()) != {0}:
                pass
        gate.open()
        await window.sees("and the rest of the answer.", "sub-agent")
        await page.evaluate(HIDE, False)
        await window.sees("The tool returned: Slowly: walk")
        await window.has(0, ".banner:not([hidden])")
        assert window.problems == []


HIDE = """(is) => {
  Object.defineProperty(document, "hidden", { value: is, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_a_server_that_is_killed_in_mid_answer_and_restarted(tmp_path: Path, gate: Gate) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    async with windows() as (window,):
        async with server_process(store, gate) as first:
            await window.sign_in(first.url, first.code)
            await window.send("slow walk")
            await window.page.wait_for_selector(".answer .caret")
            first.kill(signal.SIGKILL)
            await first.ended()
            await window.sees("Connection lost.")
            await window.send("typed meanwhile")
            await window.sees("The server cannot be reached.", "message-composer")
        gate.open()
        port = int(first.url.rpartition(":")[2])
        async with server_process(store, gate, port=port):
            await window.sees("and the rest of the answer.")
            assert await window.page.get_by_text("and the rest of the answer.").count() == 1
            await window.has(0, ".banner:not([hidden])")
            await window.page.locator("message-composer .wrong").wait_for(state="hidden")
            await window.page.press("#message", "Enter")
            await window.sees("You said: typed meanwhile")


HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script> [x](javascript:window.pwned=1) '
HOSTILE += '![i](http://evil.example/i.png) <a href="javascript:window.pwned=1">y</a> "><svg onload=window.pwned=1>'


async def test_text_of_models_tools_titles_and_file_names_runs_nothing(site: Site) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await page.set_input_files(
            "message-composer input[type=file]", [file(f"{HOSTILE[:60]}.txt".replace("/", ""), b"x")]
        )
        await window.send(f"raw {HOSTILE}\n\n```{HOSTILE[:30]}\n{HOSTILE}\n```")
        await window.sees("window.pwned=1")
        await window.send(f"weather {HOSTILE}")
        await page.wait_for_selector("tool-card.done")
        await window.send(f"call {HOSTILE}")  # the name of a tool that does not exist
        await page.locator("tool-card.failed b", has_text="onerror").wait_for()
        await window.send(f"pay 5 {HOSTILE}")
        await page.wait_for_selector("tool-card.ask")
        await page.locator(".talk").focus()
        await page.keyboard.press("i")
        for name in ("Timeline", "Entries", "Views", "Request", "State"):
            await page.get_by_role("tab", name=name).click()
        await page.locator("session-list a").first.wait_for()
        for link in await page.locator("session-view a[href], session-list a[href]").all():
            address = await link.get_attribute("href")
            assert address.startswith(("http", "#")), address
        assert await page.evaluate("window.pwned") is None
        await window.has(0, ".talk script, .talk svg:not([aria-hidden]), .talk img, .talk [onerror]")
        assert window.hosts == {site.client.url.removeprefix("http://")}
        assert window.problems == []


async def test_problems_are_reported_in_plain_words(site: Site) -> None:
    async with windows() as (window,):
        page = window.page
        await page.goto(site.client.url)
        await page.get_by_text("Not signed in").wait_for()
        await page.goto("about:blank")
        await page.goto(f"{site.client.url}/#code=wrong")
        await page.get_by_text("This link has been used").wait_for()
        await page.goto("about:blank")
        await site.enter(window)
        await window.send("hello")
        await window.sees("You said: hello")
        await page.get_by_role("button", name="Inspect").click()
        await page.context.clear_cookies()
        await page.get_by_role("button", name="New session").click()
        await page.locator("session-list a").click()
        await page.get_by_text("Not signed in").wait_for()
        await site.enter(window)
        await page.get_by_role("button", name="Inspect").click()
        await page.get_by_role("button", name="Close the inspector").click()
        await page.goto(f"{site.client.url}/#session=none")
        await window.sees("This session no longer exists")
        assert await page.locator(".top h1").inner_text() == "Not found"
        assert await page.locator("message-composer").get_by_text("tokens").count() == 0
        await page.route("**/api/me", lambda route: route.abort())
        await page.reload()
        await page.get_by_text("The server cannot be reached", exact=True).wait_for()
        await page.unroute("**/api/me")
        await page.get_by_role("button", name="Try again").click()
        await page.wait_for_selector("message-composer textarea")
        await page.route("**/entries?*", lambda route: route.abort())
        await page.locator("session-list a").click()
        await window.sees("The server cannot be reached.")
        await page.unroute("**/entries?*")
        await window.sees("You said: hello")
        await window.has(0, ".banner:not([hidden])")


async def test_a_session_that_is_replaced_or_deleted_while_it_is_shown(gate: Gate) -> None:
    store = MemoryStore()
    application = app(new_agent(gate), store=store)
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows() as (window,):
        await Site(client, application.access).enter(window)
        await window.send("first")
        await window.sees("You said: first")
        (session,) = (await client.get("/sessions"))["items"]
        replaced = asyncio.Event()

        async def hold(route: Any) -> None:
            await replaced.wait()
            await route.continue_()

        async with asyncio.timeout(LIMIT_S):
            while await viewers(client) != {session["id"]: 1}:
                pass
        await window.page.route(f"**/api/sessions/{session['id']}", hold)
        await store.drop_session(session["id"])
        await window.sees("Connection lost.")
        await store.create_session(session["id"], SessionHeader(title="another one"))
        replaced.set()
        await window.sees("another one", ".top")
        assert await window.page.get_by_text("You said: first").count() == 0
        await store.drop_session(session["id"])
        await window.sees("This session no longer exists, or is not yours.")
        await window.send("anew")
        await window.answered("You said: anew")
        assert window.problems == []


async def test_a_page_that_came_by_http_from_another_machine_can_start_sessions(site: Site) -> None:
    """Browsers leave some functions out there."""
    async with windows() as (window,):
        await window.page.add_init_script("delete Crypto.prototype.randomUUID; delete crypto.subtle")
        await site.enter(window)
        await window.send("hello")
        await window.answered("You said: hello")
        assert window.problems == []


async def test_the_page_shows_what_workers_do(gate: Gate) -> None:
    store = MemoryStore()
    agent = new_agent(gate, "a")
    application = app(agent, store=store, queue=StoreQueue)
    assert isinstance(application.access, TokenAccess)
    worker = Worker(StoreQueue(store), {"a": agent}, store)
    async with served(application) as client, windows() as (window,):
        page = window.page
        await Site(client, application.access).enter(window)
        await window.send("slow walk")
        await window.sees("0 workers, 0 live, 1 waiting", "worker-status")
        working = asyncio.create_task(worker.run())
        await window.sees("1 worker, 1 live, 0 waiting", "worker-status")
        await page.wait_for_selector(".answer .caret")
        await page.locator("worker-status summary").click()
        await page.locator("worker-status li", has_text="live for").get_by_role("link").wait_for()
        await window.sees("runs per minute", "worker-status")
        gate.open()
        await window.sees("and the rest of the answer.")
        await window.sees("1 worker, 0 live, 0 waiting", "worker-status")
        assert window.problems == []
        worker.stop()
        await working


BARS = """async (session) => {
  const { bars, runs } = await import("/static/timeline.js");
  const { items } = await (await fetch(`/api/sessions/${session}/entries?limit=200`)).json();
  return bars(runs(items)[0], Date.now()).map(({ name, start, end }) => ({ name, start, end }));
}"""


async def test_an_approval_on_the_timeline_ends_when_it_is_decided_on_the_page(site: Site) -> None:
    async with windows() as (window,):
        await site.enter(window)
        await window.send("pay 5 Bob")
        await window.page.wait_for_selector("tool-card.ask")
        await window.page.locator(".talk").focus()
        await window.page.keyboard.press("a")
        await window.answered("The tool returned: paid 5 to Bob")
        [session] = (await site.client.get("/sessions"))["items"]
        bars = {bar["name"]: bar for bar in await window.page.evaluate(BARS, session["id"])}
        assert bars["approval"]["end"] <= bars["pay"]["start"]
        assert window.problems == []


async def test_the_inspector_shows_the_run_its_entries_views_request_and_states(site: Site) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await window.send("weather Paris")
        await window.sees("The tool returned")
        await page.get_by_role("button", name="Inspect").click()
        await page.locator("run-inspector .lane", has_text="weather").wait_for()
        await window.has(3, "run-inspector .lane")  # two model calls and a tool
        await window.sees("First token", "run-inspector")
        await window.send("second")
        await window.sees("You said: second")
        await page.locator("run-inspector .lane", has_text="weather").wait_for(state="detached")
        await page.get_by_label("Run", exact=True).select_option(index=0)
        await page.locator("run-inspector .lane", has_text="weather").wait_for()
        await page.get_by_role("tab", name="Entries").click()
        await page.locator("run-inspector details", has_text="tool_started").locator("summary").click()
        await window.sees('"toolName": "weather"', "run-inspector")
        await page.get_by_role("tab", name="Views").click()
        await window.sees("step-start", "run-inspector")
        await page.get_by_role("button", name="Widen the inspector").click()
        places = [await one.bounding_box() for one in await page.locator("run-inspector section").all()]
        assert len({round(place["y"]) for place in places}) == 1, "the three views are side by side"
        await page.get_by_role("button", name="Widen the inspector").click()
        await page.get_by_role("tab", name="Request").click()
        await window.sees("The format can express everything.", "run-inspector")
        await window.sees("As it was sent.", "run-inspector")
        await page.get_by_role("tab", name="State").click()
        await page.locator("run-inspector .lit", has_text="completed").first.wait_for()
        await window.has(3, "run-inspector .diagram svg")
        await page.locator("run-inspector .diagram .edge").nth(10).wait_for(state="attached")
        for lit in await page.locator("run-inspector .lit").all():
            place, frame = await lit.bounding_box(), await page.locator("run-inspector").bounding_box()
            assert frame["x"] <= place["x"] <= place["x"] + place["width"] <= frame["x"] + frame["width"]
        await page.get_by_role("button", name="New session").click()
        await window.sees("Nothing to inspect yet.", "run-inspector")
        assert window.problems == []


async def test_a_run_whose_terminal_was_closed_is_shown_as_interrupted_and_can_be_continued(gate: Gate) -> None:
    store = await abandoned_session(gate)
    application = app(new_agent(gate), store=store)
    assert isinstance(application.access, TokenAccess)
    async with served(application) as client, windows() as (window,):
        await Site(client, application.access).enter(window)
        await window.page.locator("session-list a", has_text="interrupted").click()
        await window.sees("The program that started this run is gone.")
        await window.send("hello again")
        await window.sees("You said: hello again")
        await window.page.locator("session-list a", has_text="interrupted").wait_for(state="detached")
        assert window.problems == []


async def test_no_width_scrolls_sideways_and_axe_finds_nothing_serious(site: Site) -> None:
    if not AXE.exists():
        pytest.skip(f"no axe-core; run: npm ci --prefix {AXE.parents[2]}")
    async with windows(bypass_csp=True) as (window,):
        page = window.page
        await site.enter(window)
        await window.send("markdown")
        await window.sees("It will")
        await window.send("weather " + "Llanfair" * 30)
        await page.wait_for_selector("tool-card.done")
        await window.send("pay 5 Bob")
        await page.wait_for_selector("tool-card.ask")
        await page.evaluate(AXE.read_text(encoding="utf-8"))
        for width, height in SIZES:
            await page.set_viewport_size({"width": width, "height": height})
            assert not await window.scrolls_sideways(), width
            assert await serious(page, "light") == []
            if width == SIZES[0][0]:
                for place in ("session-list a", ".scrim"):
                    await page.get_by_role("button", name="Sessions").click()
                    await page.locator("session-list a").wait_for()
                    await page.locator(place).click(position={"x": 370, "y": 400} if place == ".scrim" else None)
                    await page.locator("session-list").wait_for(state="hidden")
            await page.locator(".talk").focus()
            await page.keyboard.press("i")
            await page.wait_for_selector("run-inspector .lane")
            assert not await window.scrolls_sideways(), width
            assert await serious(page, "dark") == []
            await page.get_by_role("button", name="Close the inspector").click()


async def test_long_words_and_other_directions_stay_in_their_places(site: Site) -> None:
    async with windows(viewport={"width": 390, "height": 844}, has_touch=True) as (window,):
        page = window.page
        await site.enter(window)
        await window.send(f"raw {'Llanfair' * 40}\n\nمرحبا بالعالم.\n\n- שלום")
        await window.answered("Llanfair")
        for bubble in (".you p", ".say p"):
            box = await page.locator(bubble).first.bounding_box()
            assert box["x"] >= 0
            assert await page.locator(bubble).first.evaluate("(one) => one.scrollWidth <= one.clientWidth")
        button = page.get_by_role("button", name="Edit this message")
        box = await button.bounding_box()
        assert (box["x"] >= 0, box["x"] + box["width"] <= 390) == (True, True)
        await button.tap()
        await window.sees("Editing an earlier message.")
        side = "(one) => { const range = document.createRange(); range.selectNodeContents(one);"
        side += " return one.getBoundingClientRect().right - range.getBoundingClientRect().right; }"
        assert await page.locator(".say p", has_text="مرحبا").evaluate(side) < 1
        assert await page.locator(".say li", has_text="שלום").evaluate(side) < 1
        assert await page.locator("#message").get_attribute("dir") == "auto"


async def serious(page: Any, scheme: str) -> list[str]:
    """What axe-core finds with this colour scheme, as far as it matters."""
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found = await page.evaluate("axe.run().then((result) => result.violations)")
    shown = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in shown]


async def test_the_page_works_below_a_path_and_behind_a_proxy_that_removes_another_one(gate: Gate) -> None:
    inner = app(new_agent(gate), store=MemoryStore())
    assert isinstance(inner.access, TokenAccess)
    outer = Starlette(routes=[Mount("/agents", inner)], lifespan=inner.lifespan)

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        if "path" in scope:
            scope = {**scope, "path": scope["path"].removeprefix("/base")}
        await outer(scope, receive, send)

    async with served(proxy) as client, windows() as (window,):
        await window.sign_in(f"{client.url}/base/agents", inner.access.code)
        await window.send("hello")
        await window.sees("You said: hello")
        await window.page.reload()
        await window.sees("You said: hello")
        assert window.problems == []
        inner.service.closing.set()


async def test_what_is_typed_while_a_message_is_sent_is_not_lost(site: Site) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        held = asyncio.Event()

        async def hold(route: Any) -> None:
            await held.wait()
            await route.continue_()

        await page.route("**/runs", hold)
        await window.send("raw the first")
        await window.send("raw the second")
        await page.fill("#message", "a draft")
        held.set()
        await window.sees("raw the first")
        await window.sees("raw the second")
        assert await page.input_value("#message") == "a draft"
        assert len((await site.client.get("/sessions"))["items"]) == 1


async def test_a_message_that_does_not_arrive_stays_with_what_was_typed_since(site: Site) -> None:
    async with windows() as (window,):
        page = window.page
        await site.enter(window)
        await page.route("**/runs", lambda route: route.abort())
        await window.send("raw the first")
        await page.wait_for_selector("message-composer .wrong:not(:empty)")
        assert await page.input_value("#message") == "raw the first"
