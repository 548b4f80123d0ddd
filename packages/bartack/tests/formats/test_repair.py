"""How `repair` handles each kind of damage, one at a time."""

import pytest
from msgspec.structs import replace

from bartack.formats.format import STRICTEST, HistoryRules
from bartack.formats.losses import PrefixChanged
from bartack.formats.repair import (
    CONTINUE_PROMPT,
    INTERRUPTED,
    RESULTS_RECEIVED,
    START_PROMPT,
    KnownCalls,
    Repaired,
    RepairNote,
    repair,
    repair_rest,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, Role, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, Image, Part, Text, Thinking, ToolCall, ToolResult
from tests.formats.every_rule import RULES

# Only the rules that all providers share.
LENIENT = HistoryRules(
    merge_same_role=False,
    starts_with_user=False,
    allows_assistant_last=True,
    allows_user_after_tool=True,
    allows_paused_last=True,
    allows_empty_text=True,
    allows_signed_empty_text=True,
    call_id_pattern=None,
    tool_name_pattern=None,
)
ANTHROPIC = RULES["anthropic-messages"]
GEMINI = RULES["gemini-generate"]
MISTRAL = RULES["mistral"]


def call(call_id: str, **facts: str) -> ToolCall:
    return ToolCall(call_id, "read", {"path": "x", **facts})


def result(call_id: str, content: str = "done") -> ToolResult:
    return ToolResult(call_id, content)


def lost(call_id: str) -> ToolResult:
    return ToolResult(call_id, INTERRUPTED, is_error=True, error_code=ErrorCode.TOOL_INTERRUPTED)


def only_note(repaired: Repaired) -> RepairNote:
    (note,) = repaired.notes
    return note


# -- valid histories


def test_a_valid_history_is_returned_as_the_same_objects() -> None:
    history = [
        system("be brief"),
        user("read both"),
        assistant(Thinking("two files"), call("abcdefghi"), call("abcdefghj")),
        tool_message(result("abcdefghi"), result("abcdefghj")),
        assistant("read"),
        user("thanks"),
    ]
    repaired = repair(history)
    assert all(message is original for message, original in zip(repaired.messages, history, strict=True))
    assert repaired.notes == ()


def test_results_in_separate_messages_stay_separate_where_that_is_accepted() -> None:
    history = (assistant(call("a"), call("b")), tool_message(result("a")), tool_message(result("b")), assistant("ok"))
    assert repair(history, LENIENT) == Repaired(history)


def test_a_call_with_bad_arguments_is_an_ordinary_call() -> None:
    bad = ToolCall("a", "read", {}, raw_args_text='{"path": ')
    history = (assistant(bad, meta=Meta(bad_args={"a": "cut off"})), tool_message(result("a")))
    assert repair(history, LENIENT) == Repaired(history)


# -- calls and results


def test_a_call_without_a_result_gets_an_error_result() -> None:
    repaired = repair([assistant("I read", call("a")), user("stop")], LENIENT)
    assert repaired.messages == (assistant("I read", call("a")), tool_message(lost("a")), user("stop"))
    assert only_note(repaired) == RepairNote(0, "added", "error result for call 'a'", "it has no result")


def test_only_calls_without_a_result_are_closed_and_results_follow_call_order() -> None:
    history = [assistant(call("a"), call("b"), call("c")), tool_message(result("a"), result("c"))]
    assert repair(history, LENIENT).messages[1] == tool_message(result("a"), lost("b"), result("c"))


def test_a_result_after_other_messages_is_moved_to_its_call() -> None:
    late = tool_message(result("a"))
    repaired = repair([assistant(call("a")), user("wait"), system("hurry"), late], LENIENT)
    assert repaired.messages == (assistant(call("a")), late, user("wait"), system("hurry"))
    assert repaired.messages[1] is late
    assert (only_note(repaired).index, only_note(repaired).action) == (3, "moved")


def test_results_are_sorted_in_call_order() -> None:
    repaired = repair([assistant(call("a"), call("b")), tool_message(result("b"), result("a"))], LENIENT)
    assert repaired.messages[1] == tool_message(result("a"), result("b"))
    assert only_note(repaired) == RepairNote(0, "moved", "results", "they must be in the order of their calls")


def test_results_keep_their_order_where_any_is_accepted() -> None:
    rules = replace(LENIENT, allows_any_result_order=True)
    history = [assistant(call("a"), call("b")), tool_message(result("b"), result("a"))]
    assert repair(history, rules) == Repaired(tuple(history))
    history = [assistant(call("a"), call("b"), call("c")), tool_message(result("c")), tool_message(result("b"))]
    assert repair(history, rules).messages[1:] == (tool_message(result("c"), result("b"), lost("a")),)


def test_interleaved_results_of_two_messages_become_one_message() -> None:
    history = [
        assistant(call("a"), call("b"), call("c")),
        tool_message(result("a"), result("c")),
        tool_message(result("b")),
    ]
    assert repair(history, LENIENT).messages[1:] == (tool_message(result("a"), result("b"), result("c")),)


def test_results_for_calls_of_two_messages_are_split() -> None:
    history = [assistant(call("a")), assistant(call("b")), tool_message(result("a"), result("b"))]
    repaired = repair(history, LENIENT)
    assert repaired.messages == (
        assistant(call("a")),
        tool_message(result("a")),
        assistant(call("b")),
        tool_message(result("b")),
    )


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ([user("hi"), tool_message(result("a"))], "no earlier call has this id"),
        ([tool_message(result("a")), user("hi")], "no earlier call has this id"),
        (
            [assistant(call("a")), tool_message(result("a")), tool_message(result("a", "again"))],
            "its call needs no further result",
        ),
        (
            [assistant(ToolCall("a", "search", {}, executed_by="provider")), tool_message(result("a"))],
            "its call needs no further result",
        ),
    ],
)
def test_a_result_without_a_waiting_call_is_dropped(history: list[Message], why: str) -> None:
    repaired = repair(history, LENIENT)
    (place,) = (place for place, message in enumerate(history) if message not in repaired.messages)
    assert only_note(repaired) == RepairNote(place, "dropped", "result of call 'a'", why)
    assert len(repaired.messages) == len(history) - 1


