"""`import bartack` is cheap: it loads nothing that talks to the world, and needs msgspec and nothing else.

How long it takes is measured in bench/import_time.py; a time never fails a test.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
WORLD = {"asyncio", "aiohttp", "http.client", "sqlite3", "apsw", "asyncpg", "ssl", "socket", "typer", "rich"}

# Refuses every package that is neither the standard library's nor one of the two.
ONLY_MSGSPEC = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "bartack", "msgspec"}:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)
sys.meta_path.insert(0, Refuse())
"""


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after running this."""
    code = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{code}\nimport json; print(json.dumps(list(sys.modules)))"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout))


def test_importing_bartack_loads_nothing_of_the_world() -> None:
    loaded = loaded_by("import bartack")
    assert "bartack.stream.assembler" in loaded
    assert sorted(loaded & WORLD) == []


@pytest.mark.parametrize(
    "code",
    [
        "import bartack",
        "import bartack.formats, bartack.formats, bartack.views, bartack.formats.repair, bartack.nouns.schema",
    ],
)
def test_the_pure_half_needs_msgspec_and_nothing_else(code: str) -> None:
    loaded = loaded_by(ONLY_MSGSPEC + code)
    outside = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"bartack", "msgspec"}
    assert {name for name in outside if not name.startswith(("_", "sitecustomize"))} == set()


def test_without_msgspec_there_is_no_bartack() -> None:
    with pytest.raises(AssertionError, match="msgspec is not installed"):
        loaded_by(ONLY_MSGSPEC.replace('"bartack", "msgspec"', '"bartack"') + "import bartack")
