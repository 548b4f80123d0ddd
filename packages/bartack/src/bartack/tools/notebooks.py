"""Jupyter notebooks as text: their cells, each after a line such as ``# %% [code]``, without outputs.

`as_cells` returns this text, and `with_cells` the notebook whose cells are those of a changed text. Cells that have not
changed keep everything else: id, metadata and outputs. A changed cell keeps its id and metadata and loses its outputs,
which are no longer those of its source. A file whose cells cannot be told apart in this form is a text like any other.
"""

import json
import re
from difflib import SequenceMatcher
from typing import Any

__all__ = ["as_cells", "is_notebook", "with_cells"]

_MARK = re.compile(r"^# %% \[(code|markdown|raw)\]$", re.MULTILINE)

Cell = tuple[str, str]  # its type and its source


def is_notebook(path: str) -> bool:
    """Whether a file of this name is a notebook."""
    return path.endswith(".ipynb")


def as_cells(text: str) -> str | None:
    """The cells of a notebook; None if this is not one that can be written as such."""
    notebook = _notebook(text)
    if notebook is None:
        return None
    cells = _cells_of(notebook)
    written = "\n".join(f"# %% [{kind}]\n{source}" for kind, source in cells) + "\n" * bool(cells)
    return written if _parsed(written) == cells else None


def with_cells(text: str, cells_text: str) -> str | None:
    """The notebook with these cells; None if there is text before the first one."""
    notebook, cells = _notebook(text), _parsed(cells_text)
    if notebook is None or cells is None:
        return None
    old_cells, old = _cells_of(notebook), notebook["cells"]
    new: list[dict[str, Any]] = []
    for tag, start, stop, new_start, new_stop in SequenceMatcher(None, old_cells, cells, autojunk=False).get_opcodes():
        if tag == "equal":
            new += old[start:stop]
            continue
        for offset, (kind, source) in enumerate(cells[new_start:new_stop]):
            same = old[start + offset] if start + offset < stop else None
            new.append(_cell(kind, source, same if same is not None and same["cell_type"] == kind else None))
    if [int(notebook.get("nbformat", 4)), int(notebook.get("nbformat_minor", 0))] >= [4, 5]:
        _name(new)
    indent = re.match(r"\{\n?( *)", text)
    written = json.dumps({**notebook, "cells": new}, indent=len(indent[1]) or None if indent else 1, ensure_ascii=False)
    return written + "\n" * text.endswith("\n")


def _notebook(text: str) -> dict[str, Any] | None:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    is_valid = isinstance(cells, list) and all(
        isinstance(cell, dict) and isinstance(cell.get("cell_type"), str) and _source(cell) is not None
        for cell in cells
    )
    return notebook if is_valid else None


def _source(cell: dict[str, Any]) -> str | None:
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    return source if isinstance(source, str) else None


def _cells_of(notebook: dict[str, Any]) -> list[Cell]:
    return [(cell["cell_type"], _source(cell) or "") for cell in notebook["cells"]]


def _parsed(text: str) -> list[Cell] | None:
    """The cells in a text; None if it has something before the first one."""
    before, *parts = _MARK.split(text)
    if before.strip():
        return None
    sources = (part.removeprefix("\n").removesuffix("\n") for part in parts[1::2])
    return list(zip(parts[::2], sources, strict=True))


def _cell(kind: str, source: str, same: dict[str, Any] | None) -> dict[str, Any]:
    """A cell with a new source, which is otherwise the `same` as one that there was."""
    lines = source.splitlines(keepends=True)
    cell = {"cell_type": kind, "metadata": {}, **(same or {}), "source": lines}
    return {**cell, "execution_count": None, "outputs": []} if kind == "code" else cell


def _name(cells: list[dict[str, Any]]) -> None:
    """Give each new cell an id, which notebooks have since version 4.5."""
    used = {cell.get("id") for cell in cells}
    free = (f"cell-{number}" for number in range(1, 2 * len(cells) + 2) if f"cell-{number}" not in used)
    for cell in cells:
        if "id" not in cell:
            cell["id"] = next(free)
