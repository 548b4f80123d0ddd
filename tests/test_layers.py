"""Imports point one way: windows to shells to machines to nouns; and the pure half touches nothing of the world.

Read from the source, so that an import inside a function counts too.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bartack"

LAYERS = {
    "nouns": "nouns",
    "machines": "stream formats session",
    "shells": "environment models tools store agent testing",
    "windows": "views interop cli web",
}
LEVEL = {name: level for level, names in enumerate(LAYERS.values()) for name in names.split()}
PURE_WINDOWS = {"views"}  # folds over facts, without a world
WORLD = """
    asyncio socket ssl sqlite3 apsw asyncpg http urllib aiohttp time random secrets subprocess threading select
"""

FILES = {path.relative_to(SOURCE): path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}


def unit(path: Path) -> str:
    """The module or package directly under bartack that a file belongs to."""
    return path.parts[0].removesuffix(".py")


def imported(source: str) -> set[str]:
    """Every module that the source names in an import, in full."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            # `from bartack import views` names a module, `from bartack.nouns.parts import Text` a value in one
            names |= {f"bartack.{alias.name}" for alias in node.names} if module == "bartack" else {module}
    return names


def is_pure(path: Path) -> bool:
    return path.name != "__init__.py" or len(path.parts) > 1 if unit(path) in PURE_WINDOWS else LEVEL[unit(path)] < 2


UNITS = [path for path in FILES if path != Path("__init__.py")]
PURE = [path for path in UNITS if is_pure(path)]


def test_every_module_has_its_layer() -> None:
    assert {unit(path) for path in UNITS} <= set(LEVEL)


@pytest.mark.parametrize("path", UNITS, ids=str)
def test_imports_point_one_way_only(path: Path) -> None:
    """D-2.1"""
    own = LEVEL[unit(path)]
    used = {name.split(".")[1] for name in imported(FILES[path]) if name.startswith("bartack.")}
    upwards = sorted(name for name in used if name in LEVEL and LEVEL[name] > own)
    assert upwards == []


def test_the_package_itself_loads_the_pure_half_only() -> None:
    tree = ast.parse(FILES[Path("__init__.py")])
    tree.body = [node for node in tree.body if not isinstance(node, ast.If)]  # `if TYPE_CHECKING` loads nothing
    used = {name.split(".")[1] for name in imported(ast.unparse(tree)) if name.startswith("bartack.")}
    assert used
    assert {name for name in used if LEVEL[name] > 1} == set()


@pytest.mark.parametrize("path", PURE, ids=str)
def test_the_pure_half_imports_nothing_of_the_world(path: Path) -> None:
    """D-2.2"""
    assert sorted({name.split(".")[0] for name in imported(FILES[path])} & set(WORLD.split())) == []


@pytest.mark.parametrize("path", PURE, ids=str)
def test_the_pure_half_looks_at_no_clock_and_waits_for_nothing(path: Path) -> None:
    """D-2.3, D-1.4"""
    tree = ast.parse(FILES[path])
    waiting = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
    assert waiting == []
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    clocks = [f.lineno for f in calls if isinstance(f, ast.Attribute) and f.attr in ("now", "utcnow", "today", "uuid4")]
    assert clocks == []


def test_the_reader_of_imports_sees_them_all() -> None:
    source = (
        "import a.b, c\nfrom bartack import views\nfrom bartack.nouns.parts import Text\ndef f():\n    import time\n"
    )
    assert imported(source) == {"a.b", "c", "bartack.views", "bartack.nouns.parts", "time"}
