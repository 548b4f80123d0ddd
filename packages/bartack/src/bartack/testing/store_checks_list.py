"""A store is a list: after any sequence of operations it contains what a plain Python list would.

`StoreWalk` takes random steps, each on the store and on a list of entries per session, and compares them after every
step. The choices come from a `random.Random`, so that a property-based test can make and shrink them.
"""

import asyncio
from random import Random

from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, Fact, Redaction, SessionHeader
from bartack.nouns.entries import branch as branch_of
from bartack.nouns.entries import heads as heads_of
from bartack.nouns.errors import Conflict
from bartack.nouns.messages import assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.redaction import visible
from bartack.session.title import TITLE, title_of
from bartack.store.index import results_of
from bartack.store.session_store import SessionStore, Tail, next_entries
from bartack.testing.store_steps import OpenStore, refusal

__all__ = ["StoreWalk"]

_WALKS, _STEPS = 5, 40


class StoreWalk:
    """A random walk over one store. With `open_store` the store is sometimes closed and opened again."""

    def __init__(self, store: SessionStore, chance: Random, open_store: OpenStore | None = None) -> None:
        self.store = store
        self._chance = chance
        self._open_store = open_store
        self._lists: dict[str, list[Entry]] = {}
        self._number = 0  # counts the sessions so far: ids are not used again

    async def step(self) -> None:
        """One random step, and the comparison."""
        steps = [self._append] * 4 + [self._branch, self._redact, self._expect_wrong_tail, self._append_again]
        steps += [self._append_other_content, self._race, self._drop, self._create]
        steps += [self._reopen] if self._open_store is not None else []
        step = self._chance.choice(steps) if self._lists else self._create
        await step()
        await self._compare(step.__name__.strip("_").replace("_", " "))

    # -- choices

    def _session(self) -> str:
        return self._chance.choice(sorted(self._lists))

    def _fact(self) -> Fact:
        call = self._chance.choice("abc")
        choices: list[Fact] = [
            user(f"text {self._chance.randrange(100)}"),
            assistant(ToolCall(call, "clock", {})),
            tool_message(ToolResult(call, "noon")),
            Custom(name="x", data={self._chance.choice(["$blob", "$$blob", "x"]): "value"}),
            Custom(name="long", data={"text": "y" * 70_000}),
            Custom(name=TITLE, data={"title": f"title {self._chance.randrange(100)}"}),
        ]
        return self._chance.choice(choices)

    def _entries(self, session_id: str, *facts: Fact, parent: int = -1) -> tuple[Entry, ...]:
        entries = self._lists[session_id]
        tail = Tail(entries[-1].id, entries[-1].seq)
        return next_entries(session_id, tail, facts, self.store.environment, parent_id=entries[parent].id)

    # -- steps

    async def _create(self) -> None:
        self._number += 1
        header = await self.store.create_session(f"s/{self._number}", SessionHeader(title="T"))
        self._lists[header.session_id] = [header]

    async def _append(self) -> None:
        session_id = self._session()
        facts = [self._fact() for _ in range(self._chance.randint(1, 3))]
        await self._append_to_both(session_id, self._entries(session_id, *facts))

    async def _branch(self) -> None:
        session_id = self._session()
        parent = self._chance.randrange(len(self._lists[session_id]))
        await self._append_to_both(session_id, self._entries(session_id, self._fact(), parent=parent))

    async def _redact(self) -> None:
        session_id = self._session()
        target = self._chance.choice(self._lists[session_id])
        await self._append_to_both(session_id, self._entries(session_id, Redaction(entry_id=target.id)))

    async def _append_to_both(self, session_id: str, entries: tuple[Entry, ...]) -> None:
        stored = self._lists[session_id]
        ended = [call for entry in (*stored, *entries) for call in results_of(entry.fact)]
        work = self.store.append(session_id, entries, stored[-1].id)
        if len(ended) != len(set(ended)):
            await refusal(Conflict, work, "a second result for a tool call")
            return
        tail = await work
        assert tail == Tail(entries[-1].id, entries[-1].seq), f"append returned {tail}, not the last of its entries"
        stored += entries

    async def _expect_wrong_tail(self) -> None:
        session_id = self._session()
        stored = self._lists[session_id]
        wrong = self._chance.choice([None, "unknown", *(entry.id for entry in stored[:-1])])
        work = self.store.append(session_id, self._entries(session_id, self._fact()), wrong)
        error = await refusal(Conflict, work, f"an append after {wrong!r}")
        assert error.tail == stored[-1].id, f"Conflict.tail is {error.tail!r}, not the last entry"

    async def _append_again(self) -> None:
        session_id = self._session()
        stored = self._lists[session_id]
        start = self._chance.randrange(len(stored))
        end = self._chance.randint(start + 1, len(stored))
        tail = await self.store.append(session_id, stored[start:end], None)
        assert tail == Tail(stored[end - 1].id, end), f"a repeated append returned {tail}"

    async def _append_other_content(self) -> None:
        session_id = self._session()
        stored = self._lists[session_id]
        entry = self._chance.choice(stored)
        fact = SessionHeader(title="other") if entry.seq == 1 else Custom(name="other", data={})
        work = self.store.append(session_id, [replace(entry, fact=fact)], stored[-1].id)
        await refusal(Conflict, work, "a stored entry with other content")

    async def _race(self) -> None:
        session_id = self._session()
        stored = self._lists[session_id]
        attempts = [self._entries(session_id, user(f"writer {number}")) for number in range(4)]
        appends = (self.store.append(session_id, attempt, stored[-1].id) for attempt in attempts)
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        winners = [attempt for attempt, outcome in zip(attempts, outcomes, strict=True) if isinstance(outcome, Tail)]
        assert len(winners) == 1, f"{len(winners)} of 4 appends to the same tail succeeded: {outcomes}"
        assert all(isinstance(outcome, Tail | Conflict) for outcome in outcomes), f"not a Conflict: {outcomes}"
        stored += winners[0]

    async def _drop(self) -> None:
        session_id = self._session()
        await self.store.drop_session(session_id)
        del self._lists[session_id]

    async def _reopen(self) -> None:
        assert self._open_store is not None
        await self.store.close()
        self.store = await self._open_store()

    async def _compare(self, step: str) -> None:
        listed = {info.id: info.title for info in (await self.store.sessions(1000)).items}
        assert listed.keys() == self._lists.keys(), f"after {step}, the sessions are {listed}, not {set(self._lists)}"
        for session_id, entries in self._lists.items():
            texts = list((await self.store.entries(session_id)).texts)
            assert texts == [wire.encode(entry) for entry in entries], f"after {step}, {session_id} has other entries"
            heads = await self.store.heads(session_id)
            assert heads == heads_of(entries), f"after {step}, the heads of {session_id} are {heads}"
            loaded = await self.store.load(session_id)
            titled = [
                visible_entry
                for visible_entry, entry in zip(visible(entries), entries, strict=True)
                if title_of(entry.fact)
            ][-1]
            title = title_of(titled.fact)
            assert listed[session_id] == title, f"after {step}, {session_id} is called {listed[session_id]!r}"
            expected = branch_of(visible(entries), entries[-1].id)
            assert loaded == expected, f"after {step}, load of {session_id} returns another branch"


async def a_store_is_a_list_after_any_steps(store: SessionStore) -> None:
    for seed in range(_WALKS):
        walk = StoreWalk(store, Random(seed))
        for _ in range(_STEPS):
            await walk.step()
        for info in (await store.sessions(1000)).items:
            await store.drop_session(info.id)


async def a_reopened_store_is_the_same_list(open_store: OpenStore) -> None:
    walk = StoreWalk(await open_store(), Random(7), open_store)
    try:
        for _ in range(_STEPS):
            await walk.step()
    finally:
        await walk.store.close()