def test_a_tool_message_without_results_is_dropped() -> None:
    repaired = repair([user("hi"), tool_message()], LENIENT)
    assert repaired == Repaired((user("hi"),), (RepairNote(1, "dropped", "tool message", "it has no result"),))


def test_a_call_that_the_provider_executed_needs_no_result_message() -> None:
    history = (assistant(ToolCall("a", "search", {}, executed_by="provider", result=result("a")), "found"),)
    assert repair(history, LENIENT) == Repaired(history)


# -- incomplete calls


def test_an_incomplete_call_is_dropped_and_the_text_is_kept() -> None:
    partial = assistant("I will read", call("a"), call("b"), meta=Meta(aborted=True, open_calls=("b",)))
    repaired = repair([partial, tool_message(result("a"), result("b", "not run"))], LENIENT)
    assert repaired.messages == (
        assistant("I will read", call("a"), meta=Meta(aborted=True)),
        tool_message(result("a")),
    )
    assert only_note(repaired).what == "call 'b' and its result, if any"


def test_a_message_with_only_an_unfinished_call_is_dropped() -> None:
    partial = assistant(Thinking("hm"), call("a"), meta=Meta(open_calls=("a",)))
    assert repair([user("go"), partial], LENIENT).messages == (user("go"),)


def test_meta_about_a_dropped_call_is_dropped_too() -> None:
    meta = Meta(open_calls=("b",), bad_args={"a": "cut", "b": "cut", "z": "cut"})
    repaired = repair([assistant(call("a"), call("b"), meta=meta)], LENIENT)
    assert repaired.messages[0].meta == Meta(bad_args={"a": "cut"})


# -- ids


