"""Acts on the session of a live run from outside, at any await of any of its tasks, and checks the outcome.

A run is suspended at its n-th await, wherever that is: in the loop, in an append, in a tool, while it follows the
session. Before it may proceed, another process does something to the session: approves, denies, queues, steers, aborts,
redacts, adds a note or switches the model. That is `OtherProcess`, or for speed a second handle on the store in this
process, which for the stores on disk shares nothing with the first.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import ContextVar
from typing import Any

from bartack import Custom, Entry, Message, ToolCall, assistant
from bartack.agent import Agent, ApprovalRequested, LiveApprover, RunResult
from bartack.models import ScriptedModel
from bartack.models.scripted import ScriptedResponse
from bartack.nouns import wire
from bartack.nouns.entries import AbortRequested, ModelChange, RunEnded, ToolStarted
from bartack.nouns.errors import NotFound
from bartack.nouns.tables import AgentStatus
from bartack.session.decisions import Decision
from bartack.store import SessionStore, open_store
from bartack.store.requests import decide, note, queue, redact, request_abort, steer, switch_model
from bartack.tools import ToolContext, tool
from lab.repository import ROOT
from tests.agent.kit import FAST, SESSION, check_session, within

__all__ = ["ACTIONS", "OtherProcess", "acted_at"]

SECRET = "xyzzy"
_IN_RUN: ContextVar["Hands | None"] = ContextVar("hands", default=None)


class Payer(ScriptedModel):
    """Calls two tools, then one that needs approval, then answers; afterwards it answers every message."""

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        match sum(message.role == "assistant" for message in messages):
            case 0:
                return assistant("Paying.", ToolCall("c1", "pay", {"amount": 1}), ToolCall("c2", "pay", {"amount": 2}))
            case 1:
                return assistant(ToolCall("c3", "pay_much", {"amount": 3}))
            case _:
                return "Done."


class Approving(LiveApprover):
    """Approves at once, unless the test decides."""

    def __init__(self, waits: bool) -> None:
        super().__init__()
        self._waits = waits

    async def decide(self, request: Any) -> Decision:
        if self._waits:
            return await super().decide(request)
        await asyncio.sleep(0)
        return Decision("approve")


class Hands:
    """Acts once, at the n-th await of a run for which it is ready."""

    def __init__(self, place: int, act: Callable[[], Awaitable[Entry]], *, needs_question: bool) -> None:
        self.place = place
        self.entry: Entry | None = None  # what was added
        self.is_refused = False
        self.was_reached = False
        self._act = act
        self.is_ready = not needs_question
        self._task: asyncio.Task[None] | None = None

    def is_due(self) -> bool:
        if not self.is_ready or self._task is not None:
            return False
        self.place -= 1
        self.was_reached = self.place == 0
        return self.was_reached

    def start(self) -> "asyncio.Task[None]":
        token = _IN_RUN.set(None)
        try:
            self._task = self._task or asyncio.ensure_future(self._work())
        finally:
            _IN_RUN.reset(token)
        return self._task

    async def finish(self) -> None:
        """Wait for what has begun in a task that the run no longer needs."""
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        try:
            self.entry = await self._act()
        except NotFound:  # there is no run yet, or no longer, or no such entry
            self.is_refused = True


class Suspending:
    """A coroutine that lets the hands act at one of its awaits, and waits until they are done."""

    def __init__(self, work: Coroutine[Any, Any, Any], hands: Hands) -> None:
        self._work = work
        self._hands = hands

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._work
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waiting = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as stop:
                return stop.value
            value, error = None, None
            is_cancelled = self._hands.is_due() and (yield from self._hold())
            if is_cancelled and (waiting is None or not waiting.cancel()):  # sleep(0), or something that is done by now
                error = asyncio.CancelledError()
                continue
            try:
                value = yield waiting
            except BaseException as thrown:  # noqa: BLE001 - passed on to the coroutine inside
                error = thrown

    def _hold(self) -> Generator[Any, Any, bool]:
        """Wait for the hands; whether the task was cancelled meanwhile."""
        acting, was_cancelled = self._hands.start(), False
        while not acting.done():
            try:
                yield from asyncio.wait({acting}).__await__()
            except asyncio.CancelledError:
                was_cancelled = True
        return was_cancelled


def suspend_tasks() -> None:
    """Let the hands of a run act in every task that it starts, except those inside a store or an event loop's own."""

    def factory(loop: Any, work: Any, **options: Any) -> "asyncio.Task[Any]":
        hands = _IN_RUN.get()
        code = getattr(work, "cr_code", None)
        if (
            hands is None
            or code is None
            or "/bartack/store/" in code.co_filename
            or "/bartack/" not in code.co_filename
        ):
            return asyncio.Task(work, loop=loop, **options)

        async def suspending() -> Any:
            return await Suspending(work, hands)

        task = asyncio.Task(suspending(), loop=loop, **options)
        task.add_done_callback(lambda _: work.close())  # it may be cancelled before it has started
        return task

    asyncio.get_running_loop().set_task_factory(factory)


