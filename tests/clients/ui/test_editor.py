"""The SDK of the Agent Client Protocol from npm as the editor, and the agent as its process."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.ui.npm_client import LIMIT_S, NpmClient, npm_client
from tests.clients.ui.scripted import HERE
from tests.tools.mcp.http_server import serving
from tests.tools.mcp.kit import is_alive

AGENT = Path(__file__).with_name("editor_agent.py")
ROOT = Path(__file__).parents[3]
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
        found = await self.call("initialize", protocolVersion=1, clientCapabilities=offers)
        self.session = await self.new()
        return found

    async def new(self, *servers: Any) -> str:
        """The id of a new session with these MCP servers."""
        made = await self.call("session/new", cwd=str(self.project), mcpServers=list(servers))
        return str(made["sessionId"])

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
    return "".join(one["content"]["text"] for one in updates if one["sessionUpdate"] == kind)


def states(updates: Any) -> list[str]:
    return [one["status"] for one in updates if one.get("toolCallId") and "status" in one]


async def test_an_answer_arrives_and_the_session_can_be_loaded_listed_and_forked(tmp_path: Path) -> None:
    async with editor(tmp_path, {"call": ["c1", "shout", {}]}, "It rains.", "Still.") as one:
        found = await one.open()
        assert found["agentCapabilities"]["loadSession"] is True
        reply, seen = await one.prompt("Will it rain?")
        assert reply["stopReason"] == "end_turn"
        assert texts(seen["updates"]) == "It rains."
        assert texts(seen["updates"], "agent_thought_chunk") == "Hm."
        assert states(seen["updates"]) == ["pending", "in_progress", "completed"]

        listed = await one.call("session/list", cwd=str(one.project))
        assert [(session["sessionId"], session["title"]) for session in listed["sessions"]] == [
            (one.session, "Will it rain?")
        ]
        assert (await one.call("session/list", cwd="/elsewhere"))["sessions"] == []

        await one.call("session/load", sessionId=one.session, cwd=str(one.project), mcpServers=[])
        again = (await one.npm("seen"))["updates"]
        assert texts(again, "user_message_chunk") == "Will it rain?"
        assert texts(again) == "It rains."
        assert states(again)[-1] == "completed"

        forked = await one.call("session/fork", sessionId=one.session, cwd=str(one.project))
        original, one.session = one.session, forked["sessionId"]
        assert one.session != original
        await one.call("session/load", sessionId=one.session, cwd=str(one.project), mcpServers=[])
        assert texts((await one.npm("seen"))["updates"]) == "It rains."
        _, seen = await one.prompt("And now?")
        assert texts(seen["updates"]) == "Still."
        await one.call("session/close", sessionId=one.session)


@pytest.mark.parametrize(("choice", "status"), [("allow", "completed"), ("reject", "failed"), ("cancel", "failed")])
async def test_changes_need_permission(tmp_path: Path, choice: str, status: str) -> None:
    async with editor(tmp_path, {"call": ["c1", "write_file", {"path": "a.txt", "text": "new"}]}, "Done.") as one:
        await one.open()
        await one.npm("set", answer=choice)
        _, seen = await one.prompt("Write it")
        (question,) = seen["questions"]
        assert question["toolCall"]["title"] == "write_file: a.txt"
        path = str(one.project / "a.txt")
        assert question["toolCall"]["content"] == [{"type": "diff", "path": path, "newText": "new"}]  # a new file
        assert [option["kind"] for option in question["options"]] == ["allow_once", "allow_always", "reject_once"]
        assert states(seen["updates"])[-1] == status
        assert (one.project / "a.txt").exists() == (choice == "allow")


async def test_files_are_read_and_written_through_the_editor(tmp_path: Path) -> None:
    script = [
        {"call": ["c1", "read_file", {"path": "a.txt"}]},
        {"call": ["c2", "edit_file", {"path": "a.txt", "old": "unsaved", "new": "edited"}]},
        {"call": ["c3", "write_file", {"path": "sub/b.txt", "text": "new"}]},
        {"call": ["c4", "write_file", {"path": "link.txt", "text": "escaped"}]},
        {"call": ["c5", "write_file", {"path": "../c.txt", "text": "escaped"}]},
        "Done.",
    ]
    async with editor(tmp_path, *script) as one:
        path, link = one.project / "a.txt", one.project / "link.txt"
        path.write_text("saved")
        link.symlink_to(tmp_path / "outside.txt")
        await one.open(**OFFERS)
        await one.npm("set", files={str(path): "unsaved text"})
        reply, seen = await one.prompt("Go")
        assert reply["stopReason"] == "end_turn"
        results = [one for one in seen["updates"] if one.get("status") in ("completed", "failed")]
        assert [one["status"] for one in results] == ["completed", "completed", "completed", "failed", "failed"]
        assert results[0]["rawOutput"] == "unsaved text"
        assert seen["written"] == {str(path): "edited text", str(one.project / "sub" / "b.txt"): "new"}
        assert path.read_text() == "saved"  # the editor saves it
        edit, write, *escaping = [question["toolCall"].get("content") for question in seen["questions"]]
        assert edit == [{"type": "diff", "path": str(path), "oldText": "unsaved text", "newText": "edited text"}]
        assert write == [{"type": "diff", "path": str(one.project / "sub" / "b.txt"), "newText": "new"}]
        assert escaping == [None, None]  # nothing of what is not allowed is read


async def test_commands_run_in_a_terminal_of_the_editor(tmp_path: Path) -> None:
    script = [
        {"call": ["c1", "run_command", {"command": "echo hello; pwd"}]},
        {"call": ["c2", "run_command", {"command": "exit 3"}]},
        {"call": ["c3", "run_command", {"command": "sleep 60", "timeout_ms": 200}]},
        "Done.",
    ]
    async with editor(tmp_path, *script) as one:
        await one.open(**OFFERS)
        _, seen = await one.prompt("Go")
        assert seen["commands"][0] == ["/bin/sh", "-c", "echo hello; pwd"]
        results = [one for one in seen["updates"] if one.get("status") in ("completed", "failed")]
        assert results[0]["rawOutput"] == f"hello\n{one.project}\n"
        assert "[exit code 3]" in results[1]["rawOutput"]
        assert (results[2]["status"], "timed out" in results[2]["rawOutput"]) == ("failed", True)


async def test_a_cancelled_answer_is_kept(tmp_path: Path) -> None:
    async with editor(tmp_path, f"One, two {HERE} three.") as one:
        await one.open()
        await one.start("Count")
        await one.npm("until", text="One")
        await one.cancel()
        assert (await one.npm("wait"))["result"]["stopReason"] == "cancelled"
        assert texts(await one.loaded()).startswith("One")


async def test_a_prompt_that_is_cancelled_at_once_is_cancelled(tmp_path: Path) -> None:
    async with editor(tmp_path, f"One, two {HERE} three.") as one:
        await one.open()
        await one.start("Count")
        await one.cancel()
        assert (await one.npm("wait"))["result"]["stopReason"] == "cancelled"


async def test_what_is_always_allowed_is_asked_once(tmp_path: Path) -> None:
    calls = [{"call": [f"c{at}", "run_command", {"command": "git status"}]} for at in (1, 2)]
    async with editor(tmp_path, *calls, "Done.") as one:
        await one.open()
        await one.npm("set", answer="always-1")
        _, seen = await one.prompt("Go")
        (question,) = seen["questions"]
        assert [option["name"] for option in question["options"]] == [
            "Allow",
            "Always allow this exact command: git status",
            "Always allow commands that start with: git status",
            "Always allow every call of run_command",
            "Reject",
        ]
        assert states(seen["updates"]).count("completed") == 2


async def test_failures_are_errors_of_the_request(tmp_path: Path) -> None:
    async with editor(tmp_path, {"error": "No."}) as one:
        await one.open()
        params: Any = {"sessionId": one.session, "prompt": [{"type": "text", "text": "Hi"}]}
        reply = await one.npm("call", method="session/prompt", params=params)
        assert "No." in reply["error"]
        reply = await one.npm("call", method="session/prompt", params={**params, "sessionId": "unknown"})
        assert reply["code"] == -32602
        missing = {"sessionId": "unknown", "cwd": str(one.project), "mcpServers": []}
        assert (await one.npm("call", method="session/load", params=missing))["code"] == -32002
        nowhere = {"cwd": str(tmp_path / "nowhere"), "mcpServers": []}
        assert (await one.npm("call", method="session/new", params=nowhere))["code"] == -32602


async def test_tools_of_an_mcp_server_over_http_that_the_editor_names(tmp_path: Path) -> None:
    add = [{"call": [f"c{a}", "w_add", {"a": a, "b": 3}]} for a in (2, 3)]
    with serving() as http:
        headers = [{"name": "X-Token", "value": "a-secret-token"}]
        server = {"type": "http", "name": "w", "url": f"{http.url}/mcp", "headers": headers}
        async with editor(tmp_path, add[0], "It is five.", add[1], "It is six.") as one:
            await one.open()
            one.session = await one.new(server)
            reply, seen = await one.prompt("Add")
            assert reply["stopReason"] == "end_turn"
            assert [question["toolCall"]["title"] for question in seen["questions"]] == ["w_add"]
            (ended,) = [update for update in seen["updates"] if update.get("status") == "completed"]
            assert ended["rawOutput"] == {"result": 5}
            assert {sent["x-token"] for sent in http.headers} == {"a-secret-token"}
            load = {"sessionId": one.session, "cwd": str(one.project), "mcpServers": [server]}
            await one.call("session/load", **load)  # connects again
            await one.npm("seen")
            _, seen = await one.prompt("And now?")
            assert states(seen["updates"])[-1] == "completed"


async def test_servers_that_cannot_be_used_are_refused_or_left_out(tmp_path: Path) -> None:
    async with editor(tmp_path, "Hello.") as one:
        found = await one.open()
        assert found["agentCapabilities"]["mcpCapabilities"].get("sse", False) is False
        old = {"type": "sse", "name": "w", "url": "http://127.0.0.1:9/sse", "headers": []}
        refused = await one.npm("call", method="session/new", params={"cwd": str(one.project), "mcpServers": [old]})
        assert refused["code"] == -32602
        one.session = await one.new({"type": "http", "name": "w", "url": "http://127.0.0.1:9/mcp", "headers": []})
        _, seen = await one.prompt("Hi")  # nothing listens there
        assert texts(seen["updates"]) == "Hello."


@pytest.mark.parametrize("is_killed", [True, False])
async def test_an_editor_that_leaves_in_the_middle_of_an_answer_ends_its_agent_and_loses_nothing(
    tmp_path: Path, is_killed: bool
) -> None:
    async with editor(tmp_path, f"One, two {HERE} three.") as one:
        await one.open()
        await one.start("Count")
        await one.npm("until", text="One")
        pid, session = await one.npm("pid"), one.session
        if is_killed:
            one.npm.kill()
            async with asyncio.timeout(LIMIT_S):
                while is_alive(pid):  # noqa: ASYNC110 - it is not a child of this process
                    await asyncio.sleep(0.02)
        else:
            assert await one.npm("end") == 0
    async with editor(tmp_path) as another:
        await another.open()
        another.session = session
        assert texts(await another.loaded()).startswith("One")


async def test_two_sessions_work_at_once(tmp_path: Path) -> None:
    async with editor(tmp_path, f"One, two {HERE} three.", "Hello.") as one:
        await one.open()
        first = one.session
        await one.start("Count")
        await one.npm("until", text="One")
        one.session = await one.new()
        reply, seen = await one.prompt("Hi")
        assert reply["stopReason"] == "end_turn"
        own = [
            update for update, session in zip(seen["updates"], seen["sessions"], strict=True) if session == one.session
        ]
        assert texts(own) == "Hello."
        again = {"sessionId": first, "prompt": [{"type": "text", "text": "And?"}]}
        busy = await one.npm("call", method="session/prompt", params=again)  # one prompt at a time in each
        assert "error" in busy
        one.session = first
        await one.cancel()
        assert (await one.npm("wait"))["result"]["stopReason"] == "cancelled"


@pytest.mark.parametrize("answers", [True, False])
async def test_a_prompt_that_waits_for_permission_can_be_cancelled(tmp_path: Path, answers: bool) -> None:
    async with editor(
        tmp_path, {"call": ["c1", "write_file", {"path": "a.txt", "text": "new"}]}, "Done.", "Hello."
    ) as one:
        await one.open()
        await one.npm("set", answer="later")
        await one.start("Write it")
        await one.npm("asked")
        await one.cancel()
        if answers:  # as the protocol demands
            await one.npm("answer", outcome={"outcome": "cancelled"})
        assert (await one.npm("wait"))["result"]["stopReason"] == "cancelled"
        await one.npm("answer", outcome={"outcome": "selected", "optionId": "allow"})  # too late
        assert not (one.project / "a.txt").exists()
        assert states(await one.loaded())[-1] == "failed"
        reply, _ = await one.prompt("Hi")
        assert reply["stopReason"] == "end_turn"


async def test_a_cancelled_command_leaves_no_terminal(tmp_path: Path) -> None:
    async with editor(tmp_path, {"call": ["c1", "run_command", {"command": "echo here; sleep 60"}]}, "Done.") as one:
        await one.open(**OFFERS)
        await one.start("Go")
        await one.npm("until", text="in_progress")
        await one.cancel()
        assert (await one.npm("wait"))["result"]["stopReason"] == "cancelled"
        seen = await one.npm("seen")
        assert len(seen["commands"]) == seen["released"]
        assert states(seen["updates"])[-1] == "failed"


async def test_a_retry_in_the_middle_of_an_answer_is_announced(tmp_path: Path) -> None:
    async with editor(tmp_path, {"cut": "It will sn"}, "It rains.") as one:
        await one.open()
        reply, seen = await one.prompt("Will it rain?")
        assert reply["stopReason"] == "end_turn"
        assert texts(seen["updates"]).startswith("It will sn")
        assert texts(seen["updates"]).endswith("begins again.*\n\nIt rains.")
        assert texts(await one.loaded()).endswith("It rains.")


RESEARCH = {"call": ["r1", "research", {"prompt": "Write it"}]}
WRITE = {"inside": {"call": ["s1", "write_file", {"path": "a.txt", "text": "new"}]}}


@pytest.mark.parametrize(("choice", "status"), [("allow", "completed"), ("reject", "failed")])
async def test_a_sub_agent_is_progress_of_its_call_and_asks_for_permission(
    tmp_path: Path, choice: str, status: str
) -> None:
    async with editor(tmp_path, RESEARCH, WRITE, {"inside": "All right."}, "Done.") as one:
        await one.open()
        await one.npm("set", answer=choice)
        reply, seen = await one.prompt("Go")
        assert reply["stopReason"] == "end_turn"
        (question,) = seen["questions"]
        asked, path = question["toolCall"], one.project / "a.txt"
        assert (asked["toolCallId"], asked["title"]) == ("r1/s1", "write_file: a.txt")
        assert asked["locations"] == [{"path": str(path)}]  # the protocol knows absolute paths only
        assert path.exists() == (choice == "allow")
        for updates in (seen["updates"], await one.loaded()):
            calls = [update for update in updates if "toolCallId" in update]
            assert [(one["toolCallId"], one["title"]) for one in calls if one["sessionUpdate"] == "tool_call"] == [
                ("r1", "research"),
                ("r1/s1", "write_file"),
            ]
            assert states([one for one in calls if one["toolCallId"] == "r1/s1"])[-1] == status
            assert states([one for one in calls if one["toolCallId"] == "r1"])[-1] == "completed"
            assert "researcher has started." in str(calls)
            assert [one["locations"] for one in calls if "locations" in one] == [[{"path": str(path)}]]
        assert "researcher: All right." in str(seen["updates"])
