"""The commands of this package: `bartack gateway`, `serve`, `worker` and `workers`."""

from collections.abc import Mapping

from bartack.cli.entry import Command

COMMANDS: Mapping[str, Command] = {
    "gateway": Command("bartack_server.commands.gateway", "Serve models to other programs, such as Claude Code."),
    "serve": Command("bartack_server.commands.serve", "Serve a web page and an API for sessions."),
    "worker": Command("bartack_server.commands.worker", "Run a worker that executes queued runs."),
    "workers": Command("bartack_server.commands.workers", "Show workers and queued runs."),
}
