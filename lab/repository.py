"""Where things are in this repository: its root, and the source of each package, in the order of their dependencies;
and the parts of pages in docs/ that are generated.
"""

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
    "fill_section",
    "find_module",
    "find_test",
    "import_path",
    "section",
    "source_files",
]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {  # distribution -> the folder of its import package
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


# -- generated parts of pages: what is between `<!-- NAME -->` and `<!-- end -->`.

_END = "<!-- end -->"


def section(text: str, name: str) -> str:
    """The generated part of this name. Raises `ValueError` if the page has none."""
    return _split(text, name)[1]


def fill_section(text: str, name: str, content: str) -> str:
    """The page with this content in its part of this name. Raises `ValueError` if the page has none."""
    preceding, _, following = _split(text, name)
    return f"{preceding}<!-- {name} -->\n{content}\n{_END}{following}"


def _split(text: str, name: str) -> tuple[str, str, str]:
    preceding, begin, remainder = text.partition(f"<!-- {name} -->")
    content, end, following = remainder.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no part between <!-- {name} --> and {_END}")
    return preceding, content, following
