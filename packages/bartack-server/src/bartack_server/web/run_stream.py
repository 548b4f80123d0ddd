"""A run as a streaming response in the format of a protocol, up to its last frame.

The run belongs to the server: a viewer that leaves does not stop it. The last frame states how the stream ended:
the run ended, it awaits a decision or a result, the server is stopping, or the store failed.

Sub-agents work in separate sessions, which a stream follows too while their calls are open.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from types import MappingProxyType
from typing import NamedTuple, Protocol

from bartack.events import EntryAppended, Event, LiveEntry, LiveEvent, SubagentEvent
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Entry, ToolProgress
from bartack.nouns.errors import AgentError, BartackError, ErrorCode, NotFound
from bartack.nouns.messages import Message
from bartack.session.run_state import AGENT, SESSION
from bartack_server.web.event_stream import EventStream
from bartack_server.web.service import SessionService

__all__ = ["FollowedSubagent", "RunEncoder", "open_subagents", "run_stream"]

# An approver on the server may decide at once. After this long, the decision is up to the client.
_GRACE_S = 0.3
_APPEARS_S = (0.02, 0.1, 0.3, 1.0, 3.0)  # between the start of a sub-agent and the first entry of its session

_Batches = AsyncGenerator[Sequence[LiveEvent], None]


class RunEncoder(Protocol):
    """What the encoders of all protocols have in common."""

    @property
    def is_ended(self) -> bool: ...
    @property
    def is_waiting(self) -> bool: ...
    def frames(self, event: Event | LiveEvent) -> bytes: ...
    def pause(self) -> bytes: ...
    def close(self, error: Failed | None = None) -> bytes: ...


class FollowedSubagent(NamedTuple):
    """A sub-agent that works, and the position to follow its session from."""

    calls: tuple[tuple[str, str], ...]  # the ids of the calls that lead to it, outermost first, with its name in each
    session_id: str
    position: str = "0"


def run_stream(
    service: SessionService,
    session_id: str,
    position: str,
    encoder: RunEncoder,
    *,
    subagents: Sequence[FollowedSubagent] = (),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> EventStream:
    """The run that is live after this position, and the sub-agents that had begun before it."""
    if service.closing.is_set():
        raise AgentError("The server is shutting down.", code=ErrorCode.OVERLOADED)

    def last(error: BartackError | None) -> bytes:
        return encoder.close(None if error is None else Failed(error.code, error.message))

    frames = _frames(service, session_id, position, encoder, subagents)
    return EventStream(frames, service.closing, last=last, headers=headers)


async def open_subagents(service: SessionService, run: Sequence[Entry]) -> list[FollowedSubagent]:
    """The sub-agents of a run that still work, each from the end of its session as it is now."""
    agents: dict[str, FollowedSubagent] = {}
    for entry in run:
        started, ended = _changed(entry, ())
        agents |= {agent.session_id: agent for agent in started}
        agents = {id: agent for id, agent in agents.items() if agent.calls[-1][0] not in ended}
    subagents: list[FollowedSubagent] = []
    for agent in agents.values():
        with suppress(NotFound):  # it is in a store of its own
            subagents.append(agent._replace(position=str((await service.store.tail_of(agent.session_id)).seq)))
    return subagents


def _changed(entry: Entry, calls: tuple[tuple[str, str], ...]) -> tuple[list[FollowedSubagent], set[str]]:
    """The sub-agent that begins with this entry, and the calls that end with it."""
    match entry.fact:
        case ToolProgress(tool_call_id=call_id, metadata=dict(metadata)) if SESSION in metadata:
            name = str(metadata.get(AGENT, call_id))
            return [FollowedSubagent((*calls, (call_id, name)), str(metadata[SESSION]))], set()
        case Message(role="tool") as message:
            return [], {result.tool_call_id for result in message.tool_results}
        case _:
            return [], set()


async def _frames(
    service: SessionService, session_id: str, position: str, encoder: RunEncoder, subagents: Sequence[FollowedSubagent]
) -> AsyncIterator[Sequence[bytes]]:
    sources = _Sources(service)
    sources.follow(FollowedSubagent((), session_id, position))
    for subagent in subagents:
        sources.follow(subagent)
    try:
        while not encoder.is_ended:
            events = await sources.next(_GRACE_S if encoder.is_waiting else None)
            if events is None:
                return
            if not events and encoder.is_waiting:
                yield [encoder.pause()]
                return
            yield [encoder.frames(event) for event in events]
    finally:
        await sources.close()


class _Source:
    """A session that a stream reads."""

    def __init__(self, agent: FollowedSubagent, batches: _Batches) -> None:
        self.agent = agent
        self._batches = batches
        self._coming: asyncio.Future[Sequence[LiveEvent] | None] | None = (
            None  # the batch that is read while other sources are too
        )

    def coming(self) -> "asyncio.Future[Sequence[LiveEvent] | None]":
        """The next batch; None when the store was closed."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._next())
        return self._coming

    async def read(self) -> Sequence[LiveEvent] | None:
        """The result of `coming`; without a task, which would cost more than the batch, unless there is one."""
        if self._coming is None:
            return await self._next()
        batch = await self._coming
        self._coming = None
        return batch

    async def _next(self) -> Sequence[LiveEvent] | None:
        return await anext(self._batches, None)

    async def stop(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait({self._coming})
        await self._batches.aclose()


class _Sources:
    """The sessions that a stream reads: its own, and those of the sub-agents that work."""

    def __init__(self, service: SessionService) -> None:
        self._service = service
        self._known: set[str] = set()
        self._open: list[_Source] = []

    def follow(self, agent: FollowedSubagent) -> None:
        """Read a session too, once."""
        if agent.session_id not in self._known:
            self._known.add(agent.session_id)
            follow = self._steps if agent.calls else self._service.follow
            self._open.append(_Source(agent, follow(agent.session_id, agent.position)))

    async def _steps(self, session_id: str, position: str) -> _Batches:
        """What a sub-agent does; nothing if its session is not in this store."""
        for delay in _APPEARS_S:
            with suppress(NotFound):
                async with aclosing(self._service.follow(session_id, position)) as batches:
                    async for batch in batches:
                        yield batch
                return
            await asyncio.sleep(delay)

    async def next(self, timeout_s: float | None) -> Sequence[Event | LiveEvent] | None:
        """What happens next; empty after this time, and None when the store was closed."""
        ready = self._open[:]
        if timeout_s is not None or len(ready) > 1:
            coming = {source.coming(): source for source in ready}
            done, _ = await asyncio.wait(coming, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            ready = [coming[future] for future in done]
        events: list[Event | LiveEvent] = []
        for source in ready:
            if source not in self._open:
                continue  # its call has just ended
            batch = await source.read()
            if batch is not None:
                events += await self._noticed(source.agent, batch)
            elif source.agent.calls:
                self._open.remove(source)
            else:
                return None
        return events

    async def _noticed(self, agent: FollowedSubagent, batch: Sequence[LiveEvent]) -> Sequence[Event | LiveEvent]:
        """The events of a batch, after following the sub-agents that begin with them and leaving those that end."""
        entries = [event.entry for event in batch if isinstance(event, LiveEntry)]
        for entry in entries:
            started, ended = _changed(entry, agent.calls)
            for subagent in started:
                self.follow(subagent)
            for call_id in ended:
                await self._leave(agent.calls, call_id)
        return [_wrapped(entry, agent) for entry in entries] if agent.calls else batch

    async def _leave(self, calls: tuple[tuple[str, str], ...], call_id: str) -> None:
        """Stop reading the session of a call, and those below it."""
        depth = len(calls)
        for source in self._open[:]:
            below = source.agent.calls
            if below[:depth] == calls and len(below) > depth and below[depth][0] == call_id:
                self._open.remove(source)
                await source.stop()

    async def close(self) -> None:
        """Stop reading."""
        for source in self._open:
            await source.stop()


def _wrapped(entry: Entry, source: FollowedSubagent) -> Event:
    event: Event = EntryAppended(entry)
    for call_id, name in reversed(source.calls):
        event = SubagentEvent(call_id, name, event)
    return event
