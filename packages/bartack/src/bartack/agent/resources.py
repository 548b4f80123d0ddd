"""What an agent opens on first use and closes with itself: its store, and its connections to models, toolsets and the
runtime.

Any number of runs may start at once, and each needs the same things first. Whoever comes first opens a thing in a task
of its own, and everyone who comes meanwhile waits for that task (`SharedCall`). So there is one of each, and a run that
is cancelled does not take it away from the others. If it cannot be opened, all who waited get the error, and the next
one tries again. Closing waits for what is being opened, takes everything away first and then closes it, so that a run
that starts in the meantime opens its own.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

from bartack.environment import Environment
from bartack.models.by_name import connect
from bartack.models.model import Model
from bartack.nouns.errors import NotFound
from bartack.queues import RunQueue, StoreQueue
from bartack.store import MemoryStore, SessionStore, open_store
from bartack.tools import Runtime, ToolRegistry, Toolset
from bartack.tools.tool_round import retrieve_exception
from bartack.tools.toolset import origin_of

__all__ = ["AgentStore", "Connections", "SharedCall"]

T = TypeVar("T")


class SharedCall(Generic[T]):
    """A coroutine function that runs once for all who call it at the same time."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The outcome of the call in progress, or else of a new one."""
        task = self._current()
        if task is None:
            task = self._task = asyncio.create_task(self._work())
            task.add_done_callback(retrieve_exception)  # all who waited may have been cancelled
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for the call in progress, whatever comes of it."""
        task = self._current()
        if task is not None:
            await asyncio.wait({task})

    def _current(self) -> "asyncio.Task[T] | None":
        """The call in progress. One of another event loop, which has ended, does not count."""
        task = self._task
        is_current = task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()
        return task if is_current else None


class AgentStore:
    """The store of one agent. Without one of its own, an agent keeps sessions without a name in memory."""

    def __init__(self, address: SessionStore | str | Path | None, environment: Environment) -> None:
        self.address = address
        self._environment = environment
        self._opened: SessionStore | None = None  # opened here, and therefore closed here
        self._opening = SharedCall(self._open)
        self._memory: MemoryStore | None = None
        self._given_queue: RunQueue | None = None
        self._queue: tuple[SessionStore, StoreQueue] | None = None

    async def open(self, session: str, *, is_named: bool = True) -> SessionStore:
        """The store of a session."""
        address = self.address
        if address is None and (not is_named or await self._is_in_memory(session)):
            self._memory = self._memory or MemoryStore(environment=self._environment)
            return self._memory
        if address is not None and not isinstance(address, str | Path):
            return address
        return self._opened or await self._opening()

    async def _open(self) -> SessionStore:
        address = self.address
        assert address is None or isinstance(address, str | Path)
        self._opened = await open_store(address, environment=self._environment)
        return self._opened

    def queue_on(self, store: SessionStore, queue: RunQueue | None = None) -> RunQueue:
        """The queue for runs in this store: the last one that was given, or else that of the store."""
        self._given_queue = queue or self._given_queue
        if self._given_queue is not None:
            return self._given_queue
        if self._queue is None or self._queue[0] is not store:
            self._queue = store, StoreQueue(store)
        return self._queue[1]

    async def _is_in_memory(self, session: str) -> bool:
        if self._memory is None:
            return False
        try:
            await self._memory.tail_of(session)
        except NotFound:
            return False
        return True

    async def close(self) -> None:
        """Close the store if it was opened here. Sessions in memory stay."""
        await self._opening.settle()
        if self._opened is not None and not isinstance(self._opened, MemoryStore):
            opened, self._opened, self._queue = self._opened, None, None
            await opened.close()


class Connections:
    """The models, toolsets and runtimes that the runs of an agent connect to."""

    def __init__(self, environment: Environment, *, provider_raw: bool) -> None:
        self._environment = environment
        self._provider_raw = provider_raw
        self._own_models: list[Model] = []
        self._models: dict[str, Model] = {}  # the models that runs have named
        self._toolsets: dict[int, tuple[Toolset, SharedCall[None]]] = {}
        self._runtimes: dict[int, tuple[Runtime, SharedCall[None]]] = {}

    def own_model(self, model: str | Model, **settings: Any) -> Model:
        """A model of the agent itself, connected with these settings if it is a name."""
        if not isinstance(model, str):
            return model
        connected = self._connect(model, settings)
        self._own_models.append(connected)
        return connected

    def model(self, model: str | Model) -> Model:
        """A model that a run names. Runs that use the same name share it until the agent is closed."""
        if not isinstance(model, str):
            return model
        if model not in self._models:
            self._models[model] = self._connect(model, {})
        return self._models[model]

    def _connect(self, name: str, settings: dict[str, Any]) -> Model:
        connected: Model = connect(name, environment=self._environment, provider_raw=self._provider_raw, **settings)
        return connected

    async def open_tools(self, registry: ToolRegistry) -> None:
        """Open the toolsets, all at the same time, or let them pick up changes."""
        toolsets = [origin_of(toolset) for toolset in registry.toolsets]
        for toolset in toolsets:
            self._toolsets.setdefault(id(toolset), (toolset, SharedCall(toolset.open)))
        await asyncio.gather(*(self._toolsets[id(toolset)][1]() for toolset in toolsets))

    async def connect_runtime(self, runtime: Runtime) -> None:
        """Connect the runtime unless it is connected."""
        if runtime.status == "closed":
            _, connect_once = self._runtimes.setdefault(id(runtime), (runtime, SharedCall(runtime.connect)))
            await connect_once()

    async def close(self, runtime: Runtime | None) -> None:
        """Close the models, the toolsets and this runtime, each of them even if another one fails to close."""
        async with AsyncExitStack() as closing:
            for model in (*self._own_models, *self._models.values()):
                close = getattr(model, "aclose", None)
                if close is not None:
                    closing.push_async_callback(close)
            for toolset, opening in self._toolsets.values():
                closing.push_async_callback(toolset.close)
                closing.push_async_callback(opening.settle)
            if runtime is not None:
                closing.push_async_callback(_close_runtime, runtime)
            for _, connecting in self._runtimes.values():
                closing.push_async_callback(connecting.settle)
            self._models, self._toolsets, self._runtimes = {}, {}, {}


async def _close_runtime(runtime: Runtime) -> None:
    if runtime.status != "closed":
        await runtime.close()
