"""The time of `bartack --help` compared with `import rich`, and of others with `import asyncio, aiohttp`.

The aims are at most three times as long; as long for `sessions list`, because a command that only reads needs no
client; and 1.8 times as long for `run`, which asks a server in this process for one word.

Each runs in a fresh interpreter; the medians of the child's processor time are compared.
"""

import http.server
import json
import os
import statistics
import subprocess
import sys
import threading

ROUNDS = 7
AIM = 3.0
LISTING_AIM = 1.0
RUN_AIM = 1.8
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
    for _ in range(ROUNDS):
        before = os.times()
        subprocess.run([sys.executable, *words], stdin=subprocess.DEVNULL, capture_output=True, check=True)
        after = os.times()
        runs.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(runs) * 1000


def run_milliseconds() -> float:
    """The processor time of `bartack run` with a model that answers at once and whose price is unknown."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ["OPENAI_COMPATIBLE_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
        options = ["--store", "memory:", "--model", "openai-compatible:m"]
        measured = milliseconds("-m", "bartack.cli", "run", *options, "Hi")
        server.shutdown()
    return measured


def main() -> None:
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
    main()
