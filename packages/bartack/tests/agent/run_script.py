"""Short runs of the experiments of lab/, each on a store of the test's own."""

import subprocess
import sys
from pathlib import Path

from lab.repository import ROOT
from tests.store import postgres_server


def run_script(name: str, kind: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a script on an empty store of this kind."""
    address = postgres_server.address(str(folder)) if kind == "postgres" else f"{kind}:{folder / 'store'}"
    words = [str(ROOT / "lab" / name), "--store", kind, "--address", address, *options]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)