# -- what others do


async def _redact_prompt(store: SessionStore) -> Entry:
    for entry in await store.load(SESSION):
        if isinstance(entry.fact, Message) and SECRET in entry.fact.text:
            return await redact(store, SESSION, entry.id)
    raise NotFound("no prompt yet")


ACTIONS: dict[str, Callable[[SessionStore], Awaitable[Entry]]] = {
    "approve": lambda store: decide(store, SESSION, "c3", Decision("approve")),
    "deny": lambda store: decide(store, SESSION, "c3", Decision("deny")),
    "queue": lambda store: queue(store, SESSION, "And then?"),
    "steer": lambda store: steer(store, SESSION, "And then?"),
    "abort": lambda store: request_abort(store, SESSION),
    "redact": _redact_prompt,
    "note": lambda store: note(store, SESSION, "seen", {}),
    "switch": lambda store: switch_model(store, SESSION, "scripted:second"),
}


class OtherProcess:
    """Another process that opens stores and acts on them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> "OtherProcess":
        pipe = asyncio.subprocess.PIPE
        arguments = (sys.executable, "-m", "tests.agent.hands")
        return cls(await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe, cwd=ROOT, limit=1 << 20))

    async def act(self, action: str, address: str) -> Entry:
        """Do this to the store there; `NotFound` if it is refused so."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{action}\t{address}\n".encode())
        line = await self._process.stdout.readline()
        assert line, "the other process has ended"
        if line == b"not found\n":
            raise NotFound("as the other process says")
        return wire.decode(Entry, line)

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def _act_on_command() -> None:
    """In the other process: do what each line says, and print the entry."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        action, address = line.removesuffix("\n").split("\t")
        store = await open_store(address)
        try:
            print(wire.encode(await ACTIONS[action](store)).decode(), flush=True)
        except NotFound:
            print("not found", flush=True)
        finally:
            await store.close()


async def acted_at(
    place: int, action: str, store: SessionStore, second_store: SessionStore | OtherProcess, address: str = ""
) -> bool:
    """Act at the n-th await of a run and check the session; False if the run has fewer awaits.

    Another process opens the store at this address.
    """
    ran: Counter[str] = Counter()

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Transfer money."""
        ran[context.tool_call_id] += 1
        await context.progress("half")
        return f"paid {amount}"

    @tool(requires_approval=True)
    async def pay_much(amount: int, context: ToolContext) -> str:
        """Transfer a large sum."""
        ran[context.tool_call_id] += 1
        await asyncio.sleep(0)
        return f"paid {amount}"

    decides = action in ("approve", "deny")

    def act() -> Awaitable[Entry]:
        return (
            second_store.act(action, address)
            if isinstance(second_store, OtherProcess)
            else ACTIONS[action](second_store)
        )

    hands = Hands(place, act, needs_question=decides)
    first, second = Payer([], chunk_chars=40), Payer([], chunk_chars=40, model_id="second")
    agent = Agent(
        first,
        tools=[pay, pay_much],
        store=store,
        approver=Approving(waits=decides),
        fallback_models=[second],
        retry=FAST,
    )
    result = await _driven(agent, hands, decides)
    entries = list(await check_session(store))
    _check_tools(entries, ran, action, hands)
    _check_effect(entries, hands, action, result)
    if action == "redact" and hands.entry is not None:
        before = sum(isinstance(e.fact, Message) and e.fact.role == "assistant" for e in entries[: hands.entry.seq])
        # the request whose answer was on its way may still contain it
        exposed = [number for number, call in enumerate(first.calls) if SECRET in repr(call.messages)]
        assert not [number for number in exposed if number > before], f"answers before: {before}, shown in {exposed}"
    return hands.was_reached


