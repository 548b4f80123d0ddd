"""The law of approvals: whatever executes is, byte for byte, what the decision that authorised it was shown.

Random interleavings of changes to the file, to the arguments, to the definition and to the rules with decisions,
crashes and resumes run against a real directory, on several stores. Each write is compared with the preview in the
question that its decision names. A write without a question needs a rule that covered it then.

The comparison is made twice: before the tool starts, and for files once more while it writes. Only `publish`, which
compares nothing itself, can show that the first is made, and only a file that changes late that the second is.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bartack import Agent, ToolCall, assistant
from bartack.app.permissions import Rule, RuledCall, covering
from bartack.models import ScriptedModel
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, ToolStarted
from bartack.nouns.errors import BartackError, StoreError
from bartack.session.decisions import Decision, question_digest
from bartack.store import MemoryStore, SessionStore, Tail
from bartack.store.jsonl import JsonlStore
from bartack.store.requests import decide, pending_approvals
from bartack.store.sqlite import SqliteStore
from bartack.tools import LocalRuntime, ToolDefinition, file_tools, tool
from bartack.tools.file_changes import change_in
from bartack.tools.runtime import Operation, RunCommand
from lab.bound_writes import lost_writes, start_writer

TEXTS = ("x\n", "x\nx\n", "y\n", "")
FILES = st.tuples(st.just("file"), st.sampled_from([*TEXTS, None]))
CHANGES = st.one_of(
    FILES,
    FILES,
    st.tuples(st.just("late"), st.sampled_from(TEXTS)),
    st.tuples(st.just("definition"), st.sampled_from(["one", "two"])),
    st.tuples(st.just("rule"), st.sampled_from(["none", "other", "this"])),
)
LOOKS = st.lists(st.tuples(st.just("look"), st.none()), max_size=1)
ANSWERS = st.one_of(st.tuples(st.just("approve"), st.none()), st.tuples(st.just("modify"), st.sampled_from(TEXTS)))
RUNS = st.one_of(st.tuples(st.just("resume"), st.none()), st.tuples(st.just("crash"), st.integers(0, 4)))
# A person mostly looks, then answers. Steps in any order would rarely put a change between the two.
ROUNDS = st.tuples(
    st.lists(CHANGES, max_size=1),
    LOOKS | st.just([("look", None)]),
    st.lists(CHANGES, max_size=2),
    st.lists(ANSWERS, min_size=1, max_size=2),
    st.lists(CHANGES, max_size=1),
    st.tuples(RUNS),
)
STEPS = st.lists(ROUNDS, max_size=4).map(lambda rounds: [step for parts in rounds for part in parts for step in part])
CALLS = [
    ToolCall("c1", "write_file", {"path": "a.txt", "text": "new\n"}),
    ToolCall("c1", "edit_file", {"path": "a.txt", "old": "x", "new": "z", "everywhere": True}),
    ToolCall("c1", "run_command", {"command": "echo new > a.txt"}),
    ToolCall("c1", "publish", {"to": "all"}),
]


class Published(NamedTuple):
    """What the tool `publish` has done."""

    to: str
    text: str | None


class Failing:
    """A store that stores nothing more after some appends, as if the process had been killed."""

    remaining: int | None = None

    async def append(self, *arguments: Any, **options: Any) -> Tail:
        if self.remaining is not None:
            self.remaining -= 1
            if self.remaining < 0:
                raise StoreError("The process is gone.")
        tail: Tail = await super().append(*arguments, **options)  # type: ignore[misc]
        return tail


class FailingMemory(Failing, MemoryStore):
    pass


class FailingSqlite(Failing, SqliteStore):
    pass


class FailingJsonl(Failing, JsonlStore):
    pass


AnyStore = FailingMemory | FailingSqlite | FailingJsonl
STORES = ("memory", "sqlite", "jsonl")


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[AnyStore]:
    store: Any = FailingMemory()
    if kind != "memory":
        store = await (FailingSqlite.open(folder / "a.db") if kind == "sqlite" else FailingJsonl.open(folder / "store"))
    try:
        yield store
    finally:
        await store.close()


class Recording(LocalRuntime):
    """Notes the operation, the content of the file before and after it, and the rule for each change."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.made: list[tuple[Operation | Published, bytes | None, bytes | None, bool]] = []
        self.file = root / "a.txt"
        self.late: str | None = None  # what another program writes to the file just before the call acts
        self.rule: Rule | None = None
        self.is_ruled = False  # whether a rule has let the call of this run through

    def content(self) -> bytes | None:
        return self.file.read_bytes() if self.file.exists() else None

    async def execute(self, operation: Operation, **options: Any) -> Any:
        if self.late is not None:
            self.file.write_text(self.late)
            self.late = None
        before = self.content()
        output = await super().execute(operation, **options)
        self.made.append((operation, before, self.content(), self.is_ruled))
        return output

    def policy(self, call: ToolCall, definition: ToolDefinition) -> bool:
        ruled = RuledCall(call.tool_name, call.arguments, root=self.root)
        self.is_ruled = self.rule is not None and covering([self.rule], ruled) is not None
        return not self.is_ruled


