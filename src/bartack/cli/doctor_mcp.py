"""The checks of `bartack doctor` for MCP servers: which are configured, and whether they could be started."""

import shutil
from collections.abc import Iterator

from bartack.app.mcp_servers import servers_path, user_servers
from bartack.cli.doctor_checks import Check
from bartack.nouns.errors import BartackError
from bartack.tools.mcp import HttpServer, ServerConfig
from bartack.tools.mcp.config import expanded

__all__ = ["mcp_checks"]


def mcp_checks() -> Iterator[Check]:
    """Each server of the user's file. None is started or contacted, and no value of a variable is shown."""
    servers = user_servers()
    if not servers:
        yield Check("servers", "ok", f"none in {servers_path()}")
    for name, config in servers.items():
        yield _server(name, config)


def _server(name: str, config: ServerConfig) -> Check:
    try:
        if isinstance(config, HttpServer):
            texts = (config.url, *config.headers.values())
        else:
            texts = (config.command, *config.args, *config.env.values())
        values = [expanded(text) for text in texts]
    except BartackError as error:
        return Check(name, "error", f"{config.address}: {error.message}", "Set the variable before you start Bartack.")
    if not isinstance(config, HttpServer) and shutil.which(values[0]) is None:
        hint = f"Install it, or run: bartack mcp remove {name}"
        return Check(name, "error", f"{config.address}: there is no program {config.command!r}", hint)
    return Check(name, "ok", f"{config.address}; 'bartack mcp test {name}' connects to it")
