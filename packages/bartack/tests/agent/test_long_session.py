"""A session of many turns: the cost of a turn does not depend on how many came before it."""

from collections.abc import Sequence

from bartack import AgentConfig, ContextConfig, Message, Meta, ToolCall, Usage, assistant
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.store import Entries, MemoryStore
from bartack.tools import tool
from tests.agent.kit import SESSION, make

TEXT = "Some words about what was found and what to do about it. " * 6


@tool
async def look(place: int) -> str:
    """Looks."""
    return f"{place}: {TEXT}"


class Looking(ScriptedModel):
    """Calls a tool, then answers; summarises on request."""

    def __init__(self) -> None:
        super().__init__([], chunk_chars=400)
        self.sent: list[int] = []
        self._turn = 0

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        self.calls.clear()
        self.sent.append(len(messages))
        size = sum(len(message.text) for message in messages) // 4
        if messages[-1].role == "tool":
            return assistant(TEXT, meta=Meta(usage=Usage(size, 80)))
        if not messages[-1].text.startswith("Look"):
            return "They looked at many places."
        self._turn += 1
        return assistant(ToolCall(f"c{self._turn}", "look", {"place": self._turn}), meta=Meta(usage=Usage(size, 20)))


class Counted(MemoryStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.read = 0

    async def load(self, session_id: str, *, head: str | None = None) -> Entries:
        self.loads += 1
        return await super().load(session_id, head=head)

    async def entries(self, session_id: str, after_seq: int = 0, limit: int | None = None) -> Entries:
        entries = await super().entries(session_id, after_seq, limit)
        self.read += len(entries)
        return entries


async def test_a_new_session_is_never_read_and_the_context_stays_bounded() -> None:
    store, model = Counted(), Looking()
    config = AgentConfig(context=ContextConfig(max_tokens=3000))
    agent, _, _ = make(model, look, store=store, config=config)
    for turn in range(200):
        assert (await agent.run(f"Look at {turn}", session=SESSION)).output == TEXT
    assert (store.loads, store.read) == (0, 0)
    kinds = [entry.fact.kind for entry in await store.load(SESSION)]
    assert kinds.count("compaction_summary") > 5
    assert "stream_failed" not in kinds
    assert max(model.sent) < 150  # tool outputs are shortened before turns are summarised


async def test_only_entries_appended_by_others_are_read_between_turns() -> None:
    store = Counted()
    agent, _, _ = make(["One.", "Two.", "Three."], store=store)
    second_agent, _, model = make(["Other."], store=store)
    await agent.run("a", session=SESSION)
    await second_agent.run("b", session=SESSION)
    store.loads = store.read = 0
    await agent.run("c", session=SESSION)
    assert (store.loads, store.read) == (0, 4)
    assert len(model.calls) == 1
