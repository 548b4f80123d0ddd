"""Write the help page of every `bartack` command, and the commands of the chat, into docs/cli.md.

With --check, only report whether they are up to date. They are generated between two markers in the file, which is not
edited there by hand, and are the same on every machine: 100 columns wide and without color.
"""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from lab.pages import fill_section
from lab.repository import ROOT

PAGE = ROOT / "docs" / "cli.md"
WIDTH = 100


def pages() -> Iterator[tuple[str, str]]:
    """Every command with its help page: `bartack` itself, then each command and its subcommands."""
    os.environ.update(COLUMNS=str(WIDTH), NO_COLOR="1")
    from typer.main import get_command  # noqa: PLC0415 - typer reads the environment when it is imported

    from bartack.cli.entry import front_page, installed_commands  # noqa: PLC0415 - as may the commands

    commands = installed_commands()
    yield "bartack", front_page(commands)
    for name, command in commands.items():
        yield from _pages_of(get_command(import_module(command.module).app), f"bartack {name}", None)


def _pages_of(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    context = command.make_context(
        name if parent is None else name.rpartition(" ")[2],
        [],
        parent=parent,
        resilient_parsing=True,  # parse only, run nothing
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        color=False,
    )
    with context:
        yield name, command.get_help(context)
        for word, subcommand in getattr(command, "commands", {}).items():
            yield from _pages_of(subcommand, f"{name} {word}", context)


def help_pages() -> str:
    """All help pages, as Markdown."""
    return "\n".join(f"{_heading(name)}\n\n```text\n{_trimmed(help_page)}\n```\n" for name, help_page in pages())


def slash_commands() -> str:
    """The slash commands, as a table."""
    from bartack_code.chat.slash import COMMANDS  # noqa: PLC0415 - as above

    rows = [f"| `{name}` | {command.summary} |" for name, command in COMMANDS.items()]
    return "\n".join(["| command | description |", "|---|---|", *rows, ""])


def drawn(text: str) -> str:
    """The page with the generated parts replaced."""
    for name, draw in {"chat": slash_commands, "commands": help_pages}.items():
        text = fill_section(text, name, f"\n{draw()}")
    return text


def _heading(name: str) -> str:
    return f"{'###' if name.count(' ') > 1 else '##'} {name}"


def _trimmed(help_page: str) -> str:
    return "\n".join(line.rstrip() for line in help_page.strip().splitlines())


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    redrawn = drawn(text)
    if "--check" in sys.argv[1:]:
        raise SystemExit(0 if redrawn == text else f"{PAGE.name} is out of date; run make docs")
    PAGE.write_text(redrawn, encoding="utf-8")


if __name__ == "__main__":
    main()
