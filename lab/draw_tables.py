"""Generate the diagrams in docs/architecture.md from the state tables. With --check, only check that they are current.

The diagrams are between two markers in the file. Do not edit what is between them by hand.
"""

import sys
from typing import Any

from bartack.nouns.tables import AGENT, ASSEMBLY, CALL, TOOL, Table
from lab.pages import fill_section
from lab.repository import ROOT

PAGE = ROOT / "docs" / "architecture.md"
TABLES: dict[str, Table[Any]] = {"ASSEMBLY": ASSEMBLY, "CALL": CALL, "TOOL": TOOL, "AGENT": AGENT}


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
    return "\n".join(lines)


def drawn(text: str) -> str:
    """The page with every diagram regenerated."""
    for name, table in TABLES.items():
        text = fill_section(text, f"table {name}", f"```mermaid\n{diagram(table)}\n```")
    return text


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    redrawn = drawn(text)
    if "--check" in sys.argv[1:]:
        raise SystemExit(0 if redrawn == text else f"{PAGE.name} is not current: run make docs")
    PAGE.write_text(redrawn, encoding="utf-8")


if __name__ == "__main__":
    main()
