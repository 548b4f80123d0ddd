"""The SDK of the Agent Client Protocol from npm as the editor, and the agent as its process."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.ui.npm_client import NpmClient, npm_client
from tests.clients.ui.scripted import HERE

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
        new = await self.call("session/new", cwd=str(self.project), mcpServers=[])
        self.session = new["sessionId"]
        return found

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
        assert [option["kind"] for option in question["options"]] == ["allow_once", "reject_once"]
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
        params = {"sessionId": one.session, "prompt": [{"type": "text", "text": "Count"}]}
        await one.npm("start", method="session/prompt", params=params)
        await one.npm("until", text="One")
        await one.npm("notify", method="session/cancel", params={"sessionId": one.session})
        assert (await one.npm("wait"))["result"]["stopReason"] == "cancelled"
        await one.npm("seen")
        await one.call("session/load", sessionId=one.session, cwd=str(one.project), mcpServers=[])
        assert texts((await one.npm("seen"))["updates"]).startswith("One")


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
