"""Where things are in this repository: its root, and the source of each package, in the order of their dependencies."""

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "PACKAGES",
    "PURE",
    "PURE_TESTS",
    "ROOT",
    "TESTS",
    "files_of_tests",
    "find_module",
    "find_test",
    "import_path",
    "source_files",
]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {  # by distribution: the folder of its import package
    name: ROOT / "packages" / name / "src" / name.replace("-", "_")
    for name in ("bartack", "bartack-transcripts", "bartack-server", "bartack-code")
}
PURE = ("nouns", "stream", "formats", "session", "views", "display", "protocols")
"""The folders of bartack without I/O. Their unit tests cover them completely, and also run under other Pythons."""
PURE_TESTS = [f"packages/bartack/tests/{name}" for name in (*PURE, "seeds", "test_exports.py")]
TESTS = [folder.parents[1] / "tests" for folder in PACKAGES.values()] + [ROOT / "tests"]


def source_files() -> Iterator[Path]:
    """Every Python file that is installed with one of the packages."""
    for folder in PACKAGES.values():
        yield from sorted(folder.rglob("*.py"))


def files_of_tests() -> Iterator[Path]:
    """Every file with tests, or with what they share; not what npm installs beside them, which may change meanwhile."""
    for tests in TESTS:
        for folder, subfolders, names in os.walk(tests):
            subfolders[:] = sorted({*subfolders} - {"node_modules", "__pycache__"})
            yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def find_module(name: str) -> Path:
    """The file or folder that docs and mutants call by a path inside a package, such as ``stream/assembler.py``.

    Raises `FileNotFoundError` if no package, nor the repository itself, has it.
    """
    for folder in (*PACKAGES.values(), ROOT):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"no package contains {name}")


def find_test(name: str) -> Path:
    """The file or folder of this name in the folder ``tests`` of a package or of the repository.

    Raises `FileNotFoundError` if there is none.
    """
    for folder in TESTS:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"no package has a test {name}")


def import_path(root: Path = ROOT) -> str:
    """The value of PYTHONPATH with which a Python imports the packages, and what their tests share, from a checkout."""
    folders = [folder.parent for folder in PACKAGES.values()] + [folder.parent for folder in TESTS]
    return os.pathsep.join(str(root / folder.relative_to(ROOT)) for folder in folders)
