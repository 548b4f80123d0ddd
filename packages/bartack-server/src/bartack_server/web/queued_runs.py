"""`QueuedRuns`: a server that hands its runs to workers.

A prompt becomes a job, and so does any request that lets a paused run continue. Viewers notice no difference: they
follow the session, wherever its run is live. A run that depends on the request itself, such as one with client-side
tools, stays in the server.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from bartack.agent import Agent, Run
from bartack.agent.run import Prompt, as_messages
from bartack.agent.run_context import model_ref
from bartack.nouns.errors import SessionInUse
from bartack.nouns.ids import derived_id
from bartack.queues import Job, RunQueue, submit
from bartack.queues.run_queue import job_of
from bartack.queues.submit import continuation_of
from bartack.session.run_state import RunState
from bartack.store.requests import load_state, switch_model
from bartack.store.session_store import SessionStore
from bartack_server.supervisor import has_work
from bartack_server.web.runs import ServerRuns

__all__ = ["QueuedRuns"]


class QueuedRuns(ServerRuns):
    """The runs of a server with a queue."""

    def __init__(self, agents: Mapping[str, Agent[Any, Any]], store: SessionStore, queue: RunQueue) -> None:
        super().__init__(agents, store)
        self._queue = queue

    @property
    def obeys_rules(self) -> bool:
        return False

    async def start(
        self,
        agent: str,
        session_id: str,
        *prompt: Prompt,
        head: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Run[Any] | Job:
        """A job for the prompt. Raises `SessionInUse` if a run is open, and `QueueFull`; then nothing has happened."""
        *before, message = as_messages(*prompt)
        if settings or before:
            return await super().start(
                agent, session_id, *prompt, head=head, model=model, metadata=metadata, **settings
            )
        self._check_open()
        _, state = await load_state(self._store, session_id)
        if state.run_id is not None:
            raise SessionInUse(f"Session {session_id!r} has an open run.", owner="a worker")
        user_name = (metadata or {}).get("user")
        user = user_name if isinstance(user_name, str) else None
        if model is not None:
            await self._queue.check_room(user)
            await switch_model(self._store, session_id, model)
        return await submit(
            self._store,
            self._queue,
            message,
            session_id=session_id,
            agent=agent,
            model=model_ref(self._agents[agent].model.model_info()),
            user=user,
            head=head,
        )

    async def resume(self, session_id: str, **settings: Any) -> bool:
        """Enqueue a job for the open work of a session; False if there is none."""
        tail, state = await load_state(self._store, session_id)
        last = job_of(state.metadata)
        if settings or (state.run_id is not None and last is None):  # a run that is live in a server
            return await super().resume(session_id, **settings)
        self._check_open()
        agent = await self.agent_of(session_id, state)
        if agent is None or not has_work(state, self._store.environment.now()):
            return False
        queued_at = self._store.environment.now()
        job_id = derived_id(tail.entry_id, "resumed")
        first_job = Job(id=job_id, session_id=session_id, agent=agent, queued_at=queued_at, queue=self._queue.name)
        job = first_job if last is None else continuation_of(last, job_id, queued_at)
        await self._queue.enqueue(replace(job, engine=self._queue.engine))
        return True

    async def agent_of(self, session_id: str, state: RunState | None = None) -> str | None:
        """The name of the agent that answers in a session; None if another program has a run open there."""
        if state is None:
            _, state = await load_state(self._store, session_id)
        job = job_of(state.metadata)
        if state.run_id is not None and job is not None:
            return job.agent if job.agent in self._agents else None
        return await super().agent_of(session_id, state)

    def _may_take_over(self, state: RunState) -> bool:
        return job_of(state.metadata) is None  # the runs of workers are left to workers
