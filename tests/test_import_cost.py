"""`import bartack` is cheap: it loads no I/O modules and needs nothing but msgspec.

bench/import_time.py measures how long it takes; no test depends on a time.
"""

import json
import subprocess
import sys

import pytest

from lab.repository import PACKAGES

SOURCE = PACKAGES["bartack"].parent
WORLD = {"asyncio", "aiohttp", "http.client", "sqlite3", "apsw", "asyncpg", "ssl", "socket", "typer", "rich"}

# Blocks every package outside the standard library except bartack and msgspec.
ONLY_MSGSPEC = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "bartack", "msgspec"}:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)
sys.meta_path.insert(0, Refuse())
"""


def loaded_by(code: str) -> set[str]:
    """The modules loaded in a fresh interpreter after running this code."""
    code = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{code}\nimport json; print(json.dumps(list(sys.modules)))"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))  # the code may print too


def test_importing_bartack_loads_no_io_modules() -> None:
    loaded = loaded_by("import bartack")
    assert "bartack.stream.assembler" in loaded
    assert sorted(loaded & WORLD) == []


@pytest.mark.parametrize(
    "code",
    [
        "import bartack",
        "import bartack.formats, bartack.session, bartack.views, bartack.formats.repair, bartack.nouns.schema",
    ],
)
def test_pure_half_needs_only_msgspec(code: str) -> None:
    loaded = loaded_by(ONLY_MSGSPEC + code)
    outside = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"bartack", "msgspec"}
    assert {name for name in outside if not name.startswith(("_", "sitecustomize"))} == set()


def test_missing_msgspec_is_reported() -> None:
    with pytest.raises(AssertionError, match="msgspec is not installed"):
        loaded_by(ONLY_MSGSPEC.replace('"bartack", "msgspec"', '"bartack"') + "import bartack")


# pydantic takes longer to load than all of bartack; models and queues are not needed to read a store.
NOT_FOR_SESSIONS = {
    *("pydantic", "typer._adapters", "rich", "aiohttp", "httpx", "httpx2", "genai_prices"),
    *("bartack.agent", "bartack.models.by_name", "bartack.queues"),
}


@pytest.mark.parametrize("options", [[], ["--query", "words", "--json"]])
def test_listing_sessions_loads_only_what_reading_a_store_needs(options: list[str]) -> None:
    words = ["sessions", "list", "--store", "memory:", *options]
    loaded = loaded_by(f"from bartack.cli.entry import run\nassert run({words!r}) == 0")
    assert "bartack.cli.sessions" in loaded
    assert sorted(loaded & NOT_FOR_SESSIONS) == []
