"""Imports point one way: between the packages, and between the rooms of the library.

Read from the source, so that an import inside a function counts too.
"""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

from lab.repository import PACKAGES, ROOT

SOURCE = PACKAGES["bartack"]

LAYERS = (  # from the bottom; a line is a layer, and its folders do not import each other
    ("nouns",),
    ("stream", "formats", "session", "environment"),
    ("views", "events"),
    ("display",),
    ("protocols",),
    ("models", "tools", "store"),
    ("queues",),
    ("agent", "testing"),
    ("telemetry",),
    ("app",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
PURE_FOLDERS = {"nouns", "stream", "formats", "session", "views", "display", "protocols"}
WORLD = """
    asyncio socket ssl sqlite3 apsw asyncpg http urllib aiohttp time random secrets subprocess threading select
"""

FILES = {path.relative_to(SOURCE): path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}


def unit(path: Path) -> str:
    """The module or package directly under bartack that a file belongs to."""
    return path.parts[0].removesuffix(".py")


parse = cache(ast.parse)  # several tests look at each file


@cache
def imported(source: str) -> frozenset[str]:
    """Every module that the source names in an import, in full."""
    return imports_in(parse(source))


def imports_in(tree: ast.AST) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            # `from bartack import views` names a module, `from bartack.nouns.parts import Text` a value in one
            names |= {f"bartack.{alias.name}" for alias in node.names} if module == "bartack" else {module}
    return frozenset(names)


UNITS = [path for path in FILES if path != Path("__init__.py")]
PURE = [path for path in UNITS if unit(path) in PURE_FOLDERS]


def test_every_folder_has_its_layer() -> None:
    assert {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py"))} <= set(LEVEL)
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "environment.py", "events.py"}


@pytest.mark.parametrize("path", UNITS, ids=str)
def test_imports_point_one_way_only(path: Path) -> None:
    """D-2.1"""
    own = unit(path)
    used = {name.split(".")[1] for name in imported(FILES[path]) if name.startswith("bartack.")} - {own}
    assert "bartack" not in imported(FILES[path]), "import from the module that defines a name"
    assert sorted(name for name in used if LEVEL[name] >= LEVEL[own]) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_the_packages_it_depends_on(package: str) -> None:
    project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {re.split(r"[\[=<>]", requirement)[0] for requirement in project["dependencies"]}
    used = {
        name.partition(".")[0].replace("_", "-")
        for path in PACKAGES[package].rglob("*.py")
        for name in imported(path.read_text(encoding="utf-8"))
    }
    assert used & set(PACKAGES) - {package} == required & set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_declares_every_library_that_it_imports(package: str) -> None:
    declared = declared_libraries(package) | (declared_libraries("bartack", "cli") if package != "bartack" else set())
    libraries = {
        name.partition(".")[0]
        for path in PACKAGES[package].rglob("*.py")
        for name in imported_at_run_time(path.read_text(encoding="utf-8"))
    }
    libraries -= {*sys.stdlib_module_names, *(name.replace("-", "_") for name in PACKAGES)}
    assert libraries
    distributions = distributions_of_packages()
    assert {
        name for name in libraries if not declared & {canonical(distribution) for distribution in distributions[name]}
    } == set()


distributions_of_packages = cache(packages_distributions)  # reads the metadata of everything that is installed


def declared_libraries(package: str, extra: str | None = None) -> set[str]:
    """The distributions that a package depends on, with all of its extras or this one."""
    project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    requirements = [*project["dependencies"], *chain(*(extras.values() if extra is None else (extras[extra],)))]
    return {canonical(re.split(r"[\[=<>;]", requirement)[0]) for requirement in requirements}


def canonical(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def imported_at_run_time(source: str) -> frozenset[str]:
    body = [
        node
        for node in parse(source).body
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    return imports_in(ast.Module(body, type_ignores=[]))


def test_the_package_itself_imports_the_pure_half_only() -> None:
    source = FILES[Path("__init__.py")]
    used = {name.split(".")[1] for name in imported_at_run_time(source) if name.startswith("bartack.")}
    assert used
    assert used <= PURE_FOLDERS


@pytest.mark.parametrize("path", PURE, ids=str)
def test_the_pure_half_imports_nothing_that_does_io(path: Path) -> None:
    """D-2.2, D-2.5"""
    assert sorted({name.split(".")[0] for name in imported(FILES[path])} & set(WORLD.split())) == []


@pytest.mark.parametrize("path", PURE, ids=str)
def test_the_pure_half_reads_no_clock_and_is_not_async(path: Path) -> None:
    """D-2.3, D-1.4"""
    tree = parse(FILES[path])
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
