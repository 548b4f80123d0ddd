"""Short runs of the scripts of `make crash`, each on a store of the test's own."""

import subprocess
import sys
from pathlib import Path

from tests.store import postgres_server

_ROOT = Path(__file__).parents[2]


def run_script(name: str, kind: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a script on an empty store of this kind."""
    address = postgres_server.address(str(folder)) if kind == "postgres" else f"{kind}:{folder / 'store'}"
    words = [str(_ROOT / "scripts" / name), "--store", kind, "--address", address, *options]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=_ROOT, timeout=600)