def digest(data: bytes | None) -> str:
    return "absent" if data is None else sha256(data).hexdigest()


def tools_of(version: str, runtime: Recording) -> list[ToolDefinition]:
    """The tools for files, and one of a user, which sends the file away as it is when the call acts."""

    def text() -> str | None:
        content = runtime.content()
        return None if content is None else content.decode()

    def publish(to: str) -> None:
        runtime.made.append((Published(to, text()), None, None, runtime.is_ruled))

    def shown(arguments: dict[str, Any]) -> dict[str, Any]:
        return {**arguments, "text": text()}

    definitions = [*file_tools(), tool(preview=shown)(publish)]
    return [replace(definition, digest=version) for definition in definitions]


def rule_for(call: ToolCall, kind: str) -> Rule | None:
    """A rule that covers the call, or one like it that does not."""
    is_this = kind == "this"
    if kind == "none":
        return None
    if call.tool_name == "run_command":
        return Rule(command=call.arguments["command"] if is_this else "echo other > a.txt")
    if call.tool_name == "publish":
        return Rule(tool="publish" if is_this else "other")
    return Rule(tool=call.tool_name, path="a.txt" if is_this else "b.txt")


async def play(
    call: ToolCall, before: str | None, steps: list[tuple[str, Any]], folder: Path, kind: str = "memory"
) -> int:
    """Play the steps, check what was executed, and return how many changes were made."""
    root = folder / "project"
    root.mkdir()
    async with opened(kind, folder) as store:
        return await play_on(store, call, before, steps, root)


async def play_on(
    store: AnyStore,
    call: ToolCall,
    before: str | None,
    steps: list[tuple[str, Any]],
    root: Path,
) -> int:
    version, runtime = "one", Recording(root)
    if before is not None:
        runtime.file.write_text(before)
    if steps and steps[0][0] == "rule":
        runtime.rule = rule_for(call, steps[0][1])
    await run(store, runtime, version, call)
    shown: ApprovalRequired | None = None
    for step, value in steps:
        questions = await pending_approvals(store, "s")
        match step:
            case "file":
                runtime.file.unlink(missing_ok=True) if value is None else runtime.file.write_text(value)
            case "late":
                runtime.late = value
            case "definition":
                version = value
            case "rule":
                runtime.rule = rule_for(call, value)
            case "look":
                shown = questions[0] if questions else None
            case "approve" | "modify":
                await answer(store, shown, step, value, call)
            case _:
                store.remaining = value
                await run(store, runtime, version, None)
                store.remaining = None
    check(await store.entries("s"), runtime)
    return len(runtime.made)


async def answer(store: SessionStore, shown: ApprovalRequired | None, step: str, value: Any, call: ToolCall) -> None:
    if shown is None:
        return
    changed = {
        "write_file": {"path": "a.txt", "text": value},
        "run_command": {"command": "echo more > a.txt"},
        "publish": {"to": value},
    }
    arguments = changed.get(call.tool_name) if step == "modify" else None
    decision = Decision(
        "approve" if arguments is None else "modify_args", arguments=arguments, question_digest=question_digest(shown)
    )
    with suppress(BartackError):  # another question is open, or none
        await decide(store, "s", "c1", decision)


