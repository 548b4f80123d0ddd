"""How a server finds the runs that others left open, without reading every session again and again."""

from bartack import MemoryStore, ScriptedModel
from bartack.agent import Agent
from bartack.nouns.entries import RunEnded
from bartack.store.entries import Entries
from bartack.store.requests import rename
from bartack_server.web.runs import AGENT_KEY, ServerRuns
from tests.agent.kit import PausingModel, within
from tests.queues.kit import Clock


class ReadStore(MemoryStore):
    """Remembers which sessions were read."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(environment=clock.environment)
        self.read: list[str] = []

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        self.read.append(session_id)
        return await super().entries(session_id, after_seq, limit)


async def test_a_server_reads_sessions_again_if_they_changed_or_have_an_open_run() -> None:
    clock = Clock()
    store = ReadStore(clock)
    agent = Agent(ScriptedModel(["Fine."] * 9), store=store, environment=clock.environment, name="a")
    silent = PausingModel(["Never."], after=0, environment=clock.environment)
    abandoned = Agent(silent, store=store, environment=clock.environment, lease_s=6, name="a")
    async with abandoned.stream("Hi", session="open", metadata={AGENT_KEY: "a"}) as run:
        await within(silent.reached.wait())
        run.suspend()
        await within(run.wait())
    lease = await store.acquire_lease("open", "another server", ttl=10_000)
    for session in ("old", "renamed"):
        await agent.run("Hi", session=session)
    await rename(store, "renamed", "A title")  # so that its last entry is not the end of a run
    clock.advance(3600)
    await agent.run("Hi", session="new")
    runs = ServerRuns({"a": agent}, store)
    assert await runs.resume_open_runs() == 0
    assert {"old", "renamed", "new"} <= set(store.read)
    store.read.clear()
    assert await runs.resume_open_runs() == 0
    assert not {"old", "renamed", "new"} & set(store.read)

    await store.release_lease(lease)
    assert await runs.resume_open_runs() == 1
    await runs.drain(60)
    assert isinstance((await store.load("open"))[-1].fact, RunEnded)
