"""`bartack mcp`, and servers in runs and chats."""

import asyncio
import json
import shlex
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters, types
from mcp.client import ClientRequestContext

from bartack import open_store
from bartack.app.mcp_servers import add_server, chosen_servers, new_server, remove_server, servers_path, user_servers
from bartack.app.settings import settings_file
from bartack.cli.entry import run
from bartack.nouns.entries import SessionHeader
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.store.requests import queue
from bartack.tools.mcp import HttpServer, StdioServer
from tests.cli.provider_server import provider
from tests.code.chat.scene import scene
from tests.code.chat.terminal import needs_tmux
from tests.code.test_run import Done, Shell
from tests.tools.mcp.http_server import serving as serving_http
from tests.tools.mcp.kit import FAULT_SERVER

FAULT = [sys.executable, "-I", str(FAULT_SERVER)]
CALLS_ECHO = [{"call": "f_echo", "arguments": {"text": "hi"}}]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def bartack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Iterator[Callable[..., Done]]:
    """The command line in this process, for a user with empty folders."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("BARTACK_CONFIG", raising=False)
    settings_file.cache_clear()

    def call(*words: str) -> Done:
        try:
            status = run(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
        stdout, stderr = capfdbinary.readouterr()
        return Done(status, stdout, stderr.decode())

    yield call
    settings_file.cache_clear()


# -- the file


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BARTACK_CONFIG", raising=False)
    settings_file.cache_clear()
    yield servers_path()
    settings_file.cache_clear()


def test_servers_are_added_and_removed_with_names_of_variables_only(config: Path) -> None:
    options = {"allow": ["echo"], "deny": None, "trust_hints": True}
    add_server("files", new_server(["npx", "-y", "server"], env=["TOKEN", "A=${B}"], headers=(), options=options))
    header = ["Authorization: Bearer ${TOKEN}"]
    add_server("web", new_server(["https://example.com/mcp"], env=(), headers=header, options={}))
    assert json.loads(config.read_text()) == {
        "mcpServers": {
            "files": {
                "command": "npx",
                "args": ["-y", "server"],
                "env": {"TOKEN": "${TOKEN}", "A": "${B}"},
                "allow": ["echo"],
                "trustHints": True,
            },
            "web": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        }
    }
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert [type(server) for server in user_servers().values()] == [StdioServer, HttpServer]
    remove_server("files")
    assert list(user_servers()) == ["web"]


@pytest.mark.parametrize(
    ("words", "options", "problem"),
    [
        (["npx"], {"env": ["TOKEN=abc"]}, "--env TOKEN contains a value"),
        (["npx"], {"env": ["a b"]}, "Invalid variable name"),
        (["npx"], {"headers": ["A: ${B}"]}, "Only a server at a URL has headers"),
        (["https://x/"], {"headers": ["Authorization: Bearer abc"]}, "The header Authorization contains a value"),
        (["https://x/"], {"headers": ["nonsense"]}, "Invalid header"),
        (["https://x/"], {"env": ["TOKEN"]}, "has no environment variables"),
        (["https://user:secret@x/"], {}, "The URL contains a password"),
    ],
)
def test_values_are_refused(words: list[str], options: dict[str, list[str]], problem: str, config: Path) -> None:
    with pytest.raises(BartackError, match=problem) as caught:
        new_server(words, **{"env": (), "headers": (), "options": {}, **options})  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_mistakes_in_files_name_the_server(config: Path, tmp_path: Path) -> None:
    for content, problem in {
        "[]": "is not a JSON object",
        "{}": "has no object mcpServers",
        '{"mcpServers": {"a": 1}}': "server 'a' must be an object",
        '{"mcpServers": {"a": {}}}': "server 'a' is invalid: Object missing required field `command`",
        '{"mcpServers": {"a": {"command": "x", "args": [1]}}}': "server 'a' is invalid: Expected `str`, got `int`",
        '{"mcpServers": {"a": {"url": "ftp://x"}}}': "is not an http or https URL",
        '{"mcpServers": {"a": {"url": "http://x", "type": "sse"}}}': "old transport sse",
        '{"mcpServers": {"a": {"command": "x", "timeoutMs": 0}}}': "timeoutMs must be positive",
    }.items():
        file = tmp_path / "servers.json"
        file.write_text(content)
        with pytest.raises(BartackError, match=problem):
            chosen_servers([str(file)])
    with pytest.raises(BartackError, match="There is no MCP server 'nowhere'"):
        chosen_servers(["nowhere"])
    with pytest.raises(BartackError, match="Cannot read"):
        chosen_servers(["no/such/file.json"])


def test_servers_of_other_programs_are_read(tmp_path: Path) -> None:
    file = tmp_path / "claude.json"
    servers = {
        "a": {"type": "stdio", "command": "npx", "args": ["x"], "env": {"A": "1"}, "autoApprove": []},
        "b": {"type": "http", "url": "https://x/mcp"},
        "c": {"command": "y", "disabled": True},
    }
    file.write_text(json.dumps({"mcpServers": servers, "theme": "dark"}))
    assert list(chosen_servers([str(file)])) == ["a", "b"]


# -- the commands


def test_list_add_test_and_remove(bartack: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no MCP servers" in bartack("mcp", "list").stderr
    added = bartack("mcp", "add", "--env", "FAULT_TOKEN", "f", "--", *FAULT)
    assert added.status == 0, added.stderr
    assert "Added f to" in added.stdout.decode()
    assert f"f\tprocess\t{shlex.join(FAULT)}" in bartack("mcp", "list").stdout.decode()
    missing = bartack("mcp", "test", "f")
    assert missing.status == 1
    assert "The environment variable FAULT_TOKEN is not set" in missing.error()
    monkeypatch.setenv("FAULT_TOKEN", "a-secret-value")
    tested = bartack("mcp", "test", "f", "--json")
    report = json.loads(tested.stdout)
    assert (report["state"], report["server"]) == ("connected", "fault 1")
    assert all(tool["requiresApproval"] for tool in report["tools"])
    assert "a-secret-value" not in tested.stdout.decode() + tested.stderr
    again = bartack("mcp", "add", "f", "--", "x")
    assert again.status == 2
    assert "already an MCP server 'f'" in again.error()
    assert bartack("mcp", "remove", "f").status == 0
    assert bartack("mcp", "remove", "f").status == 2


def test_a_test_shows_what_is_wrong_with_a_server(bartack: Callable[..., Done]) -> None:
    done = bartack("mcp", "test", "--", *FAULT, "exit")
    assert done.status == 1
    assert "stderr: cannot open the database" in done.stderr
    assert "it exited with code 7" in done.stderr
    assert "Traceback" not in done.stderr
    printed = bartack("mcp", "test", "--", *FAULT).stdout.decode()
    assert "fault_server__echo\tasks first\tReturn the text." in printed
    assert "fault_server__sneaky\tasks first\tHidden\\u202e\\U000e0041 \\x1b[31mtext" in printed


def test_a_test_signs_in_with_a_browser(
    bartack: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    visits: list[threading.Thread] = []

    def visit(url: str) -> bool:
        visits.append(threading.Thread(target=lambda: httpx2.get(url, follow_redirects=True)))
        visits[-1].start()
        return True

    monkeypatch.setattr("webbrowser.open", visit)
    with serving_http(oauth=True) as http:
        done = bartack("mcp", "test", f"{http.url}/mcp")
        assert done.status == 0, done.stderr
        assert "127_0_0_1__add\tasks first\tAdd two numbers." in done.stdout.decode()
        assert f"Sign in on this page: {http.url}/authorize?" in done.stderr
        [tokens] = tmp_path.rglob("mcp-tokens.json")
        assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
        assert bartack("mcp", "test", f"{http.url}/mcp").status == 0
    assert len(visits) == 1
    visits[0].join(60)


def test_a_run_uses_the_servers_of_a_file(shell: Shell) -> None:
    file = shell.work / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"f": {"command": FAULT[0], "args": FAULT[1:]}}}))
    with provider([CALLS_ECHO, ["Done."]]) as server:
        approved = shell.at(server).bartack("go", "--mcp", "servers.json", "--yes")
        assert approved.stdout == b"Done.\n"
        assert "f_echo" in [tool["function"]["name"] for tool in server.requests[0]["tools"]]
        assert server.requests[1]["messages"][-1]["content"] == "echo: hi"
    with provider([CALLS_ECHO, ["Done."]]) as server:
        denied = shell.at(server).bartack("go", "--mcp", "servers.json")
        assert denied.status == 0
        assert "denied" in server.requests[1]["messages"][-1]["content"]
    wrong = shell.bartack("go", "--mcp", "nothing.json")
    assert wrong.status == 2
    assert "nothing.json" in wrong.error()


@needs_tmux
def test_the_chat_uses_configured_servers_and_shows_them(tmp_path: Path) -> None:
    with scene(tmp_path, CALLS_ECHO, ["It works."]) as stage:
        stage.bartack("mcp", "add", "f", "--", *FAULT)
        stage.bartack("mcp", "add", "gone", "--", "bartack-no-such-program")
        with stage.chat(rows=60, columns=140) as chat:
            chat.wait_for_prompt()
            chat.say("/mcp")
            chat.wait_for("not connected yet")
            chat.wait_for_prompt()
            chat.say("go")
            chat.wait_for("[y]es")
            chat.say("y")
            chat.wait_for("It works.")
            chat.wait_for_prompt()
            chat.say("/mcp")
            screen = chat.wait_for("fault 1")
            assert "the command 'bartack-no-such-program' was not found" in screen
            chat.wait_for_prompt()
            chat.say("/mcp f")
            chat.wait_for("Return the text.")
            chat.wait_for_prompt()
            chat.say("/quit")
            assert "Traceback" not in chat.wait_for("[left with 0]")


# -- sessions as a server


def serving(shell: Shell, *words: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", "bartack.cli", "mcp", "serve", *words], env=shell.env, cwd=shell.work
    )


def content(result: types.CallToolResult) -> Any:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text if result.is_error else json.loads(block.text)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_other_programs_search_read_and_continue_sessions(shell: Shell, mode: Any) -> None:
    questions: list[str] = []

    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept" if len(questions) == 1 else "decline", content={})

    async def use() -> None:
        async with Client(serving(shell, "--tools", "files"), mode=mode, elicitation_callback=answer) as client:
            started = content(await client.call_tool("continue_session", {"prompt": "Write the note."}))
            assert started["answer"] == "Written."
            hits = content(await client.call_tool("search_sessions", {"words": "note"}))
            session = started["session"]
            assert {hit["session"] for hit in hits["hits"]} == {session}
            for chosen, is_chosen in (
                ({"project": str(shell.work), "since": "2020-01-01", "until": "2999-01-01T00:00:00Z"}, True),
                ({"project": str(shell.work / "other")}, False),
                ({"model": "another"}, False),
                ({"since": "2999-01-01"}, False),
                ({"until": "2020-01-01"}, False),
            ):
                filtered = content(await client.call_tool("search_sessions", {"words": "note", **chosen}))
                assert filtered == (hits if is_chosen else {"hits": []})
            mistyped = await client.call_tool("search_sessions", {"words": "note", "since": "yesterday"})
            assert mistyped.is_error
            assert "'yesterday' is not an ISO 8601 time" in content(mistyped)
            [latest] = content(await client.call_tool("search_sessions", {}))["sessions"]
            assert latest["session"] == session
            [text] = (await client.call_tool("read_session", {"session": session})).content
            assert isinstance(text, types.TextContent)
            assert "Write the note." in text.text
            refused = await client.call_tool("continue_session", {"prompt": "Another.", "session": session})
            assert content(refused)["answer"] == "Written."
            wrong = await client.call_tool("continue_session", {"prompt": "Hi.", "session": "nowhere"})
            assert wrong.is_error
            assert "nowhere" in content(wrong)

    writes = [{"call": "write_file", "arguments": {"path": "note.txt", "text": "remember"}}]
    again = [{"call": "write_file", "arguments": {"path": "other.txt", "text": "x"}}]
    with provider([writes, ["Written."], again, ["Written."]]) as server:
        shell.at(server)
        asyncio.run(use())
    assert (shell.work / "note.txt").read_text() == "remember"
    assert not (shell.work / "other.txt").exists()
    assert len(questions) == 2
    assert "write_file" in questions[0]
    assert "remember" in questions[0]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_yes_does_not_apply_to_a_file_that_has_changed_since_it_was_shown(shell: Shell, mode: Any) -> None:
    file = shell.work / "note.txt"
    file.write_text("mine\n")
    questions: list[str] = []

    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        if len(questions) == 1:
            file.write_text("saved meanwhile\n")
            return types.ElicitResult(action="accept", content={})
        assert file.read_text() == "saved meanwhile\n"
        return types.ElicitResult(action="decline", content={})

    async def use() -> None:
        async with Client(serving(shell, "--tools", "files"), mode=mode, elicitation_callback=answer) as client:
            reply = content(await client.call_tool("continue_session", {"prompt": "Write the note."}))
            assert reply["answer"] == "Sorry."

    with provider(
        [[{"call": "write_file", "arguments": {"path": "note.txt", "text": "theirs\n"}}], ["Sorry."]]
    ) as server:
        shell.at(server)
        asyncio.run(use())
    assert file.read_text() == "saved meanwhile\n"
    assert ['["-",1,"mine"]' in questions[0], '["-",1,"saved meanwhile"]' in questions[1]] == [True, True]
    assert len(questions) == 2


def test_a_command_longer_than_any_message_is_asked_about_whole(shell: Shell) -> None:
    command = f"echo safe{' ' * 5_000}; touch pwned"
    questions: list[str] = []

    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="decline", content={})

    async def use() -> None:
        async with Client(serving(shell, "--tools", "files"), elicitation_callback=answer) as client:
            await client.call_tool("continue_session", {"prompt": "Go."})

    with provider([[{"call": "run_command", "arguments": {"command": command}}], ["Sorry."]]) as server:
        shell.at(server)
        asyncio.run(use())
    (question,) = questions
    head, _, body = question.partition("\n")
    assert command in body
    assert f"{len(body):,} characters:" in head


def test_approvals_are_denied_if_the_other_program_cannot_ask(shell: Shell) -> None:
    async def use() -> None:
        async with Client(serving(shell, "--tools", "files")) as client:
            assert content(await client.call_tool("continue_session", {"prompt": "Write."}))["answer"] == "Sorry."

    writes = [{"call": "write_file", "arguments": {"path": "note.txt", "text": "remember"}}]
    with provider([writes, ["Sorry."]]) as server:
        shell.at(server)
        asyncio.run(use())
        assert "cannot ask its user" in server.requests[1]["messages"][-1]["content"]
    assert not (shell.work / "note.txt").exists()


def test_a_read_only_server_needs_no_model_and_continues_nothing(shell: Shell) -> None:
    async def use() -> None:
        async with Client(serving(shell, "--read-only", "--project", ".")) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["search_sessions", "read_session"]
            assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)

    asyncio.run(use())


def test_a_read_only_server_needs_a_scope(bartack: Callable[..., Done]) -> None:
    refused = bartack("mcp", "serve", "--read-only")
    assert refused.status == 2
    assert "choose the sessions to offer with --session or --project" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("words", "seen", "mode"),
    [
        ([], set(), "auto"),
        (["--session", "elsewhere"], {"elsewhere"}, "auto"),
        (["--project", "."], {"here"}, "auto"),
        (["--project", "/"], {"here", "elsewhere"}, "auto"),
        (["--project", ".", "--session", "bare"], {"here", "bare"}, "auto"),
        (["--project", ".", "--session", "bare"], {"here", "bare"}, "legacy"),  # differs in the handshake only
    ],
)
def test_other_programs_see_only_sessions_in_the_scope(
    shell: Shell, words: list[str], seen: set[str], mode: Any
) -> None:
    async def use() -> None:
        store = await open_store(shell.env["BARTACK_STORE"])
        for id, directory in (("here", str(shell.work)), ("elsewhere", "/srv/elsewhere"), ("bare", None)):
            metadata = {} if directory is None else {"directory": directory}
            await store.create_session(id, SessionHeader(title=f"secret {id}", metadata=metadata))
            await queue(store, id, f"secret of {id}")
        await store.close()
        async with Client(serving(shell, *words), mode=mode) as client:
            listed = content(await client.call_tool("search_sessions", {}))["sessions"]
            hits = content(await client.call_tool("search_sessions", {"words": "secret"}))["hits"]
            assert {info["session"] for info in listed} == {hit["session"] for hit in hits} == seen
            for id in ("here", "elsewhere", "bare"):
                for tool, arguments in (("read_session", {}), ("continue_session", {"prompt": "Go."})):
                    if tool == "continue_session" and id in seen:
                        continue
                    result = await client.call_tool(tool, {**arguments, "session": id})
                    assert result.is_error is (id not in seen)
                    if id not in seen:
                        assert f"Session '{id}' does not exist." in content(result)
            own = content(await client.call_tool("continue_session", {"prompt": "Hi."}))["session"]
            assert not (await client.call_tool("read_session", {"session": own})).is_error

    shell.env["BARTACK_STORE"] = str(shell.folder / "sessions.db")
    with provider([["Hello."]]) as server:
        shell.at(server)
        asyncio.run(use())
