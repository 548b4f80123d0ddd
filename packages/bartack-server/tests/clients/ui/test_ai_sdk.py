"""The chat of the AI SDK, versions 5, 6 and 7 from npm, against the real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from bartack import (
    ErrorCode,
    Failed,
    Start,
    TextDelta,
    Thinking,
    ToolCall,
    ToolCallArgs,
    ToolCallStart,
    assistant,
    user,
)
from bartack.protocols.ai_sdk import UIMessageStream, Version
from bartack.protocols.ai_sdk_assembler import UIMessageAssembler
from bartack.protocols.ai_sdk_messages import ui_messages
from bartack.store.requests import post
from bartack.tools import LocalRuntime, ToolDefinition
from tests.clients.ui.npm_client import HERE as CLIENTS
from tests.clients.ui.npm_client import NpmClient, node, npm_client
from tests.clients.ui.scripted import HERE, Server, researcher, scripted_server, some_runs
from tests.web.browser import in_session_loop, needs_browser, windows

VERSIONS = ("5", "6", "7")
BUSY = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)


class Page:
    """A page with a chat, on a server with a scripted agent."""

    def __init__(self, npm: NpmClient, server: Server, version: str) -> None:
        self.npm, self.server, self.version = npm, server, version

    async def open(self, chat: str = "trip", messages: Any = ()) -> None:
        api = f"{self.server.client.url}/api/ai-sdk/v{self.version}/chat"
        await self.npm("open", api=api, id=chat, messages=list(messages), headers=self.server.headers)

    async def __call__(self, do: str, **arguments: Any) -> Any:
        return await self.npm(do, **arguments)

    async def stored(self) -> Any:
        """The messages of the chat as the server returns them, which the client must accept."""
        messages = await self.server.client.get(f"/ai-sdk/v{self.version}/chat/trip/messages")
        assert await self.npm("validate", chats=[messages]) == [None], messages
        return messages


@asynccontextmanager
async def page(version: str, *script: Any, **options: Any) -> AsyncIterator[Page]:
    async with scripted_server(*script, **options) as server, npm_client("ai_sdk.mjs", version) as npm:
        opened = Page(npm, server, version)
        await opened.open()
        yield opened


def answer(reply: Any) -> list[tuple[Any, ...]]:
    """The parts of the last message, briefly."""
    return [brief(part) for part in reply["messages"][-1]["parts"]]


def brief(part: Any) -> tuple[Any, ...]:
    kind = part["type"]
    if kind in ("text", "reasoning"):
        return (kind, part["text"], part["state"])
    if kind == "dynamic-tool":
        return (part["toolName"], part["state"], part.get("output", part.get("errorText")))
    return (kind,)


def asked(reply: Any) -> Any:
    """The part with the last question, whose id names it."""
    questions = [part for part in reply["messages"][-1]["parts"] if part["type"] == "data-approval"]
    return questions[-1]


async def decide(chat: Page, id: str, approved: bool, **details: Any) -> Any:
    """Decide as clients of this version do."""
    if chat.version == "5":
        return await chat("decide", approvals=[{"id": id, "approved": approved, **details}])
    return await chat("approve", id=id, approved=approved, **details)


@pytest.mark.parametrize("version", VERSIONS)
async def test_text_thinking_and_tools_arrive(version: str) -> None:
    call = ToolCall("c1", "weather", {"city": "Paris"})
    async with page(version, assistant(Thinking("Let me see."), "Looking.", call), "It rains.") as chat:
        reply = await chat("send", text="Will it rain?")
        assert (reply["status"], reply["finishReason"]) == ("ready", "stop")
        assert answer(reply) == [
            ("step-start",),
            ("reasoning", "Let me see.", "done"),
            ("text", "Looking.", "done"),
            ("weather", "output-available", {"city": "Paris", "sky": "rain"}),
            ("step-start",),
            ("text", "It rains.", "done"),
        ]
        assert reply["messages"][-1]["parts"][3]["input"] == {"city": "Paris"}
        again = await chat.stored()
        assert [message["id"] for message in again] == [message["id"] for message in reply["messages"]]
        await chat.open("trip", again)
        assert answer(await chat("wait")) == answer(reply)


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("version", ["6", "7"])
async def test_an_approval_is_asked_for_and_the_decision_continues_the_message(version: str, approved: bool) -> None:
    script = [assistant("Wait.", ToolCall("c1", "transfer", {"amount": 5})), "Done."]
    async with page(version, *script) as chat:
        asking = await chat("send", text="Pay")
        assert asking["status"] == "ready"
        call = asking["messages"][-1]["parts"][-2]
        assert (call["state"], call["approval"]["id"]) == ("approval-requested", asked(asking)["id"])
        await chat.stored()
        reply = await chat("approve", id=call["approval"]["id"], approved=approved)
        assert reply["status"] == "ready"
        await chat.stored()
        outcome = ("output-available", "moved 5") if approved else ("output-denied", None)
        assert answer(reply) == [
            ("step-start",),
            ("text", "Wait.", "done"),
            ("transfer", *outcome),
            ("data-approval",),
            ("step-start",),
            ("text", "Done.", "done"),
        ]
        assert len(reply["messages"]) == 2


@pytest.mark.parametrize(
    ("approved", "outcome"),
    [(True, ("output-available", "moved 5")), (False, ("output-error", "The call was denied: Too much."))],
)
async def test_version_5_is_asked_with_a_data_part_and_answers_with_the_next_request(
    approved: bool, outcome: tuple[str, str]
) -> None:
    async with page("5", assistant(ToolCall("c1", "transfer", {"amount": 5})), "Done.") as chat:
        asking = await chat("send", text="Pay")
        question = asking["messages"][-1]["parts"][-1]
        assert (question["type"], question["data"]["input"]) == ("data-approval", {"amount": 5})
        reply = await chat("decide", approvals=[{"id": question["id"], "approved": approved, "reason": "Too much."}])
        assert reply["status"] == "ready"
        assert answer(reply)[1:] == [
            ("transfer", *outcome),
            ("data-approval",),
            ("step-start",),
            ("text", "Done.", "done"),
        ]
        stored = await chat.server.client.get("/ai-sdk/v5/chat/trip/messages")
        assert list(map(comparable, stored[-1]["parts"])) == list(map(comparable, reply["messages"][-1]["parts"]))


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_message_instead_of_a_decision_ends_the_run_that_waits_and_is_answered(version: str) -> None:
    async with page(version, assistant(ToolCall("c1", "transfer", {"amount": 5})), "Then not.") as chat:
        id = asked(await chat("send", text="Pay"))["id"]
        reply = await chat("send", text="Never mind")
        assert (reply["status"], answer(reply)) == ("ready", [("step-start",), ("text", "Then not.", "done")])
        stored = await chat.stored()
        assert stored[1]["parts"][1]["state"] == "output-error"
        if version == "5":
            late = await chat("decide", approvals=[{"id": id, "approved": True}])
            assert "nor an answer to a pending approval" in late["error"]
        else:  # no chunk changes an earlier message of a client
            assert reply["messages"][1]["parts"][1]["state"] == "approval-requested"
            late = await chat("approve", id=id, approved=True)
            assert (late["status"], len(late["messages"])) == ("ready", 4)
        assert await chat.stored() == stored
        await chat.open("trip", stored)
        assert (await chat("wait"))["messages"] == stored


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_retry_in_the_middle_of_an_answer_leaves_the_final_one(version: str) -> None:
    call = (ToolCallStart("c1", "weather"), ToolCallArgs("c1", '{"ci'))
    cut = [Start("m", "r"), TextDelta("It will sn"), *call, TextDelta(HERE), BUSY]
    async with page(version, cut, "It rains.") as chat:
        await chat("send", text="Will it rain?", until="It will sn")
        chat.server.model.proceed.set()
        reply = await chat("wait")
        assert (reply["status"], reply["finishReason"]) == ("ready", "stop")
        parts = answer(reply)
        assert parts[-2:] == [("step-start",), ("text", "It rains.", "done")]
        if version == "7":
            assert len(parts) == 2
        else:
            assert ("data-retry",) in parts
        assert not any("streaming" in part for part in parts)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_failure_ends_in_an_error(version: str) -> None:
    cut = [Start("m", "r"), TextDelta("It will"), ToolCallStart("c1", "weather"), Failed(ErrorCode.REFUSED, "No.")]
    async with page(version, cut) as chat:
        reply = await chat("send", text="Will it rain?")
        assert (reply["status"], reply["error"], reply["isError"]) == ("error", "No.", True)
        assert answer(reply)[1:] == [
            ("text", "It will", "done"),
            ("weather", "output-error", "Not executed: the model call failed."),
        ]


SLOW = f"One, two {HERE} three."


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_stop_route_ends_the_run_and_keeps_the_partial_answer(version: str) -> None:
    async with page(version, SLOW) as chat:
        await chat("send", text="Count", until="One")
        status, _, _ = await chat.server.client.send("POST", f"/api/ai-sdk/v{version}/chat/trip/stop")
        assert status == 204
        reply = await chat("wait")
        assert reply["status"] == "ready"
        (_, text) = answer(reply)
        assert text[1].startswith("One")
        assert "three" not in text[1]
        assert text[2] == "done"
        status, _, _ = await chat.server.client.send("POST", f"/api/ai-sdk/v{version}/chat/trip/stop")
        assert status == 204


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_viewer_that_leaves_does_not_stop_the_run_and_another_page_resumes_its_stream(version: str) -> None:
    async with page(version, SLOW) as chat:
        await chat("send", text="Count", until="One")
        await chat("stop")  # only this client
        await chat.server.watched("trip", by=False)
        messages = await chat.stored()
        assert [message["role"] for message in messages] == ["user"]
        await chat.open("trip", messages)
        resumed = asyncio.create_task(chat("resume"))
        await chat.server.watched("trip", by=True)
        chat.server.model.proceed.set()
        reply = await resumed
        assert reply["status"] == "ready"
        assert answer(reply) == [("step-start",), ("text", SLOW, "done")]
        reply = await chat("resume")  # the run has ended
        assert (reply["status"], len(reply["messages"])) == ("ready", 2)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_server_that_stops_in_the_middle_of_an_answer_ends_in_an_error(version: str) -> None:
    async with page(version, SLOW) as chat:
        await chat("send", text="Count", until="One")
        chat.server.app.service.closing.set()
        reply = await chat("wait")
        assert (reply["status"], reply["error"]) == ("error", "The connection to the run was lost.")
        assert answer(reply)[1][2] == "done"
        chat.server.model.proceed.set()


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_can_be_generated_again_and_a_message_edited(version: str) -> None:
    async with page(version, "One.", "Two.", "Three.") as chat:
        first = await chat("send", text="Count")
        again = await chat("regenerate")
        assert [part[1] for part in answer(again)[1:]] == ["Two."]
        edited = await chat("edit", messageId=first["messages"][0]["id"], text="Go on")
        assert [part[1] for part in answer(edited)[1:]] == ["Three."]
        stored = await chat.stored()
        assert [message["parts"][-1]["text"] for message in stored] == ["Go on", "Three."]


async def test_a_chat_that_has_not_begun_has_no_messages() -> None:
    async with page("6", "Hello.") as chat:
        assert await chat.server.client.get("/ai-sdk/chat/trip/messages") == []


async def test_a_message_that_no_run_began_with_can_be_edited_and_answered_again() -> None:
    async with page("6", "New.", "Newer.") as chat:
        store = chat.server.app.service.store
        await store.create_session("trip")
        await post(store, "trip", user("One?"), assistant("1."), user("Two?"), assistant("2."), user("Three?"))
        imported = await chat.server.client.get("/ai-sdk/chat/trip/messages")
        await chat.open("trip", imported)
        edited = await chat("edit", messageId=imported[2]["id"], text="Too?")
        assert [message["parts"][-1]["text"] for message in edited["messages"]] == ["One?", "1.", "Too?", "New."]
        again = await chat("regenerate")
        stored = await chat.server.client.get("/ai-sdk/chat/trip/messages")
        assert [message["parts"][-1]["text"] for message in stored] == ["One?", "1.", "Too?", "Newer."]
        assert [message["id"] for message in stored] == [message["id"] for message in again["messages"]]


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_python_assembler_agrees_with_the_client(version: str) -> None:
    number: Version = {"5": 5, "6": 6, "7": 7}[version]  # type: ignore[assignment]
    streams = []
    for run in await some_runs():
        stream = UIMessageStream(number)
        chunks = [chunk for event in run.parts[0] for chunk in stream.chunks(event)]
        streams.append(chunks)
    async with npm_client("ai_sdk.mjs", version) as npm:
        for chunks, theirs in zip(streams, await npm("assemble", streams=streams), strict=True):
            ours = UIMessageAssembler(number)
            for chunk in chunks:
                ours.add(chunk)
            assert theirs["status"] == ("error" if ours.error is not None else "ready")
            assert theirs.get("error") == ours.error
            assert theirs.get("finishReason") == ours.finish_reason
            assembled = theirs.get("message") or {"parts": []}
            assert comparable_parts(assembled["parts"]) == comparable_parts(ours.parts)


@pytest.mark.parametrize("version", VERSIONS)
async def test_stored_messages_are_valid_for_the_client(version: str) -> None:
    number: Version = {"5": 5, "6": 6, "7": 7}[version]  # type: ignore[assignment]
    runs = await some_runs()
    cuts = [run.entries[:end] for run in runs for end in range(len(run.entries) + 1)]
    chats = [messages for entries in cuts if (messages := ui_messages(entries, number))]
    async with npm_client("ai_sdk.mjs", version) as npm:
        for messages, problem in zip(chats, await npm("validate", chats=chats), strict=True):
            assert problem is None, messages


def comparable_parts(parts: list[Any]) -> list[Any]:
    """The parts of a message without an empty step at the end: whether a client shows that depends on what follows."""
    compared = list(map(comparable, parts))
    while compared and compared[-1]["type"] == "step-start":
        compared.pop()
    return compared


def comparable(part: Any) -> Any:
    """A part without what is None or False, which JavaScript leaves out, and without what a client adds for itself."""
    own = ("rawInput", "input") if part.get("state") == "input-streaming" else ("rawInput",)
    fields = {key: value for key, value in part.items() if key not in (*own, "id") and value not in (None, False)}
    return as_numbers({**fields, "output": part.get("output"), "input": part.get("input")})


def as_numbers(value: Any) -> Any:
    """The value with integers as JavaScript has them: it writes large floats as integers, and with fewer digits."""
    match value:
        case dict():
            return {key: as_numbers(item) for key, item in value.items()}
        case list():
            return [as_numbers(item) for item in value]
        case bool():
            return value
        case int():
            return float(value)
        case _:
            return value


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_page_executes_a_deferred_tool(version: str) -> None:
    pick = ToolDefinition(name="pick", description="Pick.", parameter_schema={"type": "object"}, deferred=True)
    async with page(
        version, assistant("Choose.", ToolCall("c1", "pick", {})), "Red it is.", extra_tools=[pick]
    ) as chat:
        asking = await chat("send", text="Paint it")
        assert answer(asking)[-1] == ("pick", "input-available", None)
        reply = await chat("output", toolCallId="c1", output="red")
        assert reply["status"] == "ready"
        assert answer(reply)[2:] == [
            ("pick", "output-available", "red"),
            ("step-start",),
            ("text", "Red it is.", "done"),
        ]


@needs_browser
@in_session_loop
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_hook_in_react_streams_asks_and_survives_a_reload(version: str, tmp_path: Path) -> None:
    aliases = (f"--alias:react-ai=react-ai{version}", f"--alias:ai=ai{version}")
    bundle = tmp_path / "page.js"
    options = (
        "--bundle",
        "--format=esm",
        "--define:process.env.NODE_ENV='production'",
        *aliases,
        f"--outfile={bundle}",
    )
    build = await asyncio.create_subprocess_exec(
        node(), "node_modules/esbuild/bin/esbuild", "use_chat_page.mjs", *options, "--log-level=error", cwd=CLIENTS
    )
    assert await build.wait() == 0
    script = [
        assistant(f"Wait until the bank has opened. {HERE} Paying. ", ToolCall("c1", "transfer", {"amount": 5})),
        "Done.",
    ]
    async with scripted_server(*script) as server, windows() as (window,):
        url, page = server.client.url, window.page
        content = {"page.html": '<div id="page"></div><script type="module" src="page.js"></script>'}
        content["page.js"] = bundle.read_text(encoding="utf-8")
        for name, body in content.items():  # from the origin of the API, as an application would serve it
            kind = "text/html" if name.endswith("html") else "text/javascript"
            await page.route(f"{url}/{name}", partial(_fulfil, body, kind))
        fragment = urlencode(
            {"api": f"{url}/api/ai-sdk/v{version}/chat", "authorization": server.headers["authorization"]}
        )
        await page.goto(f"{url}/page.html#{fragment}")
        await page.click("#send")
        await window.sees("Wait until", "main")
        await page.locator("output", has_text="streaming").wait_for()
        server.model.proceed.set()
        await page.locator("#approve").wait_for()
        await page.reload()
        await window.sees("Paying.", "main")
        await page.click("#approve")
        await window.sees("Done.", "main")
        await page.locator("output", has_text="ready").wait_for()
        messages = json.loads(await page.locator("main script").text_content() or "")
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert ("transfer", "output-available", "moved 5") in answer({"messages": messages})
        assert window.problems == []


async def _fulfil(body: str, kind: str, route: Any) -> None:
    await route.fulfill(body=body, content_type=kind)


RESEARCH = assistant("Let me ask.", ToolCall("r1", "research", {"prompt": "Will it rain in Oslo?"}))
LOOK_UP = assistant(ToolCall("s1", "weather", {"city": "Oslo"}))


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_steps_of_a_sub_agent_are_preliminary_outputs_and_its_session_is_a_chat(version: str) -> None:
    tool, inner = researcher(LOOK_UP, f"{HERE} Yes.")
    async with page(version, RESEARCH, "It does.", extra_tools=[tool]) as chat:
        asking = await chat("send", text="Will it rain?", until="researcher: weather")
        call = next(part for part in asking["messages"][-1]["parts"] if part["type"] == "dynamic-tool")
        assert (call["state"], call["preliminary"]) == ("output-available", True)
        inner.proceed.set()
        reply = await chat("wait")
        assert reply["status"] == "ready"
        assert answer(reply) == [
            ("step-start",),
            ("text", "Let me ask.", "done"),
            ("research", "output-available", f"{HERE} Yes."),
            ("data-subagent",),
            ("step-start",),
            ("text", "It does.", "done"),
        ]
        stored = await chat.stored()
        assert list(map(comparable, stored[-1]["parts"])) == list(map(comparable, reply["messages"][-1]["parts"]))
        subagent = reply["messages"][-1]["parts"][3]["data"]
        assert (subagent["toolCallId"], subagent["name"]) == ("r1", "researcher")
        assert subagent["sessionId"].startswith("trip/")
        inside = await chat.server.client.get(f"/ai-sdk/v{version}/chat/{subagent['sessionId']}/messages")
        await chat.open(subagent["sessionId"], inside)
        assert answer(await chat("wait"))[1] == ("weather", "output-available", {"city": "Oslo", "sky": "rain"})


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_call_of_a_sub_agent_is_approved_in_the_outer_chat(version: str, approved: bool) -> None:
    tool, inner = researcher(assistant(ToolCall("s1", "transfer", {"amount": 5})), LOOK_UP, f"{HERE} Paid.")
    async with page(version, RESEARCH, "Done.", extra_tools=[tool]) as chat:
        asking = await chat("send", text="Pay")
        sending = asyncio.create_task(decide(chat, asked(asking)["id"], approved))
        await chat.server.watched("trip", by=True)
        inner.proceed.set()
        reply = await sending
        assert reply["status"] == "ready"
        assert ("research", "output-available", f"{HERE} Paid.") in answer(reply)
        assert answer(reply)[-1] == ("text", "Done.", "done")
        stored = await chat.stored()
        assert list(map(comparable, stored[-1]["parts"])) == list(map(comparable, reply["messages"][-1]["parts"]))
        results = [result for message in inner.calls[-1].messages for result in message.tool_results]
        assert [result.is_error for result in results] == [not approved, False]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_model_that_uses_an_id_twice_gets_the_output_of_the_right_call(version: str) -> None:
    pick = ToolDefinition(name="pick", description="Pick.", parameter_schema={"type": "object"}, deferred=True)
    calls = [assistant(ToolCall("c1", "pick", {"of": object_painted})) for object_painted in ("car", "roof")]
    async with page(version, *calls, "Done.", extra_tools=[pick]) as chat:
        reply = await chat("send", text="Paint it")
        for colour in ("red", "blue"):
            waiting = reply["messages"][-1]["parts"][-1]
            assert waiting["state"] == "input-available"
            reply = await chat("output", toolCallId=waiting["toolCallId"], output=colour)
            assert reply["status"] == "ready", reply["error"]
        assert [part[2] for part in answer(reply) if part[0] == "pick"] == ["red", "blue"]
        assert answer(reply)[-1] == ("text", "Done.", "done")


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_first_output_of_a_tool_of_the_page_counts(version: str) -> None:
    pick = ToolDefinition(name="pick", description="Pick.", parameter_schema={"type": "object"}, deferred=True)
    async with page(version, assistant(ToolCall("c1", "pick", {})), "Red it is.", extra_tools=[pick]) as chat:
        await chat("send", text="Paint it")
        await chat.server.client.post("/sessions/trip/requests", type="result", toolCallId="c1", content="red")
        reply = await chat("output", toolCallId="c1", output="blue")  # too late
        assert reply["status"] == "ready"
        assert ("pick", "output-available", "red") in answer(reply)
        assert answer(reply)[-1] == ("text", "Red it is.", "done")


@pytest.mark.parametrize("version", ["6", "7"])
async def test_two_calls_of_a_sub_agent_are_approved_one_after_the_other(version: str) -> None:
    pay = [assistant(ToolCall(id, "transfer", {"amount": 5})) for id in ("s1", "s2")]
    tool, inner = researcher(*pay, "Paid.")
    async with page(version, RESEARCH, "Done.", extra_tools=[tool]) as chat:
        first = await chat("send", text="Pay")
        second = await chat("approve", id=asked(first)["id"], approved=True)
        reply = await chat("approve", id=asked(second)["id"], approved=False)  # the client sends both
        assert (reply["status"], answer(reply)[-1]) == ("ready", ("text", "Done.", "done"))
        results = [result for message in inner.calls[-1].messages for result in message.tool_results]
        assert [result.is_error for result in results] == [False, True]


async def test_a_decision_about_a_call_that_was_never_asked_for_is_refused() -> None:
    async with page("5", assistant(ToolCall("c1", "transfer", {"amount": 5})), "Done.") as chat:
        id = asked(await chat("send", text="Pay"))["id"]
        digest, _, _ = id.partition(" ")
        for forged in (f"{digest} c2", "c1", "0 c1"):
            reply = await chat("decide", approvals=[{"id": given, "approved": True} for given in (id, forged)])
            assert "has never required approval" in reply["error"]
        assert (await chat.server.client.get("/sessions/trip"))["state"] == "waiting"  # c1 is still open
        reply = await chat("send", text="Well?", body={"approvals": [{"id": id, "approved": True}]})
        assert "without a new message" in reply["error"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_yes_does_not_apply_to_a_file_that_has_changed_since_it_was_shown(version: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("mine\n")
    write = assistant(ToolCall("c1", "write_file", {"path": "a.txt", "text": "theirs\n"}))
    async with page(version, write, "Done.", runtime=LocalRuntime(tmp_path)) as chat:
        first = asked(await chat("send", text="Write"))
        assert ["-", 1, "mine"] in first["data"]["preview"]["diff"]
        file.write_text("saved meanwhile\n")
        reply = await decide(chat, first["id"], approved=True)
        second = asked(reply)
        assert (reply["status"], file.read_text()) == ("ready", "saved meanwhile\n")
        assert second["id"] != first["id"]
        assert ["-", 1, "saved meanwhile"] in second["data"]["preview"]["diff"]
        stale = {"id": "trip", "messages": reply["messages"], "approvals": [{"id": first["id"], "approved": True}]}
        await chat.server.client.send(
            "POST", f"/api/ai-sdk/v{version}/chat", json=stale
        )  # sent again, as after an error
        assert file.read_text() == "saved meanwhile\n"
        assert (await chat.server.client.get("/sessions/trip"))["state"] == "waiting"
        done = await decide(chat, second["id"], approved=True)
        assert (answer(done)[-1], file.read_text()) == (("text", "Done.", "done"), "theirs\n")
