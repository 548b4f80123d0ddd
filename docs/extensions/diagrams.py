"""An mkdocs hook that replaces Mermaid diagrams with tables.

Code hosts render Mermaid, but a browser needs a script from another host for it, and the site loads nothing from other
hosts. A table contains the same information and can be searched.
"""

import re
from collections.abc import Sequence
from typing import Any

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
STATE_EDGE = re.compile(r"^\s*(?P<source>\S+) --> (?P<target>[^:\s]+)(?:: (?P<label>.+))?$")
FLOW_EDGE = re.compile(
    r"^\s*(?P<source>\w+)(?:\[\"(?P<source_name>.*?)\"\])? -->(?:\|(?P<label>.*?)\|)? "
    r"(?P<target>\w+)(?:\[\"(?P<target_name>.*?)\"\])?$"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each diagram of a page with a table."""
    return FENCE.sub(lambda fence: f"\n{table_of(fence[1])}\n", markdown)


def table_of(diagram: str) -> str:
    """A diagram as a Markdown table; raises `ValueError` for a line it cannot parse."""
    first, *lines = diagram.splitlines()
    match first.split()[0]:
        case "stateDiagram-v2":
            return _state_table(lines)
        case "flowchart":
            return _flow_table(lines)
        case kind:
            raise ValueError(f"unsupported type of diagram: {kind}")


def _state_table(lines: list[str]) -> str:
    """A row for each state and a column for each event; the cells contain the next state."""
    states: dict[str, dict[str, str]] = {}
    events: dict[str, None] = {}
    for line in lines:
        edge = _read(STATE_EDGE, line)
        if edge["source"] == "[*]":
            continue
        row = states.setdefault(edge["source"], {})
        for event in (edge["label"] or "").split(", "):
            if edge["target"] != "[*]":
                row[event] = edge["target"]
                events[event] = None
    head = ("state", *(f"`{event}`" for event in events))
    rows = [(f"`{state}`", *(row.get(event, "") for event in events)) for state, row in states.items()]
    first = next(iter(states))
    return f"{_table(head, rows)}\n\nThe initial state is `{first}`. An empty cell means that the event is rejected."


def _codes(label: str | None) -> str:
    return ", ".join(f"`{word}`" for word in (label or "").split(", ") if word)


def _flow_table(lines: list[str]) -> str:
    names: dict[str, str] = {}
    edges = [_read(FLOW_EDGE, line) for line in lines]
    for edge in edges:
        for end in ("source", "target"):
            if edge[f"{end}_name"]:
                names[edge[end]] = edge[f"{end}_name"]
    rows = [
        (
            names.get(edge["source"], edge["source"]),
            _codes(edge["label"]),
            names.get(edge["target"], edge["target"]),
        )
        for edge in edges
    ]
    return _table(("from", "by", "to"), rows)


def _read(pattern: re.Pattern[str], line: str) -> re.Match[str]:
    edge = pattern.match(line)
    if edge is None:
        raise ValueError(f"not an edge: {line.strip()}")
    return edge


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
