"""Invalid input from an editor: each message gets an error, and the connection stays open."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.repository import import_path

pytest.importorskip("acp", reason="the extra acp is not installed")

AGENT = Path(__file__).with_name("editor_agent.py")
LIMIT_S = 600.0  # seconds; only a hang takes this long


class Pipe:
    """An agent, and its stdin and stdout."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._last_id = 0

    async def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        await self._process.stdin.drain()

    async def receive(self) -> Any:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), LIMIT_S)
        assert line, "the agent has ended"
        return json.loads(line)

    async def call(self, method: str, **params: Any) -> Any:
        """The response; what comes before it is dropped."""
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        await self.send(json.dumps(request).encode())
        while (reply := await self.receive()).get("id") != self._last_id or "method" in reply:
            pass
        return reply


@asynccontextmanager
async def pipe(tmp_path: Path, *script: Any) -> AsyncIterator[Pipe]:
    words = [sys.executable, str(AGENT), f"sqlite:{tmp_path / 'sessions.db'}", json.dumps(script)]
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": import_path()},
    )
    try:
        opened = Pipe(process)
        await opened.call("initialize", protocolVersion=1)
        yield opened
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_what_is_no_message_is_refused_and_the_connection_stays(tmp_path: Path) -> None:
    prompt = b'{"jsonrpc": "2.0", "id": "p1", "method": "session/prompt", "params": %s}'
    lines: list[tuple[bytes, Any, int]] = [
        (b"garbage", None, -32700),
        (b"\xff\xfe\x00", None, -32700),
        (b"[" * 100_000, None, -32700),
        (prompt % b'{"sessionId": "\\ud800"}', "p1", -32700),
        (prompt % (b'{"a":' * 200 + b"1" + b"}" * 200), "p1", -32600),
        *((line, None, -32600) for line in (b"[]", b"null", b"1", b'"x"', b"{}", b'{"id": [], "result": 1}')),
        (b'{"jsonrpc": "2.0", "id": 7, "method": 5}', 7, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "error": "no"}', 1, -32600),
        (prompt % b"[]", "p1", -32602),
    ]
    async with pipe(tmp_path) as connection:
        for line, id, code in lines:
            await connection.send(line)
            reply = await connection.receive()
            assert (reply["id"], reply["error"]["code"]) == (id, code), line[:80]
        await connection.send(b"\n")
        await connection.send(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": 5}}')
        await connection.send(b'"' + b"x" * 55_000_000 + b'"')
        assert "larger than" in (await connection.receive())["error"]["message"]
        assert (await connection.call("session/list"))["result"] == {"sessions": []}


async def test_an_empty_prompt_starts_nothing(tmp_path: Path) -> None:
    async with pipe(tmp_path, "Hello.") as connection:
        session_id = (await connection.call("session/new", cwd=str(tmp_path), mcpServers=[]))["result"]["sessionId"]
        for prompt in ([], [{"type": "text", "text": " "}]):
            assert (await connection.call("session/prompt", sessionId=session_id, prompt=prompt))["error"][
                "code"
            ] == -32602
        assert (await connection.call("session/list"))["result"] == {"sessions": []}


async def test_an_answer_to_a_question_that_makes_no_sense_allows_nothing(tmp_path: Path) -> None:
    script = [{"call": ["c1", "write_file", {"path": "a.txt", "text": "new"}]}, "Done."]
    async with pipe(tmp_path, *script) as connection:
        session_id = (await connection.call("session/new", cwd=str(tmp_path), mcpServers=[]))["result"]["sessionId"]
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "Go"}]}
        await connection.send(
            json.dumps({"jsonrpc": "2.0", "id": "p1", "method": "session/prompt", "params": prompt}).encode()
        )
        while (question := await connection.receive()).get("method") != "session/request_permission":
            pass
        await connection.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": 5}}).encode())
        while (await connection.receive()).get("id") != "p1":
            pass
        assert not (tmp_path / "a.txt").exists()
