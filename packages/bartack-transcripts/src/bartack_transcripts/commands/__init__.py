"""The commands of this package: `bartack import`, `export` and `show`."""

from collections.abc import Mapping

from bartack.cli.entry import Command

COMMANDS: Mapping[str, Command] = {
    "export": Command("bartack_transcripts.commands.exports", "Export a session to another agent, or as a document."),
    "import": Command("bartack_transcripts.commands.imports", "Import sessions of other agents."),
    "show": Command("bartack_transcripts.commands.show", "Print a stored session, or a transcript of another agent."),
}