def test_a_repeated_id_is_renamed_together_with_its_result() -> None:
    history = [
        assistant(call("a")),
        tool_message(result("a", "1")),
        assistant(call("a")),
        tool_message(result("a", "2")),
    ]
    repaired = repair(history, LENIENT)
    (new_id,) = (renamed.tool_call_id for renamed in repaired.messages[2].tool_calls)
    assert new_id != "a"
    assert repaired.messages == (history[0], history[1], assistant(call(new_id)), tool_message(result(new_id, "2")))
    assert only_note(repaired) == RepairNote(2, "renamed", f"call 'a' to {new_id!r}", "an earlier call has this id")


def test_a_result_belongs_to_the_last_call_before_it_without_a_result() -> None:
    history = [
        assistant(call("a", at="1")),
        assistant(call("a", at="2")),
        tool_message(result("a")),
        tool_message(result("a", "late")),
    ]
    repaired = repair(history, LENIENT)
    first, first_result, second, second_result = repaired.messages
    assert (first.tool_calls[0].arguments["at"], first_result.tool_results[0].content) == ("1", "late")
    assert (second.tool_calls[0].arguments["at"], second_result.tool_results[0].content) == ("2", "done")


def test_an_id_that_is_not_accepted_is_always_renamed_the_same_way() -> None:
    history = [user("x"), assistant(call("functions.read:0")), tool_message(result("functions.read:0"))]
    repaired = repair(history, MISTRAL)
    (new_id,) = (renamed.tool_call_id for renamed in repaired.messages[1].tool_calls)
    assert len(new_id) == 9
    assert new_id.isalnum()
    assert repaired.messages[2] == tool_message(result(new_id))
    assert only_note(repaired).why == "the id is not accepted"
    assert repair(history, MISTRAL) == repaired
    assert repair(history, ANTHROPIC).messages == repaired.messages


def test_a_generated_id_is_unique_among_all_calls() -> None:
    made_id = repair([assistant(call("a"))], MISTRAL).messages[0].tool_calls[0].tool_call_id
    history = [assistant(call(made_id)), tool_message(result(made_id)), assistant(call("a")), tool_message(result("a"))]
    ids = [
        repaired_call.tool_call_id
        for message in repair(history, MISTRAL).messages
        for repaired_call in message.tool_calls
    ]
    assert ids[0] == made_id
    assert len(set(ids)) == 2


def test_bad_args_are_listed_under_the_new_id() -> None:
    history = [assistant(call("a"), meta=Meta(bad_args={"a": "cut off"}))]
    message = repair(history, MISTRAL).messages[0]
    assert message.tool_calls[0].tool_call_id != "a"
    assert message.meta == Meta(bad_args={message.tool_calls[0].tool_call_id: "cut off"})


def test_a_renamed_provider_call_has_its_result_renamed() -> None:
    searched = ToolCall("a", "search", {}, executed_by="provider", result=result("a"))
    repaired = repair([assistant(searched), user("again"), assistant(searched)], LENIENT)
    (renamed,) = repaired.messages[2].tool_calls
    assert renamed.tool_call_id != "a"
    assert renamed.result == result(renamed.tool_call_id)


def test_a_renamed_provider_call_may_have_no_result() -> None:
    searched = ToolCall("a", "search", {}, executed_by="provider")
    (renamed,) = repair([assistant(searched), user("again"), assistant(searched)], LENIENT).messages[2].tool_calls
    assert renamed.tool_call_id != "a"
    assert renamed.result is None


def test_the_id_of_a_provider_call_may_have_any_form() -> None:
    history = (user("x"), assistant(ToolCall("srvtoolu:1", "search", {}, executed_by="provider"), "found"), user("y"))
    assert repair(history, MISTRAL) == Repaired(history)


# -- messages without content


