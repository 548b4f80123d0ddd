"""The package `app` is shared by all windows, so it imports no library of a particular one."""

import ast
from pathlib import Path

import pytest

import bartack.app

TERMINAL_LIBRARIES = {"typer", "rich", "prompt_toolkit"}
FILES = sorted(Path(bartack.app.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_app_imports_no_terminal_library(path: Path) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} & TERMINAL_LIBRARIES == set()
