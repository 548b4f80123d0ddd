"""Readers and writers of formats do no I/O, and load nothing that does: only `disk` and `commands` touch the world."""

import subprocess
import sys
from pathlib import Path

import bartack_transcripts

ROOT = Path(bartack_transcripts.__file__).parent
PURE = sorted(
    ".".join(("bartack_transcripts", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if path.relative_to(ROOT).parts[0] not in ("disk", "commands")
)
CHECK = """
import sys
from importlib import import_module

for name in sys.argv[1:]:
    import_module(name)
    loaded = {"asyncio", "sqlite3", "socket", "subprocess"} & sys.modules.keys()
    if loaded:
        sys.exit(f"{name} loads {sorted(loaded)}")
"""


def loads(*names: str) -> str:
    """What the first of these modules loads that does I/O, in a fresh interpreter; empty if none does."""
    return subprocess.run([sys.executable, "-c", CHECK, *names], stderr=subprocess.PIPE, text=True, check=False).stderr


def test_formats_load_no_module_that_does_io() -> None:
    assert loads(*PURE) == ""
