"""Build the wheel of each package, and check them in clean environments under each Python found.

Out: one line per environment; status 1 if a check failed. Dependencies come from the package index, in the locked
versions, once for each Python, and our own packages from the wheels. The long description of every wheel renders,
without a relative link. An environment has one package, or bartack with one of its extras. In each of them:

- `pip install bartack` installs msgspec and nothing else.
- `import bartack` and the whole pure half load; without any extra, this proves that they need only msgspec.
- Every other module loads too, or fails because of a library that another extra or package brings.
- The hints in HINTS name an existing extra, and disappear once that extra is installed.
- `bartack --help` and `--version` work. Every command of an installed package prints its help, or without the extra
  `cli` says what to install; every command of another package names that package.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from email import message_from_bytes
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from bartack.app.extras import COMMAND_PACKAGES, EXTRAS, LIBRARY_PACKAGES
from bartack.cli.entry import COMMANDS
from lab.other_pythons import Python, find
from lab.repository import PACKAGES, PURE, ROOT

PROJECTS: dict[str, dict[str, Any]] = {
    name: tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in PACKAGES
}
VERSION = PROJECTS["bartack"]["version"]
EXTRA_REQUIREMENTS: dict[str, list[str]] = PROJECTS["bartack"]["optional-dependencies"]
CASES = [
    *PACKAGES,
    *(
        f"{name}[{extra}]"
        for name, project in PROJECTS.items()
        for extra in project.get("optional-dependencies", ())
        if extra != "all"
    ),
]

# Code that needs an extra: without it the output has the hint, with it the code gets past that point.
HINTS = {
    "http": "import bartack.models.http",
    "sqlite": "import asyncio, bartack.store as s; asyncio.run(s.open_store('sqlite:probe.db'))",
    "postgres": "import asyncio, bartack.store as s; asyncio.run(s.open_store('postgresql://127.0.0.1:1/none'))",
    "local": "import bartack; bartack.connect('local')",
}
COMMAND_EXTRAS = {"acp": "bartack-code[acp]"}  # a command that its package does not always install completely
HINT = re.compile(r"pip install 'bartack\[([^\]']+)\]'")

# Prints the distributions that are installed, and the library that each failing module lacks.
PROBE = """
import importlib, json, pkgutil, sys
from importlib.metadata import distributions, version
lacking = {}
def load(package):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            lacking[module.name] = error.name
pure, *packages = sys.argv[1:]
for folder in pure.split():
    load("bartack." + folder)
pure = dict(lacking)
for package in packages:
    load(package)
names = sorted(distribution.name for distribution in distributions())
print(json.dumps({"pure": pure, "lacking": lacking, "version": version("bartack"), "installed": names}))
"""

# Prints the status, the output and the errors of `bartack NAME --help` for each name. Each runs in a process of its
# own, which begins with what all commands load.
HELP = """
import json, os, sys, tempfile
from bartack.cli import main
try:
    import bartack.cli.options
except ModuleNotFoundError:
    pass
pages = {}
for name in sys.argv[1:]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            sys.argv = ["bartack", name, "--help"]
            main()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        pages[name] = status, *(file.seek(0) or file.read() for file in (out, errors))
print(json.dumps(pages))
"""


def run(*command: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BARTACK"))}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def build(package: str, folder: Path) -> Path:
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT / "packages" / package)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob(f"{package.replace('-', '_')}-{VERSION}-*.whl")
    return wheel


def check_description(wheel: Path) -> None:
    """Raise `AssertionError` unless an index can show the long description."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown", metadata["Description-Content-Type"]
    page = MarkdownIt("commonmark").enable("table").render(str(metadata.get_payload()))
    assert page.startswith("<h1>"), page[:200]
    relative = re.findall(r'(?:href|src)="(?!https://|#)([^"]*)"', page)
    assert not relative, f"the description of {wheel.name} has relative links: {relative}"


def write_constraints(folder: Path) -> Path:
    """The locked versions without their hashes; with hashes, pip would require one for our wheels too."""
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    file = folder / "constraints.txt"
    file.write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", lock, re.MULTILINE)), encoding="utf-8")
    return file


