"""Which servers there are, and how to reach them: the ``mcpServers`` JSON that other programs use too.

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "${TOKEN}"}},
                    "search": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

``${NAME}`` and ``${NAME:-default}`` are replaced by environment variables when a server is connected, never before, so
that a configuration that is shown, stored or logged contains the names of secrets and not their values.
"""

import hashlib
import json
import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from bartack.display.visible_text import without_fillers
from bartack.nouns.errors import BartackError, ConfigError, ErrorCode
from bartack.nouns.terminal_control import without_terminal_control
from bartack.tools.output import valid_text

__all__ = [
    "CONFIG_HINT",
    "NEEDS_SIGN_IN",
    "SESSION_EXPIRED",
    "HttpServer",
    "ServerConfig",
    "ServerFailure",
    "StdioServer",
    "expand_variables",
    "load_servers",
    "parse_server",
    "with_settings",
]

CONFIG_HINT = 'Expected {"mcpServers": {NAME: {"command": ..., "args": [...], "env": {...}} or {"url": ...}}}.'
SESSION_EXPIRED = "its session has expired"
NEEDS_SIGN_IN = "it requires sign-in; run 'bartack mcp test' with its name"
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_MAX_FILE_BYTES = 1_000_000
_RUNNERS = frozenset({"npx", "uvx", "bunx", "pipx", "node", "python", "python3", "uv", "docker", "deno", "bun"})
_FILES = frozenset(
    {"index", "main", "server", "__main__", "cli", "dist", "build", "src", "lib"}
)  # not useful as a name
_SUBCOMMANDS = frozenset({"run", "exec", "x", "tool", "dlx"})


class ServerFailure(Exception):
    """Why a server cannot be used, as the rest of a sentence that names it.

    It becomes a tool error; it never ends a run.
    """


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """What any server may be configured with. Files of other programs may have more keys, which are ignored."""

    timeout_ms: int | None = msgspec.field(default=None, name="timeoutMs")  # without progress, per call
    allow: tuple[str, ...] | None = None  # the only tools to offer, by the names that the server uses
    deny: tuple[str, ...] = ()  # tools not to offer
    trust_hints: bool = msgspec.field(default=False, name="trustHints")  # tools marked as read-only need no approval
    instructions: bool = False  # add the server's instructions to the system prompt
    resources: bool = False  # offer tools that list and read resources
    prompts: bool = False  # offer tools that list and read prompts
    disabled: bool = False


class StdioServer(_Options, frozen=True, kw_only=True):
    """A server that is started as a process and communicates over its standard streams."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None

    @property
    def address(self) -> str:
        """The command line, with the names of variables."""
        return shlex.join([self.command, *self.args])


class HttpServer(_Options, frozen=True, kw_only=True):
    """A server at a URL that communicates over streamable HTTP."""

    url: str
    headers: dict[str, str] = {}
    type: Literal["http", "streamable-http", "streamableHttp"] = "http"
    client_id: str | None = msgspec.field(default=None, name="clientId")  # a client that was registered by hand
    client_secret: str | None = msgspec.field(default=None, name="clientSecret")  # its secret: use ${NAME}
    client_metadata_url: str | None = msgspec.field(default=None, name="clientMetadataUrl")  # describes the client
    scope: str | None = None  # requested when signing in

    @property
    def address(self) -> str:
        """The URL without user, password and query, which may be secrets."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


ServerConfig = StdioServer | HttpServer


def parse_server(server: str | Sequence[str]) -> ServerConfig:
    """A command line or a URL as a configuration; `BartackError` if it is neither."""
    if isinstance(server, str) and re.match(r"https?://", server):
        return _check_settings({"url": server}, "The server")
    try:
        words = shlex.split(server) if isinstance(server, str) else list(server)
    except ValueError as error:
        raise config_error(f"Invalid command line {server!r}: {error}.") from None
    if not words or not words[0]:
        raise config_error("An MCP server needs a command or a URL.")
    return _check_settings({"command": words[0], "args": words[1:]}, f"The server {words[0]!r}")


def with_settings(config: ServerConfig, **settings: Any) -> ServerConfig:
    """The configuration with these settings in place of its own; `BartackError` if it has no such setting."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(type(config))}
    kind = "at a URL" if isinstance(config, HttpServer) else "that is a process"
    for name in settings:
        if name not in names:
            raise config_error(f"A server {kind} has no setting {name!r}.")
    fields = {names[name]: value for name, value in settings.items()}
    return _check_settings({**json.loads(msgspec.json.encode(config)), **fields}, "The server")


def server_name(config: ServerConfig) -> str:
    """A short name for a server that was given none: the last part of its package, program or host."""
    if isinstance(config, HttpServer):
        host = urlsplit(config.url).hostname or "server"
        labels = [label for label in host.split(".") if label not in {"www", "mcp", "api"}]
        return clean_name(labels[0] if labels and not host.replace(".", "").isdecimal() else host)
    words = [config.command, *config.args]
    if Path(words[0]).name in _RUNNERS:
        words = [word for word in words[1:] if not word.startswith("-") and word not in _SUBCOMMANDS] or words
    name = re.sub(r"(?<=.)@[^/]*$", "", words[0])  # the version of a package
    parts = [re.sub(r"\.(py|js|mjs|ts|sh)$", "", part) for part in Path(name.rstrip("/")).parts]
    return clean_name(next((part for part in reversed(parts) if part not in _FILES), parts[-1]))


def clean_name(text: str) -> str:
    """The text as part of a tool name: letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") or "server"


