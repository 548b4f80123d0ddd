"""The SDK of the Agent Client Protocol from npm as the editor, and the agent as its process."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bartack.app.permissions import Rule
from bartack.tools.shell import shell_words
from lab.repository import ROOT
from tests.clients.ui.npm_client import LIMIT_S, NpmClient, npm_client
from tests.clients.ui.scripted import HERE
from tests.tools.mcp.http_server import serving
from tests.tools.mcp.kit import is_alive

AGENT = Path(__file__).with_name("editor_agent.py")
OFFERS = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


class Editor:
    """An editor with one project."""

    def __init__(self, npm: NpmClient, project: Path) -> None:
        self.npm, self.project = npm, project
        self.session = ""

    async def call(self, method: str, **params: Any) -> Any:
        reply = await self.npm("call", method=method, params=params)
        assert "error" not in reply, reply
        return reply["result"]

    async def open(self, **offers: Any) -> Any:
        initialized = await self.call("initialize", protocolVersion=1, clientCapabilities=offers)
        self.session = await self.new()
        return initialized

    async def new(self, *servers: Any) -> str:
        """The id of a new session with these MCP servers."""
        created = await self.call("session/new", cwd=str(self.project), mcpServers=list(servers))
        return str(created["sessionId"])

    async def start(self, text: str) -> None:
        """Begin a prompt whose reply comes later."""
        params = {"sessionId": self.session, "prompt": [{"type": "text", "text": text}]}
        await self.npm("start", method="session/prompt", params=params)

    async def cancel(self) -> None:
        await self.npm("notify", method="session/cancel", params={"sessionId": self.session})

    async def loaded(self) -> Any:
        """The updates that show the session."""
        await self.npm("seen")
        await self.call("session/load", sessionId=self.session, cwd=str(self.project), mcpServers=[])
        return (await self.npm("seen"))["updates"]

    async def prompt(self, text: str) -> tuple[Any, Any]:
        """The reply, and what the editor saw."""
        reply = await self.call("session/prompt", sessionId=self.session, prompt=[{"type": "text", "text": text}])
        return reply, await self.npm("seen")


@asynccontextmanager
async def editor(tmp_path: Path, *script: Any) -> AsyncIterator[Editor]:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    find = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    program = f"{find}; import runpy; runpy.run_path({str(AGENT)!r}, run_name='__main__')"
    async with npm_client("editor.mjs", sys.executable, "-c", program, store, json.dumps(script)) as npm:
        yield Editor(npm, project)


def texts(updates: Any, kind: str = "agent_message_chunk") -> str:
    return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)


def states(updates: Any) -> list[str]:
    return [update["status"] for update in updates if update.get("toolCallId") and "status" in update]


async def test_an_answer_arrives_and_the_session_can_be_loaded_listed_and_forked(tmp_path: Path) -> None:
    async with editor(tmp_path, {"call": ["c1", "shout", {}]}, "It rains.", "Still.") as client:
        initialized = await client.open()
        assert initialized["agentCapabilities"]["loadSession"] is True
        reply, record = await client.prompt("Will it rain?")
        assert reply["stopReason"] == "end_turn"
        assert texts(record["updates"]) == "It rains."
        assert texts(record["updates"], "agent_thought_chunk") == "Hm."
        assert states(record["updates"]) == ["pending", "in_progress", "completed"]

        listed = await client.call("session/list", cwd=str(client.project))
        assert [(session["sessionId"], session["title"]) for session in listed["sessions"]] == [
            (client.session, "Will it rain?")
        ]
        assert (await client.call("session/list", cwd="/elsewhere"))["sessions"] == []

        await client.call("session/load", sessionId=client.session, cwd=str(client.project), mcpServers=[])
        again = (await client.npm("seen"))["updates"]
        assert texts(again, "user_message_chunk") == "Will it rain?"
        assert texts(again) == "It rains."
        assert states(again)[-1] == "completed"

        forked = await client.call("session/fork", sessionId=client.session, cwd=str(client.project))
        original, client.session = client.session, forked["sessionId"]
        assert client.session != original
        await client.call("session/load", sessionId=client.session, cwd=str(client.project), mcpServers=[])
        assert texts((await client.npm("seen"))["updates"]) == "It rains."
        _, record = await client.prompt("And now?")
        assert texts(record["updates"]) == "Still."
        await client.call("session/close", sessionId=client.session)


@pytest.mark.parametrize(("choice", "status"), [("allow", "completed"), ("reject", "failed"), ("cancel", "failed")])
async def test_changes_need_permission(tmp_path: Path, choice: str, status: str) -> None:
    async with editor(tmp_path, {"call": ["c1", "write_file", {"path": "a.txt", "text": "new"}]}, "Done.") as client:
        await client.open()
        await client.npm("set", answer=choice)
        _, record = await client.prompt("Write it")
        (question,) = record["questions"]
        assert question["toolCall"]["title"] == "write_file: a.txt"
        path = str(client.project / "a.txt")
        assert question["toolCall"]["content"] == [{"type": "diff", "path": path, "newText": "new"}]  # a new file
        kinds = [option["kind"] for option in question["options"]]
        assert kinds == [
            "allow_once",
            "allow_always",
            "allow_always",
            "reject_once",
        ]  # this file, or all of the project
        assert states(record["updates"])[-1] == status
        assert (client.project / "a.txt").exists() == (choice == "allow")


async def test_files_are_read_and_written_through_the_editor(tmp_path: Path) -> None:
    script = [
        {"call": ["c1", "read_file", {"path": "a.txt"}]},
        {"call": ["c2", "edit_file", {"path": "a.txt", "old": "unsaved", "new": "edited"}]},
        {"call": ["c3", "write_file", {"path": "sub/b.txt", "text": "new"}]},
        {"call": ["c4", "write_file", {"path": "link.txt", "text": "escaped"}]},
        {"call": ["c5", "write_file", {"path": "../c.txt", "text": "escaped"}]},
        "Done.",
    ]
    async with editor(tmp_path, *script) as client:
        path, link = client.project / "a.txt", client.project / "link.txt"
        path.write_text("saved")
        link.symlink_to(tmp_path / "outside.txt")
        await client.open(**OFFERS)
        await client.npm("set", files={str(path): "unsaved text"})
        reply, record = await client.prompt("Go")
        assert reply["stopReason"] == "end_turn"
        results = [update for update in record["updates"] if update.get("status") in ("completed", "failed")]
        assert [update["status"] for update in results] == ["completed", "completed", "completed", "failed", "failed"]
        assert results[0]["rawOutput"] == "unsaved text"
        assert record["written"] == {str(path): "edited text", str(client.project / "sub" / "b.txt"): "new"}
        assert path.read_text() == "saved"  # the editor saves it
        # Nobody is asked about a call that cannot succeed.
        edit, write = [question["toolCall"].get("content") for question in record["questions"]]
        assert edit == [{"type": "diff", "path": str(path), "oldText": "unsaved text", "newText": "edited text"}]
        assert write == [{"type": "diff", "path": str(client.project / "sub" / "b.txt"), "newText": "new"}]


async def test_commands_run_in_a_terminal_of_the_editor(tmp_path: Path) -> None:
    script = [
        {"call": ["c1", "run_command", {"command": "echo hello; pwd"}]},
        {"call": ["c2", "run_command", {"command": "exit 3"}]},
        {"call": ["c3", "run_command", {"command": "sleep 60", "timeout_ms": 200}]},
        "Done.",
    ]
    async with editor(tmp_path, *script) as client:
        await client.open(**OFFERS)
        _, record = await client.prompt("Go")
        assert record["commands"][0] == shell_words("echo hello; pwd")
        results = [update for update in record["updates"] if update.get("status") in ("completed", "failed")]
        assert results[0]["rawOutput"] == f"hello\n{client.project}\n"
        assert "[exit code 3]" in results[1]["rawOutput"]
        assert (results[2]["status"], "timed out" in results[2]["rawOutput"]) == ("failed", True)


async def test_a_cancelled_answer_is_kept(tmp_path: Path) -> None:
    async with editor(tmp_path, f"One, two {HERE} three.") as client:
        await client.open()
        await client.start("Count")
        await client.npm("until", text="One")
        await client.cancel()
        assert (await client.npm("wait"))["result"]["stopReason"] == "cancelled"
        assert texts(await client.loaded()).startswith("One")


async def test_a_prompt_that_is_cancelled_at_once_is_cancelled(tmp_path: Path) -> None:
    async with editor(tmp_path, f"One, two {HERE} three.") as client:
        await client.open()
        await client.start("Count")
        await client.cancel()
        assert (await client.npm("wait"))["result"]["stopReason"] == "cancelled"


async def test_what_is_always_allowed_is_asked_once(tmp_path: Path) -> None:
    calls = [{"call": [f"c{number}", "run_command", {"command": "git status"}]} for number in (1, 2)]
    async with editor(tmp_path, *calls, "Done.") as client:
        await client.open()
        await client.npm("set", answer="always-1")
        _, record = await client.prompt("Go")
        (question,) = record["questions"]
        assert [option["name"] for option in question["options"]] == [
            "Allow",
            "Always allow this exact command: git status",
            f"Always allow {Rule(families=('git status',)).text}",
            "Always allow every call of run_command",
            "Reject",
        ]
        assert states(record["updates"]).count("completed") == 2


async def test_failures_are_errors_of_the_request(tmp_path: Path) -> None:
    async with editor(tmp_path, {"error": "No."}) as client:
        await client.open()
        params: Any = {"sessionId": client.session, "prompt": [{"type": "text", "text": "Hi"}]}
        reply = await client.npm("call", method="session/prompt", params=params)
        assert "No." in reply["error"]
        reply = await client.npm("call", method="session/prompt", params={**params, "sessionId": "unknown"})
        assert reply["code"] == -32602
        missing = {"sessionId": "unknown", "cwd": str(client.project), "mcpServers": []}
        assert (await client.npm("call", method="session/load", params=missing))["code"] == -32002
        nowhere = {"cwd": str(tmp_path / "nowhere"), "mcpServers": []}
        assert (await client.npm("call", method="session/new", params=nowhere))["code"] == -32602


async def test_tools_of_an_mcp_server_over_http_that_the_editor_names(tmp_path: Path) -> None:
    add = [{"call": [f"c{a}", "w_add", {"a": a, "b": 3}]} for a in (2, 3)]
    with serving() as http:
        headers = [{"name": "X-Token", "value": "a-secret-token"}]
        server = {"type": "http", "name": "w", "url": f"{http.url}/mcp", "headers": headers}
        async with editor(tmp_path, add[0], "It is five.", add[1], "It is six.") as client:
            await client.open()
            client.session = await client.new(server)
            reply, record = await client.prompt("Add")
            assert reply["stopReason"] == "end_turn"
            assert [question["toolCall"]["title"] for question in record["questions"]] == ["w_add"]
            (ended,) = [update for update in record["updates"] if update.get("status") == "completed"]
            assert ended["rawOutput"] == {"result": 5}
            assert {headers["x-token"] for headers in http.headers} == {"a-secret-token"}
            load = {"sessionId": client.session, "cwd": str(client.project), "mcpServers": [server]}
            await client.call("session/load", **load)  # connects again
            await client.npm("seen")
            _, record = await client.prompt("And now?")
            assert states(record["updates"])[-1] == "completed"


async def test_servers_that_cannot_be_used_are_refused_or_left_out(tmp_path: Path) -> None:
    async with editor(tmp_path, "Hello.") as client:
        initialized = await client.open()
        assert initialized["agentCapabilities"]["mcpCapabilities"].get("sse", False) is False
        sse_server = {"type": "sse", "name": "w", "url": "http://127.0.0.1:9/sse", "headers": []}
        refused = await client.npm(
            "call", method="session/new", params={"cwd": str(client.project), "mcpServers": [sse_server]}
        )
        assert refused["code"] == -32602
        client.session = await client.new({"type": "http", "name": "w", "url": "http://127.0.0.1:9/mcp", "headers": []})
        _, record = await client.prompt("Hi")  # nothing listens there
        assert texts(record["updates"]) == "Hello."


@pytest.mark.parametrize("is_killed", [True, False])
async def test_an_editor_that_leaves_in_the_middle_of_an_answer_ends_its_agent_and_loses_nothing(
    tmp_path: Path, is_killed: bool
) -> None:
    async with editor(tmp_path, f"One, two {HERE} three.") as client:
        await client.open()
        await client.start("Count")
        await client.npm("until", text="One")
        pid, session = await client.npm("pid"), client.session
        if is_killed:
            client.npm.kill()
            async with asyncio.timeout(LIMIT_S):
                while is_alive(pid):  # noqa: ASYNC110 - it is not a child of this process
                    await asyncio.sleep(0.02)
        else:
            assert await client.npm("end") == 0
    async with editor(tmp_path) as another:
        await another.open()
        another.session = session
        assert texts(await another.loaded()).startswith("One")


async def test_two_sessions_work_at_once(tmp_path: Path) -> None:
    async with editor(tmp_path, f"One, two {HERE} three.", "Hello.") as client:
        await client.open()
        first = client.session
        await client.start("Count")
        await client.npm("until", text="One")
        client.session = await client.new()
        reply, record = await client.prompt("Hi")
        assert reply["stopReason"] == "end_turn"
        own = [
            update
            for update, session in zip(record["updates"], record["sessions"], strict=True)
            if session == client.session
        ]
        assert texts(own) == "Hello."
        again = {"sessionId": first, "prompt": [{"type": "text", "text": "And?"}]}
        busy = await client.npm("call", method="session/prompt", params=again)  # one prompt at a time in each
        assert "error" in busy
        client.session = first
        await client.cancel()
        assert (await client.npm("wait"))["result"]["stopReason"] == "cancelled"


@pytest.mark.parametrize("answers", [True, False])
async def test_a_prompt_that_waits_for_permission_can_be_cancelled(tmp_path: Path, answers: bool) -> None:
    async with editor(
        tmp_path, {"call": ["c1", "write_file", {"path": "a.txt", "text": "new"}]}, "Done.", "Hello."
    ) as client:
        await client.open()
        await client.npm("set", answer="later")
        await client.start("Write it")
        await client.npm("asked")
        await client.cancel()
        if answers:  # the protocol demands an answer
            await client.npm("answer", outcome={"outcome": "cancelled"})
        assert (await client.npm("wait"))["result"]["stopReason"] == "cancelled"
        await client.npm("answer", outcome={"outcome": "selected", "optionId": "allow"})  # too late
        assert not (client.project / "a.txt").exists()
        assert states(await client.loaded())[-1] == "failed"
        reply, _ = await client.prompt("Hi")
        assert reply["stopReason"] == "end_turn"


async def test_a_cancelled_command_leaves_no_terminal(tmp_path: Path) -> None:
    async with editor(tmp_path, {"call": ["c1", "run_command", {"command": "echo here; sleep 60"}]}, "Done.") as client:
        await client.open(**OFFERS)
        await client.start("Go")
        await client.npm("until", text="in_progress")
        await client.cancel()
        assert (await client.npm("wait"))["result"]["stopReason"] == "cancelled"
        processes = await client.npm("seen")
        assert len(processes["commands"]) == processes["released"]
        assert states(processes["updates"])[-1] == "failed"


async def test_a_retry_in_the_middle_of_an_answer_is_announced(tmp_path: Path) -> None:
    async with editor(tmp_path, {"cut": "It will sn"}, "It rains.") as client:
        await client.open()
        reply, record = await client.prompt("Will it rain?")
        assert reply["stopReason"] == "end_turn"
        assert texts(record["updates"]).startswith("It will sn")
        assert texts(record["updates"]).endswith("begins again.*\n\nIt rains.")
        assert texts(await client.loaded()).endswith("It rains.")


RESEARCH = {"call": ["r1", "research", {"prompt": "Write it"}]}
WRITE = {"inside": {"call": ["s1", "write_file", {"path": "a.txt", "text": "new"}]}}


@pytest.mark.parametrize(("choice", "status"), [("allow", "completed"), ("reject", "failed")])
async def test_a_sub_agent_is_progress_of_its_call_and_asks_for_permission(
    tmp_path: Path, choice: str, status: str
) -> None:
    async with editor(tmp_path, RESEARCH, WRITE, {"inside": "All right."}, "Done.") as client:
        await client.open()
        await client.npm("set", answer=choice)
        reply, record = await client.prompt("Go")
        assert reply["stopReason"] == "end_turn"
        (question,) = record["questions"]
        tool_call, path = question["toolCall"], client.project / "a.txt"
        assert (tool_call["toolCallId"], tool_call["title"]) == ("r1/s1", "write_file: a.txt")
        assert tool_call["locations"] == [{"path": str(path)}]  # the protocol knows absolute paths only
        assert path.exists() == (choice == "allow")
        for updates in (record["updates"], await client.loaded()):
            calls = [update for update in updates if "toolCallId" in update]
            assert [
                (update["toolCallId"], update["title"]) for update in calls if update["sessionUpdate"] == "tool_call"
            ] == [
                ("r1", "research"),
                ("r1/s1", "write_file"),
            ]
            assert states([update for update in calls if update["toolCallId"] == "r1/s1"])[-1] == status
            assert states([update for update in calls if update["toolCallId"] == "r1"])[-1] == "completed"
            assert "researcher has started." in str(calls)
            assert [update["locations"] for update in calls if "locations" in update] == [[{"path": str(path)}]]
        assert "researcher: All right." in str(record["updates"])
