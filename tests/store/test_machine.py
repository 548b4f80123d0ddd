"""A store is a list: after any sequence of operations it contains what a plain Python list would."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from msgspec.structs import replace

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Entry, Fact, Redaction, SessionHeader, branch, heads
from bartack.nouns.errors import Conflict
from bartack.nouns.messages import assistant, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.redaction import visible
from bartack.store import SessionStore, Tail, next_entries
from bartack.store.index import results_of
from tests.store.postgres_server import require_server
from tests.store.stores import KINDS, PERSISTENT, OpenStore, counting_environment, opener

T = TypeVar("T")

FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.text(max_size=20).map(user),
    st.sampled_from("abc").map(lambda call: assistant(ToolCall(call, "clock", {}))),
    st.sampled_from("abc").map(lambda call: tool_message(ToolResult(call, "noon"))),
    st.dictionaries(st.sampled_from(["$blob", "$$blob", "x"]), st.text(max_size=5)).map(lambda data: Custom("x", data)),
    st.just(Custom("long", {})),  # replaced by `LONG` when it is appended, so that failures stay readable
)
LONG = Custom("long", {"text": "y" * 70_000})


class StoreMachine(RuleBasedStateMachine):
    """The model is a list of entries per session; the store must agree with it after every step."""

    kind = "memory"
    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        if self.kind == "postgres":
            require_server()  # before there is anything to clean up
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.environment = counting_environment()
        self.open: OpenStore = opener(self.kind, self.folder, self.environment)
        self.store: SessionStore = self.run(self.opened())
        self.model: dict[str, list[Entry]] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def opened(self) -> SessionStore:
        return await self.open()

    def teardown(self) -> None:
        self.run(self.store.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.folder)

    @initialize(target=sessions)
    def first_session(self) -> str:
        return self.created()

    @rule(target=sessions)
    def create(self) -> str:
        return self.created()

    def created(self) -> str:
        header = self.run(self.store.create_session(f"s/{len(self.model)}", SessionHeader(title="T")))
        self.model[header.session_id] = [header]
        return header.session_id

    def may_be_stored(self, known: list[Entry], new: tuple[Entry, ...]) -> bool:
        ended = [call for entry in (*known, *new) for call in results_of(entry.fact)]
        return len(ended) == len(set(ended))

    def append(self, session_id: str, entries: tuple[Entry, ...]) -> None:
        known = self.model[session_id]
        if self.may_be_stored(known, entries):
            tail = self.run(self.store.append(session_id, entries, known[-1].id))
            assert tail == Tail(entries[-1].id, entries[-1].seq)
            known += entries
        else:
            with pytest.raises(Conflict):
                self.run(self.store.append(session_id, entries, known[-1].id))

    def new_entries(self, session_id: str, facts: list[Fact], parent: int = -1) -> tuple[Entry, ...]:
        known = self.model[session_id]
        tail = Tail(known[-1].id, known[-1].seq)
        facts = [LONG if fact == Custom("long", {}) else fact for fact in facts]
        return next_entries(session_id, tail, facts, self.environment, parent_id=known[parent].id)

    @rule(session_id=sessions, facts=st.lists(FACTS, min_size=1, max_size=3))
    def append_facts(self, session_id: str, facts: list[Fact]) -> None:
        self.append(session_id, self.new_entries(session_id, facts))

    @rule(session_id=sessions, fact=FACTS, data=st.data())
    def append_on_a_branch(self, session_id: str, fact: Fact, data: st.DataObject) -> None:
        parent = data.draw(st.integers(0, len(self.model[session_id]) - 1))
        self.append(session_id, self.new_entries(session_id, [fact], parent))

    @rule(session_id=sessions, data=st.data())
    def redact(self, session_id: str, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(self.model[session_id]))
        self.append(session_id, self.new_entries(session_id, [Redaction(target.id)]))

    @rule(session_id=sessions, fact=FACTS, data=st.data())
    def expect_wrong_tail(self, session_id: str, fact: Fact, data: st.DataObject) -> None:
        known = self.model[session_id]
        wrong = data.draw(st.sampled_from([None, "unknown", *(entry.id for entry in known[:-1])]))
        with pytest.raises(Conflict) as caught:
            self.run(self.store.append(session_id, self.new_entries(session_id, [fact]), wrong))
        assert caught.value.tail == known[-1].id

    @rule(session_id=sessions, data=st.data())
    def append_again(self, session_id: str, data: st.DataObject) -> None:
        known = self.model[session_id]
        start = data.draw(st.integers(0, len(known) - 1))
        end = data.draw(st.integers(start + 1, len(known)))
        tail = self.run(self.store.append(session_id, known[start:end], None))
        assert tail == Tail(known[end - 1].id, end)

    @rule(session_id=sessions, data=st.data())
    def append_other_content(self, session_id: str, data: st.DataObject) -> None:
        known = self.model[session_id]
        entry = data.draw(st.sampled_from(known[1:] or known))
        fact = SessionHeader(title="other") if entry.seq == 1 else Custom("other", {})
        with pytest.raises(Conflict):
            self.run(self.store.append(session_id, [replace(entry, fact=fact)], known[-1].id))

    @rule(session_id=sessions, count=st.integers(2, 5))
    def write_concurrently(self, session_id: str, count: int) -> None:
        attempts = [self.new_entries(session_id, [user(f"writer {number}")]) for number in range(count)]
        tail = self.model[session_id][-1].id

        async def race() -> list[Tail | BaseException]:
            appends = (self.store.append(session_id, attempt, tail) for attempt in attempts)
            return await asyncio.gather(*appends, return_exceptions=True)

        outcomes = self.run(race())
        winners = [attempt for attempt, outcome in zip(attempts, outcomes, strict=True) if isinstance(outcome, Tail)]
        assert len(winners) == 1
        assert all(isinstance(outcome, Tail | Conflict) for outcome in outcomes)
        self.model[session_id] += winners[0]

    @rule(session_id=consumes(sessions))
    def drop(self, session_id: str) -> None:
        if len(self.model) > 1:
            self.run(self.store.drop_session(session_id))
            del self.model[session_id]
            self.model[f"gone {session_id}"] = []  # ids are not reused

    @rule(target=sessions)
    def create_after_a_drop(self) -> Any:
        return self.created() if sum(map(bool, self.model.values())) < 2 else multiple()

    @rule()
    def reopen(self) -> None:
        if self.kind in PERSISTENT:
            self.run(self.store.close())
            self.store = self.run(self.opened())

    @invariant()
    def agrees_with_the_lists(self) -> None:
        sessions = {session_id: entries for session_id, entries in self.model.items() if entries}
        assert {info.id for info in self.run(self.store.sessions(1000)).items} == set(sessions)
        for session_id, entries in sessions.items():
            stored = self.run(self.store.entries(session_id))
            assert list(stored.texts) == [wire.encode(entry) for entry in entries]
            assert self.run(self.store.heads(session_id)) == heads(entries)
            shown = branch(visible(entries), entries[-1].id)
            assert self.run(self.store.load(session_id)) == shown


def _machine(kind: str) -> Any:
    machine = type(f"{kind.title()}Machine", (StoreMachine,), {"kind": kind})
    case = machine.TestCase  # type: ignore[attr-defined]
    case.settings = settings(max_examples=12, stateful_step_count=25)
    return case


for _kind in KINDS:
    globals()[f"Test{_kind.title()}"] = _machine(_kind)
