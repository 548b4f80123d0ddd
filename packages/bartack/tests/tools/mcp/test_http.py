"""Servers over HTTP: headers, faults, and signing in with OAuth, against servers written with the SDK."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from bartack import ErrorCode
from bartack.tools.mcp import McpServer, mcp
from bartack.tools.mcp import server as server_module
from bartack.tools.mcp.connection import Connection
from bartack.tools.mcp.oauth import LoopbackSignIn
from tests.tools.mcp.http_server import Http, serving
from tests.tools.mcp.kit import agent_with, results_of, until

ADD = ("w_add", {"a": 2, "b": 3})


def web_server(http: Http, tmp_path: Path, **options: Any) -> McpServer:
    files = {"known_tools": tmp_path / "known.json", "tokens": tmp_path / "tokens.json"}
    return mcp(f"{http.url}/mcp", name="w", **{**files, **options})


class Browser:
    """Follows the redirects of a sign-in page, as a person who agrees."""

    def __init__(self) -> None:
        self.visited: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def show(self, url: str) -> None:
        self.visited.append(url)
        self.tasks.append(asyncio.create_task(self._visit(url)))

    async def _visit(self, url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True) as client:
            self.page = (await client.get(url)).text


async def test_tools_over_http_with_headers_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_TOKEN", "a-secret-token")
    with serving() as http:
        server = web_server(http, tmp_path, headers={"X-Token": "Bearer ${WEB_TOKEN}"})
        [answer] = await results_of(server, ADD)
        assert answer.content == "5"
        assert {headers["x-token"] for headers in http.headers} == {"Bearer a-secret-token"}
        assert "a-secret-token" not in repr(server.config)


async def test_tools_that_appear_are_offered_in_the_next_turn(tmp_path: Path) -> None:
    with serving() as http:
        server = web_server(http, tmp_path)
        async with agent_with(server, "w_grow") as agent:
            assert (await agent.run("go")).output == "done"
            # The notice arrives on a stream of its own, before or after the last turn of that run.
            await until(lambda: server._is_stale or any(tool.name == "w_grown" for tool in server.tools))
            again = agent_with(server, "w_grown")
            assert (await again.run("go")).messages[2].tool_results[0].content == "I am new."


async def test_a_session_that_the_server_has_forgotten_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = Connection._stay_connected
    monkeypatch.setattr(
        Connection, "_stay_connected", lambda self, _: connected(self, "legacy")
    )  # newer ones have no sessions
    with serving(json_response=True) as http:
        server = web_server(http, tmp_path)
        async with agent_with(server) as agent:
            await agent.run("go")
            sessions: set[str] = set()
            for _ in range(3):
                http.expired |= {headers["mcp-session-id"] for headers in http.headers if "mcp-session-id" in headers}
                [result] = (await agent_with(server, ADD).run("go")).messages[2].tool_results
                assert (result.content, result.is_error) == ("5", False)
                assert sessions < http.expired
                sessions |= http.expired


@pytest.mark.parametrize("fault", ["500", "huge", "garbage"])
async def test_a_faulty_answer_is_one_tool_error_and_the_next_turn_works(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_FIRST_DELAY_S", 0.0)  # the turn after the call fails to connect too
    with serving(json_response=True) as http:
        server = web_server(http, tmp_path, timeout_ms=20_000)
        async with agent_with(server) as agent:
            await agent.run("go")  # connected
            http.fault = fault
            [broken] = (await agent_with(server, ADD).run("go")).messages[2].tool_results
            assert broken.is_error
            assert str(broken.content).startswith("MCP server 'w'")
            http.fault = None
            [works] = (await agent_with(server, ADD).run("go")).messages[2].tool_results
            assert works.content == "5"


async def test_a_server_that_is_gone_and_comes_back(tmp_path: Path) -> None:
    with serving() as http:
        server = web_server(http, tmp_path)
        async with agent_with(server, ADD) as agent:
            await agent.run("go")
    async with agent_with(server, ADD) as agent:
        [failed] = (await agent.run("go")).messages[2].tool_results
        assert failed.error_code in {ErrorCode.TOOL_FAILED, ErrorCode.TOOL_NOT_FOUND}
        assert "MCP server 'w'" in str(failed.content)
    with serving(port=urlsplit(http.url).port or 0):  # it knows nothing of the earlier connection
        async with asyncio.timeout(60):
            while (await results_of(server, ADD))[0].content != "5":  # noqa: ASYNC110 - after a delay
                await asyncio.sleep(0.1)


async def test_signing_in_stores_tokens_that_later_connections_use_and_refresh(tmp_path: Path) -> None:
    browser, path = Browser(), tmp_path / "tokens.json"
    with serving(oauth=True) as http:
        assert http.accounts is not None
        [refused] = await results_of(web_server(http, tmp_path), ADD)
        assert "MCP server 'w' is not available: it requires sign-in" in str(refused.content)
        [answer] = await results_of(web_server(http, tmp_path, auth=LoopbackSignIn(browser.show)), ADD)
        assert answer.content == "5"
        assert len(browser.visited) == 1
        assert "Signed in." in browser.page
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        [again] = await results_of(web_server(http, tmp_path), ADD)
        assert again.content == "5"
        assert len(browser.visited) == 1
        expire(path)
        [refreshed] = await results_of(web_server(http, tmp_path), ADD)
        assert refreshed.content == "5"
        assert http.accounts.refreshed == 1
        http.accounts.access.clear()
        http.accounts.refresh.clear()
        [revoked] = await results_of(web_server(http, tmp_path), ADD)
        assert "it requires sign-in" in str(revoked.content)


def expire(path: Path) -> None:
    tokens = json.loads(path.read_text())
    for token in tokens.values():
        token["expires_at"] = 1.0
    path.write_text(json.dumps(tokens))


async def test_a_person_who_refuses_to_sign_in_is_an_error_of_the_call(tmp_path: Path) -> None:
    browser = Browser()
    with serving(oauth=True) as http:
        assert http.accounts is not None
        http.accounts.denies = True
        [refused] = await results_of(web_server(http, tmp_path, auth=LoopbackSignIn(browser.show)), ADD)
        assert "signing in failed: access_denied" in str(refused.content)
        assert "Not signed in." in browser.page


async def test_other_requests_to_the_redirect_address_are_ignored() -> None:
    sign_in = LoopbackSignIn(lambda url: None)
    address = sign_in.redirect_uri
    waiting = asyncio.create_task(sign_in.callback())
    async with httpx2.AsyncClient() as client:
        assert (await client.get(address.replace("callback", "favicon.ico"))).status_code == 404
        assert (await client.get(f"{address}?nothing=1")).status_code == 404
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.split(":")[2].split("/")[0]))
        writer.write(b"\r\n")
        assert await reader.read() == b""
        writer.close()
        assert (await client.get(f"{address}?code=c&state=s")).status_code == 200
    assert (await waiting).code == "c"
