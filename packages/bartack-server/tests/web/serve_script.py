"""A server for tests: `python serve_script.py STORE GATE PORT DRAIN_S`. Prints where it is, once it is ready."""

import json
import sys
from pathlib import Path

from bartack.app.platform import run_async
from bartack_server.web import app
from bartack_server.web.access import TokenAccess
from bartack_server.web.server import Address, bound_socket, serve
from tests.web.agents import Gate, new_agent

TOKEN = "test-token-" + "x" * 32


async def main(store: str, gate: str, port: str, drain_s: str) -> None:
    address = Address(port=int(port))
    listener = bound_socket(address)
    origins = address.origins(listener.getsockname()[1])
    application = app(new_agent(Gate(Path(gate))), store=store, token=TOKEN, hosts=origins, drain_s=float(drain_s))
    access = application.access
    assert isinstance(access, TokenAccess)

    def ready() -> None:
        print(json.dumps({"url": origins[0], "token": TOKEN, "code": access.code}), flush=True)

    await serve(application, address, listener, ready)


if __name__ == "__main__":
    run_async(main(*sys.argv[1:]))
