"""Generate the tables in docs/reference/command-rules.md: the families of commands, and the verdict of the rules on
each attack. With --check, only check that they are current.
"""

import sys
import tempfile
from pathlib import Path

from bartack.app.command_families import FAMILIES, is_covered
from lab.pages import fill_section
from lab.repository import ROOT
from tests.app.attack_lines import ATTACKS, attacked_project

PAGE = ROOT / "docs" / "reference" / "command-rules.md"


def families_table() -> str:
    """A row for each family: what may stand in its commands."""
    rows = ["| command | operands | options | covered | asked about | |", "|---|---|---|---|---|---|"]
    for family in FAMILIES.values():
        options = " ".join(f"`{option}`" for option in sorted(family.flags | family.valued)) or "none"
        effect = "executes code of the project, or obeys its configuration" if family.runs_project_code else ""
        examples = f"`{family.example}` | `{family.excluded}`"
        rows.append(f"| `{family.name}` | {family.operands.value} | {options} | {examples} | {effect} |")
    return "\n".join(rows)


def attacks_text() -> str:
    """Each attack with its verdict, by kind, and a summary."""
    with tempfile.TemporaryDirectory() as folder:
        project = attacked_project(Path(folder))
        verdicts = {
            kind: [(line, is_covered(line, FAMILIES, project, project)) for line in sorted(set(lines))]
            for kind, lines in ATTACKS.items()
        }
    everything = [covered for lines in verdicts.values() for _, covered in lines]
    blocks = [f"{len(everything)} command lines, of which {sum(everything)} run without a question."]
    for kind, lines in verdicts.items():
        shown = "\n".join(f"{'RUNS' if covered else 'asks'}  {_one_line(line)}" for line, covered in lines)
        blocks.append(f"### {kind[0].upper()}{kind[1:]}\n\n```text\n{shown}\n```")
    return "\n\n".join(blocks)


def _one_line(line: str) -> str:
    """The line with escapes for what cannot be seen."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def drawn(text: str) -> str:
    """The page with both tables regenerated."""
    return fill_section(fill_section(text, "families", families_table()), "attacks", attacks_text())


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    redrawn = drawn(text)
    if "--check" in sys.argv[1:]:
        raise SystemExit(0 if redrawn == text else f"{PAGE.name} is not current: run make docs")
    PAGE.write_text(redrawn, encoding="utf-8")


if __name__ == "__main__":
    main()
