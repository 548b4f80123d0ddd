"""pydantic-ai: a server with its Vercel AI and AG-UI adapters, as its documentation mounts them in Starlette.

    python -m bench.peers.runners.serve_pydantic_ai_ui SOCKET

SOCKET is the number of an inherited socket that listens. uvicorn uses uvloop and httptools.
"""

import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from pydantic_ai import Agent  # type: ignore[import-not-found]
from pydantic_ai.models.function import DeltaToolCall, FunctionModel  # type: ignore[import-not-found]
from pydantic_ai.ui.ag_ui import AGUIAdapter  # type: ignore[import-not-found]
from pydantic_ai.ui.vercel_ai import VercelAIAdapter  # type: ignore[import-not-found]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench._live_chat import ANSWER, ARGUMENTS, CALL_ID, TOOL, paced, weather


async def script(messages: list[Any], _: Any) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    if len(messages) > 1:  # the call and its result are there
        async for piece in paced(ANSWER):
            yield piece
        return
    yield {0: DeltaToolCall(name=TOOL, tool_call_id=CALL_ID)}
    async for piece in paced(ARGUMENTS):
        yield {0: DeltaToolCall(json_args=piece)}


agent = Agent(FunctionModel(stream_function=script))
agent.tool_plain(weather)


async def ai_sdk(request: Request) -> Response:
    response: Response = await VercelAIAdapter.dispatch_request(request, agent=agent)
    return response


async def ag_ui(request: Request) -> Response:
    response: Response = await AGUIAdapter.dispatch_request(request, agent=agent)
    return response


if __name__ == "__main__":
    routes = [Route("/api/ai-sdk/chat", ai_sdk, methods=["POST"]), Route("/api/ag-ui", ag_ui, methods=["POST"])]
    config = uvicorn.Config(Starlette(routes=routes), log_config=None, access_log=False, lifespan="off", ws="none")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