@pytest.mark.parametrize(
    "empty",
    [
        user(),
        user(""),
        user(" \n"),
        user(Text("for people", ignored=True)),
        assistant(),
        assistant("", "  "),
        assistant(Thinking("hm")),
        assistant(Text("", continuation=Continuation("elsewhere", "m", {"id": "1"}))),
        system(""),
        Message("system", (Thinking("hm"),)),
    ],
)
def test_a_message_without_content_is_dropped(empty: Message) -> None:
    repaired = repair([user("one"), assistant("two"), empty, user("three")], ANTHROPIC)
    assert repaired.messages == (user("one"), assistant("two"), user("three"))
    assert repaired.notes[-1] == RepairNote(2, "dropped", f"{empty.role} message", "it has no content")
    assert {note.path for note in repaired.notes[:-1]} <= {".parts[0]", ".parts[1]"}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((Text(""), Text("a"), Text(" ")), (Text("a"),)),
        ((Text("", ignored=True), Text("a")), (Text("", ignored=True), Text("a"))),
        ((Image("image/png", url="u"), Text("")), (Image("image/png", url="u"),)),
    ],
)
def test_blank_text_is_dropped_where_it_is_refused(parts: tuple[Part, ...], expected: tuple[Part, ...]) -> None:
    assert repair([Message("user", parts)], ANTHROPIC).messages == (Message("user", expected),)
    assert repair([Message("user", parts)], LENIENT).messages == (Message("user", parts),)


def test_blank_text_in_a_result_is_dropped_where_it_is_refused() -> None:
    blank, complete = ToolResult("a", (Text(""), Text("ok"))), ToolResult("b", (Text("ok"),))
    history = [user("x"), assistant(call("a"), call("b")), tool_message(blank, complete)]
    assert repair(history, ANTHROPIC).messages[2] == tool_message(ToolResult("a", (Text("ok"),)), complete)
    assert repair(history, RULES["openai-chat"]).messages[2] == tool_message(blank, complete)


def test_empty_assistant_text_with_a_signature_is_kept_where_that_is_accepted() -> None:
    signed = Text("", continuation=Continuation("gemini-generate", "m", {"thoughtSignature": "c2ln"}))
    history = (user("one"), assistant(signed), user("two"), assistant("three", signed), user("four"))
    assert repair(history, GEMINI) == Repaired(history)
    assert repair([user("one", signed)], GEMINI).messages == (user("one"),)
    assert repair([user("one"), assistant("two", Text("")), user("three")], GEMINI).messages[1] == assistant("two")


def test_trailing_reasoning_is_dropped() -> None:
    history = [assistant(Thinking("hm"), "text", Thinking("and"), Text("aside", ignored=True))]
    repaired = repair(history, LENIENT)
    assert repaired.messages == (assistant(Thinking("hm"), "text", Text("aside", ignored=True)),)
    assert only_note(repaired) == RepairNote(0, "dropped", "thinking", "no text or call follows it", ".parts[2]")
    assert repair(history, replace(LENIENT, allows_trailing_reasoning=True)) == Repaired(tuple(history))


def test_reasoning_alone_is_dropped_even_where_it_may_come_last() -> None:
    rules = replace(LENIENT, allows_trailing_reasoning=True)
    assert repair([user("x"), assistant(Thinking("hm"))], rules).messages == (user("x"),)


# -- items that only the provider understands


def is_item(part: Part) -> bool:
    return part.continuation is not None and "block" in part.continuation.data


ITEM = Continuation("anthropic-messages", "m", {"block": {"type": "compaction"}})


@pytest.mark.parametrize("carrier", [Text("", continuation=ITEM), Thinking("", continuation=ITEM)])
@pytest.mark.parametrize("rules", [ANTHROPIC, RULES["openai-responses"]])
def test_a_part_that_carries_an_item_is_neither_blank_text_nor_reasoning(
    carrier: Text | Thinking, rules: HistoryRules
) -> None:
    history = (user("a"), assistant("b", carrier), user("c"), assistant(carrier), user("d"))
    assert repair(history, rules, is_item) == Repaired(history)
    assert repair(history, rules).messages != history


def test_an_item_in_a_result_is_kept() -> None:
    reference = Text("", continuation=ITEM)
    history = (user("a"), assistant(call("a")), tool_message(ToolResult("a", (reference, Text("ok")))), user("b"))
    assert repair(history, ANTHROPIC, is_item) == Repaired(history)
    dropped = only_note(repair(history, ANTHROPIC))
    assert (dropped.path, dropped.what) == (".parts[0].content[0]", "blank text with data of anthropic-messages")


