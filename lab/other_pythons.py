"""Run the tests of the pure half under other Pythons on this machine.

    python -m lab.other_pythons [--outermost]

The recordings are tested under the oldest Python only, whose `re` and `json` differ most from ours. With --outermost,
only the oldest and the newest Python are used: what works in both rarely fails in between. Out: one line per Python;
status 1 if a test failed under any of them.

A Python counts if it is CPython 3.11 or newer and differs from the running one, which `make test` uses for everything.
Each gets an environment in .venv-py/<version> with msgspec and the test tools of requirements/test.txt, built once and
again when that file changes. pip is taken from the running environment, since Debian's Python may lack ensurepip.
Hypothesis tries fewer examples here than in the main run.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.repository import PURE_TESTS, ROOT

TESTS = [*PURE_TESTS, "packages/bartack/tests/properties"]
OLDEST_ONLY = ["packages/bartack/tests/recordings"]
LOCK = ROOT / "requirements" / "test.txt"
OLDEST = (3, 11)
PROBE = "import json, sys; print(json.dumps([sys.implementation.name, sys.version.split()[0], *sys.version_info[:2]]))"
NAME = re.compile(r"python3(?:\.(\d+))?")


@dataclass(frozen=True)
class Python:
    path: Path
    version: str

    @property
    def environment(self) -> Path:
        return ROOT / ".venv-py" / self.version


class Unusable(Exception):
    """This Python cannot run the tests, for the reason in the message."""


def candidates() -> Iterator[Path]:
    """Every file that may be a Python: on PATH, in the usual system folders, installed by pyenv or uv."""
    home = Path.home()
    folders = [Path(folder) for folder in os.get_exec_path()] + [Path("/usr/bin"), Path("/usr/local/bin")]
    for versions in (Path(os.environ.get("PYENV_ROOT", home / ".pyenv"), "versions"), home / ".local/share/uv/python"):
        folders += sorted(versions.glob("*/bin"))
    for folder in dict.fromkeys(folders):
        try:
            files = sorted(folder.iterdir())
        except OSError:
            continue  # on PATH, but not there or not readable
        for file in files:
            if (match := NAME.fullmatch(file.name)) and int(match[1] or OLDEST[1]) >= OLDEST[1]:
                yield file


def probe(path: Path) -> tuple[str, str, tuple[int, int]]:
    """The implementation, full version and (major, minor) of a Python."""
    try:
        done = subprocess.run([path, "-I", "-c", PROBE], capture_output=True, text=True, check=True, timeout=60)
        name, version, major, minor = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Unusable("does not run") from error
    return name, version, (major, minor)


def find(*, with_this: bool = False) -> tuple[list[Python], list[Path]]:
    """One Python for each version, and the candidates for yet others that do not run.

    The version of the running Python is left out unless asked for.
    """
    own_version = sys.version.split()[0]
    by_version = {own_version: Python(Path(sys.executable), own_version)}
    probed: set[Path] = set()
    broken: list[Path] = []
    for path in candidates():
        if (real := path.resolve()) in probed:
            continue
        probed.add(real)
        try:
            name, version, release = probe(path)
        except Unusable:
            broken.append(path)
            continue
        if name == "cpython" and release >= OLDEST:
            by_version.setdefault(version, Python(path, version))
    names = {f"python{version.rpartition('.')[0]}" for version in by_version}
    if not with_this:
        del by_version[own_version]
    pythons = sorted(by_version.values(), key=lambda python: [int(part) for part in re.findall(r"\d+", python.version)])
    return pythons, [path for path in broken if path.name not in names]


def prepare(python: Python) -> Path:
    """The interpreter of this Python's environment, built if it is missing or its lock has changed."""
    executable = python.environment / "bin" / "python"
    marker = python.environment / "locked"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if executable.exists() and marker.exists() and marker.read_text(encoding="utf-8") == digest:
        return executable
    shutil.rmtree(python.environment, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "--python", str(executable)]
    for command in (
        [str(python.path), "-m", "venv", "--without-pip", str(python.environment)],
        [*pip, "install", "--only-binary=:all:", "--no-deps", "--require-hashes", "-r", str(LOCK)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise Unusable(f"cannot be set up ({lines[-1] if lines else ' '.join(command)})")
    marker.write_text(digest, encoding="utf-8")
    return executable


def run(python: Python, folders: list[str]) -> tuple[bool, str]:
    """Whether the tests pass under this Python, and what to print about it."""
    try:
        executable = prepare(python)
    except Unusable as error:
        return "CI" not in os.environ, f"Python {python.version} ({python.path}) skipped: {error}"
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "quick"}
    command = [str(executable), "-m", "pytest", "-p", "no:cacheprovider", *folders]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return False, f"Python {python.version} ({python.path}):\n{done.stdout}{done.stderr}"
    return True, f"Python {python.version} ({python.path}): {done.stdout.strip().splitlines()[-1]}"


def main() -> int:
    options = argparse.ArgumentParser(description="Run the tests of the pure half under other Pythons.")
    options.add_argument("--outermost", action="store_true", help="only under the oldest and the newest Python")
    outermost = options.parse_args().outermost
    pythons, broken = find()
    for path in broken:
        print(f"{path} skipped: it does not run", flush=True)
    if not pythons:
        print("No other Python from 3.11 found.")
        return 0
    if outermost:
        pythons = list(dict.fromkeys((pythons[0], pythons[-1])))
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        passed = True
        folders = [TESTS + OLDEST_ONLY, *([TESTS] * (len(pythons) - 1))]
        for ok, text in pool.map(run, pythons, folders):
            print(text, flush=True)
            passed = passed and ok
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