def tool_prefix(server: str) -> str:
    """What the names of a server's tools begin with; it depends on nothing but the name of the server.

    The server ends at the first ``__`` of a tool's name or, if there is none, at the first ``_``. Otherwise ``a`` with
    a tool ``b_c`` and ``a_b`` with a tool ``c`` would both offer ``a_b_c``.
    """
    name = clean_name(server)
    if name != server or "__" in name:  # another server may have this name
        name = f"{re.sub('_+', '_', name)}_{hashlib.sha256(server.encode()).hexdigest()[:8]}"
    return f"{name}__" if "_" in name else f"{name}_"


def load_servers(source: str | Path | Mapping[str, Any]) -> dict[str, ServerConfig]:
    """The servers of a file, or of its parsed content, by name; disabled ones are left out.

    Raises `BartackError` with the code ``invalid_config``, which names the server and what is wrong.
    """
    if isinstance(source, Mapping):
        data, origin = source, "The MCP configuration"
    else:
        data, origin = read_json(Path(source).expanduser()), str(source)
    servers = data.get("mcpServers", data.get("servers"))
    if not isinstance(servers, Mapping):
        raise config_error(f"{origin} has no object mcpServers.")
    configs = {name: _check_settings(fields, f"{origin}: server {name!r}") for name, fields in servers.items()}
    return {name: config for name, config in configs.items() if not config.disabled}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `BartackError` if there is none."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise config_error(f"{path} is larger than {_MAX_FILE_BYTES:,} bytes.")
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise config_error(f"Cannot read {path}: {error.strerror}.") from None
    except msgspec.MsgspecError as error:
        raise config_error(f"{path} is not a JSON object: {error}.") from None


def _check_settings(settings: Any, where: str) -> ServerConfig:
    if not isinstance(settings, Mapping):
        raise config_error(f"{where} must be an object.")
    kind: Any = HttpServer if "url" in settings else StdioServer
    if kind is HttpServer and settings.get("type") == "sse":
        raise config_error(f"{where} uses the old transport sse; only streamable HTTP is supported.")
    fields = {field.encode_name for field in msgspec.structs.fields(kind)} - (
        {"type"} if kind is StdioServer else set()
    )
    try:
        config: ServerConfig = msgspec.convert({key: value for key, value in settings.items() if key in fields}, kind)
    except msgspec.ValidationError as error:
        raise config_error(f"{where} is invalid: {error}.") from None
    if isinstance(config, HttpServer) and urlsplit(config.url).scheme not in {"http", "https"}:
        raise config_error(f"{where}: {config.url!r} is not an http or https URL.")
    if config.timeout_ms is not None and config.timeout_ms <= 0:
        raise config_error(f"{where}: timeoutMs must be positive.")
    return config


def expand_variables(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text with the values of environment variables; `BartackError` if one is not set and has no default."""
    values = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        variable = values.get(match["name"], match["default"])
        if variable is None:
            text = f"The environment variable {match['name']} is not set."
            raise BartackError(text, code=ErrorCode.MISSING_CREDENTIALS)
        return variable

    return _VARIABLE.sub(value, text)


def secrets_in(texts: Iterable[str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that texts refer to, with their values."""
    values = os.environ if environment is None else environment
    names = {match["name"] for text in texts for match in _VARIABLE.finditer(text)}
    return {name: values[name] for name in names if name in values}


def as_json(config: ServerConfig) -> dict[str, Any]:
    """The configuration as it is written to a file, without defaults."""
    full = json.loads(msgspec.json.encode(config))
    defaults = {field.encode_name: field.default for field in msgspec.structs.fields(type(config))}
    empty: tuple[Any, ...] = (None, False, [], {})
    return {key: value for key, value in full.items() if value not in empty and value != defaults[key]}


def config_error(message: str) -> BartackError:
    """The error for a configuration that is wrong, with the expected form as a note."""
    error = ConfigError(message)
    error.add_note(CONFIG_HINT)
    return error


# -- text from a server
#
# Without terminal control, and without the values of secrets that the server was given.

_MIN_SECRET = 6  # shorter values, such as "1" or "true", occur everywhere


def plain_text(text: str) -> str:
    """The text of a result, without terminal control. What a terminal shows is also cleaned when it is printed; this
    keeps control characters out of the session and of other windows."""
    return without_terminal_control(valid_text(text))


def visible_prose(text: str) -> str:
    """A description for a model, without anything that a person who reads it would not see."""
    text = without_fillers(plain_text(text))
    if text.isprintable():
        return text
    return "".join(sign for sign in text if sign in "\n\t" or unicodedata.category(sign) not in {"Cf", "Co", "Cn"})


def mask_values(text: str, secrets: Mapping[str, str]) -> str:
    """The text with the names of variables and headers in place of their values."""
    for name, value in sorted(secrets.items(), key=lambda item: -len(item[1])):
        if len(value) >= _MIN_SECRET:
            text = text.replace(value, f"${{{name}}}")
    return text
