"""No regular expression in src uses a construct that some supported Python gets wrong."""

import ast
import re
from collections.abc import Iterator

import pytest

from lab.repository import ROOT, source_files

# `re` learned possessive quantifiers and atomic groups in 3.11, and the first releases of 3.11 get nested ones wrong:
# `(?:[^"\\]++|\\.)*+` stops early. Debian 12 ships 3.11.2.
WRONG = re.compile(r"[*+?}]\+|\(\?>")
NOT_SYNTAX = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)  # an escape, or a whole character class


def uses_wrong_construct(pattern: str) -> bool:
    return WRONG.search(NOT_SYNTAX.sub("x", pattern)) is not None


def patterns(source: str) -> Iterator[str]:
    """Every string in a module that uses `re`, except for docstrings."""
    tree = ast.parse(source)
    if not any(isinstance(node, ast.Import) and any(name.name == "re" for name in node.names) for node in tree.body):
        return
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in prose and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def test_no_pattern_uses_possessive_quantifiers_or_atomic_groups() -> None:
    uses = [
        f"{path.relative_to(ROOT)}: {pattern}"
        for path in source_files()
        for pattern in patterns(path.read_text(encoding="utf-8"))
        if uses_wrong_construct(pattern)
    ]
    assert uses == []


@pytest.mark.parametrize("pattern", ["a*+", "a++", "a?+", "a{2}+", "(?>a)", r"(?:[^\"\\]++|\\.)*+", "[*+]++"])
def test_the_search_finds_each_construct(pattern: str) -> None:
    assert uses_wrong_construct(pattern)


@pytest.mark.parametrize("pattern", ["a+", "[-*+]+", r"[^\]*+]", r"\*+", r"(?:a|\\.)*", "[]*+]"])
def test_the_search_leaves_other_patterns_alone(pattern: str) -> None:
    assert not uses_wrong_construct(pattern)
