"""MCP (Model Context Protocol) servers as sets of tools (extra ``mcp``).

agent = Agent("anthropic:claude-sonnet-4-6", tools=[mcp("npx -y @modelcontextprotocol/server-everything")])
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bartack.nouns.errors import BartackError, ErrorCode
from bartack.tools.definition import MAX_OUTPUT_CHARS
from bartack.tools.mcp.config import (
    HttpServer,
    ServerConfig,
    StdioServer,
    load_servers,
    parse_server,
    server_name,
    with_settings,
)
from bartack.tools.mcp.saved_files import default_path
from bartack.tools.mcp.server import CONNECT_TIMEOUT_MS, McpServer, ServerStatus

if TYPE_CHECKING:
    import httpx2

    from bartack.tools.mcp.oauth import LoopbackSignIn
    from bartack.tools.mcp.questions import SamplingModel

__all__ = [
    "HttpServer",
    "McpServer",
    "ServerConfig",
    "ServerStatus",
    "StdioServer",
    "load_servers",
    "mcp",
    "mcp_servers",
]


def mcp(
    server: str | Sequence[str] | ServerConfig,
    *,
    name: str | None = None,
    prefix: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    headers: Mapping[str, str] | None = None,
    allow: Sequence[str] | None = None,
    deny: Sequence[str] | None = None,
    trust_hints: bool | None = None,
    instructions: bool | None = None,
    resources: bool | None = None,
    prompts: bool | None = None,
    timeout_ms: int | None = None,
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    max_output_chars: int = MAX_OUTPUT_CHARS,
    elicitation: bool = True,
    sampling: "SamplingModel | None" = None,
    roots: Sequence[str | Path] = (),
    known_tools: str | Path | None = None,
    auth: "httpx2.Auth | LoopbackSignIn | None" = None,
    tokens: str | Path | None = None,
) -> McpServer:
    """A server, for ``Agent(tools=[...])``: a command line, a list of words, a URL, or a configuration, whose settings
    the arguments replace.

    `name` is used in messages and, unless there is a `prefix`, in front of the names of tools. `env` and `headers` may
    contain ``${NAME}`` for environment variables, and so may the words of a command and a URL. A process gets harmless
    variables and those in `env`.

    `allow` and `deny` name tools as the server does. Every call needs approval, unless the agent's policy
    decides otherwise; with `trust_hints`, tools that the server marks as read-only need none. `instructions` gives the
    server's instructions to the model, `resources` and `prompts` add tools that read them.

    A call fails after `timeout_ms` without progress. `elicitation` lets the server ask the user, through the run's
    approver; `sampling` is a model that may answer the server's requests, after approval; `roots` are folders announced
    to the server. `known_tools` is the file for the digests of definitions (default: in the user's data folder).

    `auth` signs the requests to a URL: a `bartack.tools.mcp.oauth.LoopbackSignIn` if a person can sign in now, or any
    ``httpx2.Auth``, such as the providers of the SDK. Without it, tokens of an earlier sign-in are used and refreshed.
    They are in the file `tokens` (default: in the user's configuration folder).

    Nothing is started or connected before a run. Raises `BartackError` with the code ``invalid_config``, or
    ``missing_dependency`` without the extra.
    """
    if find_spec("mcp") is None:
        error = BartackError("MCP servers need the package mcp.", code=ErrorCode.MISSING_DEPENDENCY)
        error.add_note("Run: pip install 'bartack[mcp]'")
        raise error
    settings: dict[str, Any] = {
        "env": None if env is None else dict(env),
        "cwd": None if cwd is None else str(cwd),
        "headers": None if headers is None else dict(headers),
        "allow": None if allow is None else list(allow),
        "deny": None if deny is None else list(deny),
        "trust_hints": trust_hints,
        "instructions": instructions,
        "resources": resources,
        "prompts": prompts,
        "timeout_ms": timeout_ms,
    }
    config = server if isinstance(server, StdioServer | HttpServer) else parse_server(server)
    config = with_settings(config, **{key: value for key, value in settings.items() if value is not None})
    return McpServer(
        name or server_name(config),
        config,
        prefix=prefix,
        connect_timeout_ms=connect_timeout_ms,
        max_output_chars=max_output_chars,
        elicitation=elicitation,
        sampling=sampling,
        roots=roots,
        known_tools=default_path() if known_tools is None else Path(known_tools),
        auth=auth,
        tokens=None if tokens is None else Path(tokens),
    )


def mcp_servers(source: str | Path | Mapping[str, Any], **options: Any) -> list[McpServer]:
    """The servers of a file with ``mcpServers``, or of its parsed content; `options` are those of `mcp` for all of
    them. Raises `BartackError` with the code ``invalid_config``."""
    return [mcp(config, name=name, **options) for name, config in load_servers(source).items()]
