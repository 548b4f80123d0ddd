"""Another application with the agent mounted in it, on a plain uvicorn. Prints its port."""

import socket
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from bartack import MemoryStore
from bartack_server.web import app
from tests.web.agents import Gate, new_agent


def main(gate: str) -> None:
    inner = app(new_agent(Gate(Path(gate))), store=MemoryStore(), token="t" * 32, drain_s=0)
    outer = Starlette(routes=[Mount("/agents", inner)], lifespan=inner.lifespan)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(outer, log_config=None)).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
