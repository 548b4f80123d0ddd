"""A pure package, with everything that it imports, loads nothing that reaches the outside world."""

import json
import subprocess
import sys

import pytest

from lab.repository import PACKAGES

SOURCE = PACKAGES["bartack"].parent
PURE = ("nouns", "stream", "formats", "session", "views", "events", "display", "protocols")
WORLD = {"asyncio", "http", "select", "selectors", "socket", "sqlite3", "ssl", "subprocess", "urllib.request"}

LOAD_ALL = """
import importlib, json, pkgutil, sys
sys.path.insert(0, sys.argv[1])
package = importlib.import_module(sys.argv[2])
for module in pkgutil.walk_packages(getattr(package, "__path__", ()), package.__name__ + "."):
    importlib.import_module(module.name)
print(json.dumps(list(sys.modules)))
"""


@pytest.mark.parametrize("package", PURE)
def test_a_pure_package_loads_nothing_of_the_outside_world(package: str) -> None:
    """D-2.2"""
    command = [sys.executable, "-I", "-c", LOAD_ALL, str(SOURCE), f"bartack.{package}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(json.loads(run.stdout))
    assert f"bartack.{package}" in loaded
    assert sorted(loaded & WORLD) == []
