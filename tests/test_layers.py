"""Imports point one way: each folder of src/bartack imports from folders of lower layers only, never from its own.

Read from the source, so that an import inside a function counts too.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bartack"

LAYERS = (  # from the bottom; a line is a layer, and its folders do not import each other
    ("nouns",),
    ("stream", "formats", "session", "environment"),
    ("views",),
    ("models", "tools", "store"),
    ("queues",),
    ("agent", "testing"),
    ("protocols", "telemetry", "workers"),
    ("interop",),
    ("app",),
    ("web",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
PURE_FOLDERS = {"nouns", "stream", "formats", "session", "views", "interop", "protocols"}
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


UNITS = [path for path in FILES if path != Path("__init__.py")]
PURE = [path for path in UNITS if unit(path) in PURE_FOLDERS]


def test_every_folder_has_its_layer() -> None:
    assert {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py"))} <= set(LEVEL)
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "environment.py"}


@pytest.mark.parametrize("path", UNITS, ids=str)
def test_imports_point_one_way_only(path: Path) -> None:
    """D-2.1"""
    own = unit(path)
    used = {name.split(".")[1] for name in imported(FILES[path]) if name.startswith("bartack.")} - {own}
    assert "bartack" not in imported(FILES[path]), "import from the module that defines a name"
    assert sorted(name for name in used if LEVEL[name] >= LEVEL[own]) == []


def test_the_package_itself_imports_the_pure_half_only() -> None:
    tree = ast.parse(FILES[Path("__init__.py")])
    tree.body = [
        node for node in tree.body if not isinstance(node, ast.If)
    ]  # `if TYPE_CHECKING` imports nothing at run time
    used = {name.split(".")[1] for name in imported(ast.unparse(tree)) if name.startswith("bartack.")}
    assert used
    assert used <= PURE_FOLDERS


@pytest.mark.parametrize("path", PURE, ids=str)
def test_the_pure_half_imports_nothing_that_does_io(path: Path) -> None:
    """D-2.2"""
    assert sorted({name.split(".")[0] for name in imported(FILES[path])} & set(WORLD.split())) == []


@pytest.mark.parametrize("path", PURE, ids=str)
def test_the_pure_half_reads_no_clock_and_is_not_async(path: Path) -> None:
    """D-2.3, D-1.4"""
    tree = ast.parse(FILES[path])
    waiting = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
    assert waiting == []
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    clocks = [f.lineno for f in calls if isinstance(f, ast.Attribute) and f.attr in ("now", "utcnow", "today", "uuid4")]
    assert clocks == []


def test_every_form_of_import_is_found() -> None:
    source = (
        "import a.b, c\nfrom bartack import views\nfrom bartack.nouns.parts import Text\ndef f():\n    import time\n"
    )
    assert imported(source) == {"a.b", "c", "bartack.views", "bartack.nouns.parts", "time"}