async def _driven(agent: Agent, hands: Hands, decides: bool) -> RunResult:
    """The result of the run, and of what it left to do."""
    suspend_tasks()
    token = _IN_RUN.set(hands)
    running = asyncio.create_task(_run(agent, hands))
    _IN_RUN.reset(token)
    if decides:
        while not running.done() and not hands.is_ready:  # noqa: ASYNC110 - the run may end first
            await asyncio.sleep(0)
        await asyncio.wait({running}, timeout=0.2)  # only decides where the hands act, not whether
        if not running.done():
            await hands.start()
    result: RunResult = await within(running)
    await hands.finish()
    # A message may have been queued after the end; but a prompt whose run was aborted would be answered by a new one.
    return result if result.status is AgentStatus.ABORTED else await within(agent.resume(SESSION))


async def _run(agent: Agent, hands: Hands) -> RunResult:
    async with agent.stream(f"Pay with {SECRET}", session=SESSION) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                hands.is_ready = True
    return run.result


def _check_tools(entries: list[Entry], ran: Counter[str], action: str, hands: Hands) -> None:
    starts = Counter(entry.fact.tool_call_id for entry in entries if isinstance(entry.fact, ToolStarted))
    assert starts == ran, f"starts {starts}, ran {ran}"
    assert max(ran.values(), default=0) <= 1
    results = {
        result.tool_call_id: result
        for entry in entries
        if isinstance(entry.fact, Message)
        for result in entry.fact.tool_results
    }
    if action == "abort" and hands.entry is not None:
        late = [entry for entry in entries if isinstance(entry.fact, ToolStarted) and entry.seq > hands.entry.seq]
        assert not late, "a tool was started after the abort"
        return
    assert set(ran) == ({"c1", "c2"} if action == "deny" else {"c1", "c2", "c3"})
    for call_id in ran:
        assert str(results[call_id].content).startswith("paid"), f"the result of {call_id} was lost"


def _check_effect(entries: list[Entry], hands: Hands, action: str, result: RunResult) -> None:
    """The request took effect once, and the run ended once."""
    ends = [entry.fact for entry in entries if isinstance(entry.fact, RunEnded)]
    request = hands.entry
    if request is None:
        assert [end.status for end in ends] == ["completed"]
        return
    assert [entry.id for entry in entries].count(request.id) == 1
    if action == "abort":
        assert [end.status for end in ends] == ["aborted"]
        assert isinstance(request.fact, AbortRequested)
        return
    assert {end.status for end in ends} == {"completed"}
    assert result.output == "Done."
    if action in ("queue", "steer"):
        delivered = [entry for entry in entries if _request_of(entry) == request.id]
        assert len(delivered) == 1, f"delivered {len(delivered)} times"
        answers = [entry for entry in entries if isinstance(entry.fact, Message) and entry.fact.role == "assistant"]
        assert answers[-1].seq > delivered[0].seq
        between = entries[request.seq : delivered[0].seq]
        assert not any(isinstance(entry.fact, RunEnded) for entry in between), "the run ended without the message"
    elif action == "note":
        assert sum(isinstance(entry.fact, Custom) for entry in entries) == 1
    elif action == "switch":
        assert sum(isinstance(entry.fact, ModelChange) for entry in entries) == 1
        _check_models(entries, request)


def _request_of(entry: Entry) -> str | None:
    return entry.fact.meta.request_id if isinstance(entry.fact, Message) and entry.fact.meta is not None else None


def _check_models(entries: list[Entry], request: Entry) -> None:
    """After the switch, at most the answer on its way is from the first model."""
    later = [
        entry.fact.meta.model.model
        for entry in entries
        if entry.seq > request.seq
        and isinstance(entry.fact, Message)
        and entry.fact.meta is not None
        and entry.fact.meta.model is not None
    ]
    assert later[1:] == ["second"] * len(later[1:]), later


if __name__ == "__main__":
    asyncio.run(_act_on_command())
