"""The client of AG-UI from npm, with its verifier on, against the real server."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bartack import ErrorCode, Failed, Start, TextDelta, Thinking, ToolCall, ToolCallStart, assistant
from bartack.protocols.ag_ui import AgUiStream
from bartack.protocols.ag_ui_messages import ag_ui_messages
from bartack.store.requests import note
from bartack.tools import LocalRuntime
from tests.clients.ui.npm_client import NpmClient, npm_client
from tests.clients.ui.scripted import HERE, Server, researcher, scripted_server, some_runs
from tests.protocols.ag_ui_client import AgUiClient
from tests.web.agents import GATE, Gate
from tests.web.serving import ServerProcess, server_process

SLOW = f"One, two {HERE} three."
PICK = {"name": "pick_colour", "description": "Ask the user for a colour.", "parameters": {"type": "object"}}


class Page:
    """A page with a thread."""

    def __init__(self, npm: NpmClient, server: Server) -> None:
        self.npm, self.server = npm, server

    async def open(self, path: str = "/api/ag-ui", *, threadId: str = "trip", **fields: Any) -> None:  # noqa: N803
        url = f"{self.server.client.url}{path}"
        await self.npm("open", url=url, threadId=threadId, headers=self.server.headers, **fields)

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
        reply_asking = await thread("run", text="Pay")
        assert reply_asking["outcome"] == "interrupt"
        (interrupt,) = reply_asking["interrupts"]
        assert interrupt["toolCallId"] == "c1"
        assert "amount" in str(interrupt["responseSchema"])
        await thread.open("/api/ag-ui/connect")
        opened = await thread("run")  # another page has the same question
        assert opened["interrupts"] == reply_asking["interrupts"]
        await thread.open(messages=opened["messages"])
        reply = await thread("run", resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}])
        assert (reply["outcome"], reply["interrupts"]) == ("success", [])
        assert [message[0] for message in brief(reply)] == ["user", "assistant", "tool", "assistant"]
        assert result in brief(reply)[2][1]


async def test_tools_of_the_page_are_executed_by_it() -> None:
    call = ToolCall("c1", "pick_colour", {"of": "car"})
    async with page(assistant("Choose.", call), "Red it is.") as thread:
        reply_asking = await thread("run", text="Paint it", tools=[PICK])
        assert (reply_asking["outcome"], reply_asking["pending"]) == ("success", ["c1"])
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
        await thread.open("/api/ag-ui/connect")
        assert (await thread("run"))["messages"] == reply["messages"]


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
        await thread.open("/api/ag-ui/connect")
        assert (await thread("run"))["state"] == {"theme": "light"}


async def test_thinking_between_texts_and_calls_has_the_same_place_when_the_thread_is_opened_again() -> None:
    calls = [ToolCall(f"c{number}", "weather", {"city": "Paris"}) for number in (1, 2)]
    answer = assistant(Thinking("First."), "One.", Thinking("Then."), *calls, Thinking("Last."))
    async with page(answer, assistant(Thinking("So."), "It rains.")) as thread:
        reply = await thread("run", text="Will it rain?")
        assert [message[0] for message in brief(reply)] == [
            "user",
            "reasoning",
            "assistant",
            "tool",
            "tool",
            "reasoning",
            "reasoning",
            "reasoning",
            "assistant",
        ]
        await thread.open("/api/ag-ui/connect")
        assert (await thread("run"))["messages"] == reply["messages"]


async def test_a_thread_that_has_not_begun_is_empty() -> None:
    async with page("Hello.") as thread:
        await thread.open("/api/ag-ui/connect")
        reply = await thread("run")
        assert (reply.get("failure"), reply["outcome"], reply["messages"]) == (None, "success", [])


async def test_the_rules_in_python_agree_with_the_client() -> None:
    streams = []
    for run in await some_runs():
        messages = ag_ui_messages(run.entries[:3])
        stream = AgUiStream("t", "r", messages=messages)
        events = [frame for event in run.parts[0] for frame in stream.events(event)]
        streams.append({"messages": messages, "events": events})
        streams.append({"messages": messages, "events": events[1:]})  # both refuse it
        streams.append(
            {"messages": messages, "events": [event for event in events if event["type"] != "TEXT_MESSAGE_END"]}
        )
    async with npm_client("ag_ui.mjs") as npm:
        for ours_sent, theirs in zip(streams, await npm("assemble", streams=streams), strict=True):
            ours = AgUiClient(ours_sent["messages"])
            refused = None
            try:
                for event in ours_sent["events"]:
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


RESEARCH = assistant("Let me ask.", ToolCall("r1", "research", {"prompt": "Will it rain in Oslo?"}))
LOOK_UP = assistant(ToolCall("s1", "weather", {"city": "Oslo"}))


async def test_a_sub_agent_is_announced_its_steps_are_events_of_its_own_and_its_session_is_a_thread() -> None:
    tool, inner = researcher(LOOK_UP, f"{HERE} Yes.")
    async with page(RESEARCH, "It does.", extra_tools=[tool]) as thread:
        await thread("run", text="Will it rain?", until="researcher: weather")
        inner.proceed.set()
        reply = await thread("wait")
        assert ("failure" in reply, reply["outcome"]) == (False, "success")
        assert brief(reply) == [
            ("user", "Will it rain?"),
            ("assistant", "Let me ask.", "research"),
            ("tool", f"{HERE} Yes."),
            ("assistant", "It does."),
        ]
        started, ended = reply["subagents"]
        assert (started["name"], started["parentToolCallId"]) == ("researcher", "r1")
        assert (ended["type"], ended["outcome"]) == ("SUBAGENT_FINISHED", {"type": "success"})
        assert ended["subagentRunId"] == started["subagentRunId"]
        await thread.open("/api/ag-ui/connect", threadId=started["subagentRunId"])
        inside = await thread("run")
        assert ("tool", '{"city":"Oslo","sky":"rain"}') in brief(inside)


async def test_a_page_that_joins_sees_the_sub_agent_that_works() -> None:
    tool, inner = researcher(f"{HERE} Look.", LOOK_UP, "Yes.")
    async with page(RESEARCH, "It does.", extra_tools=[tool]) as thread:
        await thread("run", text="Will it rain?", until="researcher has started")
        await thread("leave")
        await thread.open("/api/ag-ui/connect")
        joined = asyncio.create_task(thread("run"))
        await thread.server.watched("trip", by=True)
        inner.proceed.set()
        reply = await joined
        assert ("failure" in reply, reply["outcome"]) == (False, "success")
        assert brief(reply)[-1] == ("assistant", "It does.")


@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_of_a_sub_agent_is_an_interrupt_of_the_outer_run(approved: bool) -> None:
    tool, inner = researcher(assistant(ToolCall("s1", "transfer", {"amount": 5})), "Paid.")
    async with page(RESEARCH, "Done.", extra_tools=[tool]) as thread:
        reply_asking = await thread("run", text="Pay")
        started, ended = reply_asking["subagents"]
        (interrupt,) = reply_asking["interrupts"]
        assert interrupt["subagentRunId"] == started["subagentRunId"]
        assert ended["outcome"] == {"type": "suspended", "interruptIds": [interrupt["id"]]}
        answers = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": approved}}]
        reply = await thread("run", resume=answers)
        assert ("failure" in reply, reply["outcome"]) == (False, "success")
        assert [subagent["subagentRunId"] for subagent in reply["subagents"]] == [started["subagentRunId"]] * 2
        assert brief(reply)[-1] == ("assistant", "Done.")
        results = [result for message in inner.calls[-1].messages for result in message.tool_results]
        assert [result.is_error for result in results] == [not approved]


async def test_a_sub_agent_that_fails_is_an_error_of_its_own() -> None:
    tool, _ = researcher([Start("m", "r"), Failed(ErrorCode.REFUSED, "No.")])
    async with page(RESEARCH, "A pity.", extra_tools=[tool]) as thread:
        reply = await thread("run", text="Will it rain?")
        assert ("failure" in reply, reply["outcome"]) == (False, "success")
        assert reply["subagents"][-1]["type"] == "SUBAGENT_ERROR"
        assert "No." in reply["subagents"][-1]["message"]
        assert brief(reply)[-1] == ("assistant", "A pity.")


FAILURE = [Start("m", "r"), TextDelta("Pay"), Failed(ErrorCode.REFUSED, "No.")]


async def test_after_an_error_old_answers_are_sent_again_and_the_new_message_is_answered() -> None:
    async with page(assistant(ToolCall("c1", "transfer", {"amount": 5})), FAILURE, "Hello.") as thread:
        (asked,) = (await thread("run", text="Pay"))["interrupts"]
        yes = [{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}]
        failed = await thread("run", resume=yes)
        assert failed["runError"] == "No."
        assert failed["interrupts"] == [asked]  # the client keeps them, and wants them covered
        refused = await thread("run", text="Are you there?")
        assert asked["id"] in refused["failure"]
        reply = await thread("run", resume=yes)
        assert (reply.get("failure"), reply["outcome"], reply["interrupts"]) == (None, "success", [])
        assert brief(reply)[-2:] == [("user", "Are you there?"), ("assistant", "Hello.")]
        stored = await thread.server.client.get("/sessions/trip/entries")
        assert [entry["kind"] for entry in stored["items"]].count("approval_decided") == 1


async def test_a_message_that_comes_with_the_answers_joins_the_run() -> None:
    async with page(assistant(ToolCall("c1", "transfer", {"amount": 5})), "Then not.") as thread:
        (asked,) = (await thread("run", text="Pay"))["interrupts"]
        reply = await thread("run", text="Wait!", resume=[{"interruptId": asked["id"], "status": "cancelled"}])
        assert (reply.get("failure"), reply["outcome"]) == (None, "success")
        assert [message[0] for message in brief(reply)] == ["user", "assistant", "tool", "user", "assistant"]
        last = thread.server.model.calls[-1].messages
        assert [message.text for message in last if message.role == "user"] == ["Pay", "Wait!"]
        await thread.open("/api/ag-ui/connect")
        assert brief(await thread("run")) == brief(reply)


async def test_a_message_instead_of_an_answer_ends_the_run_that_waits_and_is_answered() -> None:
    async with page(assistant(ToolCall("c1", "transfer", {"amount": 5})), "Then not.") as thread:
        reply_asking = await thread("run", text="Pay")
        await thread.open(messages=reply_asking["messages"])  # a page that does not know of the question
        reply = await thread("run", text="Never mind")
        assert (reply.get("failure"), reply["outcome"]) == (None, "success")
        assert brief(reply)[-1] == ("assistant", "Then not.")


async def test_an_answer_to_a_question_that_was_never_asked_is_refused() -> None:
    async with page(assistant(ToolCall("c1", "transfer", {"amount": 5})), "Done.") as thread:
        (asked,) = (await thread("run", text="Pay"))["interrupts"]
        for forged in ("c2", "c1", f"{'0' * 64} c1"):
            ids = (asked["id"], forged)
            resume = [{"interruptId": id, "status": "resolved", "payload": {"approved": True}} for id in ids]
            reply = await thread("run", resume=resume)
            assert "404" in reply["failure"]
        assert (await thread.server.client.get("/sessions/trip"))["state"] == "waiting"  # c1 is still open


async def test_the_first_output_of_a_tool_of_the_page_counts() -> None:
    async with page(assistant(ToolCall("c1", "pick_colour", {})), f"{HERE} Red it is.", "Hello.") as thread:
        await thread("run", text="Paint it", tools=[PICK])
        await thread.server.client.post("/sessions/trip/requests", type="result", toolCallId="c1", content="red")
        await thread("output", toolCallId="c1", content="blue")  # too late
        thread.server.model.proceed.set()
        reply = await thread("run", tools=[PICK])
        assert (reply.get("failure"), reply["outcome"]) == (None, "success")
        assert brief(reply)[2:] == [("tool", "red"), ("assistant", f"{HERE} Red it is.")]
        await thread("output", toolCallId="c1", content="green")
        again = await thread("run", tools=[PICK])
        assert "failure" not in again
        last = thread.server.model.calls[-1].messages
        assert [result.content for message in last for result in message.tool_results] == ["red"]


async def test_an_output_for_a_call_that_waits_for_none_is_refused() -> None:
    async with page("Hello.") as thread:
        await thread("run", text="Hi")
        await thread("output", toolCallId="c9", content="forged")
        assert "409" in (await thread("run"))["failure"]


async def test_a_model_that_uses_an_id_twice_gets_the_output_of_the_right_call() -> None:
    calls = [assistant(ToolCall("c1", "pick_colour", {"of": object_painted})) for object_painted in ("car", "roof")]
    async with page(*calls, "Done.") as thread:
        reply = await thread("run", text="Paint it", tools=[PICK])
        for colour in ("red", "blue"):
            (pending,) = reply["pending"]
            await thread("output", toolCallId=pending, content=colour)
            reply = await thread("run", tools=[PICK])
            assert "failure" not in reply
        assert reply["outcome"] == "success"
        assert [message[1] for message in brief(reply) if message[0] == "tool"] == ["red", "blue"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_that_stops_in_the_middle_of_an_answer_is_an_error_and_the_next_one_has_all_of_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    store, gate = f"sqlite:{tmp_path / 'sessions.db'}", Gate(tmp_path / "gate")
    async with npm_client("ag_ui.mjs") as npm:

        async def open_at(server: ServerProcess, path: str) -> None:
            headers = {"authorization": f"Bearer {server.token}"}
            await npm("open", url=f"{server.url}{path}", threadId="trip", headers=headers)

        async with server_process(store, gate, drain_s=0.0) as first:
            await open_at(first, "/api/ag-ui")
            await npm("run", text="slow walk", until="Slowly")
            first.kill(number)
            reply = await npm("wait")
            if number == signal.SIGTERM:
                assert reply["runError"] == "The connection to the run was lost."
            else:
                assert "terminated" in reply["failure"]
            await first.ended()
        gate.open()
        async with server_process(store, gate) as second:
            await open_at(second, "/api/ag-ui/connect")
            reply = await npm("run")
            assert ("failure" in reply, reply["outcome"]) == (False, "success")
            assert "MESSAGES_SNAPSHOT" in reply["types"]
            assert brief(reply)[-1] == ("assistant", f"Slowly: walk {GATE} and the rest of the answer.")


async def test_the_page_of_a_tool_answers_to_the_next_server(tmp_path: Path) -> None:
    store, gate = f"sqlite:{tmp_path / 'sessions.db'}", Gate(tmp_path / "gate")
    async with npm_client("ag_ui.mjs") as npm:
        last_reply: Any = {"messages": []}
        for command in ({"text": "call pick_colour"}, {}):
            async with server_process(store, gate) as server:
                headers = {"authorization": f"Bearer {server.token}"}
                url = f"{server.url}/api/ag-ui"
                await npm("open", url=url, threadId="trip", headers=headers, messages=last_reply["messages"])
                if last_reply["messages"]:
                    await npm("output", toolCallId=last_reply["pending"][0], content="red")
                last_reply = await npm("run", tools=[PICK], **command)
                assert ("failure" in last_reply, last_reply["outcome"]) == (False, "success")
                server.kill(signal.SIGKILL)
        assert brief(last_reply)[-2:] == [("tool", "red"), ("assistant", "The tool returned: red")]


async def test_a_yes_does_not_apply_to_a_file_that_has_changed_since_it_was_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("mine\n")
    write = assistant(ToolCall("c1", "write_file", {"path": "a.txt", "text": "theirs\n"}))

    def yes(interrupt: Any) -> list[Any]:
        return [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]

    async with page(write, "Done.", runtime=LocalRuntime(tmp_path)) as thread:
        (first,) = (await thread("run", text="Write"))["interrupts"]
        assert ["-", 1, "mine"] in first["metadata"]["preview"]["diff"]
        assert '["-",1,"mine"]' in first["message"]
        file.write_text("saved meanwhile\n")
        reply = await thread("run", resume=yes(first))
        assert (reply["outcome"], file.read_text()) == ("interrupt", "saved meanwhile\n")
        (second,) = reply["interrupts"]
        assert second["id"] != first["id"]
        assert ["-", 1, "saved meanwhile"] in second["metadata"]["preview"]["diff"]
        stale = {"threadId": "trip", "runId": "again", "messages": reply["messages"], "resume": yes(first)}
        await thread.server.client.send("POST", "/api/ag-ui", json=stale)  # sent again, as after an error
        assert file.read_text() == "saved meanwhile\n"
        assert (await thread.server.client.get("/sessions/trip"))["state"] == "waiting"
        done = await thread("run", resume=yes(second))
        assert (done["outcome"], file.read_text()) == ("success", "theirs\n")


async def test_the_client_of_copilotkit_accepts_how_a_stopped_run_ends() -> None:
    async with scripted_server(SLOW) as server:
        address, authorization = f"{server.client.url}/api", server.headers["authorization"]
        stop = f"{address}/sessions/trip/requests"
        async with npm_client("copilotkit.mjs", f"{address}/ag-ui", authorization, "Count", stop) as npm:
            reply = await npm.receive()
    assert reply["errors"] == []
    assert reply["last"] == "RUN_FINISHED"
    assert [message["role"] for message in reply["messages"]] == ["user", "assistant"]


async def test_the_client_of_copilotkit_shows_tools_and_runs_those_of_the_page() -> None:
    script = [
        assistant("Look. ", ToolCall("c1", "weather", {"city": "Oslo"})),
        assistant(ToolCall("c2", "pick_colour", {})),
        "Red it is.",
        "It is still red.",
    ]
    async with scripted_server(*script) as server:
        url = f"{server.client.url}/api/ag-ui"
        async with npm_client("copilotkit.mjs", url, server.headers["authorization"]) as npm:
            reply = await npm.receive()
    assert reply["errors"] == []
    assert brief(reply) == [
        ("user", "Paint it."),
        ("assistant", "Look. ", "weather"),
        ("tool", '{"city":"Oslo","sky":"rain"}'),
        ("assistant", "", "pick_colour"),
        ("tool", "red"),
        ("assistant", "Red it is."),
        ("user", "And now?"),
        ("assistant", "It is still red."),
    ]
