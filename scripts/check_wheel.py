"""Build the wheel, and check it in clean environments: the core alone and each extra alone, under each Python found.

In: nothing. Out: one line per environment; status 1 if a check failed. Dependencies come from the package index, in the
locked versions. The long description renders, without a relative link. For each environment:

- `import bartack` and the whole pure half load; without any extra, this proves that they need only msgspec.
- Every other module loads too, or fails because of a missing library that belongs to another extra.
- The hints in HINTS name an existing extra, and disappear once that extra is installed.
- With `cli`, `bartack --version` prints the version; without it, `bartack` names the extra.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from pathlib import Path

from markdown_it import MarkdownIt

from bartack.app.extras import EXTRAS as EXTRA_OF
from scripts.other_pythons import ROOT, Python, find

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS: dict[str, list[str]] = PROJECT["optional-dependencies"]
EXTRAS = [name for name in REQUIREMENTS if name != "all"]
CORE = "core"

# Code that needs an extra: without it the output has the hint, with it the code gets past that point.
HINTS = {
    "http": "import bartack.models.http",
    "sqlite": "import asyncio, bartack.store as s; asyncio.run(s.open_store('sqlite:probe.db'))",
    "postgres": "import asyncio, bartack.store as s; asyncio.run(s.open_store('postgresql://127.0.0.1:1/none'))",
    "local": "import bartack; bartack.connect('local')",
}
HINT = re.compile(r"pip install 'bartack\[([^\]']+)\]'")

# Prints the library that each failing module lacks.
MODULES = """
import importlib, json, pkgutil
import bartack
lacking = {}
def load(package):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            lacking[module.name] = error.name
for pure in ("nouns", "stream", "formats", "session", "views"):
    load("bartack." + pure)
pure = dict(lacking)
load("bartack")
print(json.dumps({"pure": pure, "lacking": lacking, "version": bartack.__version__}))
"""


def run(*command: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BARTACK"))}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def build(folder: Path) -> Path:
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_description(wheel: Path) -> None:
    """Raise `AssertionError` unless an index can show the long description."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown", metadata["Description-Content-Type"]
    page = MarkdownIt("commonmark").enable("table").render(str(metadata.get_payload()))
    assert "<h1>Bartack</h1>" in page, page[:200]
    relative = re.findall(r'(?:href|src)="(?!https://|#)([^"]*)"', page)
    assert not relative, f"the description has relative links: {relative}"


def constraints(folder: Path) -> Path:
    """The locked versions without their hashes; with hashes, pip would require one for the wheel too."""
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    file = folder / "constraints.txt"
    file.write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", lock, re.MULTILINE)), encoding="utf-8")
    return file


def install(python: Python, environment: Path, wheel: Path, extra: str, limits: Path) -> None:
    done = run(python.path, "-m", "venv", "--without-pip", environment)
    assert done.returncode == 0, done.stderr
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "-qq",
        "--python",
        environment / "bin" / "python",
    )
    what = str(wheel) if extra == CORE else f"{wheel}[{extra}]"
    done = run(*pip, "install", "--no-compile", "--only-binary=:all:", "--constraint", limits, what)
    assert done.returncode == 0, done.stderr
    done = run(*pip, "check")
    assert done.returncode == 0, done.stdout


def check_modules(python: Path, extra: str, cwd: Path) -> None:
    done = run(python, "-I", "-W", "error", "-c", MODULES, cwd=cwd)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["version"] == PROJECT["version"]
    assert found["pure"] == {}, f"modules of the pure half lack a library: {found['pure']}"
    for module, library in found["lacking"].items():
        assert library in EXTRA_OF, f"{module} needs {library}, which no extra installs"
        assert EXTRA_OF[library] != extra, f"{module} needs {library}, which bartack[{extra}] should have installed"


def check_hints(python: Path, extra: str, cwd: Path) -> None:
    for needed, code in HINTS.items():
        done = run(python, "-I", "-c", code, cwd=cwd)
        named = HINT.findall(done.stdout + done.stderr)
        assert set(named) <= set(EXTRAS), f"{code}: the hint names an unknown extra: {named}"
        is_installed = set(REQUIREMENTS[needed]) <= set(REQUIREMENTS.get(extra, ()))
        assert (needed in named) != is_installed, f"{code}: {done.stdout}{done.stderr}"


def check_command(environment: Path, extra: str, cwd: Path) -> None:
    done = run(environment / "bin" / "bartack", "--version", cwd=cwd)
    if extra == "cli":
        assert (done.returncode, done.stdout) == (0, f"bartack {PROJECT['version']}\n"), done.stderr
        help_page = run(environment / "bin" / "bartack", "--help", cwd=cwd)
        assert help_page.returncode == 0, help_page.stderr
    else:
        assert HINT.findall(done.stderr) == ["cli"], done.stderr
        assert done.returncode == 2, done.returncode


def check(python: Python, extra: str, wheel: Path, limits: Path) -> str | None:
    """The reason why the wheel fails in this environment, or None."""
    with tempfile.TemporaryDirectory() as folder:
        environment, cwd = Path(folder, "environment"), Path(folder, "empty")
        cwd.mkdir()
        try:
            install(python, environment, wheel, extra, limits)
            check_modules(environment / "bin" / "python", extra, cwd)
            check_hints(environment / "bin" / "python", extra, cwd)
            check_command(environment, extra, cwd)
        except AssertionError as error:
            return str(error)
    return None


def main() -> int:
    pythons = {python.version.rpartition(".")[0]: python for python in find(with_this=True)[0]}
    failed = False
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        wheel, limits = build(Path(folder)), constraints(Path(folder))
        check_description(wheel)
        cases = [(python, extra) for python in pythons.values() for extra in (CORE, *EXTRAS)]
        faults = pool.map(lambda case: check(case[0], case[1], wheel, limits), cases)
        for (python, extra), fault in zip(cases, faults, strict=True):
            print(f"{wheel.name}, Python {python.version}, {extra}: {fault or 'ok'}", flush=True)
            failed = failed or fault is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
