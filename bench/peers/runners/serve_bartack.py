"""Bartack: its web server with a memory store, as `bartack serve` runs it.

    python -m bench.peers.runners.serve_bartack SOCKET

SOCKET is the number of an inherited socket that listens.
"""

import socket
import sys
from collections.abc import AsyncGenerator, Sequence

from bartack import Agent, MemoryStore, tool
from bartack.app.platform import run_async
from bartack.models.guard import GuardedStream, guarded_batches
from bartack.models.model import StreamingModel
from bartack.models.prices import ModelInfo
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Delta, Done, Start, TextDelta, ToolCallArgs, ToolCallEnd, ToolCallStart
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest
from bartack_server.web import app
from bartack_server.web.server import Address, serve
from bench._live_chat import ANSWER, ARGUMENTS, CALL_ID, TOKEN, TOOL, paced, weather


class LiveChat(StreamingModel):
    """Calls the tool for a message of the user, and then answers."""

    provider = "bench"

    def respond(self, request: ModelRequest) -> GuardedStream:
        return guarded_batches(self._deltas(request.messages), request.metadata, self._environment)

    def model_info(self) -> ModelInfo:
        return ModelInfo(self.provider, self.config.model_id)

    def supports(self, feature: str) -> bool:
        return True

    async def _deltas(self, messages: Sequence[Message]) -> AsyncGenerator[Sequence[Delta], None]:
        yield (Start(self.config.model_id, "m1", provider=self.provider),)
        if messages[-1].role == "tool":
            async for piece in paced(ANSWER):
                yield (TextDelta(piece),)
            yield (Done("stop"),)
            return
        yield (ToolCallStart(CALL_ID, TOOL),)
        async for piece in paced(ARGUMENTS):
            yield (ToolCallArgs(CALL_ID, piece),)
        yield (ToolCallEnd(CALL_ID), Done("tool_calls"))


async def main(listener: socket.socket) -> None:
    address = Address(port=listener.getsockname()[1])
    agent = Agent(LiveChat(ModelConfig("live-chat")), tools=[tool(weather)])
    application = app(agent, store=MemoryStore(), token=TOKEN, hosts=address.origins(address.port))
    await serve(application, address, listener, lambda: None)


if __name__ == "__main__":
    run_async(main(socket.socket(fileno=int(sys.argv[1]))))
