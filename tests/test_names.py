"""One name, one meaning: a public class has a name of its own among all packages."""

import ast
from collections import defaultdict

from lab.repository import ROOT, source_files


def test_no_two_public_classes_have_the_same_name() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in source_files():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: places for name, places in modules.items() if len(places) > 1}
    assert shared == {}
