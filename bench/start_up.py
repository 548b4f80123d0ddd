"""The time of `import bartack` compared with `import msgspec`, of `bartack --help` with `import rich`, and of other
commands with `import asyncio, aiohttp`.

The aims are at most three times as long; as long for `sessions list`, because a command that only reads needs no
client; and 1.8 times as long for `run`, which asks a server in this process for one word.

Each runs in a fresh interpreter; the medians of the child's processor time are compared. For imports, the start of the
interpreter does not count. All modules are compiled before, as an installer does it, also where Python is told not to
write bytecode. `--slowest` lists the modules that take longest to import.
"""

import http.server
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading

ROUNDS = 7
IMPORT_ROUNDS = 15
AIM = 3.0
LISTING_AIM = 1.0
RUN_AIM = 1.8
TIMED_IMPORT = "import time; begin = time.process_time(); import {}; print(time.process_time() - begin)"
CHOICE = {"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [CHOICE]}


class Server(http.server.BaseHTTPRequestHandler):
    """Answers every request with one word."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def milliseconds(*words: str) -> float:
    """The median processor time of one command."""
    runs = []
    for _ in range(ROUNDS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], stdin=subprocess.DEVNULL, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        runs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(runs[1:]) * 1000  # the first one compiles


def run_milliseconds() -> float:
    """The processor time of `bartack run` with a model that answers at once and whose price is unknown."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ["OPENAI_COMPATIBLE_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
        options = ["--store", "memory:", "--model", "openai-compatible:m"]
        measured = milliseconds("-m", "bartack.cli", "run", *options, "Hi")
        server.shutdown()
    return measured


def import_milliseconds(module: str) -> float:
    """The median time of one import."""
    command = [sys.executable, "-c", TIMED_IMPORT.format(module)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(IMPORT_ROUNDS + 1)]
    return statistics.median(float(run.stdout) for run in runs[1:]) * 1000


def slowest(module: str, count: int = 15) -> list[str]:
    """The modules whose own code takes longest, as reported by ``-X importtime``."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.removeprefix("import time:").split("|") for line in run.stderr.splitlines()[1:]]
    own = sorted(((int(line[0]), line[2].strip()) for line in lines), reverse=True)
    return [f"{micros / 1000:8.2f} ms  {name}" for micros, name in own[:count]]


def main() -> None:
    core, package = import_milliseconds("msgspec"), import_milliseconds("bartack")
    print(f"import msgspec       {core:6.1f} ms")
    print(f"import bartack       {package:6.1f} ms")
    print(f"bartack / msgspec    {package / core:6.2f}      (aim: at most {AIM})")
    if "--slowest" in sys.argv:
        print("\n".join(slowest("bartack")))
    nothing, rich = milliseconds("-c", "pass"), milliseconds("-c", "import rich")
    page = milliseconds("-m", "bartack.cli", "--help")
    client = milliseconds("-c", "import asyncio, aiohttp")
    listing = milliseconds("-m", "bartack.cli", "sessions", "list", "--store", "memory:")
    run = run_milliseconds()
    print(f"python -c pass       {nothing:6.1f} ms")
    print(f"import rich          {rich:6.1f} ms")
    print(f"bartack --help          {page:6.1f} ms")
    print(f"bartack --help / rich   {page / rich:6.2f}      (aim: at most {AIM})")
    print(f"import aiohttp          {client:6.1f} ms")
    print(f"bartack sessions list   {listing:6.1f} ms")
    print(f"sessions list / aiohttp {listing / client:6.2f}      (aim: at most {LISTING_AIM})")
    print(f"bartack run             {run:6.1f} ms")
    print(f"run / aiohttp           {run / client:6.2f}      (aim: at most {RUN_AIM})")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        main()