def test_an_answer_that_was_paused_with_an_item_may_be_last() -> None:
    paused = assistant(Thinking("", continuation=ITEM), meta=Meta(finish_reason="pause"))
    assert repair((user("a"), paused), ANTHROPIC, is_item) == Repaired((user("a"), paused))
    ended = assistant(Thinking("", continuation=ITEM))
    assert repair((user("a"), ended), ANTHROPIC, is_item).messages[-1].role == "user"


def test_reasoning_before_another_assistant_message_is_merged_into_it() -> None:
    repaired = repair([user("x"), assistant(Thinking("hm")), assistant("so"), user("y")], ANTHROPIC)
    assert repaired.messages == (user("x"), assistant(Thinking("hm"), "so"), user("y"))


# -- roles


def test_consecutive_messages_of_one_role_are_joined_where_they_are_refused() -> None:
    history = [user("a"), user("b"), assistant("c"), assistant("", meta=Meta(agent="x")), assistant("d"), user("e")]
    repaired = repair(history, ANTHROPIC)
    assert repaired.messages == (user("a", "b"), assistant("c", "d"), user("e"))
    changes = [(note.index, note.action, note.path) for note in repaired.notes]
    assert changes == [(1, "merged", ""), (3, "dropped", ".parts[0]"), (3, "dropped", ""), (4, "merged", "")]
    assert len(repair(history, LENIENT).messages) == 5


def test_user_messages_are_joined_when_the_message_between_them_is_dropped() -> None:
    assert repair([user("a"), assistant(""), user("b")], ANTHROPIC).messages == (user("a", "b"),)


def test_results_in_separate_messages_are_merged_where_that_is_required() -> None:
    history = [user("x"), assistant(call("a"), call("b")), tool_message(result("a")), tool_message(result("b"))]
    assert repair(history, ANTHROPIC).messages[2:] == (tool_message(result("a"), result("b")),)


def test_a_merged_message_has_the_finish_reason_of_its_last_part() -> None:
    first = assistant("a", call("x"), meta=Meta(bad_args={"x": "cut"}, finish_reason="stop"))
    searching = ToolCall("y", "search", {}, executed_by="provider")
    history = [
        user("go"),
        assistant("a", searching, meta=Meta(bad_args={"y": "cut"}, finish_reason="stop", open_calls=("z",))),
        assistant("b", meta=Meta(finish_reason="pause", bad_args={"z": "cut"}, open_calls=("y",))),
    ]
    joined = repair(history, ANTHROPIC).messages[1]
    assert joined.meta == Meta(finish_reason="pause", bad_args={"y": "cut", "z": "cut"})
    assert repair([user("go"), first], ANTHROPIC).messages[1] is first


def test_system_messages_keep_their_position() -> None:
    history = (system("a"), system("b"), user("c"), system("d"), user("e"), assistant("f"), system("g"), user("h"))
    assert repair(history, ANTHROPIC) == Repaired(history)


@pytest.mark.parametrize(
    ("history", "place"), [([assistant("hello"), user("hi")], 0), ([system("s"), assistant("hello"), user("hi")], 1)]
)
def test_a_history_that_starts_with_the_assistant_gets_a_first_user_message(history: list[Message], place: int) -> None:
    repaired = repair(history, ANTHROPIC)
    opening = Message("user", (Text(START_PROMPT, synthetic=True),))
    assert repaired.messages == (*history[:place], opening, *history[place:])
    assert only_note(repaired) == RepairNote(
        place, "added", f"user text {START_PROMPT!r}", "a conversation must start with the user"
    )
    assert repair(history, LENIENT) == Repaired(tuple(history))


@pytest.mark.parametrize("history", [(), (system("do it"),)])
def test_a_history_without_a_conversation_gets_a_user_message(history: tuple[Message, ...]) -> None:
    assert repair(history).messages == (*history, Message("user", (Text(START_PROMPT, synthetic=True),)))
    assert (repair(history, LENIENT) == Repaired(history)) == bool(history)  # an empty request is refused by all


