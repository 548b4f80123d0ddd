"""Write the parts of docs/ that come from the code: diagrams, tables, help pages and the verdicts on attacks.

    python -m lab.draw_docs                 # write all pages
    python -m lab.draw_docs --check [PAGE]  # exit with status 1 if one of them, or this one, is out of date

SECTIONS has a row for each part. A part is between two markers in its page, where nothing is edited by hand, and it is
the same on every machine.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from bartack.formats import encode, format_named
from bartack.models import VENDORS
from bartack.models.vendors import Vendor
from bartack.nouns.config import CacheConfig, ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.hosted_tools import HOSTED_TOOLS
from bartack.nouns.messages import user
from bartack.nouns.parts import Image
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tables import AGENT, ASSEMBLY, CALL, TOOL, Table
from lab.repository import ROOT, fill_section

DOCS = ROOT / "docs"


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# -- architecture.md: the state tables


def diagram(table: Table[Any]) -> str:
    """The table as a Mermaid state diagram. The first state is the initial one; states without edges are final."""
    first = next(iter(table))
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    for state, edges in table.items():
        by_target: dict[str, list[str]] = {}
        for event, target in edges.items():
            by_target.setdefault(target, []).append(event)
        lines += [f"    {state} --> {target}: {', '.join(events)}" for target, events in by_target.items()]
        if not edges:
            lines.append(f"    {state} --> [*]")
    return "\n".join(["```mermaid", *lines, "```"])


# -- guides/providers.md: which vendor takes which setting and offers which tool
#
# A request with each setting is encoded for each vendor: what becomes a loss is not taken. The models are examples; a
# setting may depend on the model.

SETTINGS: dict[str, Any] = {
    "seed": {"seed": 1},
    "stop_sequences": {"stop_sequences": ("END",)},
    "parallel_tool_calls": {"parallel_tool_calls": False},
    "effort": {"thinking": ThinkingConfig(effort="low")},
    "output_schema": {"output_schema": {"type": "object", "properties": {}, "additionalProperties": False}},
    "cache ttl": {"cache_config": CacheConfig(ttl="1h")},
    "service_tier": {"service_tier": "flex"},
    "verbosity": {"verbosity": "low"},
    "image detail": {},
}
MODELS = {
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5.5",
    "gemini": "gemini-3.5-flash",
    "bedrock": "amazon.nova-2",
}
PICTURE = Image("image/png", data=b"\x89PNG\r\n\x1a\n", detail="low")


def provider_of(vendor: Vendor) -> str:
    return vendor.provider or vendor.name


def model_for(vendor: Vendor) -> str:
    return vendor.default_model or MODELS.get(vendor.format.partition("-")[0], "model")


def takes(vendor: Vendor, setting: str) -> bool:
    """Whether a request with this setting is encoded without a loss."""
    content = ("Look", PICTURE) if setting == "image detail" else ("Hello",)
    request = ModelRequest(
        (user(*content),),
        config=ModelConfig(model_for(vendor), **SETTINGS[setting]),
        tools=(ToolSpec("weather", {"type": "object", "properties": {}}),),
        provider=provider_of(vendor),
    )
    return not encode(vendor.format, request).report.losses


def offers(vendor: Vendor, tool: str) -> bool:
    return format_named(vendor.format).hosted.row_of(tool, provider_of(vendor), model_for(vendor)) is not None


def settings_table() -> str:
    rows = {vendor.name: [takes(vendor, setting) for setting in SETTINGS] for vendor in VENDORS.values()}
    return _yes_table(list(SETTINGS), rows)


def provider_tools_table() -> str:
    """A row for each vendor that executes any tools."""
    rows = {vendor.name: [offers(vendor, tool) for tool in HOSTED_TOOLS] for vendor in VENDORS.values()}
    offering = {name: cells for name, cells in rows.items() if any(cells)}
    return _yes_table([f"`{tool}`" for tool in HOSTED_TOOLS], offering)


def _yes_table(columns: list[str], rows: dict[str, list[bool]]) -> str:
    cells = ([f"`{name}`", *("yes" if cell else "" for cell in row)] for name, row in rows.items())
    return markdown_table(["vendor", *columns], cells)


# -- guides/transcripts.md: the formats of bartack_transcripts/formats.py

EXTENSION = "/globalStorage/"


def formats_table(*, of_programs: bool) -> str:
    """The formats in which programs keep their sessions, or those of files alone."""
    from bartack_transcripts.formats import FORMATS  # noqa: PLC0415 - the other tables do without this package

    rows = []
    for row in FORMATS.values():
        if bool(row.homes) is of_programs:
            exports = "read only" if row.writer is None else "yes"
            places = [_home(row.homes)] if of_programs else []
            rows.append([f"`{row.name}`", f"{row.title}: {row.contents}", *places, exports, row.limits])
    where = ["program", "where it keeps sessions"] if of_programs else ["format"]
    return markdown_table(["name", *where, "exports", "left out"], rows)


def _home(homes: Sequence[str]) -> str:
    """Where a program keeps its sessions, in words."""
    if any(EXTENSION in home for home in homes):
        return f"the folder `{homes[0].rpartition(EXTENSION)[2]}` of VS Code"
    *others, last = (f"`{home}`" for home in homes)
    return f"{', '.join(others)} or {last}" if others else last


# -- cli.md: the help page of every command, 100 columns wide and without color

WIDTH = 100


def help_pages() -> str:
    """All help pages, as Markdown."""
    return "\n" + "\n".join(
        f"{'###' if name.count(' ') > 1 else '##'} {name}\n\n```text\n{_trimmed(help_page)}\n```\n"
        for name, help_page in pages()
    )


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


def _trimmed(help_page: str) -> str:
    return "\n".join(line.rstrip() for line in help_page.strip().splitlines())


def slash_commands() -> str:
    """The slash commands of the chat."""
    from bartack_code.chat.slash import COMMANDS  # noqa: PLC0415 - reads the environment as typer does

    rows = ((f"`{name}`", command.summary) for name, command in COMMANDS.items())
    return f"\n{markdown_table(['command', 'description'], rows)}\n"


# -- reference/command-rules.md: the families of commands, and the verdict of the rules on each attack


def families_table() -> str:
    """A row for each family: what may stand in its commands."""
    from bartack.app.command_families import FAMILIES  # noqa: PLC0415 - only this page needs it

    rows = ["| command | operands | options | covered | asked about | |", "|---|---|---|---|---|---|"]
    for family in FAMILIES.values():
        options = " ".join(f"`{option}`" for option in sorted(family.flags | family.valued)) or "none"
        effect = "executes code of the project, or obeys its configuration" if family.runs_project_code else ""
        examples = f"`{family.example}` | `{family.excluded}`"
        rows.append(f"| `{family.name}` | {family.operands.value} | {options} | {examples} | {effect} |")
    return "\n".join(rows)


def attacks_text() -> str:
    """Each attack with its verdict, by kind, and a summary."""
    from bartack.app.command_families import FAMILIES, is_covered  # noqa: PLC0415 - only this page needs it
    from tests.app.attack_lines import ATTACKS, attacked_project  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        project = attacked_project(Path(folder))
        verdicts = {
            kind: [(line, is_covered(line, FAMILIES, project, project)) for line in sorted(set(lines))]
            for kind, lines in ATTACKS.items()
        }
    everything = [covered for lines in verdicts.values() for _, covered in lines]
    blocks = [f"{len(everything)} command lines, of which {sum(everything)} run without a question."]
    for kind, lines in verdicts.items():
        printed = "\n".join(f"{'RUNS' if covered else 'asks'}  {_one_line(line)}" for line, covered in lines)
        blocks.append(f"### {kind[0].upper()}{kind[1:]}\n\n```text\n{printed}\n```")
    return "\n\n".join(blocks)


def _one_line(line: str) -> str:
    """The line with escapes for what cannot be seen."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


