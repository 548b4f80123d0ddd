"""The commands of this package: `bartack chat`, `run`, `init`, `acp` and `doctor`."""

from collections.abc import Mapping

from bartack.cli.entry import Command

COMMANDS: Mapping[str, Command] = {
    "chat": Command("bartack_code.chat.command", "Chat with a model in the terminal."),
    "run": Command("bartack_code.run.command", "Run one prompt and print the answer, for scripts."),
    "init": Command("bartack_code.init", "Write a configuration file, check keys, fetch the local model."),
    "acp": Command("bartack_code.editors.command", "Run as the agent of an editor."),
    "doctor": Command("bartack_code.doctor.command", "Check the installation, keys, models and store."),
}
