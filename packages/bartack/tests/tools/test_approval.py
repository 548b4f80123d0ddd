"""Approval: which calls need one, and that a decision counts for exactly the arguments it was made for."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from bartack import ErrorCode, Text, ToolCall, ToolError, assistant
from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, Entry, ToolStarted
from bartack.session.decisions import question_digest
from bartack.tools import (
    ApprovalPolicy,
    Decision,
    ToolDefinition,
    always,
    arguments_digest,
    by_definition,
    by_tool,
    decided_fact,
    never,
    tool,
)
from tests.sample_session import chain
from tests.tools.rounds import T0, Bench, Log, call, open_calls

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool(requires_approval=lambda arguments: "outside" if arguments["path"].startswith("/") else False)
async def remove(path: str) -> str:
    """Remove a file."""
    ran.append(path)
    return f"removed {path}"


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    ran.append(f"paid {amount}")
    return "paid"


@tool
async def look() -> str:
    """Look."""
    ran.append("looked")
    return "nice"


class FunctionApprover:
    """An approver that computes its decision from the request."""

    def __init__(self, answer: Callable[[ApprovalRequired], Decision | Awaitable[Decision]]) -> None:
        self._answer = answer
        self.asked: list[ApprovalRequired] = []

    async def decide(self, request: ApprovalRequired) -> Decision:
        self.asked.append(request)
        answer = self._answer(request)
        return answer if isinstance(answer, Decision) else await answer


def deciding(decision: Any, **details: Any) -> FunctionApprover:
    return FunctionApprover(lambda _: Decision(decision, **details))


# -- policies


def broken_policy(call: ToolCall, definition: ToolDefinition) -> bool:
    raise LookupError("no rule")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (never, []),
        (always, ["pay", "remove", "look"]),
        (by_definition, ["pay"]),
        (by_tool({"pay": "never", "look": "always"}), ["look"]),
        (by_tool({}, otherwise=never), []),
        (lambda call, _: call.tool_name == "remove" and call.arguments["path"] == "a", ["remove"]),
        (broken_policy, ["pay", "remove", "look"]),
    ],
)
async def test_the_policy_selects_the_calls_that_need_approval(policy: ApprovalPolicy, expected: list[str]) -> None:
    approver = deciding("approve")
    bench = Bench(remove, pay, look, approval=policy, approver=approver)
    outcome = await bench.run(call("pay", "c1", amount=1), call("remove", "c2", path="a"), call("look", "c3"))
    assert [request.tool_name for request in approver.asked] == expected
    assert len(ran) == len(outcome.results) == 3


async def test_a_function_of_the_arguments_can_require_approval_with_a_reason() -> None:
    approver = deciding("approve")
    bench = Bench(remove, approver=approver)
    await bench.run(call("remove", "c1", path="here"), call("remove", "c2", path="/etc"))
    assert [(request.tool_call_id, request.reason) for request in approver.asked] == [("c2", "outside")]


async def test_invalid_arguments_are_refused_without_asking() -> None:
    approver = deciding("approve")
    result = await Bench(pay, approver=approver).one("pay", amount="much")
    assert result.error_code is ErrorCode.TOOL_BAD_ARGUMENTS
    assert approver.asked == []


# -- decisions


async def test_an_approved_call_runs_after_question_and_decision_are_recorded() -> None:
    bench = Bench(pay, approver=deciding("approve", decided_by="ann", reason="fine"))
    assert (await bench.one("pay", amount=3)).content == "paid"
    assert bench.log.kinds == ["approval_required", "approval_decided", "tool_started", "message"]
    [question] = bench.log.of(ApprovalRequired)
    assert bench.log.facts[1] == ApprovalDecided(
        question_digest=question_digest(question),
        tool_call_id="c1",
        decision="approve",
        original_arguments={"amount": 3},
        arguments={"amount": 3},
        reason="fine",
        decided_by="ann",
    )


async def test_a_denied_call_gets_a_result_and_does_not_run() -> None:
    bench = Bench(pay, look, approver=deciding("deny", reason="too much"))
    outcome = await bench.run(call("pay", "c1", amount=3), call("look", "c2"))
    assert outcome.results[0].error_code is ErrorCode.TOOL_DENIED
    assert outcome.results[0].content == "The call was denied: too much"
    assert ran == ["looked"]


async def test_changed_arguments_are_used_and_both_versions_are_kept() -> None:
    bench = Bench(pay, approver=deciding("modify_args", arguments={"amount": 1}))
    result = await bench.one("pay", amount=1_000)
    assert ran == ["paid 1"]
    decided = bench.log.of(ApprovalDecided)[0]
    assert (decided.original_arguments, decided.arguments) == ({"amount": 1_000}, {"amount": 1})
    assert bench.log.of(ToolStarted)[0].arguments == {"amount": 1}
    assert result.metadata == {"approved_arguments": {"amount": 1}}
    assert result.content == 'paid\n[The user changed the arguments to {"amount":1}]'


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ({"paid": 1}, {"paid": 1, "note": '[The user changed the arguments to {"amount":1}]'}),
        ((Text("paid"),), (Text("paid"), Text('[The user changed the arguments to {"amount":1}]'))),
    ],
)
async def test_the_result_notes_changed_arguments_for_every_kind_of_content(value: Any, content: Any) -> None:
    @tool(requires_approval=True)
    async def give(amount: int) -> Any:
        """Gives."""
        return value

    bench = Bench(give, approver=deciding("modify_args", arguments={"amount": 1}))
    assert (await bench.one("give", amount=9)).content == content


async def test_changed_arguments_that_are_invalid_give_an_error_result() -> None:
    bench = Bench(pay, approver=deciding("modify_args", arguments={"amount": "lots"}))
    result = await bench.one("pay", amount=1_000)
    assert result.error_code is ErrorCode.TOOL_BAD_ARGUMENTS
    assert "The user changed the arguments" in str(result.content)
    assert ran == []


@pytest.mark.parametrize(
    "answer",
    [
        Decision("approve", arguments_digest=arguments_digest({"amount": 1})),
        Decision("approve", arguments={"amount": 1}),
        Decision("modify_args"),
        Decision("modify_args", arguments={"amount": float("nan")}),
    ],
    ids=["digest of other arguments", "approve with other arguments", "modify without any", "not JSON"],
)
async def test_a_decision_that_does_not_fit_its_question_denies_the_call(answer: Decision) -> None:
    bench = Bench(pay, approver=FunctionApprover(lambda _: answer))
    assert (await bench.one("pay", amount=1_000)).error_code is ErrorCode.TOOL_DENIED
    assert ran == []
    assert bench.log.of(ApprovalDecided)[0].decision == "deny"


async def test_a_decision_with_the_digest_of_the_shown_arguments_counts() -> None:
    approver = FunctionApprover(
        lambda request: Decision("approve", arguments_digest=arguments_digest(request.arguments))
    )
    assert (await Bench(pay, approver=approver).one("pay", amount=1)).content == "paid"


async def test_an_approver_that_raises_denies_the_call() -> None:
    def broken(_: ApprovalRequired) -> Decision:
        raise ConnectionError("no line")

    result = await Bench(pay, approver=FunctionApprover(broken)).one("pay", amount=1)
    assert result.error_code is ErrorCode.TOOL_DENIED
    assert "no line" in str(result.content)
    assert ran == []


class _PlainApprover:
    def decide(self, _: ApprovalRequired) -> Decision:
        return Decision("approve")


async def _approved(_: ApprovalRequired) -> Any:
    return True


@pytest.mark.parametrize("approver", [_PlainApprover(), FunctionApprover(_approved)])
async def test_an_approver_that_returns_no_decision_denies_the_call(approver: Any) -> None:
    result = await Bench(pay, approver=approver).one("pay", amount=1)
    assert result.error_code is ErrorCode.TOOL_DENIED
    assert "decide() must be a coroutine function that returns a Decision or None" in str(result.content)
    assert ran == []


async def test_an_abort_decision_stops_the_whole_round() -> None:
    @tool
    async def slow() -> None:
        await asyncio.sleep(30)

    bench = Bench(pay, slow, approver=deciding("abort", reason="stop all this"))
    outcome = await bench.run(call("pay", "c1", amount=1), call("slow", "c2"))
    assert outcome.aborted
    assert [result.error_code for result in outcome.results] == [ErrorCode.TOOL_ABORTED] * 2
    assert ran == []


# -- waiting


async def forever(_: Any = None) -> Decision:
    await asyncio.sleep(30)
    return Decision("approve")


async def test_a_question_without_a_decision_expires_with_an_error_result() -> None:
    bench = Bench(pay, approver=FunctionApprover(forever), approval_timeout_ms=30, environment=Environment())
    result = await asyncio.wait_for(bench.one("pay", amount=1), 2)
    assert result.error_code is ErrorCode.TOOL_DENIED
    assert "no decision before the deadline" in str(result.content)
    assert bench.log.of(ApprovalDecided)[0].decision == "expire"
    assert bench.log.of(ApprovalRequired)[0].expires_at is not None
    assert ran == []


async def test_stopping_ends_the_wait_for_a_decision() -> None:
    bench = Bench(pay, approver=FunctionApprover(forever))
    results = await bench.stopped(call("pay", amount=1))
    assert results["c1"].error_code is ErrorCode.TOOL_ABORTED
    assert bench.log.kinds == ["approval_required", "message"]


async def test_no_approval_is_requested_after_stopping() -> None:
    reached = asyncio.Event()

    @tool(sequential=True)
    async def reach() -> None:
        reached.set()
        await asyncio.sleep(30)

    approver = deciding("approve")
    bench = Bench(reach, pay, approver=approver)
    results = await bench.stopped(call("reach", "c1"), call("pay", "c2", amount=1), when=reached)
    assert results["c2"].error_code is ErrorCode.TOOL_ABORTED
    assert approver.asked == []
    assert ran == []


async def test_without_an_approver_the_call_waits_and_the_others_run() -> None:
    bench = Bench(pay, look)
    outcome = await bench.run(call("pay", "c1", amount=1), call("look", "c2"))
    assert outcome.waiting == ("c1",)
    assert [result.tool_call_id for result in outcome.results] == ["c2"]
    schema = pay.parameter_schema
    assert bench.log.of(ApprovalRequired) == [
        ApprovalRequired(tool_call_id="c1", tool_name="pay", arguments={"amount": 1}, parameters=schema)
    ]


async def test_a_sequential_call_waits_for_earlier_calls_but_all_questions_are_recorded() -> None:
    write = tool(name="write", sequential=True)(look.function)
    ask = tool(name="ask", sequential=True, requires_approval=True)(look.function)
    bench = Bench(write, ask, look)
    outcome = await bench.run(call("look", "c0"), call("ask", "c1"), call("write", "c2"), call("ask", "c3"))
    assert [result.tool_call_id for result in outcome.results] == ["c0"]
    assert outcome.waiting == ("c1", "c2", "c3")
    assert [request.tool_call_id for request in bench.log.of(ApprovalRequired)] == ["c1", "c3"]


# -- after a restart


def stored(*facts: Any) -> list[Entry]:
    """The facts as they come back from a store."""
    return [wire.decode(Entry, wire.encode(entry)) for entry in chain(assistant(call("pay", amount=7)), *facts)]


async def resumed(facts: list[Any], **options: Any) -> tuple[Bench, Any]:
    bench = Bench(pay, **options)
    return bench, await bench.resume(open_calls(stored(*facts)))


ASKED = ApprovalRequired(tool_call_id="c1", tool_name="pay", arguments={"amount": 7}, parameters=pay.parameter_schema)


async def test_a_question_is_not_recorded_again_after_a_restart() -> None:
    bench, outcome = await resumed([ASKED])
    assert outcome.waiting == ("c1",)
    assert bench.log.facts == []
    approver = deciding("approve")
    bench, outcome = await resumed([ASKED], approver=approver)
    assert approver.asked == [ASKED]
    assert bench.log.kinds == ["approval_decided", "tool_started", "message"]


@pytest.mark.parametrize(
    ("decision", "code", "happened"),
    [
        (Decision("approve"), None, ["paid 7"]),
        (Decision("modify_args", arguments={"amount": 2}), None, ["paid 2"]),
        (Decision("deny"), ErrorCode.TOOL_DENIED, []),
        (Decision("expire"), ErrorCode.TOOL_DENIED, []),
        (Decision("abort"), ErrorCode.TOOL_ABORTED, []),
    ],
)
async def test_a_stored_decision_takes_effect(decision: Decision, code: ErrorCode | None, happened: list[str]) -> None:
    _, outcome = await resumed([ASKED, decided_fact(ASKED, decision)])
    assert [result.error_code for result in outcome.results] == [code]
    assert ran == happened


@pytest.mark.parametrize("word", ["pause", "resume"])
async def test_a_call_keeps_waiting_after_pause_and_resume_decisions(word: Literal["pause", "resume"]) -> None:
    _, outcome = await resumed([ASKED, decided_fact(ASKED, Decision(word))])
    assert outcome.waiting == ("c1",)
    _, outcome = await resumed([ASKED, decided_fact(ASKED, Decision(word))], approver=deciding("approve"))
    assert ran == ["paid 7"]


async def test_a_pause_decision_leaves_the_call_waiting() -> None:
    bench = Bench(pay, approver=deciding("pause"))
    outcome = await bench.run(call("pay", amount=1))
    assert outcome.waiting == ("c1",)
    assert bench.log.of(ApprovalDecided)[0].decision == "pause"


async def test_an_expired_question_is_denied_without_asking() -> None:
    question = replace(ASKED, expires_at=T0 + timedelta(hours=1))
    late = Environment(now=lambda: T0 + timedelta(hours=2))
    for approver in (None, deciding("approve")):
        bench, outcome = await resumed([question], environment=late, approver=approver)
        assert outcome.results[0].error_code is ErrorCode.TOOL_DENIED
        assert bench.log.of(ApprovalDecided)[0].decision == "expire"
    assert ran == []
    early = Environment(now=lambda: T0 + timedelta(minutes=1))
    await resumed([question], environment=early, approver=deciding("approve"))
    assert ran == ["paid 7"]  # the control: before the deadline it counts


@pytest.mark.parametrize(
    "facts",
    [
        [
            ApprovalRequired(tool_call_id="c1", tool_name="pay", arguments={"amount": 1}),
            decided_fact(
                ApprovalRequired(tool_call_id="c1", tool_name="pay", arguments={"amount": 1}), Decision("approve")
            ),
        ],
        [
            ASKED,
            ApprovalDecided(
                tool_call_id="c1", decision="approve", original_arguments={"amount": 1}, arguments={"amount": 7}
            ),
        ],
        [
            ASKED,
            ApprovalDecided(
                tool_call_id="c1", decision="approve", original_arguments={"amount": 7}, arguments={"amount": 1}
            ),
        ],
        [ASKED, ApprovalDecided(tool_call_id="c1", decision="approve")],
        [ASKED, decided_fact(ASKED, Decision("approve")), ASKED],
    ],
    ids=["other question", "other original", "approve of other arguments", "no arguments", "asked again since"],
)
async def test_a_decision_about_other_arguments_does_not_count(facts: list[Any]) -> None:
    _, outcome = await resumed(facts)
    assert outcome.waiting == ("c1",)
    assert ran == []


def test_the_digest_depends_on_the_order_of_lists_but_not_of_keys() -> None:
    assert arguments_digest({"a": 1, "b": [1, 2]}) == arguments_digest({"b": [1, 2], "a": 1})
    assert arguments_digest({"a": [1, 2]}) != arguments_digest({"a": [2, 1]})
    assert arguments_digest({"a": 1}) != arguments_digest({"a": "1"})
    assert arguments_digest({"a": 1}) != arguments_digest({"a": True})
    with pytest.raises(ToolError):
        arguments_digest({"a": object()})


async def test_a_question_that_cannot_be_recorded_is_not_put_to_the_approver() -> None:
    approver = deciding("approve")
    log = Log(fails=lambda fact: isinstance(fact, ApprovalRequired))
    with pytest.raises(OSError, match="disk full"):
        await Bench(pay, log=log, approver=approver).run(call("pay", amount=1))
    assert approver.asked == []
    log = Log(fails=lambda fact: isinstance(fact, ApprovalDecided))
    with pytest.raises(OSError, match="disk full"):
        await Bench(pay, log=log, approver=approver).run(call("pay", amount=1))
    assert ran == []


# -- decisions by others, while the call waits


async def test_a_decision_in_the_session_wakes_a_waiting_call_and_cancels_its_approver() -> None:
    is_asked, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(_: ApprovalRequired) -> Decision:
        is_asked.set()
        try:
            return await forever()
        finally:
            cancelled.set()

    bench = Bench(pay, approver=FunctionApprover(wait))
    running = asyncio.create_task(bench.one("pay", amount=3))
    await is_asked.wait()
    bench.log.add(decided_fact(bench.log.of(ApprovalRequired)[0], Decision("approve")))
    assert (await running).content == "paid"
    assert cancelled.is_set()
    assert bench.log.kinds == ["approval_required", "approval_decided", "tool_started", "message"]


@pytest.mark.parametrize(("first", "second", "happened"), [("approve", "deny", []), ("deny", "approve", ["paid 3"])])
async def test_a_decision_can_be_corrected_until_it_was_acted_upon(
    first: Any, second: Any, happened: list[str]
) -> None:
    """D-5.12.2"""
    bench = Bench(pay, approver=deciding(first))

    def correct(fact: Any) -> ApprovalDecided | None:
        if fact.kind not in ("tool_started", "message") or len(bench.log.of(ApprovalDecided)) > 1:
            return None
        return decided_fact(bench.log.of(ApprovalRequired)[0], Decision(second))

    bench.log.before = correct
    result = await bench.one("pay", amount=3)
    assert ran == happened
    assert result.is_error is not bool(happened)
    assert [fact.decision for fact in bench.log.of(ApprovalDecided)] == [first, second]


async def test_corrected_arguments_replace_changed_ones() -> None:
    bench = Bench(pay, approver=deciding("modify_args", arguments={"amount": 1}))
    corrections = [Decision("modify_args", arguments={"amount": 2}), Decision("approve")]

    def correct(fact: Any) -> ApprovalDecided | None:
        if fact.kind != "tool_started" or not corrections:
            return None
        return decided_fact(bench.log.of(ApprovalRequired)[0], corrections.pop(0))

    bench.log.before = correct
    result = await bench.one("pay", amount=3)
    assert ran == ["paid 3"]
    assert (result.content, result.metadata) == ("paid", None)


async def test_a_decision_stored_first_wins_over_that_of_the_approver() -> None:
    bench = Bench(pay, approver=deciding("approve"))
    bench.log.before = lambda fact: (
        decided_fact(bench.log.of(ApprovalRequired)[0], Decision("deny"))
        if isinstance(fact, ApprovalDecided) and not bench.log.of(ApprovalDecided)
        else None
    )
    assert (await bench.one("pay", amount=3)).error_code is ErrorCode.TOOL_DENIED
    assert [fact.decision for fact in bench.log.of(ApprovalDecided)] == ["deny"]
    assert ran == []
