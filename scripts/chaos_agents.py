"""The agents of the workers in scripts/chaos.py: two rounds of tools that must not run twice, and an answer.

Each tool adds a line to the file BARTACK_CHAOS_LOG when it runs. With BARTACK_CHAOS_REPEAT the tools claim to be
idempotent, and then a run that is taken over repeats them: the negative control.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from bartack import Message, MessageDelta, ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.models.guard import GuardedStream
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.requests import ModelRequest
from bartack.tools import ToolContext, tool

__all__ = ["agents"]

_LOG = os.environ.get("BARTACK_CHAOS_LOG", os.devnull)
_STEP_S = float(os.environ.get("BARTACK_CHAOS_STEP_S", "0.1"))  # how long an answer and a tool take
_REPEAT = "BARTACK_CHAOS_REPEAT" in os.environ


async def _charged(context: ToolContext[None]) -> str:
    line = f"{context.session_id} {context.tool_call_id} {os.getpid()}\n".encode()
    log = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, line)  # one write: lines of several processes do not mix
    finally:
        os.close(log)
    await asyncio.sleep(_STEP_S)
    return "charged"


@tool(idempotent=_REPEAT)
async def charge(context: ToolContext[None]) -> str:
    """Charge, which must happen once."""
    return await _charged(context)


@tool(idempotent=_REPEAT, requires_approval=True)
async def pay(context: ToolContext[None]) -> str:
    """Pay, with approval."""
    return await _charged(context)


class _Model(ScriptedModel):
    """Calls two tools, one after the other, and answers; slowly."""

    def __init__(self) -> None:
        super().__init__([], chunk_chars=4)

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        last = max(at for at, message in enumerate(messages) if message.role == "user")
        prompt, rounds = messages[last].text, sum(message.role == "tool" for message in messages[last:])
        if rounds == 0:
            return assistant(f"Charging for {prompt}.", ToolCall("c1", "charge", {}))
        if rounds == 1:
            return assistant(ToolCall("c2", "pay" if prompt.endswith("approve") else "charge", {}))
        return f"All is done for {prompt}, and this answer is long enough to be followed while it arrives."

    def respond(self, request: ModelRequest) -> GuardedStream:
        self.calls.clear()  # the script has no end
        stream = super().respond(request)
        return GuardedStream(self._slowly(stream), stream.run_id)

    async def _slowly(self, stream: GuardedStream) -> AsyncIterator[MessageDelta]:
        async with aclosing(stream):
            async for delta in stream:
                await asyncio.sleep(_STEP_S / 20)
                yield delta


agents = [Agent(_Model(), tools=[charge, pay], name="chaos")]