@pytest.mark.parametrize("tail", [(), (system("be brief"),)])
def test_a_history_that_ends_with_the_assistant_is_continued_where_that_is_refused(tail: tuple[Message, ...]) -> None:
    history = (user("tell"), assistant("once upon"), *tail)
    repaired = repair(history, ANTHROPIC)
    assert repaired.messages == (*history, Message("user", (Text(CONTINUE_PROMPT, synthetic=True),)))
    assert only_note(repaired).index == len(history) - 1
    assert repair(history, RULES["openai-chat"]) == Repaired(history)


def test_a_paused_answer_stays_last_if_the_provider_continues_it() -> None:
    searching = ToolCall("a", "search", {}, executed_by="provider")
    history = (user("find"), assistant(searching, meta=Meta(finish_reason="pause")))
    assert repair(history, ANTHROPIC) == Repaired(history)
    assert repair(history, GEMINI).messages[2].text == CONTINUE_PROMPT
    without_tools = (user("find"), assistant("hm", meta=Meta(finish_reason="pause")))
    assert repair(without_tools, ANTHROPIC).messages[2].text == CONTINUE_PROMPT


@pytest.mark.parametrize("speaker", [user("stop"), system("stop")])
def test_an_assistant_message_is_inserted_after_results_if_required(speaker: Message) -> None:
    ended = (assistant(call("abcdefghi")), tool_message(result("abcdefghi")))
    rules = replace(LENIENT, allows_user_after_tool=False)
    repaired = repair([user("x"), *ended, speaker, user("y")], rules)
    bridge = Message("assistant", (Text(RESULTS_RECEIVED, synthetic=True),))
    assert repaired.messages == (user("x"), *ended, bridge, speaker, user("y"))
    assert only_note(repaired).index == 3
    assert repair([user("x"), *ended], rules).notes == ()


def test_a_tool_name_that_is_not_accepted_is_renamed() -> None:
    odd, result = ToolCall("abcdefghi", "mcp.read file", {"a": 1}), ToolResult("abcdefghi", "x")
    own = ToolCall("srv", "web.search", {}, executed_by="provider")
    history = (user("a"), assistant(odd, own), tool_message(result))
    repaired = repair(history)
    assert repaired.messages[1].parts == (ToolCall("abcdefghi", "mcp_read_file", {"a": 1}), own)
    assert repaired.messages[2] is history[2]
    change = "tool 'mcp.read file' to 'mcp_read_file'"
    assert only_note(repaired) == RepairNote(1, "renamed", change, "the name is not accepted")
    assert repair(history, LENIENT) == Repaired(history)


# -- the rest of a history


@pytest.mark.parametrize(
    ("last_role", "messages"),
    [
        ("assistant", [user(" ")]),  # dropped, so the answer is the last message
        ("assistant", [user(" "), assistant("More.")]),
        ("assistant", [assistant("More.")]),
        ("assistant", [system("Be brief."), user("Next.")]),
        ("assistant", [tool_message(result("unknown")), user("Next.")]),
        ("assistant", [user("Next."), tool_message(result("open"))]),
        ("tool", [user("Next.")]),  # needs an answer before it
        ("tool", [tool_message(result("unknown")), assistant("Read.")]),
    ],
)
def test_a_rest_that_may_change_what_is_before_it_is_refused(last_role: Role, messages: list[Message]) -> None:
    beginning = KnownCalls({"open", "closed"}, {"open", "closed"}, {"open"}, last_role)
    with pytest.raises(PrefixChanged):
        repair_rest(messages, STRICTEST, beginning)


def test_a_rest_is_repaired_as_part_of_the_whole() -> None:
    beginning = KnownCalls({"abcdefghi"}, {"abcdefghi"}, set(), "assistant")
    repaired = repair_rest(
        [user("Again."), assistant(call("abcdefghi")), tool_message(result("x"))], STRICTEST, beginning
    )
    assert repaired.call_ids() == {"abcdefghi"}
    assert [note.action for note in repaired.notes] == ["renamed", "added", "dropped"]
    assert [*repaired.cuts()] == []
