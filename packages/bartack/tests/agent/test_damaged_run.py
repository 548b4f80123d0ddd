"""A run whose entries are damaged after a crash: nothing is done twice, and a repair makes the session usable again."""

from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from bartack import ToolCall, ToolResult, assistant, tool_message, user
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.nouns.entries import Fact, RunStarted, SessionHeader, ToolStarted
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.store import SessionStore, next_entries
from bartack.store.maintenance import check, repair
from bartack.tools import ToolDefinition, tool
from tests.store import postgres_server
from tests.store.stores import PERSISTENT, opener
from tests.store.test_sqlite_damage import alter

FACTS: list[Fact] = [
    SessionHeader(),
    RunStarted(),
    user("Pay."),
    assistant(*(ToolCall(f"c{number}", "pay", {"amount": number}) for number in (1, 2, 3))),
    ToolStarted(tool_call_id="c1", tool_name="pay", arguments={"amount": 1}),
    tool_message(ToolResult("c1", "paid 1")),
    ToolStarted(tool_call_id="c2", tool_name="pay", arguments={"amount": 2}),
]

# How an entry is damaged, as SQL and as what is replaced in its line: nothing of it can be read, an outline can be
# read but not the entry, or it is gone.
SQL = {
    "cut": "UPDATE {} SET text = replace(text, '\"seq\"', '\"seq')",
    "altered": 'UPDATE {} SET text = replace(text, \'"timestamp":"2\', \'"timestamp":"x\')',
    "lost": "DELETE FROM {}",
}
LINE = {"cut": (b'"seq"', b'"seq'), "altered": (b'"timestamp":"2', b'"timestamp":"x')}
DAMAGE = [(how, seq) for how in SQL for seq in range(3, len(FACTS) + 1) if (how, seq) != ("lost", len(FACTS))]


def pay(paid: list[int]) -> ToolDefinition:
    @tool(name="pay")
    async def transfer(amount: int) -> str:
        """Transfer money."""
        paid.append(amount)
        return f"paid {amount}"

    return transfer


async def interrupted(store: SessionStore, session: str) -> None:
    await store.append(session, next_entries(session, None, FACTS, store.environment, run_id="r"), None)


async def damage(kind: str, folder: Path, sessions: dict[str, tuple[str, int]]) -> None:
    """Damage one entry of each session."""
    if kind == "jsonl":
        for session, (how, seq) in sessions.items():
            path = folder / "sessions" / f"{session}.jsonl"
            lines = path.read_bytes().splitlines(keepends=True)
            lines[seq - 1] = lines[seq - 1].replace(*LINE[how]) if how in LINE else b""
            path.write_bytes(b"".join(lines))
        return
    table = "entry" if kind == "sqlite" else "entries"
    statements = "; ".join(
        f'{SQL[how].format(table)} WHERE text LIKE \'%"sessionId":"{session}"%\' AND seq = {seq}'
        for session, (how, seq) in sessions.items()
    )
    if kind == "sqlite":
        alter(folder / "sessions", statements)
        return
    schema = postgres_server.schema_of(postgres_server.address(str(folder)))
    connection = await asyncpg.connect(postgres_server.SERVER, server_settings={"search_path": schema})
    await connection.execute(f"SET session_replication_role = replica; {statements}")  # without triggers
    await connection.close()


@pytest.mark.parametrize("kind", PERSISTENT)
async def test_a_damaged_run_repeats_nothing_and_can_be_repaired(kind: str, fast_path: Path) -> None:
    sessions = {f"{how}-{seq}": (how, seq) for how, seq in DAMAGE}
    store = await opener(kind, fast_path)()
    for session in sessions:
        await interrupted(store, session)
    await store.close()
    await damage(kind, fast_path, sessions)

    store, paid = await opener(kind, fast_path)(), list[int]()
    agent = Agent(ScriptedModel(["Done."] * 2 * len(sessions)), tools=[pay(paid)], store=store)
    for session, (_, seq) in sessions.items():
        for refused in (agent.resume(session), agent.run("More?", session=session), agent.abort(session)):
            with pytest.raises(StoreError, match=f"Entry {seq} of session") as error:
                await refused
            assert error.value.code is ErrorCode.STORAGE_CORRUPT
        problems = await repair(store, session)  # a database still knows of a result that is gone
        assert [problem for problem in problems if "the index of results is wrong" not in problem.message] == []
        assert (await agent.resume(session)).output == "Done."
        assert (await agent.run("More?", session=session)).output == "Done."
        assert await check(store, session) == problems
    assert paid == []
    await store.close()


async def test_the_same_run_continues_if_it_is_not_damaged(fast_path: Path) -> None:
    """The negative control: the call that had not started is executed."""
    store, paid = await opener("sqlite", fast_path)(), list[int]()
    await interrupted(store, "s")
    agent = Agent(ScriptedModel(["Done."]), tools=[pay(paid)], store=store)
    assert (await agent.resume("s")).output == "Done."
    assert paid == [3]
    await store.close()


async def test_a_run_on_a_session_whose_last_entry_is_gone_is_refused(fast_path: Path) -> None:
    store = await opener("sqlite", fast_path)()
    await interrupted(store, "s")
    await store.close()
    await damage("sqlite", fast_path, {"s": ("lost", len(FACTS))})
    store = await opener("sqlite", fast_path)()
    with pytest.raises(StoreError):
        await Agent(ScriptedModel(["never"]), store=store).run("More?", session="s")
    await store.close()
