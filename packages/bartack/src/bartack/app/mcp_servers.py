"""The MCP servers of the user: ``mcp.json`` next to the configuration file, in the form that other programs use too.

What is written there contains the names of environment variables, never values that may be secret.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bartack.agent import Agent
from bartack.app.errors import with_hint
from bartack.app.safe_text import safe_line
from bartack.app.settings import config_path
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.tools.mcp import HttpServer, McpServer, ServerConfig, load_servers, mcp
from bartack.tools.mcp.config import as_json, clean_name, parse_server, read_json, with_settings
from bartack.tools.mcp.saved_files import change_file
from bartack.tools.toolset import origin_of

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE_HINT = "Values are read from the environment when the server starts, and are never written to a file."


def servers_path() -> Path:
    """The user's file, whether it exists or not."""
    return config_path().with_name("mcp.json")


def unavailable_servers(agent: Agent) -> dict[str, str]:
    """The MCP servers of the agent that it could not connect to, by name: one line about each, safe to print."""
    servers = (origin for origin in map(origin_of, agent.tools.toolsets) if isinstance(origin, McpServer))
    return {
        server.name: safe_line(f"MCP server {server.name!r} is not available: {status.problem}.")
        for server in servers
        if (status := server.status).state == "failed"
    }


def user_servers() -> dict[str, ServerConfig]:
    """The servers in the user's file; none if there is no such file. Raises `BartackError` if it is invalid."""
    path = servers_path()
    return load_servers(path) if path.exists() else {}


def chosen_servers(values: Iterable[str]) -> dict[str, ServerConfig]:
    """The servers that the values of --mcp name: files, and names of servers in the user's file."""
    servers: dict[str, ServerConfig] = {}
    for value in values:
        if not Path(value).expanduser().exists() and "/" not in value and not value.endswith(".json"):
            added = {value: named_server(value)}
        else:
            added = load_servers(value)
        for name, config in added.items():
            if name in servers:
                raise BartackError(f"Two MCP servers are named {name!r}.", code=ErrorCode.INVALID_CONFIG)
            servers[name] = config
    return servers


def named_server(name: str) -> ServerConfig:
    """A server in the user's file; `BartackError` if there is none of this name."""
    servers = user_servers()
    if name not in servers:
        error = BartackError(f"There is no MCP server {name!r} in {servers_path()}.", code=ErrorCode.INVALID_CONFIG)
        names = ", ".join(servers) or "none"
        raise with_hint(error, f"Configured servers: {names}. 'bartack mcp add' adds one.")
    return servers[name]


def toolsets(servers: Mapping[str, ServerConfig]) -> tuple[McpServer, ...]:
    """The servers as sets of tools."""
    return tuple(mcp(config, name=name) for name, config in servers.items())


def new_server(
    words: list[str], *, env: Iterable[str], headers: Iterable[str], options: Mapping[str, Any]
) -> ServerConfig:
    """A server from a command line; `BartackError` if a value is given where the name of a variable is expected."""
    is_url = len(words) == 1 and words[0].startswith(("http://", "https://"))
    settings: dict[str, Any] = {key: value for key, value in options.items() if value}
    if is_url:
        if env:
            raise _server_error("A server at a URL has no environment variables.", "Use --header.")
        parts = urlsplit(words[0])
        if parts.password is not None and not _REFERENCE.search(parts.netloc):
            raise _server_error("The URL contains a password.", _VALUE_HINT)
        settings["headers"] = dict(map(_header, headers))
        return with_settings(parse_server(words[0]), **settings)
    if headers:
        raise _server_error("Only a server at a URL has headers.", "Use --env.")
    settings["env"] = dict(map(_variable, env))
    return with_settings(parse_server(words), **settings)


def _variable(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not _NAME.fullmatch(name):
        raise _server_error(f"Invalid variable name {name!r}.", "Use --env NAME.")
    if value and not _REFERENCE.fullmatch(value):
        hint = f"Use --env {name}, or --env '{name}=${{OTHER}}' for a variable with another name. {_VALUE_HINT}"
        raise _server_error(f"--env {name} contains a value.", hint)
    return name, value or f"${{{name}}}"


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise _server_error(f"Invalid header {name!r}.", "Use --header 'Authorization: Bearer ${TOKEN}'.")
    if not _REFERENCE.search(value):
        hint = f"Use --header '{name.strip()}: ${{NAME}}'. {_VALUE_HINT}"
        raise _server_error(f"The header {name.strip()} contains a value.", hint)
    return name.strip(), value.strip()


def add_server(name: str, config: ServerConfig) -> None:
    """Write a server to the user's file; `BartackError` if the name is taken or cannot be one."""
    if clean_name(name) != name:
        raise _server_error(f"Invalid name {name!r}.", "Use letters, digits, _ and -.")
    if name in _raw_servers():
        raise _server_error(f"There is already an MCP server {name!r}.", f"'bartack mcp remove {name}' removes it.")
    change_file(servers_path(), lambda file: file.setdefault("mcpServers", {}).update({name: as_json(config)}))


def remove_server(name: str) -> None:
    """Delete a server from the user's file; `BartackError` if it is not there."""
    if name not in _raw_servers():
        named_server(name)
    change_file(servers_path(), lambda file: file["mcpServers"].pop(name, None))


def _raw_servers() -> Mapping[str, Any]:
    """What the file contains, also servers that are disabled."""
    path = servers_path()
    servers = read_json(path).get("mcpServers", {}) if path.exists() else {}
    return servers if isinstance(servers, Mapping) else {}


def is_http(config: ServerConfig) -> bool:
    """Whether the server is at a URL."""
    return isinstance(config, HttpServer)


def _server_error(message: str, hint: str) -> BartackError:
    return with_hint(BartackError(message, code=ErrorCode.INVALID_CONFIG), hint)
