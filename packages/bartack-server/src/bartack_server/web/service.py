"""`SessionService`: the agents, the store, the live runs and the live events, shared by all routes.

started = await service.start_run(user, "trip", "Will it rain?")       # belongs to the server from here on
async for events in service.follow("trip", started.position): ...      # from any position, in any process
await service.request("trip", lambda store: queue(store, "trip", "And on Tuesday?"))
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bartack.agent import Agent
from bartack.agent.run import Prompt
from bartack.app.modes import Mode
from bartack.app.sessions import DIRECTORY, header_of
from bartack.events import LiveEvent
from bartack.models.prices import ModelInfo
from bartack.nouns.deltas import Start
from bartack.nouns.entries import SessionHeader, StreamFailed
from bartack.nouns.errors import NotFound, PartValidationError
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.queues import Job, RunQueue, StoreQueue
from bartack.session.run_state import RunState
from bartack.session.title import title_from
from bartack.store import open_store
from bartack.store.append import check_id
from bartack.store.foreign import adopt as adopt_session
from bartack.store.foreign import check_adopted
from bartack.store.requests import load_state
from bartack.store.session_store import RESERVED, SessionStore, Tail, new_session
from bartack.tools import LocalRuntime
from bartack_server.web.access import User
from bartack_server.web.hub import LiveHub
from bartack_server.web.queued_runs import QueuedRuns
from bartack_server.web.runs import AGENT_KEY, ServerRuns
from bartack_server.web.session_rules import modes_of

__all__ = ["SessionService", "StartedRun", "gateway_key_in"]

T = TypeVar("T")
_KNOWN = 10_000  # overviews of sessions, and models
_RECENT = 20  # entries among which the last answer is looked for
_FOREIGN = "foreign"  # the state of a session in which another program has a run open


class StartedRun(NamedTuple):
    """A run that has started, or its job if a worker will start it, and the position to follow it from."""

    session_id: str
    run_id: str | None
    position: str
    job_id: str | None = None


class Overview(NamedTuple):
    """Data about a session for lists, computed from its entries up to `tail`."""

    tail: str
    state: str
    header: SessionHeader
    model: str | None  # the one that answered last, through a gateway


class SessionService:
    """Opened by `running`, or by the first request."""

    def __init__(
        self,
        agents: Mapping[str, Agent[Any, Any]],
        store: SessionStore | str | Path | None,
        *,
        models: Sequence[str] = (),
        drain_s: float = 20.0,
        queue: Callable[[SessionStore], RunQueue] | None = None,
    ) -> None:
        """`models` are those that users may choose besides the agents' own. `queue` returns the queue that runs are
        handed to.
        """
        self._given = agents
        self._store_at = store
        self._models = models
        self.drain_s = drain_s
        self._new_queue = queue
        self.closing = asyncio.Event()  # the server is about to stop
        self._store: SessionStore | None = None
        self._opening = asyncio.Lock()
        self._resuming: asyncio.Task[None] | None = None
        self._infos: dict[tuple[str, ModelRef | None], ModelInfo] = {}
        self._overviews: dict[str, Overview] = {}  # session id -> its overview

    # -- opening and closing

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the store, resume open runs, and drain at the end."""
        await self.open()
        try:
            yield
        finally:
            await self.close()

    async def open(self) -> None:
        """Open the store if it is not open, and start resuming open runs."""
        async with self._opening:
            if self._store is not None:
                return
            address = self._store_at
            store = await open_store(address) if address is None or isinstance(address, str | Path) else address
            self.agents: dict[str, Agent[Any, Any]] = {
                name: agent.with_store(store) for name, agent in self._given.items()
            }
            self.runs = ServerRuns(self.agents, store)
            self.queue: RunQueue = (self._new_queue or StoreQueue)(store)
            if self._new_queue is not None:
                self.runs = QueuedRuns(self.agents, store, self.queue)
            self.hub = LiveHub(store)
            self._store = store
            self._owns_store = store is not address
            self._resuming = asyncio.create_task(self.runs.keep_resuming())

    async def drain(self) -> None:
        """End all live streams, and give live runs time to end. Nothing new is started."""
        self.closing.set()
        if self._store is not None:
            await self.runs.drain(self.drain_s)

    async def close(self) -> None:
        """Drain, and close the store if it was opened here."""
        if self._store is None:
            return
        await self.drain()
        if self._resuming is not None:
            self._resuming.cancel()
            with suppress(asyncio.CancelledError):
                await self._resuming
        await self.queue.close()
        if self._owns_store:
            await self._store.close()
        self._store = None

    @property
    def agent_names(self) -> Collection[str]:
        """The names of the agents, also before the store is open."""
        return self._given

    @property
    def store(self) -> SessionStore:
        """The open store."""
        assert self._store is not None, "the service is not open"
        return self._store

    @property
    def has_workers(self) -> bool:
        """Whether runs are handed to workers."""
        return self._new_queue is not None

    # -- the three things that routes do

    async def start_run(
        self,
        user: User,
        session_id: str,
        *prompt: Prompt,
        agent: str | None = None,
        head: str | None = None,
        model: str | None = None,
        mode: Mode | None = None,
        adopt: bool = False,
        **settings: Any,
    ) -> StartedRun:
        """Start a run that belongs to the server; a new session is created. `settings` are those of `RunSettings`.

        Raises `SessionInUse` if a run is live there (queue or steer instead), `NotFound` if the session is not the
        user's, and `NotAdopted` if it is foreign, unless `adopt` adopts it.
        """
        self.check_access(user, session_id)
        if model is not None:
            await self.check_model(model)
        if adopt:
            with suppress(NotFound):
                await adopt_session(self.store, session_id)
        chosen_agent = self.agent_named(agent) if agent is not None else None
        header = self.new_header(chosen_agent or next(iter(self.agents)), user, title_from(_text(prompt)))
        metadata = {"user": user.name, **settings.pop("metadata", {})}
        async with new_session(self.store, session_id, header) as is_new:
            position = "0" if is_new else str((await self.store.tail_of(session_id)).seq)
            chosen = chosen_agent or await self.runs.agent_of(session_id) or next(iter(self.agents))
            before = self.runs.rules.mode_of(session_id)
            if mode is not None:
                self.check_mode(chosen, mode)
                self.runs.rules.set_mode(session_id, mode)
            try:
                run = await self.runs.start(
                    chosen, session_id, *prompt, head=head, model=model, metadata=metadata, **settings
                )
            except BaseException:
                self.runs.rules.set_mode(session_id, before)
                raise
        if isinstance(run, Job):
            return StartedRun(session_id, None, position, run.id)
        return StartedRun(session_id, run.run_id, position)

    def follow(self, session_id: str, position: str = "") -> AsyncGenerator[Sequence[LiveEvent], None]:
        """Entries and, between them, deltas of the answer in progress, after this position (`bartack.store.live`)."""
        return self.hub.follow(session_id, position)

    async def request(self, session_id: str, post: Callable[[SessionStore], Awaitable[T]]) -> T:
        """Post a request (see `bartack.store.requests`), and resume the session if no run is live to act on it.

        Raises `NotAdopted` for a foreign session.
        """
        await check_adopted(self.store, session_id)
        posted = await post(self.store)
        await self.runs.resume(session_id)
        return posted

    def new_header(self, agent: str, user: User, title: str | None) -> SessionHeader:
        """The header of a session that begins with this agent."""
        metadata = {AGENT_KEY: agent, "user": user.name, "program": "web"}
        directory = self.directory_of(agent)
        if directory is not None:
            metadata[DIRECTORY] = directory
        return SessionHeader(title=title, metadata=metadata)

    def directory_of(self, agent: str) -> str | None:
        """The directory that an agent works in; None if it has none on this machine."""
        runtime = self.agents[agent].runtime
        return str(runtime.root.absolute()) if isinstance(runtime, LocalRuntime) else None

    # -- checks

    def check_access(self, user: User, session_id: str) -> None:
        """`NotFound` if the session is not one of the user's, whether it exists or not; raises for an invalid id."""
        if not session_id or session_id.startswith(RESERVED) or not user.may_use(session_id):
            raise NotFound(f"There is no session {session_id[:100]!r}.")
        check_id(session_id)

    def agent_named(self, name: str) -> str:
        """The name; `PartValidationError` if there is no such agent."""
        if name not in self.agents:
            raise PartValidationError(f"Unknown agent {name!r}; known: {', '.join(self.agents)}.", path="$.agent")
        return name

    def modes_of(self, agent: str) -> tuple[Mode, ...]:
        """The permission modes that users of an agent can choose; none if workers run it."""
        return modes_of(self.agents[agent]) if self.runs.obeys_rules else ()

    def check_mode(self, agent: str, mode: Mode) -> None:
        """`PartValidationError` if sessions of this agent do not have this permission mode."""
        modes = self.modes_of(agent)
        if mode not in modes:
            known = f"known: {', '.join(modes)}" if modes else "it always asks as its tools declare"
            raise PartValidationError(f"Agent {agent!r} has no mode {mode!r}; {known}.", path="$.mode")

    async def offered_models(self) -> list[str]:
        """The models that users may choose: those of the agents, and those that the server was given.

        Any other name is refused, because connecting a model may read a file of the server or send its key.
        """
        own = [model for agent in self.agents.values() for model in agent.models]
        infos = [await asyncio.to_thread(model.model_info) for model in own]
        return list(dict.fromkeys([*(f"{info.provider}:{info.model_id}" for info in infos), *self._models]))

    async def check_model(self, name: str) -> None:
        """`NotFound` unless users may choose this model."""
        offered = await self.offered_models()
        if name not in offered:
            text = f"Model {name[:100]!r} is not offered here; offered: {', '.join(offered)}."
            raise NotFound(text)

    async def model_info(self, agent: str, chosen: ModelRef | None = None) -> ModelInfo:
        """What is known about the model of an agent, or about another one that was chosen instead.

        Reading a price table is slow the first time.
        """
        if (agent, chosen) not in self._infos:
            own = self.agents[agent]
            model = own.model if chosen is None else await own.find_model(chosen)
            if model is None:  # it cannot be connected
                assert chosen is not None
                return ModelInfo(chosen.provider, chosen.model)
            if len(self._infos) > _KNOWN:
                self._infos.clear()
            self._infos[agent, chosen] = await asyncio.to_thread(model.model_info)
        return self._infos[agent, chosen]

    async def run_state(self, session_id: str) -> RunState:
        """The run state of a session, from which its overview follows."""
        position, state = await load_state(self.store, session_id)
        await self._keep_overview(session_id, position, state)
        return state

    async def state_of(self, session_id: str, tail: str | None = None) -> str:
        """``running`` here or elsewhere, ``waiting`` for an approval or a result, ``interrupted``, or ``idle``.

        A run is interrupted if its process is gone and no server will resume it, because another program began it.
        Otherwise the state follows from the entries alone.
        """
        state = (await self._overview(session_id, tail)).state
        if state != _FOREIGN:
            return state
        return "interrupted" if await self.store.lease_of(session_id) is None else "running"

    async def header_of(self, session_id: str, tail: str | None = None) -> SessionHeader:
        """The header of a session; one without values if it has none, or if it was redacted."""
        return (await self._overview(session_id, tail)).header

    async def model_of(self, session_id: str, tail: str | None = None) -> str | None:
        """The model that answered last in a session of a gateway."""
        return (await self._overview(session_id, tail)).model

    async def _gateway_model(self, session_id: str, header: SessionHeader, last_seq: int) -> str | None:
        if gateway_key_in(header) is None:
            return None
        for entry in reversed(await self.store.entries(session_id, max(0, last_seq - _RECENT))):
            match entry.fact:
                case Message(meta=Meta(model=ModelRef(model=name))) | StreamFailed(model=ModelRef(model=name)):
                    return name
                case _:
                    pass
        return None

    async def answering(self, session_id: str, header: SessionHeader) -> str | None:
        """The model whose answer through a gateway is arriving in this session."""
        if gateway_key_in(header) is None or await self.store.lease_of(session_id) is None:
            return None
        batches = await self.store.read_journal(session_id)
        first = batches[0].deltas[0].delta if batches else None
        return first.model_id if isinstance(first, Start) else None

    async def _overview(self, session_id: str, tail: str | None) -> Overview:
        """Computed once for each last entry, which is `tail` if that is known."""
        overview = self._overviews.get(session_id)
        if overview is not None and overview.tail == tail:
            return overview
        return await self._keep_overview(session_id, *await load_state(self.store, session_id))

    async def _keep_overview(self, session_id: str, position: Tail, state: RunState) -> Overview:
        overview = self._overviews.get(session_id)
        if overview is not None and overview.tail == position.entry_id:
            return overview
        activity = "idle"
        if state.run_id is not None:
            activity = "waiting" if state.questions or state.deferred else "running"
            is_foreign = activity == "running" and await self.runs.agent_of(session_id, state) is None
            activity = _FOREIGN if is_foreign else activity
        header = await header_of(self.store, session_id) or SessionHeader()
        if len(self._overviews) > _KNOWN:
            self._overviews.clear()
        overview = self._overviews[session_id] = Overview(
            position.entry_id, activity, header, await self._gateway_model(session_id, header, position.seq)
        )
        return overview


def gateway_key_in(header: SessionHeader) -> str | None:
    """The name of the gateway key that a session was recorded for."""
    name = (header.metadata or {}).get("gatewayKey")
    return name if isinstance(name, str) else None


def _text(prompt: Sequence[Prompt]) -> str:
    return " ".join(piece if isinstance(piece, str) else getattr(piece, "text", "") for piece in prompt)