# -- the pages


class Section(NamedTuple):
    """A part of a page that is drawn."""

    page: str  # below docs/
    name: str  # in the markers
    draw: Callable[[], str]


SECTIONS = (
    Section("architecture.md", "table ASSEMBLY", partial(diagram, ASSEMBLY)),
    Section("architecture.md", "table CALL", partial(diagram, CALL)),
    Section("architecture.md", "table TOOL", partial(diagram, TOOL)),
    Section("architecture.md", "table AGENT", partial(diagram, AGENT)),
    Section("guides/providers.md", "settings", settings_table),
    Section("guides/providers.md", "provider tools", provider_tools_table),
    Section("guides/transcripts.md", "programs", partial(formats_table, of_programs=True)),
    Section("guides/transcripts.md", "files", partial(formats_table, of_programs=False)),
    Section("cli.md", "chat", slash_commands),
    Section("cli.md", "commands", help_pages),
    Section("reference/command-rules.md", "families", families_table),
    Section("reference/command-rules.md", "attacks", attacks_text),
)


def drawn(page: str, text: str) -> str:
    """The text of a page with its parts drawn again."""
    for section in SECTIONS:
        if section.page == page:
            text = fill_section(text, section.name, section.draw())
    return text


def main(words: Sequence[str]) -> int:
    chosen = [word for word in words if word != "--check"]
    outdated = []
    for page in dict.fromkeys(section.page for section in SECTIONS):
        if not chosen or page in chosen:
            text = (DOCS / page).read_text(encoding="utf-8")
            redrawn = drawn(page, text)
            if "--check" not in words:
                (DOCS / page).write_text(redrawn, encoding="utf-8")
            elif redrawn != text:
                outdated.append(page)
    if outdated:
        print(f"{', '.join(outdated)}: out of date; run make docs", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
