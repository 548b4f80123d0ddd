"""`bartack mcp`: the servers that chats use, and the sessions as a server for other programs."""

import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bartack.app.errors import with_hint
from bartack.app.mcp_servers import (
    add_server,
    chosen_servers,
    is_http,
    named_server,
    new_server,
    remove_server,
    servers_path,
    user_servers,
)
from bartack.app.platform import run_async
from bartack.app.safe_text import safe_line
from bartack.cli import options
from bartack.cli.output import Row, columns, note, print_json, print_table
from bartack.display.visible_text import visible_text
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.tools.mcp import McpServer, ServerConfig, ServerStatus, mcp

app = options.new_app("Configure and test MCP servers, or serve the sessions as one.")

_SERVERS = columns("name kind address")
_TOOLS = columns("tool approval description")
_DESCRIPTION = 200  # characters

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the server.", autocompletion=lambda: list(user_servers()))
]
WordsArgument = Annotated[
    list[str], typer.Argument(metavar="COMMAND... | URL", help="The command that starts it, after --, or its URL.")
]


@app.command(name="list", no_args_is_help=False)
def list_servers(as_json: options.JsonOption = False) -> None:
    """List the configured servers, without starting them."""
    with options.usage_errors():
        servers = user_servers()
    if as_json:
        items = [{"name": name, "kind": _kind(server), "address": server.address} for name, server in servers.items()]
        print_json({"path": str(servers_path()), "items": items})
        return
    print_table(
        _SERVERS, ((safe_line(name), _kind(server), safe_line(server.address)) for name, server in servers.items())
    )
    if not servers:
        note("no MCP servers; 'bartack mcp add' adds one")


@app.command(no_args_is_help=True)
def add(
    name: NameArgument,
    words: WordsArgument,
    *,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Environment variable that the server gets. May be repeated."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: ${VAR}'", help="HTTP header with an environment variable. May be repeated."),
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="TOOL", help="Offer only this tool. May be repeated.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="TOOL", help="Do not offer this tool. May be repeated.")
    ] = None,
    trust_hints: Annotated[
        bool, typer.Option("--trust-hints", help="Do not ask about tools that the server marks as read-only.")
    ] = False,
) -> None:
    """Add a server for chats to use. Every call of its tools needs your approval.

    Example: bartack mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
    """
    filters = {"allow": allow, "deny": deny, "trust_hints": trust_hints}
    with options.usage_errors():
        add_server(name, new_server(words, env=env or (), headers=header or (), options=filters))
    print(f"Added {name} to {servers_path()}. 'bartack mcp test {name}' connects to it.")


@app.command(no_args_is_help=True)
def remove(name: NameArgument) -> None:
    """Remove a server."""
    with options.usage_errors():
        remove_server(name)
    print(f"Removed {safe_line(name)}.")


@app.command(name="test", no_args_is_help=True)
def check(
    words: Annotated[
        list[str], typer.Argument(metavar="NAME | COMMAND... | URL", help="A configured server, or any other.")
    ],
    *,
    file: Annotated[str | None, typer.Option("--mcp", metavar="FILE", help="File with the server NAME.")] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Connect to a server and list its tools. If the server requires it, a page opens to sign in."""
    with options.usage_errors():
        name, config = _server(words, file)
        auth: Any = None
        if is_http(config):
            from bartack.tools.mcp.oauth import LoopbackSignIn  # noqa: PLC0415 - needs the SDK

            auth = LoopbackSignIn(_show_page)
        server = mcp(config, name=name, auth=auth)
    status = run_async(_connect(server))
    if as_json:
        print_json(_as_json(status))
    else:
        _print_status(status)
    if status.state != "connected":
        text = f"MCP server {status.name!r} is not available: {status.problem}."
        error = BartackError(text, code=ErrorCode.CONNECTION_FAILED)
        lines = status.stderr.strip().splitlines()
        raise with_hint(error, f"Its last message was: {lines[-1]}" if lines else "Check its command or URL.")


def _server(words: list[str], file: str | None) -> tuple[str | None, ServerConfig]:
    if file is not None:
        servers = chosen_servers([file])
        if words[0] not in servers:
            raise BartackError(f"{file} has no server {words[0]!r}.", code=ErrorCode.INVALID_CONFIG)
        return words[0], servers[words[0]]
    if len(words) == 1 and words[0] in user_servers():
        return words[0], named_server(words[0])
    if len(words) == 1 and "://" not in words[0] and " " not in words[0] and "/" not in words[0]:
        named_server(words[0])
    return None, new_server(words, env=(), headers=(), options={})


def _show_page(url: str) -> None:
    note(f"Sign in on this page: {url}")
    webbrowser.open(url)


async def _connect(server: McpServer) -> ServerStatus:
    try:
        await server.open()
        return server.status
    finally:
        await server.close()


def _kind(config: ServerConfig) -> str:
    return "http" if is_http(config) else "process"


def _print_status(status: ServerStatus) -> None:
    if status.state == "connected":
        print(f"{safe_line(status.name)}: {safe_line(status.title or 'unnamed')}, protocol {status.protocol}")
        print_table(_TOOLS, tool_rows(status))
    for name, reason in status.left_out:
        note(f"left out: {safe_line(name)} ({safe_line(reason)})")
    for line in status.stderr.splitlines():
        note(f"stderr: {line}", is_dim=True)


def tool_rows(status: ServerStatus) -> Iterator[Row]:
    """A row for each tool of a server. Invisible characters in what the server wrote are shown as escapes."""
    for tool in status.tools:
        text = visible_text(" ".join(status.described.get(tool.name, tool.description).split()))
        yield tool.name, "asks first" if tool.requires_approval else "not needed", text[:_DESCRIPTION]


def _as_json(status: ServerStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "state": status.state,
        "problem": status.problem,
        "server": status.title,
        "protocol": status.protocol,
        "instructions": status.instructions,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "requiresApproval": bool(tool.requires_approval),
                "parameters": tool.parameter_schema,
                "digest": tool.digest,
            }
            for tool in status.tools
        ],
        "leftOut": [{"name": name, "reason": reason} for name, reason in status.left_out],
    }


@app.command(no_args_is_help=False)
def serve(
    model: options.ModelOption = None,
    store: options.StoreOption = None,
    *,
    session: Annotated[
        str | None,
        typer.Option(metavar="SESSION", help="Offer this session.", autocompletion=options.complete_sessions),
    ] = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Offer the sessions that worked in this directory or below it.")
    ] = None,
    tools: Annotated[
        Literal["files"] | None,
        typer.Option(
            "--tools", metavar="files", help="Let continued sessions use files and commands in this directory."
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only search and read; needs no model.")] = False,
) -> None:
    """Serve sessions to other programs over stdin and stdout: search, read, and continue.

    Without --session and --project, the other program sees only sessions that it starts itself.

    If a tool call in a continued session needs approval, the user of the other program is asked, provided that program
    supports it (elicitation); otherwise the call is denied.
    """
    from bartack.app.mcp_sessions import serve_sessions  # noqa: PLC0415 - slow, and needed only here

    with options.usage_errors():
        if read_only and session is None and project is None:
            text = "With --read-only, choose the sessions to offer with --session or --project."
            raise BartackError(text, code=ErrorCode.INVALID_CONFIG)
        run_async(
            serve_sessions(
                model=model,
                store=store,
                session=session,
                project=project,
                files=tools == "files",
                read_only=read_only,
            )
        )
