"""The agents of the workers in lab/chaos.py: two rounds of tools that must not run twice, and an answer.

Each tool adds a line to the file BARTACK_CHAOS_LOG when it runs. If there is a file of the same name with the id of the
process appended, the tool removes it and blocks the event loop for ever, as a synchronous call that hangs does. Every
answer and every result names the process that made it, so that the session shows who wrote to it.

The negative controls break one protection each. With BARTACK_CHAOS_CONTROL=repeat the tools claim to be idempotent, and
then a run that is taken over repeats them. With BARTACK_CHAOS_CONTROL=fence the stores no longer check leases, and then
a worker that was stopped and wakes up continues the run that another one has taken over.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from bartack import Message, MessageDelta, ToolCall, assistant
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.models.guard import GuardedStream
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.requests import ModelRequest
from bartack.store import append, append_only, leases
from bartack.store.postgres import store as postgres_store
from bartack.tools import ToolContext, tool

__all__ = ["agents"]

_LOG = os.environ.get("BARTACK_CHAOS_LOG", os.devnull)
_STEP_S = float(os.environ.get("BARTACK_CHAOS_STEP_S", "0.1"))  # how long an answer and a tool take
_CONTROL = os.environ.get("BARTACK_CHAOS_CONTROL", "")
_ME = f"[{os.getpid()}]"

logging.basicConfig(format=f"%(asctime)s {_ME} %(name)s: %(message)s", level=logging.INFO)

if _CONTROL == "fence":
    for module in (append, append_only, leases, postgres_store):
        module.check_fence = lambda *_: None  # type: ignore[attr-defined]


def _block_if_ordered() -> None:
    with suppress(FileNotFoundError):
        Path(f"{_LOG}.{os.getpid()}").unlink()
        time.sleep(3600)  # the watchdog must end this process


async def _charged(context: ToolContext[None]) -> str:
    line = f"{context.session_id} {context.tool_call_id} {os.getpid()}\n".encode()
    log = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, line)  # one write: lines of several processes do not mix
    finally:
        os.close(log)
    _block_if_ordered()
    await asyncio.sleep(_STEP_S)
    return f"{_ME} charged"


@tool(idempotent=_CONTROL == "repeat")
async def charge(context: ToolContext[None]) -> str:
    """Charge, which must happen once."""
    return await _charged(context)


@tool(idempotent=_CONTROL == "repeat", requires_approval=True)
async def pay(context: ToolContext[None]) -> str:
    """Pay, with approval."""
    return await _charged(context)


class _Model(ScriptedModel):
    """Calls two tools, one after the other, and answers; slowly."""

    def __init__(self) -> None:
        super().__init__([], chunk_chars=4)

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        last = max(number for number, message in enumerate(messages) if message.role == "user")
        prompt, rounds = messages[last].text, sum(message.role == "tool" for message in messages[last:])
        if rounds == 0:
            return assistant(f"{_ME} Charging for {prompt}.", ToolCall("c1", "charge", {}))
        if rounds == 1:
            return assistant(f"{_ME} Once more.", ToolCall("c2", "pay" if prompt.endswith("approve") else "charge", {}))
        return f"{_ME} All is done for {prompt}, and this answer is long enough to be followed while it arrives."

    def respond(self, request: ModelRequest) -> GuardedStream:
        self.calls.clear()  # the script has no end
        stream = super().respond(request)
        return GuardedStream(self._slowly(stream), stream.run_id)

    async def _slowly(self, stream: GuardedStream) -> AsyncIterator[MessageDelta]:
        async with aclosing(stream):
            async for delta in stream:
                await asyncio.sleep(_STEP_S / 20)
                yield delta


agents = [Agent(_Model(), tools=[charge, pay], name="bartack")]
