"""Each rule of `check_history`, violated once; and the rules of each format."""

import pytest
from msgspec.structs import replace

from bartack.formats.format import STRICTEST, HistoryRules
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message, Meta, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, Text, Thinking, ToolCall, ToolResult
from tests.formats.every_rule import RULES
from tests.formats.history_check import check_history

LENIENT = HistoryRules(
    merge_same_role=False,
    starts_with_user=False,
    allows_assistant_last=True,
    allows_user_after_tool=True,
    allows_any_result_order=True,
    allows_paused_last=True,
    allows_empty_text=True,
    allows_signed_empty_text=True,
    call_id_pattern=None,
    tool_name_pattern=None,
)
CALL, RESULT = ToolCall("abcdefghi", "read", {}), ToolResult("abcdefghi", "done")
OTHER, OTHER_RESULT = ToolCall("abcdefghj", "read", {}), ToolResult("abcdefghj", "done")
SEARCH = ToolCall("abcdefghk", "search", {}, executed_by="provider")


def test_a_history_that_every_provider_accepts_has_no_fault() -> None:
    history = [
        system("be brief"),
        user("read", Text("", ignored=True)),
        assistant(Thinking("hm"), SEARCH, CALL, OTHER),
        tool_message(RESULT, OTHER_RESULT),
        assistant("done"),
        system("and polite"),
        user("thanks"),
    ]
    assert check_history(history) == []


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        ([assistant(CALL)], "the history ends with calls without results: ['abcdefghi']"),
        ([assistant(CALL), user("x")], "messages[1]: follows calls without results: ['abcdefghi']"),
        (
            [assistant(CALL), tool_message(RESULT), tool_message(RESULT)],
            "messages[2]: misplaced result of 'abcdefghi'",
        ),
        ([tool_message(RESULT)], "messages[0]: misplaced result of 'abcdefghi'"),
        ([assistant(SEARCH), user("x"), assistant(SEARCH)], "messages[2]: repeated call id 'abcdefghk'"),
        ([assistant(SEARCH, meta=Meta(open_calls=("abcdefghk",)))], "messages[0]: incomplete call 'abcdefghk'"),
        ([user()], "messages[0]: no content"),
        ([user(" ")], "messages[0]: no content"),
        ([assistant(Thinking("hm"))], "messages[0]: no content"),
        ([assistant("a", Thinking("hm"))], "messages[0]: ends with reasoning"),
    ],
)
def test_faults_for_every_provider_are_described(history: list[Message], fault: str) -> None:
    assert check_history(history, LENIENT) == [fault]


def test_results_out_of_order_are_reported() -> None:
    history = [assistant(CALL, OTHER), tool_message(OTHER_RESULT, RESULT)]
    assert check_history(history, LENIENT) == []
    faults = check_history(history, replace(LENIENT, allows_any_result_order=False))
    assert faults[0] == "messages[1]: misplaced result of 'abcdefghj'"


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        ([user("a"), user("b")], "messages[1]: consecutive messages of role user"),
        ([assistant("a"), user("b")], "the history does not start with the user"),
        ([system("a")], "the history does not start with the user"),
        ([user("a"), assistant("b"), system("c")], "the history ends with the assistant"),
        (
            [user("a"), assistant(CALL), tool_message(RESULT), user("b")],
            "messages[3]: user message directly after tool results",
        ),
        (
            [user("a"), assistant(CALL), tool_message(RESULT), system("b")],
            "messages[3]: system message directly after tool results",
        ),
        ([user("a", "")], "messages[0]: blank text"),
        (
            [user("a"), assistant(CALL), tool_message(ToolResult("abcdefghi", (Text(" "), Text("", ignored=True))))],
            "messages[2]: blank text",
        ),
        (
            [user("a"), assistant(ToolCall("call_1", "read", {})), tool_message(ToolResult("call_1", "x"))],
            "messages[1]: call id 'call_1' is not accepted",
        ),
    ],
)
def test_faults_for_the_strictest_provider_are_described(history: list[Message], fault: str) -> None:
    assert check_history(history, STRICTEST) == [fault]
    assert check_history(history, LENIENT) == []


@pytest.mark.parametrize("rules", [LENIENT, STRICTEST])
def test_a_request_without_content_is_refused_by_every_provider(rules: HistoryRules) -> None:
    assert len(check_history([], rules)) == 1


def test_system_messages_alone_suffice_only_if_the_assistant_may_be_last() -> None:
    assert check_history([system("a")], RULES["openai-chat"]) == []
    assert check_history([system("a")], RULES["mistral"]) == ["the history has no user or assistant message"]


@pytest.mark.parametrize(
    ("name", "fitting"),
    [("read", "read"), ("mcp.read", "mcp_read"), ("1st", "_1st"), ("", "unnamed"), ("n" * 99, "n" * 60)],
)
def test_fitting_name(name: str, fitting: str) -> None:
    history = [user("a"), assistant(ToolCall("abcdefghi", name, {})), tool_message(RESULT)]
    assert (check_history(history) == []) == (name == fitting)
    assert STRICTEST.fitting_name(name) == fitting
    assert STRICTEST.accepts_name(fitting)
    assert check_history(history, LENIENT) == []


def test_every_rule_accepts_the_names_that_repair_generates() -> None:
    with pytest.raises(PartValidationError, match="tool_name_pattern") as caught:
        HistoryRules(tool_name_pattern="[a-z]+")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_an_answer_with_paused_provider_tools_may_be_last_if_the_provider_continues_it() -> None:
    paused = [user("a"), assistant(SEARCH, meta=Meta(finish_reason="pause"))]
    assert check_history(paused, RULES["anthropic-messages"]) == []
    assert check_history(paused) == ["the history ends with the assistant"]
    for answer in (assistant("b", meta=Meta(finish_reason="pause")), assistant(SEARCH, meta=Meta()), assistant(SEARCH)):
        assert check_history([user("a"), answer], RULES["anthropic-messages"]) == [
            "the history ends with the assistant"
        ]


def test_empty_text_with_a_signature_counts_as_content() -> None:
    signed = Text("", continuation=Continuation("gemini-generate", "m", {"thoughtSignature": "c2ln"}))
    assert check_history([user("a"), assistant(signed), user("b")], RULES["gemini-generate"]) == []
    assert check_history([user(signed)], RULES["gemini-generate"]) == [
        "messages[0]: blank text",
        "messages[0]: no content",
    ]


def test_every_rule_accepts_the_ids_that_repair_generates() -> None:
    with pytest.raises(PartValidationError) as caught:
        HistoryRules(call_id_pattern="call_.+")
    assert caught.value.code is ErrorCode.INVALID_CONFIG
