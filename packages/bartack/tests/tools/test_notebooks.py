"""Jupyter notebooks as text."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns.errors import ToolError
from bartack.tools import LocalRuntime
from bartack.tools.notebooks import as_cells, with_cells
from bartack.tools.runtime import EditFile, Operation, ReadFile

OUTPUT = [{"output_type": "stream", "name": "stdout", "text": ["2\n"]}]


def code(source: str | list[str], **keys: Any) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "source": source, "execution_count": 1, "outputs": OUTPUT, **keys}


def markdown(source: str | list[str], **keys: Any) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source, **keys}


def notebook(*cells: dict[str, Any], minor: int = 5, indent: int | None = 1) -> str:
    data = {"cells": cells, "metadata": {"kernelspec": {"name": "é"}}, "nbformat": 4, "nbformat_minor": minor}
    return json.dumps(data, indent=indent, ensure_ascii=False) + "\n"


THREE = notebook(markdown("# Title", id="a"), code(["x = 1\n", "x + 1"], id="b"), code("y = 1", id="c"))


def test_the_cells_are_shown_without_outputs() -> None:
    assert as_cells(THREE) == "# %% [markdown]\n# Title\n# %% [code]\nx = 1\nx + 1\n# %% [code]\ny = 1\n"


def test_a_changed_cell_loses_its_outputs_and_the_others_keep_everything() -> None:
    changed = with_cells(THREE, (as_cells(THREE) or "").replace("x + 1", "x + 2"))
    assert changed is not None
    before, after = json.loads(THREE), json.loads(changed)
    expected = {**before["cells"][1], "source": ["x = 1\n", "x + 2"], "execution_count": None, "outputs": []}
    assert after == {**before, "cells": [before["cells"][0], expected, before["cells"][2]]}
    assert with_cells(THREE, as_cells(THREE) or "") == THREE


def test_cells_are_added_removed_and_change_their_type() -> None:
    text = "# %% [code]\n# Title\n# %% [code]\nx = 1\nx + 1\n# %% [raw]\nnew\n# %% [markdown]\nnewer\n"
    after = json.loads(with_cells(THREE, text) or "")["cells"]
    assert [(cell["cell_type"], cell["id"]) for cell in after] == [
        ("code", "cell-1"),
        ("code", "b"),
        ("raw", "cell-2"),
        ("markdown", "cell-3"),
    ]
    assert [cell.get("outputs") for cell in after] == [[], OUTPUT, None, None]


def test_an_older_notebook_gets_no_ids_and_keeps_its_layout() -> None:
    old = notebook(code("a"), minor=4, indent=None).removesuffix("\n")
    changed = with_cells(old, "# %% [code]\na\n# %% [markdown]\nb\n")
    assert changed == notebook(code("a"), markdown(["b"]), minor=4, indent=None).removesuffix("\n")


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "[]",
        '{"cells": 1}',
        '{"cells": [1]}',
        '{"cells": [{"cell_type": "code", "source": [1]}]}',
        '{"cells": [{"cell_type": "heading", "source": "x"}]}',
        notebook(code("# %% [code]\n")),
    ],
)
def test_anything_else_is_a_text(text: str) -> None:
    assert as_cells(text) is None


def test_text_before_the_first_cell_is_refused() -> None:
    assert with_cells(THREE, "x = 1\n") is None
    assert with_cells("not JSON", "") is None


CELLS = st.lists(st.tuples(st.sampled_from(["code", "markdown", "raw"]), st.text("ab\n# %[code]\r\u2028", max_size=20)))


@given(before=CELLS, after=CELLS)
def test_any_cells_can_follow_any_others(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> None:
    cells = [{"cell_type": kind, "metadata": {}, "source": source} for kind, source in before]
    written = as_cells(notebook(*({"cell_type": kind, "metadata": {}, "source": source} for kind, source in after)))
    if written is not None:
        changed = with_cells(notebook(*cells), written)
        assert changed is not None
        assert as_cells(changed) == written


def perform(root: Path, *operations: Operation) -> list[Any]:
    async def run() -> list[Any]:
        runtime = LocalRuntime(root)
        await runtime.connect()
        try:
            results = []
            for operation in operations:
                preview = await runtime.preview(operation)
                results.append((await runtime.execute(operation, preview=preview)).content)
            return results
        finally:
            await runtime.close()

    return asyncio.run(run())


def test_the_tools_read_and_edit_cells(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text(THREE, encoding="utf-8")
    edit = EditFile(path="n.ipynb", old="x = 1\nx + 1", new='x = "one"\nx')
    text, edited, last = perform(tmp_path, ReadFile(path="n.ipynb"), edit, ReadFile(path="n.ipynb", offset=4, limit=1))
    assert text.startswith("# %% [markdown]\n# Title\n# %% [code]\nx = 1\n")
    assert edited == "Replaced 1 occurrence at line 4 of n.ipynb."
    assert last.startswith('x = "one"\n')
    assert json.loads((tmp_path / "n.ipynb").read_text())["cells"][1]["source"] == ['x = "one"\n', "x"]
    with pytest.raises(ToolError, match="# %% "):
        perform(tmp_path, EditFile(path="n.ipynb", old="# %% [markdown]\n", new=""))


def test_a_notebook_that_is_none_is_read_and_edited_as_text(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text("plain\n", encoding="utf-8")
    perform(tmp_path, EditFile(path="n.ipynb", old="plain", new="text"))
    assert perform(tmp_path, ReadFile(path="n.ipynb")) == ["text\n"]