async def run(store: SessionStore, runtime: Recording, version: str, call: ToolCall | None) -> None:
    runtime.is_ruled = False
    model = ScriptedModel([*([] if call is None else [assistant(call)]), "done", "done"])
    tools = tools_of(version, runtime)
    async with Agent(model, tools=tools, runtime=runtime, store=store, approval=runtime.policy) as agent:
        with suppress(BartackError):  # it crashed, or there is nothing to resume
            await (agent.resume("s", takeover=True) if call is None else agent.run("go", session="s"))


def check(entries: Any, runtime: Recording) -> None:
    questions: dict[str, ApprovalRequired] = {}
    decided: ApprovalDecided | None = None
    started: list[tuple[ApprovalDecided, ApprovalRequired] | None] = []  # with the decision before it
    for entry in entries:
        match entry.fact:
            case ApprovalRequired():
                questions[question_digest(entry.fact)] = entry.fact
            case ApprovalDecided():
                decided = entry.fact
            case ToolStarted() if decided is None:
                started.append(None)
            case ToolStarted():
                assert decided is not None
                assert decided.question_digest is not None
                started.append((decided, questions[decided.question_digest]))
    assert len(runtime.made) <= min(len(started), 1)
    for (operation, before, after, is_ruled), decision in zip(runtime.made, started[-1:], strict=False):
        if is_ruled:
            continue
        assert decision is not None
        verdict, question = decision
        preview = question.preview or {}
        if isinstance(operation, Published):
            to = preview["to"] if verdict.decision == "approve" else (verdict.arguments or {})["to"]
            assert operation == Published(to, preview["text"])
            continue
        if isinstance(operation, RunCommand):
            expected = preview["command"] if verdict.decision == "approve" else (verdict.arguments or {})["command"]
            assert (operation.command, preview["directory"]) == (expected, str(runtime.root))
            continue
        change = change_in(question)
        assert change is not None
        assert digest(before) == change.before
        if verdict.decision == "approve":
            assert digest(after) == change.after
        else:
            assert after == (verdict.arguments or {})["text"].encode()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.tool_name)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=st.sampled_from([*TEXTS[:2], None]), steps=STEPS, kind=st.sampled_from(STORES))
def test_whatever_executes_is_what_its_decision_was_shown(
    call: ToolCall, before: str | None, steps: list[tuple[str, Any]], kind: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(call, before, steps, Path(folder).resolve(), kind))


SEEN_AND_APPROVED = [("look", None), ("approve", None), ("resume", None)]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        (SEEN_AND_APPROVED, 1),
        ([("look", None), ("modify", "y\n"), ("resume", None)], 1),
        ([("rule", "this")], 1),
        ([("rule", "other"), ("resume", None)], 0),
        ([("rule", "none"), ("rule", "this"), ("resume", None)], 0),  # the question stays
        ([("look", None), ("file", "x\nx\n"), *SEEN_AND_APPROVED[1:]], 0),
        ([("look", None), ("definition", "two"), *SEEN_AND_APPROVED[1:]], 0),
        ([("look", None), ("file", "x\nx\n"), *SEEN_AND_APPROVED[1:], *SEEN_AND_APPROVED], 1),
    ],
)
async def test_a_change_is_made_once_it_is_seen_and_approved(
    steps: list[tuple[str, Any]], changes: int, kind: str, tmp_path: Path
) -> None:
    call = ToolCall("c1", "write_file", {"path": "a.txt", "text": "new\n"})
    assert await play(call, "x\n", steps, tmp_path, kind) == changes


def test_no_write_of_another_process_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    writer = start_writer(file)
    try:
        lost, _ = asyncio.run(lost_writes(tmp_path, file, approvals=50))
    finally:
        writer.kill()
        writer.wait()
    assert lost == []
