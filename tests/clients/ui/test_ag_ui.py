"""The client of AG-UI from npm, with its verifier on, against the real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bartack import ErrorCode, Failed, Start, TextDelta, Thinking, ToolCall, ToolCallStart, assistant
from bartack.protocols.ag_ui import AgUiStream
from bartack.protocols.ag_ui_messages import ag_ui_messages
from bartack.store.requests import note
from tests.clients.ui.npm_client import NpmClient, npm_client
from tests.clients.ui.scripted import HERE, Server, scripted_server, some_runs
from tests.protocols.ag_ui_client import AgUiClient

SLOW = f"One, two {HERE} three."
PICK = {"name": "pick_colour", "description": "Ask the user for a colour.", "parameters": {"type": "object"}}


class Page:
    """A page with a thread."""

    def __init__(self, npm: NpmClient, server: Server) -> None:
        self.npm, self.server = npm, server

    async def open(self, path: str = "/api/ag-ui", **fields: Any) -> None:
        url = f"{self.server.client.url}{path}"
        await self.npm("open", url=url, threadId="trip", headers=self.server.headers, **fields)

    async def __call__(self, do: str, **arguments: Any) -> Any:
        return await self.npm(do, **arguments)


@asynccontextmanager
async def page(*script: Any, **options: Any) -> AsyncIterator[Page]:
    async with scripted_server(*script, **options) as server, npm_client("ag_ui.mjs") as npm:
        opened = Page(npm, server)
        await opened.open()
        yield opened


def brief(reply: Any) -> list[tuple[Any, ...]]:
    return [
        (
            message["role"],
            message.get("content", ""),
            *(call["function"]["name"] for call in message.get("toolCalls", ())),
        )
        for message in reply["messages"]
    ]


async def test_text_thinking_and_tools_arrive() -> None:
    call = ToolCall("c1", "weather", {"city": "Paris"})
    async with page(assistant(Thinking("Let me see."), "Looking.", call), "It rains.") as thread:
        reply = await thread("run", text="Will it rain?")
        assert "failure" not in reply
        assert (reply["outcome"], reply["types"][0], reply["types"][-1]) == ("success", "RUN_STARTED", "RUN_FINISHED")
        assert brief(reply) == [
            ("user", "Will it rain?"),
            ("reasoning", "Let me see."),
            ("assistant", "Looking.", "weather"),
            ("tool", '{"city":"Paris","sky":"rain"}'),
            ("assistant", "It rains."),
        ]
        arguments = reply["messages"][2]["toolCalls"][0]["function"]["arguments"]
        assert json.loads(arguments) == {"city": "Paris"}
        await thread.open("/api/ag-ui/connect")
        again = await thread("run")
        assert again["messages"] == reply["messages"]
        assert again["outcome"] == "success"


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ({"approved": True}, "moved 5"),
        ({"approved": True, "arguments": {"amount": 3}}, "moved 3"),
        ({"approved": False, "reason": "Too much."}, "Too much."),
    ],
)
async def test_an_approval_is_an_interrupt(payload: Any, result: str) -> None:
    async with page(assistant("Wait.", ToolCall("c1", "transfer", {"amount": 5})), "Done.") as thread:
        asked = await thread("run", text="Pay")
        assert asked["outcome"] == "interrupt"
        (interrupt,) = asked["interrupts"]
        assert (interrupt["id"], interrupt["toolCallId"]) == ("c1", "c1")
        assert "amount" in str(interrupt["responseSchema"])
        await thread.open("/api/ag-ui/connect")
        opened = await thread("run")  # another page has the same question
        assert opened["interrupts"] == asked["interrupts"]
        await thread.open(messages=opened["messages"])
        reply = await thread("run", resume=[{"interruptId": "c1", "status": "resolved", "payload": payload}])
        assert (reply["outcome"], reply["interrupts"]) == ("success", [])
        assert [one[0] for one in brief(reply)] == ["user", "assistant", "tool", "assistant"]
        assert result in brief(reply)[2][1]


async def test_tools_of_the_page_are_executed_by_it() -> None:
    call = ToolCall("c1", "pick_colour", {"of": "car"})
    async with page(assistant("Choose.", call), "Red it is.") as thread:
        asked = await thread("run", text="Paint it", tools=[PICK])
        assert (asked["outcome"], asked["pending"]) == ("success", ["c1"])
        await thread("output", toolCallId="c1", content="red")
        reply = await thread("run", tools=[PICK])
        assert "failure" not in reply
        assert brief(reply)[1:] == [
            ("assistant", "Choose.", "pick_colour"),
            ("tool", "red"),
            ("assistant", "Red it is."),
        ]
        last = thread.server.model.calls[-1]
        assert [result.content for message in last.messages for result in message.tool_results] == ["red"]


async def test_a_retry_in_the_middle_of_an_answer_leaves_the_final_one() -> None:
    busy = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
    cut = [Start("m", "r"), TextDelta("It will sn"), ToolCallStart("c1", "weather"), TextDelta(HERE), busy]
    async with page(cut, "It rains.") as thread:
        await thread("run", text="Will it rain?", until="It will sn")
        thread.server.model.proceed.set()
        reply = await thread("wait")
        assert brief(reply) == [("user", "Will it rain?"), ("assistant", "It rains.")]
        assert (reply["outcome"], "failure" in reply) == ("success", False)


async def test_a_failure_is_a_run_error() -> None:
    async with page([Start("m", "r"), TextDelta("It will"), Failed(ErrorCode.REFUSED, "No.")]) as thread:
        reply = await thread("run", text="Will it rain?")
        assert reply["runError"] == "No."
        assert reply["types"][-1] == "RUN_ERROR"
        assert brief(reply)[-1] == ("assistant", "It will")


async def test_a_page_that_leaves_does_not_stop_the_run_and_another_one_joins_it() -> None:
    async with page(SLOW) as thread:
        await thread("run", text="Count", until="One")
        await thread("leave")
        await thread.server.watched("trip", by=False)
        await thread.open("/api/ag-ui/connect")
        joined = asyncio.create_task(thread("run"))
        await thread.server.watched("trip", by=True)
        thread.server.model.proceed.set()
        reply = await joined
        assert "failure" not in reply
        assert brief(reply) == [("user", "Count"), ("assistant", SLOW)]


async def test_an_aborted_run_is_cancelled() -> None:
    async with page(SLOW) as thread:
        await thread("run", text="Count", until="One")
        await thread.server.client.post("/sessions/trip/requests", type="abort")
        reply = await thread("wait")
        assert (reply["outcome"], "failure" in reply) == ("cancelled", False)
        assert "three" not in brief(reply)[-1][1]


async def test_the_state_is_shared_in_both_directions() -> None:
    async with page("Hello.", SLOW) as thread:
        await thread.open(state={"theme": "dark"})
        reply = await thread("run", text="Hi")
        assert reply["state"] == {"theme": "dark"}
        assert '{"theme":"dark"}' in str(thread.server.model.calls[0].messages)
        await thread("run", text="Count", until="One")
        store = thread.server.app.service.store
        await note(store, "trip", "state", {"theme": "light"})
        await note(store, "trip", "weather", {"sky": "rain"})
        thread.server.model.proceed.set()
        reply = await thread("wait")
        assert reply["state"] == {"theme": "light"}
        assert ["weather", {"sky": "rain"}] in reply["custom"]


async def test_the_rules_in_python_agree_with_the_client() -> None:
    streams = []
    for run in await some_runs():
        messages = ag_ui_messages(run.entries[:3])
        stream = AgUiStream("t", "r", messages=messages)
        events = [made for event in run.parts[0] for made in stream.events(event)]
        streams.append({"messages": messages, "events": events})
        streams.append({"messages": messages, "events": events[1:]})  # which both refuse
        streams.append({"messages": messages, "events": [one for one in events if one["type"] != "TEXT_MESSAGE_END"]})
    async with npm_client("ag_ui.mjs") as npm:
        for sent, theirs in zip(streams, await npm("assemble", streams=streams), strict=True):
            ours = AgUiClient(sent["messages"])
            refused = None
            try:
                for event in sent["events"]:
                    ours.add(event)
            except Exception as error:  # noqa: BLE001 - compared with theirs
                refused = error
            assert (refused is not None) == ("failure" in theirs and theirs.get("runError") is None), theirs
            if refused is None:
                assert theirs.get("runError") == ours.error
                assert theirs.get("outcome") == (ours.outcome or {}).get("type")
                assert list(map(plain, theirs["messages"])) == list(map(plain, ours.messages))


def plain(message: Any) -> Any:
    return {**message, "content": message.get("content") or "", "toolCalls": message.get("toolCalls") or []}