class Pip:
    """pip in a new environment. Our own packages come from the folder of the constraints."""

    def __init__(self, python: Python, environment: Path, constraints: Path) -> None:
        done = run(python.path, "-m", "venv", "--without-pip", environment)
        assert done.returncode == 0, done.stderr
        pip = (
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "-qq",
            "--python",
            environment / "bin/python",
        )
        self._command = pip
        self._options = ("--only-binary=:all:", "--find-links", constraints.parent, "--constraint", constraints)

    def run(self, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        options = self._options if words[0] in ("download", "install") else ()
        return run(*self._command, *words, *options)


def download(python: Python, requirements: Sequence[str], folder: Path, constraints: Path) -> Path:
    """A folder with the wheels of these requirements and of all that they need."""
    wheels = folder / "wheels"
    done = Pip(python, folder / "environment", constraints).run("download", "--dest", wheels, *requirements)
    assert done.returncode == 0, done.stderr
    return wheels


def install(python: Python, environment: Path, requirement: str, constraints: Path, downloaded: Path) -> None:
    pip = Pip(python, environment, constraints)
    done = pip.run("install", "--no-compile", "--no-index", "--find-links", downloaded, requirement)
    assert done.returncode == 0, done.stderr
    done = pip.run("check")
    assert done.returncode == 0, done.stdout


def check_modules(environment: Path, case: str, cwd: Path) -> set[str]:
    """Which of our packages are installed."""
    packages = [name.replace("-", "_") for name in PACKAGES if any(environment.rglob(name.replace("-", "_")))]
    done = run(environment / "bin/python", "-I", "-W", "error", "-c", PROBE, " ".join(PURE), *packages, cwd=cwd)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["version"] == VERSION
    assert report["pure"] == {}, f"modules of the pure half lack a library: {report['pure']}"
    if case == "bartack":
        assert report["installed"] == ["bartack", "msgspec"], report["installed"]
    installed = {name.lower().replace("_", "-") for name in report["installed"]}
    for module, library in report["lacking"].items():
        package, extra = LIBRARY_PACKAGES.get(library, "bartack"), EXTRAS.get(library)
        assert library in LIBRARY_PACKAGES or extra, f"{module} needs {library}, which nothing installs"
        is_covered = case == f"bartack[{extra}]" or package in (installed if extra is None else ())
        assert not is_covered, f"{module} needs {library}, which {case} should have installed"
    return installed & PACKAGES.keys()


def check_hints(python: Path, case: str, cwd: Path) -> None:
    package, _, extra = case.rstrip("]").partition("[")
    requirements = EXTRA_REQUIREMENTS.get(extra if package == "bartack" else "cli", [])
    for needed, code in HINTS.items():
        done = run(python, "-I", "-c", code, cwd=cwd)
        extras = HINT.findall(done.stdout + done.stderr)
        assert set(extras) <= EXTRA_REQUIREMENTS.keys(), f"{code}: the hint names an unknown extra: {extras}"
        is_installed = set(EXTRA_REQUIREMENTS[needed]) <= set(requirements)
        assert (needed in extras) != is_installed, f"{code}: {done.stdout}{done.stderr}"


def check_commands(environment: Path, case: str, packages: set[str], cwd: Path) -> None:
    def bartack(*words: str) -> "subprocess.CompletedProcess[str]":
        return run(environment / "bin/bartack", *words, cwd=cwd)

    assert bartack("--version").stdout == f"bartack {VERSION}\n"
    front_page = bartack("--help")
    assert front_page.returncode == 0, front_page.stderr
    listed = set(re.findall(r"^  (\w+)  ", front_page.stdout.partition("Commands:")[2], re.MULTILINE))
    command_packages = {**dict.fromkeys(COMMANDS, "bartack"), **COMMAND_PACKAGES}
    assert listed == {name for name, package in command_packages.items() if package in packages}, front_page.stdout
    has_cli = (environment / "bin/typer").exists()
    pages = run(environment / "bin/python", "-I", "-c", HELP, *command_packages, cwd=cwd)
    assert pages.returncode == 0, pages.stderr
    for name, (status, page, errors) in json.loads(pages.stdout).items():
        package = command_packages[name]
        if package not in packages:
            assert status == 2, f"bartack {name}: {page}"
            assert f"needs the package {package}.\nhint: Run: pip install {package}\n" in errors, errors
        elif has_cli and COMMAND_EXTRAS.get(name, case) == case:
            assert status == 0, errors
            assert page.lstrip().startswith(f"Usage: bartack {name} "), page
        else:
            assert status == 2, page
            assert f"pip install '{COMMAND_EXTRAS[name] if has_cli else 'bartack[cli'}" in errors, errors


def requirement_of(case: str, wheels: dict[str, Path]) -> str:
    """The wheel of this package, with its extra."""
    name, bracket, extra = case.partition("[")
    return f"{wheels[name]}{bracket}{extra}"


def check(python: Python, case: str, requirement: str, constraints: Path, downloaded: Future[Path]) -> str | None:
    """The reason why a package fails in its environment, or None."""
    with tempfile.TemporaryDirectory() as folder:
        environment, cwd = Path(folder, "environment"), Path(folder, "empty")
        cwd.mkdir()
        try:
            install(python, environment, requirement, constraints, downloaded.result())
            packages = check_modules(environment, case, cwd)
            check_hints(environment / "bin/python", case, cwd)
            check_commands(environment, case, packages, cwd)
        except AssertionError as error:
            return str(error)
    return None


def main(chosen: Sequence[str]) -> int:
    pythons = {python.version.rpartition(".")[0]: python for python in find(with_this=True)[0]}
    failed = False
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        wheels = {name: build(name, Path(folder)) for name in PACKAGES}
        for wheel in wheels.values():
            check_description(wheel)
        constraints = write_constraints(Path(folder))
        requirements = {case: requirement_of(case, wheels) for case in chosen or CASES}
        downloads = {
            python: pool.submit(download, python, [*requirements.values()], Path(folder, python.version), constraints)
            for python in pythons.values()
        }
        cases = [(python, case) for python in pythons.values() for case in requirements]
        faults = [
            pool.submit(check, python, case, requirements[case], constraints, downloads[python])
            for python, case in cases
        ]
        for (python, case), result in zip(cases, faults, strict=True):
            fault = result.result()
            print(f"Python {python.version}, {case}: {fault or 'ok'}", flush=True)
            failed = failed or fault is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
