"""What users write and import has types for pyright too; `make types` does the same with mypy."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from bartack import Agent
from bartack.agent.options import AgentOptions
from lab.repository import PACKAGES as SOURCES
from lab.repository import ROOT
from tests.test_docs import PAGES, blocks, name_of

# One worker has all of these, and begins with them: at the end, the others would wait for the slowest tests of all.
pytestmark = pytest.mark.xdist_group("checkers")

PACKAGES = ("agent", "formats", "models", "session", "store", "testing", "tools", "views")


def pyright(*words: str) -> dict[str, Any]:
    """The report of a run of pyright, which needs Node but downloads nothing."""
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    if shutil.which("node") is None:
        pytest.skip("pyright needs Node, and there is no `node` on PATH")
    command = [sys.executable, "-m", "pyright", "--outputjson", *words]
    # `--verifytypes` ignores `--pythonpath`: what counts is the `python` on PATH.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_programs_of_users_pass_in_strict_mode(tmp_path: Path) -> None:
    settings = {
        "include": [os.path.relpath(ROOT / "tests" / "typing", tmp_path)],
        "extraPaths": [os.path.relpath(folder.parent, tmp_path) for folder in SOURCES.values()],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": "error",  # a line that has to be an error, and is none
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    report = pyright("--project", str(tmp_path))
    assert report["summary"]["filesAnalyzed"] >= 2
    assert [f"{finding['file']}: {finding['message']}" for finding in report["generalDiagnostics"]] == []


@pytest.fixture(scope="module")
def doc_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python blocks of each page of the docs, as one program per page."""
    folder = tmp_path_factory.mktemp("doc_programs")
    for page in PAGES:
        program = blocks(page)
        if program:
            name = re.sub(r"\W", "_", name_of(page).removesuffix(".md"))
            (folder / f"{name}.py").write_text(program, encoding="utf-8")
    assert len(list(folder.glob("*.py"))) > 40
    return folder


def test_the_code_of_every_page_passes_mypy(doc_programs: Path) -> None:
    options = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), f"--cache-dir={doc_programs / 'cache'}"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, sorted(doc_programs.glob("*.py")))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_code_of_every_page_passes_pyright(doc_programs: Path) -> None:
    settings = {
        "include": ["."],
        "extraPaths": [os.path.relpath(folder.parent, doc_programs) for folder in SOURCES.values()],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
    }
    (doc_programs / "pyrightconfig.json").write_text(json.dumps(settings))
    report = pyright("--project", str(doc_programs))
    errors = [finding for finding in report["generalDiagnostics"] if finding["severity"] == "error"]
    places = [f"{finding['file']}:{finding['range']['start']['line'] + 1}: {finding['message']}" for finding in errors]
    assert places == []


def test_all_that_users_import_has_a_known_type() -> None:
    modules = [import_module(name) for name in ("bartack", *(f"bartack.{package}" for package in PACKAGES))]
    exported = {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}
    classes = {f"{value.__module__}.{value.__qualname__}" for value in exported.values() if isinstance(value, type)}
    symbols = pyright("--verifytypes", "bartack", "--ignoreexternal")["typeCompleteness"]["symbols"]
    unclear = {
        symbol["name"]: [diagnostic["message"] for diagnostic in symbol["diagnostics"]]
        for symbol in symbols
        if symbol["name"] in exported or symbol["name"] in classes or symbol["name"].rpartition(".")[0] in classes
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
    }
    assert len(symbols) > 1000
    assert unclear == {}


def test_the_overloads_of_agent_have_all_of_its_options() -> None:
    options = signature(Agent.__init__).parameters.keys() - {"self", "model", "output_type", "output_function"}
    assert options == AgentOptions.__annotations__.keys()
