"""A virtual environment for each peer, built from locked and hashed requirements, in which its runners are started.

Environments are in `.venv-peers/<name>` and are rebuilt when `requirements/peers/<name>.txt` changes.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv-peers"
LOCKS = ROOT / "requirements" / "peers"
BARTACK = "bartack"  # runs in the project's own environment, the one this program runs in

# Peers get dummy keys, no telemetry, and a proxy address where nothing listens: only 127.0.0.1 can be reached.
SEALED = {
    "OPENAI_API_KEY": "none",
    "ANTHROPIC_API_KEY": "none",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise it fetches a price list on import
    "LITELLM_MODE": "PRODUCTION",  # otherwise it reads a .env file
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
}
KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT")


class CannotRun(Exception):
    """A peer could not be installed, or its runner ended with an error."""


def set_up(name: str) -> None:
    """Build the environment of this peer unless it is up to date; raises `CannotRun`."""
    lock = (LOCKS / f"{name}.txt").read_bytes()
    ready = HOME / name / "ready"
    digest = hashlib.sha256(lock).hexdigest()
    if ready.exists() and ready.read_text() == digest:
        return
    print(f"setting up {HOME.name}/{name} ...", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(HOME / name)], dict(os.environ))
    pip = [python(name), "-m", "pip", "--disable-pip-version-check", "-qq"]
    _run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(LOCKS / f"{name}.txt")], dict(os.environ))
    ready.write_text(digest)


def python(name: str) -> str:
    return sys.executable if name == BARTACK else str(HOME / name / "bin" / "python")


def run(name: str, runner: str, *arguments: object) -> list[str]:
    """Run a runner in the peer's environment and return the lines of its output; raises `CannotRun`."""
    with tempfile.TemporaryDirectory() as home:
        return _run(command(name, runner, *arguments), sealed(home)).splitlines()


def command(name: str, runner: str, *arguments: object) -> list[str]:
    """The words that start a runner in the peer's environment, which is set up first; raises `CannotRun`."""
    if name != BARTACK:
        set_up(name)
    return [python(name), "-m", f"bench.peers.runners.{runner}_{name.replace('-', '_')}", *map(str, arguments)]


def sealed(home: str) -> dict[str, str]:
    """The environment variables of a runner."""
    return SEALED | {key: os.environ[key] for key in KEPT if key in os.environ} | {"HOME": home}


def versions(name: str, packages: tuple[str, ...]) -> dict[str, str]:
    """The locked versions of these packages."""
    text = (LOCKS / f"{name}.txt").read_text()
    return {package: re.findall(rf"^{re.escape(package)}==(\S+)", text, re.MULTILINE)[0] for package in packages}


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        raise CannotRun(_without_paths(errors[-1]) if errors else f"exited with status {done.returncode}")
    return _without_paths(done.stdout)


def _without_paths(text: str) -> str:
    """Remove the path of the project: the result is published."""
    return text.replace(f"{ROOT}{os.sep}", "")
