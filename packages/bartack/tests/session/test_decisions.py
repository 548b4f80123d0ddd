"""A decision counts for exactly the arguments it was made for."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack import ErrorCode, Meta, PartValidationError, ToolError, ToolResult, tool_message
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired
from bartack.nouns.messages import Approval
from bartack.session.decisions import (
    Decision,
    approval_id,
    arguments_digest,
    counts_for,
    decided_fact,
    decision_of,
    question_digest,
    read_approval_id,
    result_message,
)

QUESTION = ApprovalRequired(tool_call_id="c1", tool_name="pay", arguments={"amount": 3, "to": "ann"})


@pytest.mark.parametrize(
    ("decision", "arguments"),
    [
        (Decision("approve"), {"amount": 3, "to": "ann"}),
        (Decision("approve", arguments={"to": "ann", "amount": 3}), {"amount": 3, "to": "ann"}),
        (Decision("modify_args", arguments={"amount": 1}), {"amount": 1}),
        (Decision("deny", arguments_digest=arguments_digest(QUESTION.arguments)), None),
    ],
)
def test_the_fact_has_the_arguments_before_and_after(decision: Decision, arguments: dict[str, Any] | None) -> None:
    fact = decided_fact(QUESTION, decision)
    assert (fact.decision, fact.original_arguments) == (decision.decision, QUESTION.arguments)
    assert fact.arguments == arguments


@pytest.mark.parametrize(
    ("decision", "code"),
    [
        (Decision("approve", arguments_digest=arguments_digest({"amount": 4})), ErrorCode.TOOL_DENIED),
        (Decision("deny", question_digest="of another"), ErrorCode.TOOL_DENIED),
        (Decision("approve", arguments={"amount": 4}), ErrorCode.TOOL_BAD_ARGUMENTS),
        (Decision("modify_args"), ErrorCode.TOOL_BAD_ARGUMENTS),
        (Decision("modify_args", arguments={"amount": float("nan")}), ErrorCode.TOOL_BAD_ARGUMENTS),
    ],
)
def test_a_decision_that_does_not_fit_its_question_is_refused(decision: Decision, code: ErrorCode) -> None:
    with pytest.raises(ToolError) as caught:
        decided_fact(QUESTION, decision)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (decided_fact(QUESTION, Decision("deny")), True),
        (decided_fact(replace(QUESTION, preview={"text": "3 to ann"}), Decision("deny")), False),
        (decided_fact(replace(QUESTION, parameters={}), Decision("approve")), False),
        (ApprovalDecided(tool_call_id="c1", decision="deny", original_arguments={"amount": 3}), False),
        (ApprovalDecided(tool_call_id="c1", decision="deny"), False),
        (ApprovalDecided(tool_call_id="c1", decision="deny", original_arguments={"amount": 3, "to": "ann"}), True),
        (ApprovalDecided(tool_call_id="c1", decision="approve", original_arguments={"amount": 3, "to": "ann"}), False),
        (
            ApprovalDecided(
                tool_call_id="c1", decision="approve", original_arguments=QUESTION.arguments, arguments={"amount": 9}
            ),
            False,
        ),
        (
            ApprovalDecided(
                tool_call_id="c1",
                decision="approve",
                original_arguments=QUESTION.arguments,
                arguments=QUESTION.arguments,
            ),
            True,
        ),
    ],
)
def test_a_decision_counts_for_the_same_question_only(fact: ApprovalDecided, expected: bool) -> None:
    assert counts_for(fact, QUESTION) is expected


def test_a_result_names_the_decision_about_its_call() -> None:
    """000-3.2.16"""
    result = ToolResult("c1", "moved")
    assert result_message(result, None) == tool_message(result)
    decided = ApprovalDecided(
        tool_call_id="c1", decision="deny", reason="no", decided_by="ann", original_arguments={"secret": 1}
    )
    approval = Approval(tool_call_id="c1", decision="deny", reason="no", decided_by="ann")
    assert result_message(result, decided).meta == Meta(approvals=(approval,))
    assert result_message(result, decided, "e1").meta == Meta(approvals=(approval,), request_id="e1")
    assert result_message(result, None, "e1").meta == Meta(request_id="e1")


def test_a_decision_counts_for_the_same_definition_of_the_tool_only() -> None:
    question = replace(QUESTION, definition_digest="one")
    for decided in (
        decided_fact(question, Decision("deny")),
        ApprovalDecided(
            tool_call_id="c1", decision="deny", original_arguments=QUESTION.arguments, definition_digest="one"
        ),
    ):
        assert counts_for(decided, question)
        assert not counts_for(decided, replace(question, definition_digest="two"))
        assert not counts_for(decided, QUESTION)


@pytest.mark.parametrize(
    "decision",
    [
        Decision("approve", reason="fine", decided_by="me"),
        Decision("modify_args", arguments={"city": "Rome"}),
        Decision("deny", reason="no"),
    ],
)
def test_a_recorded_decision_answers_the_same_question_elsewhere(decision: Decision) -> None:
    request = ApprovalRequired(tool_call_id="c1", tool_name="weather", arguments={"city": "Paris"})
    assert decision_of(decided_fact(request, decision)) == replace(decision, question_digest=question_digest(request))


@pytest.mark.parametrize("word", ["maybe", None, 3])
def test_a_decision_is_one_of_seven_words(word: Any) -> None:
    with pytest.raises(PartValidationError, match=r"expected one of approve, deny, .* got"):
        Decision(word)


def test_an_approval_id_names_the_call_and_what_was_shown_of_it() -> None:
    named = replace(QUESTION, tool_call_id="a call/with signs")
    assert read_approval_id(approval_id(named)) == ("a call/with signs", question_digest(QUESTION))
    assert approval_id(replace(QUESTION, preview={"text": "x"})) != approval_id(QUESTION)
    assert read_approval_id("c1") == ("c1", "")
