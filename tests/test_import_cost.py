"""`import bartack` is cheap: it loads no I/O modules and needs nothing but msgspec.

bench/start_up.py measures how long it takes; no test depends on a time.
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
    command = [sys.executable, "-I", "-c", code]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
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


# A run in a process of its own, with a server in a thread of it that answers any request with one word.
RUN = """
import http.server, json, os, threading
class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        choice = {"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        self.wfile.write(f"data: {json.dumps(chunk)}\\n\\ndata: [DONE]\\n\\n".encode())
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["OPENAI_COMPATIBLE_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
from bartack.cli.entry import run
assert run(["run", "--store", "memory:", "--model", "openai-compatible:m", "Hi", *OPTIONS]) == 0
"""

# The packages of prices, which have pydantic and httpx2, are loaded while a model with a price is answering.
NOT_FOR_A_RUN = {
    *("pydantic", "typer._adapters", "rich", "httpx", "httpx2", "genai_prices", "mcp", "apsw", "asyncpg"),
    *("bartack.store.sqlite", "bartack.store.postgres", "bartack_code.chat", "bartack_code.terminal", "bartack_server"),
    *("sqlite3", "zipfile", "bartack.store.maintenance", "bartack.tools.html_markdown"),
}


@pytest.mark.parametrize("options", [[], ["--tools", "files"], ["--json"]])
def test_a_run_loads_neither_screens_nor_prices_nor_other_stores(options: list[str]) -> None:
    loaded = loaded_by(f"OPTIONS = {options!r}\n{RUN}")
    assert "bartack.models.http" in loaded
    assert sorted(loaded & NOT_FOR_A_RUN) == []
