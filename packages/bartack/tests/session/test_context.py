"""The context of a request, and when a session is compacted."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bartack import (
    AgentError,
    CompactionSummary,
    Continuation,
    Custom,
    Entry,
    ErrorCode,
    Failed,
    FileRef,
    Image,
    Message,
    Meta,
    Redaction,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    system,
    tool_message,
    user,
)
from bartack.formats.repair import repair
from bartack.nouns.config import ContextConfig, ToolSpec
from bartack.nouns.entries import (
    BranchSummary,
    Fact,
    ModelChange,
    RunEnded,
    RunStarted,
    SessionHeader,
    StreamFailed,
    SystemPromptOverride,
    ThinkingLevelChange,
)
from bartack.nouns.messages import Koding, ModelRef
from bartack.session.context import (
    ContextBuildResult,
    ContextFold,
    ContextInput,
    ContextManager,
    ContextUpdateResult,
    TrimNote,
    summary_messages,
)
from bartack.session.context.manager import SUMMARY_INSTRUCTIONS, transcript
from bartack.session.context.window import (
    FILE_TOKENS,
    IMAGE_TOKENS,
    branch_message,
    message_tokens,
    summary_message,
    text_tokens,
    tool_tokens,
)
from bartack.views import feed
from tests.formats.history_check import check_history
from tests.sample_session import chain

FIRST = ModelRef("p", "one")
SECOND = ModelRef("p", "two")


def texts_of(*facts: Fact, **surroundings: Any) -> list[tuple[str, str]]:
    """Role and text of the messages of the context."""
    return [(message.role, message.text) for message in build(*facts, **surroundings).messages]


def build(*facts: Fact, config: ContextConfig | None = None, **surroundings: Any) -> ContextBuildResult:
    return ContextManager(config).build_context(ContextInput(fold=ContextFold.of(chain(*facts)), **surroundings))


def update(*facts: Fact, config: ContextConfig | None = None, **surroundings: Any) -> ContextUpdateResult:
    return ContextManager(config).compute_context_updates(
        ContextInput(fold=ContextFold.of(chain(*facts)), **surroundings)
    )


def calls(*ids: str, **details: Any) -> Message:
    return assistant(*(ToolCall(call_id, "read", {}) for call_id in ids), **details)


def result(call_id: str, content: Any = "ok", **details: Any) -> Message:
    return tool_message(ToolResult(call_id, content, **details))


def contents(context: ContextBuildResult) -> list[Any]:
    return [result.content for message in context.messages for result in message.tool_results]


# -- assembling


def test_004_context_manager_1_the_system_prompt_and_the_runtimes_hints_come_first() -> None:
    """004-context-manager.1, 001-7.2"""
    first, *_ = build(user("hi"), system_prompt="Be brief.", hints=("Root: /",)).messages
    assert first == Message("system", (Text("Be brief."), Text("Root: /")))
    assert texts_of(user("hi")) == [("user", "hi")]


def test_d_6_1_a_context_does_not_depend_on_the_ones_built_before() -> None:
    few = (ToolSpec("look", {}),)
    many = (*few, ToolSpec("search", {"type": "object"}, description=LONG))
    manager = ContextManager()
    for tools in (few, many, few):
        context_input = ContextInput(fold=ContextFold.of(chain(user("hi"))), tools=tools)
        assert manager.build_context(context_input) == ContextManager().build_context(context_input)


def test_an_override_replaces_the_system_prompt_until_it_is_removed() -> None:
    override = SystemPromptOverride(text="Be long.")
    assert texts_of(override, system_prompt="Be brief.") == [("system", "Be long.")]
    assert texts_of(override, SystemPromptOverride(text=None), system_prompt="Be brief.") == [("system", "Be brief.")]


def test_other_facts_are_not_sent() -> None:
    facts: list[Fact] = [
        SessionHeader(title="t"),
        RunStarted(),
        StreamFailed(error=Failed(ErrorCode.OVERLOADED, "busy"), parts=(Text("half"),)),
        Custom(name="x", data={"a": "b"}),
        RunEnded(status="failed"),
    ]
    assert build(*facts).messages == ()


def test_a_session_determines_the_model_and_its_thinking_level() -> None:
    context = build(RunStarted(model=FIRST), ModelChange(model=SECOND), RunStarted(), ThinkingLevelChange(level="high"))
    assert (context.model, context.thinking_level) == (SECOND, "high")
    assert build(user("hi"), assistant("yes", meta=Meta(model=FIRST))).model == FIRST


def test_a_branch_summary_is_a_message_at_its_position() -> None:
    messages = build(user("a"), BranchSummary(summary="It failed.", from_entry_id="e9"), user("b")).messages
    assert messages[1] == branch_message("It failed.")


# -- normalising


def test_003_7_2_3_ignored_parts_do_not_reach_a_model() -> None:
    """003-3.2.3, 003-7.2.3"""
    inside = result("c", (Text("aside", ignored=True), Text("seen")))
    messages = build(
        user(Text("aside", ignored=True), "hi"),
        assistant(Thinking("aside", ignored=True), "yes", ToolCall("c", "t", {})),
        inside,
        user(Text("aside", ignored=True)),
    ).messages
    assert len(messages) == 3
    assert "aside" not in repr(messages)
    assert messages[2].tool_results[0].content == (Text("seen"),)


def test_the_context_of_a_koding_request_reaches_the_model() -> None:
    """002-options.3"""
    messages = build(
        user("Fix it.", meta=Meta(koding=Koding("src/a.py is open"))),
        user("And that.", meta=Meta(koding=Koding())),
    ).messages
    assert messages[0].parts == (Text("Fix it."), Text("src/a.py is open", synthetic=True))
    assert messages[1].parts == (Text("And that."),)


def test_an_unchanged_message_is_the_stored_object() -> None:
    entries = chain(user("hi", Image("image/png", data=b"x")), calls("c"), result("c", (Text("a"),)))
    context = ContextManager().build_context(ContextInput(fold=ContextFold.of(entries)))
    assert all(message is entry.fact for message, entry in zip(context.messages, entries, strict=True))


def test_error_messages_and_empty_messages_are_not_sent() -> None:
    assert texts_of(user("hi"), assistant("Overloaded", meta=Meta(is_api_error_message=True)), assistant()) == [
        ("user", "hi")
    ]


def test_a_removed_output_is_not_sent() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    continuation = Continuation("p", "m", {"block": "secret"})
    context = build(calls("c"), result("c", "secret", compacted_at=when, continuation=continuation))
    assert contents(context) == ["[This output was removed from the conversation.]"]
    assert "secret" not in repr(context.messages)


def test_only_the_removed_one_of_several_outputs_is_replaced() -> None:
    removed = ToolResult("a", "old", compacted_at=datetime(2026, 1, 1, tzinfo=UTC))
    (_, message) = build(calls("a", "b"), tool_message(removed, ToolResult("b", "new"))).messages
    assert [part.content for part in message.tool_results] == [
        "[This output was removed from the conversation.]",
        "new",
    ]


def test_the_full_text_of_a_truncated_output_is_not_sent() -> None:
    full_output = FileRef("out.txt", data=b"all of it", metadata={"full_output": True})
    assert contents(build(calls("c"), result("c", (Text("a part"), FileRef("a.txt"), full_output)))) == [
        (Text("a part"), FileRef("a.txt"))
    ]


# -- repeats


def test_a_duplicate_entry_counts_once() -> None:
    fold = ContextFold()
    for entry in chain(user("hi"), assistant("yes")) * 2:
        fold.push(entry)
    assert len(fold.items) == 2


@pytest.mark.parametrize(
    ("second", "count"),
    [
        (Meta(model_call_index=0, attempt=1), 1),
        (Meta(model_call_index=0, attempt=2), 2),
        (Meta(model_call_index=1, attempt=1), 2),
        (Meta(), 2),
        (None, 2),
    ],
)
def test_d_7_10_an_answer_to_the_same_attempt_is_a_duplicate(second: Meta | None, count: int) -> None:
    first = Meta(model_call_index=0, attempt=1)
    assert len(build(assistant("yes", meta=first), assistant("yes", meta=second)).messages) == count


def test_answers_without_a_run_are_never_duplicates() -> None:
    answer = assistant("yes", meta=Meta(model_call_index=0))
    entries = [replace(entry, run_id=None) for entry in chain(answer, answer)]
    assert len(ContextFold.of(entries).items) == 2
    in_run = [replace(entry, fact=replace(entry.fact, run_id="r")) for entry in entries]
    assert len(ContextFold.of(in_run).items) == 1


# -- redactions


def test_a_redacted_message_is_not_sent_wherever_its_redaction_is() -> None:
    facts: list[Fact] = [user("secret"), assistant("yes"), Redaction(entry_id="e0")]
    assert texts_of(*facts) == [("user", "[redacted]"), ("assistant", "yes")]
    early = chain(*facts)
    assert ContextFold.of([early[2], *early[:2]]).items[0].message.text == "[redacted]"
    assert texts_of(*facts[:2], Redaction(entry_id="elsewhere")) == [("user", "secret"), ("assistant", "yes")]


def test_a_redacted_system_prompt_no_longer_applies() -> None:
    assert texts_of(SystemPromptOverride(text="secret"), Redaction(entry_id="e0"), system_prompt="Be brief.") == [
        ("system", "Be brief.")
    ]


def test_a_redacted_summary_still_replaces_what_it_summarised() -> None:
    facts: list[Fact] = [
        user("old"),
        user("new"),
        CompactionSummary(summary="secret", first_kept_entry_id="e1"),
        Redaction(entry_id="e2"),
    ]
    assert build(*facts).messages[0] == summary_message("[redacted]")
    assert "secret" not in repr(build(*facts).messages)
    assert "old" not in repr(build(*facts).messages)


def test_a_redaction_after_a_compaction_changes_only_its_entry() -> None:
    facts: list[Fact] = [
        RunStarted(model=FIRST),
        SystemPromptOverride(text="Short."),
        system("Be kind."),
        user("old"),
        SystemPromptOverride(text="Long."),
        ModelChange(model=SECOND),
        ThinkingLevelChange(level="low"),
        user("secret"),
        CompactionSummary(summary="First.", first_kept_entry_id="e7"),
        assistant("new"),
        CompactionSummary(summary="Second.", first_kept_entry_id="e7"),
        user("more"),
    ]
    expected = [
        ("system", "Long."),
        ("system", "Be kind."),
        ("user", summary_message("Second.").text),
        ("user", "[redacted]"),
        ("assistant", "new"),
        ("user", "more"),
    ]
    context = build(*facts, Redaction(entry_id="e7"))
    assert [(message.role, message.text) for message in context.messages] == expected
    assert (context.model, context.thinking_level) == (SECOND, "low")
    assert build(*facts, Redaction(entry_id="e3")).messages == build(*facts).messages


# -- stored compactions


def test_summarised_messages_are_not_sent() -> None:
    assert texts_of(
        user("a"),
        assistant("b"),
        user("c"),
        CompactionSummary(summary="A and b.", first_kept_entry_id="e2"),
        assistant("d"),
    ) == [
        ("user", summary_message("A and b.").text),
        ("user", "c"),
        ("assistant", "d"),
    ]


def test_the_first_kept_entry_may_be_any_entry() -> None:
    facts: list[Fact] = [user("a"), RunStarted(), user("b"), CompactionSummary(summary="A.", first_kept_entry_id="e1")]
    assert texts_of(*facts)[1:] == [("user", "b")]


def test_an_unknown_first_kept_entry_keeps_no_earlier_entries() -> None:
    assert texts_of(user("a"), CompactionSummary(summary="A.", first_kept_entry_id="elsewhere"), user("b"))[1:] == [
        ("user", "b")
    ]


def test_a_later_compaction_does_not_restore_what_an_earlier_one_removed() -> None:
    facts: list[Fact] = [
        user("a"),
        user("b"),
        CompactionSummary(summary="A.", first_kept_entry_id="e1"),
        user("c"),
        CompactionSummary(summary="Z.", first_kept_entry_id="e0"),
    ]
    assert texts_of(*facts) == [("user", summary_message("Z.").text), ("user", "b"), ("user", "c")]


# -- counting


def test_a_text_is_a_quarter_of_its_bytes() -> None:
    assert [text_tokens(text) for text in ("", "a", "word", "words", "日本", "\ud800")] == [0, 1, 1, 2, 2, 1]
    schemas: list[dict[str, Any]] = [{"title": "words"}, {"title": "\ud800"}]
    assert [tool_tokens([ToolSpec("look", schema)]) for schema in schemas] == [10, 9]


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (user("four"), 5),
        (assistant(Thinking("four"), "four"), 6),
        (user(Image("image/png", data=b"x" * 9_999)), 4 + IMAGE_TOKENS),
        (user(FileRef("a.md")), 5),
        (user(FileRef("a.md", data=b"x" * 80, mime_type="text/markdown")), 25),
        (user(FileRef("a.md", data=b"x" * 80)), 5 + FILE_TOKENS),
        (user(FileRef("a.md", url="https://example.com/")), 5 + FILE_TOKENS),
        (assistant(ToolCall("c", "aa", {})), 9),
        (assistant(ToolCall("c", "aa", {}, raw_args_text='{"abcd')), 10),
        (assistant(ToolCall("c", "aa", {}, executed_by="provider", result=ToolResult("c", "four"))), 10),
        (result("c", "four"), 9),
        (result("c", {}), 9),
        (result("c", {"a": "\ud800"}), 11),
        (assistant(ToolCall("c", "aa", {"a": "日"})), 12),
        (result("c", (Text("four"), Text("five"))), 10),
    ],
)
def test_every_kind_of_part_has_its_estimate(message: Message, tokens: int) -> None:
    assert message_tokens(message) == tokens


def test_tools_and_system_prompt_are_counted() -> None:
    tools = (ToolSpec("four", {}, description="five"),)
    assert tool_tokens(tools) == 4 + 3
    assert build(user("four"), tools=tools, system_prompt="four").tokens == 5 + 5 + 7


def test_the_last_reported_count_is_used_and_the_rest_is_estimated() -> None:
    answer = assistant("yes", meta=Meta(model=FIRST, usage=Usage(1_000, 50)))
    assert build(user("hi"), answer).tokens == 1_050
    assert build(user("hi"), answer, user("four")).tokens == 1_055


def test_a_reported_count_of_zero_is_ignored() -> None:
    assert build(user("four"), assistant("four", meta=Meta(usage=Usage(0, 0)))).tokens == 10


def test_the_count_of_another_model_is_not_used() -> None:
    facts: list[Fact] = [
        RunStarted(model=FIRST),
        user("four"),
        assistant("four", meta=Meta(model=ModelRef("p", "one-2026"), usage=Usage(1_000, 50))),
    ]
    assert build(*facts).tokens == 1_050
    assert build(*facts, ModelChange(model=SECOND)).tokens == 10
    assert build(*facts, ModelChange(model=SECOND), user("four"), ModelChange(model=FIRST)).tokens == 1_055


def test_a_count_from_before_a_compaction_is_not_used() -> None:
    answer = assistant("four", meta=Meta(usage=Usage(1_000, 50)))
    assert build(user("old"), answer, CompactionSummary(summary="s", first_kept_entry_id="e1")).tokens < 100


# -- trimming

LONG = "x" * 8_000  # 2,000 tokens


def rounds(count: int, output: str = LONG, **meta: Any) -> list[Fact]:
    facts: list[Fact] = [user("the first intent")]
    for number in range(count):
        facts += [calls(f"c{number}", meta=Meta(**meta)), result(f"c{number}", output)]
    return facts


def trimmed(max_tokens: int, **settings: Any) -> ContextConfig:
    settings = {"reserve_tokens": 0, "keep_recent_tokens": max_tokens // 4, "compaction": False} | settings
    return ContextConfig(max_tokens=max_tokens, **settings)


def test_old_tool_outputs_are_truncated_first_with_a_note() -> None:
    context = build(*rounds(6), config=trimmed(10_000))
    outputs = contents(context)
    assert [len(output) < 2_000 for output in outputs] == [True, True, False, False, False, False]
    assert "[... 7,000 of 8,000 characters omitted to save space ...]" in outputs[0]
    assert [note.entry_id for note in context.notes] == ["e2", "e4"]
    assert context.notes[0] == TrimNote("e2", "shortened", 2_000 - text_tokens(outputs[0]))
    assert context.tokens <= 10_000
    assert not context.over_budget


def test_trimming_reaches_the_target_so_that_the_next_turns_keep_their_prefix() -> None:
    fold = ContextFold()
    manager = ContextManager(trimmed(20_000))
    before: tuple[Message, ...] = ()
    changes = 0
    for entry in chain(*rounds(100, "x" * 3_000)):
        fold.push(entry)
        messages = manager.build_context(ContextInput(fold=fold)).messages
        changes += messages[: len(before)] != before
        before = messages
    assert 0 < changes <= 15


def test_recent_outputs_are_truncated_before_anything_is_dropped() -> None:
    context = build(*rounds(4), config=trimmed(8_000, keep_recent_tokens=4_000))
    assert [len(output) < 2_000 for output in contents(context)] == [True, True, False, False]
    tight = build(*rounds(4), config=trimmed(4_000, keep_recent_tokens=4_000))
    assert [len(output) < 2_000 for output in contents(tight)] == [True, True, True, False]
    assert {note.action for note in tight.notes} == {"shortened"}


def test_unseen_outputs_are_truncated_last() -> None:
    context = build(*rounds(4), config=trimmed(1_000))
    assert [len(output) < 2_000 for output in contents(context)] == [True]
    assert [message.role for message in context.messages] == ["user", "user", "assistant", "tool"]


def test_outputs_of_every_type_are_truncated() -> None:
    signed = Continuation("p", "m", {"block": LONG})
    image, file = Image("image/png", data=b"x"), FileRef("a.pdf", data=b"x")
    facts: list[Fact] = [
        user("go"),
        calls("a", "b", "c", "d", "e"),
        result("a", {"text": LONG}),
        result("b", (Text(LONG), image, file), continuation=signed),
        result("c", (image,)),
        result("d", "short"),
        result("e", (Text("short"),)),
        assistant(LONG),
    ]
    a, b, c, d, e = contents(build(*facts, config=trimmed(4_000)))
    assert a.startswith('{"text":"xxx')
    assert "characters omitted" in b
    assert b.endswith("[An image was omitted to save space.]\n[The file a.pdf was omitted to save space.]")
    assert c == "[An image was omitted to save space.]"
    assert (d, e) == ("short", (Text("short"),))
    assert signed.data["block"] not in repr(build(*facts, config=trimmed(4_000)).messages[3])


def turns(count: int) -> list[Fact]:
    facts: list[Fact] = [system("Be kind."), user("the first intent")]
    for number in range(count):
        facts += [assistant(f"answer {number} " + "y" * 400), user(f"question {number}")]
    return facts


def test_whole_exchanges_are_dropped_if_truncating_outputs_is_not_enough() -> None:
    context = build(*turns(20), config=trimmed(1_000))
    texts = [message.text for message in context.messages]
    assert texts[:2] == ["Be kind.", "the first intent"]
    assert texts[2] == "[23 earlier messages of this conversation were omitted to save space.]"
    assert texts[-1] == "question 19"
    assert context.tokens <= 1_000
    assert len(context.notes) == 23
    assert {note.action for note in context.notes} == {"dropped"}
    assert len(texts) == 42 - 23 + 1


def test_the_last_request_is_kept_while_its_exchanges_are_dropped() -> None:
    facts: list[Fact] = [*turns(3), user("the request"), *rounds(9, "z" * 1_000)[1:]]
    texts = [message.text for message in build(*facts, config=trimmed(1_000)).messages]
    assert texts[:2] == ["Be kind.", "the first intent"]
    assert "the request" in texts


def test_d_6_3_calls_and_results_are_dropped_or_kept_together() -> None:
    facts: list[Fact] = [user("go")]
    for number in range(20):
        ids = [f"c{number}a", f"c{number}b"]
        facts += [calls(*ids), result(ids[1], "z" * 400), user(f"by the way {number}"), result(ids[0], "z" * 400)]
    for budget in range(200, 4_000, 100):
        messages = build(*facts, config=trimmed(budget)).messages
        called = [call.tool_call_id for message in messages for call in message.tool_calls]
        answered = [result.tool_call_id for message in messages for result in message.tool_results]
        assert sorted(called) == sorted(answered)


def test_a_call_waiting_for_its_result_is_not_dropped() -> None:
    facts: list[Fact] = [*turns(5), calls("c", "d"), result("c"), user("w" * 4_000)]
    messages = build(*facts, config=trimmed(300)).messages
    assert [message.role for message in messages] == ["system", "user", "user", "assistant", "tool", "user"]
    assert build(*facts, config=trimmed(300)).over_budget


def test_a_late_result_stays_with_its_call() -> None:
    facts: list[Fact] = [user("go"), calls("c"), assistant("so"), user("on"), result("c"), assistant("y" * 360)]
    messages = build(*facts, config=trimmed(100)).messages
    assert [message.role for message in messages] == ["user", "user", "user", "assistant"]
    assert [message.text for message in messages[:2]] == ["go", "on"]


def test_a_result_whose_call_was_dropped_is_not_sent() -> None:
    facts: list[Fact] = [user("go"), calls("c"), assistant("y" * 400), user("on"), result("c"), assistant("yes")]
    messages = repair(build(*facts, config=trimmed(100)).messages).messages
    assert "c" not in [result.tool_call_id for message in messages for result in message.tool_results]
    assert check_history(messages) == []


def test_a_result_without_a_call_does_not_prevent_a_split() -> None:
    facts: list[Fact] = [user("go"), result("nobody", "z" * 400), assistant("y" * 400), user("on"), assistant("yes")]
    assert len(build(*facts, config=trimmed(100)).messages) == 4


def test_a_context_that_cannot_fit_is_returned_and_reported_as_over_budget() -> None:
    """004-context-manager.1"""
    context = build(user("w" * 4_000), config=trimmed(100))
    assert context.over_budget
    assert (len(context.messages), context.notes) == (1, ())


def test_the_smaller_of_configuration_and_model_is_the_limit() -> None:
    assert build(user("hi")).budget is None
    assert build(user("hi"), context_window=200_000).budget == 200_000 - 16_384
    assert build(user("hi"), context_window=1_000).budget == 750
    config = ContextConfig(max_tokens=50_000, reserve_tokens=1_000)
    assert build(user("hi"), context_window=200_000, config=config).budget == 49_000
    assert build(user("hi"), context_window=10_000, config=config).budget == 9_000


# -- when to compact

COMPACT = trimmed(10_000, compaction=True)


def test_004_context_manager_2_a_short_session_needs_no_compaction() -> None:
    assert update(user("hi")) == ContextUpdateResult(needs_compaction=False, tokens=5, budget=None)
    assert not update(*rounds(6), config=COMPACT).needs_compaction  # cutting outputs is enough


def test_d_6_4_a_session_over_its_budget_is_compacted_without_separating_calls_and_results() -> None:
    """D-6.4, 004-context-manager.2"""
    facts = rounds(25, "z" * 1_600)
    update_result = update(*facts, config=COMPACT)
    assert update_result.needs_compaction
    assert update_result.error is None
    first_index = int((update_result.first_kept_entry_id or "")[1:])
    first = facts[first_index]
    assert isinstance(first, Message)
    assert first.role == "assistant"
    assert [message.text for message in update_result.to_summarise[:1]] == ["the first intent"]
    assert len(update_result.to_summarise) == first_index


def test_without_compaction_in_the_config_none_is_requested() -> None:
    """004-context-manager.2"""
    assert not update(*rounds(25, "z" * 1_600), config=trimmed(10_000)).needs_compaction
    assert not update(*rounds(3), config=ContextConfig(compaction=False), overflow=True).needs_compaction


def test_d_6_5_an_overflow_requests_a_compaction_whatever_the_count() -> None:
    updates = update(*rounds(8), overflow=True)
    assert updates.needs_compaction
    assert len(updates.to_summarise) == 13  # a quarter of the tokens is kept: two rounds
    assert all(
        len(message.tool_results[0].content) < 2_000 for message in updates.to_summarise if message.role == "tool"
    )
    assert update(*rounds(3), config=trimmed(100_000, compaction=True), overflow=True).needs_compaction


def test_system_messages_are_not_summarised() -> None:
    updates = update(*turns(3), overflow=True)
    assert "system" not in {message.role for message in updates.to_summarise}


@pytest.mark.parametrize("facts", [[], [user("hi")], [system("Be kind."), user("hi")], [calls("a"), result("a", LONG)]])
def test_an_overflow_with_nothing_to_summarise_fails_the_compaction(facts: list[Fact]) -> None:
    """004-context-manager.2"""
    updates = update(*facts, overflow=True)
    assert (updates.needs_compaction, updates.error) == (False, ErrorCode.COMPACTION_FAILED)


def test_a_compaction_that_saves_too_little_is_not_requested() -> None:
    facts = [user("go"), assistant("yes"), calls("a"), result("a", "z" * 60_000)]
    updates = update(*facts, config=COMPACT)
    assert (updates.needs_compaction, updates.error) == (False, None)
    assert not build(*facts, config=COMPACT).over_budget
    hopeless = update(user("go"), user("w" * 60_000), config=COMPACT)
    assert (hopeless.needs_compaction, hopeless.error) == (False, ErrorCode.COMPACTION_FAILED)


def test_the_messages_to_summarise_fit_the_budget() -> None:
    facts = turns(400)
    updates = update(*facts, config=COMPACT)
    assert updates.needs_compaction
    assert sum(map(message_tokens, updates.to_summarise)) <= 10_000
    assert updates.to_summarise[0].text == "the first intent"


def test_a_long_message_is_truncated_before_it_is_summarised() -> None:
    updates = update(user("log " * 3_000), *turns(400)[2:], config=COMPACT)
    assert updates.needs_compaction
    assert "characters omitted" in updates.to_summarise[0].text
    assert sum(map(message_tokens, updates.to_summarise)) <= 10_000


# -- compacting


def compacted(entries: list[Entry], config: ContextConfig, summary: str, **surroundings: Any) -> list[Entry]:
    manager, input = ContextManager(config), ContextInput(fold=ContextFold.of(entries), **surroundings)
    fact = manager.compaction(input, manager.compute_context_updates(input), summary)
    number = len(entries)
    entry = Entry(id=f"e{number}", session_id="s", seq=number + 1, timestamp=entries[-1].timestamp, fact=fact)
    return [*entries, entry]


def test_a_compaction_records_its_model_usage_and_savings() -> None:
    manager = ContextManager(COMPACT)
    input = ContextInput(fold=ContextFold.of(chain(*rounds(25, "z" * 1_600))))
    updates = manager.compute_context_updates(input)
    fact = manager.compaction(input, updates, "They read.", model=FIRST, usage=Usage(10, 5))
    assert (fact.summary, fact.first_kept_entry_id) == ("They read.", updates.first_kept_entry_id)
    assert (fact.model, fact.usage) == (FIRST, Usage(10, 5))
    assert fact.tokens_before == sum(item.tokens for item in input.fold.items)
    assert fact.tokens_after is not None
    assert fact.tokens_after < updates.tokens < fact.tokens_before


def test_the_context_after_a_compaction_has_the_recorded_size() -> None:
    entries = compacted(chain(system("Be kind."), *rounds(25, "z" * 1_600)), COMPACT, "They read.")
    fact = entries[-1].fact
    assert isinstance(fact, CompactionSummary)
    context = ContextManager(COMPACT).build_context(ContextInput(fold=ContextFold.of(entries)))
    assert context.tokens == fact.tokens_after
    assert [message.text for message in context.messages[:2]] == ["Be kind.", summary_message("They read.").text]
    assert (
        not ContextManager(COMPACT).compute_context_updates(ContextInput(fold=ContextFold.of(entries))).needs_compaction
    )


def test_a_second_compaction_summarises_the_first_summary_and_everything_since() -> None:
    once = compacted(chain(*rounds(25, "z" * 1_600)), COMPACT, "They read.")
    items = ContextFold.of(once).items
    later = [
        Entry(id=f"e{number}", session_id="s", seq=number + 1, timestamp=once[0].timestamp, fact=entry.fact)
        for number, entry in enumerate(chain(*rounds(20, "z" * 1_600)), start=len(once))
    ]
    input = ContextInput(fold=ContextFold.of([*once, *later]))
    updates = ContextManager(COMPACT).compute_context_updates(input)
    assert updates.to_summarise[0] == summary_message("They read.")
    assert updates.to_summarise[1 : len(items) + 1] == tuple(item.message for item in items)


def test_a_long_first_request_is_truncated_but_kept() -> None:
    context = build(user("log " * 1_000), *turns(20)[2:], config=trimmed(1_000))
    assert "[... 3,000 of 4,000 characters omitted to save space ...]" in context.messages[0].text
    assert not context.over_budget
    assert ("e0", "shortened") in [(note.entry_id, note.action) for note in context.notes]


def test_the_first_request_may_be_dropped_if_the_summary_covers_it() -> None:
    facts: list[Fact] = [user("old"), *turns(20), CompactionSummary(summary="s", first_kept_entry_id="e1")]
    context = build(*facts, *turns(20), config=trimmed(1_000))
    assert [message.text for message in context.messages[:2]] == [summary_message("s").text, "Be kind."]
    assert "the first intent" not in [message.text for message in context.messages]


@pytest.mark.parametrize("summary", ["", " \n", "s" * 40_000])
def test_d_6_6_a_compaction_that_does_not_shrink_the_context_fails(summary: str) -> None:
    with pytest.raises(AgentError) as caught:
        compacted(chain(*rounds(25, "z" * 1_600)), COMPACT, summary)
    assert caught.value.code is ErrorCode.COMPACTION_FAILED


def test_after_an_overflow_the_rejected_context_must_become_smaller() -> None:
    entries = chain(*turns(40))  # trimmed to 750 tokens
    config = trimmed(1_000, compaction=True)
    assert len(compacted(entries, config, "s" * 400, overflow=True)) == len(entries) + 1
    assert len(compacted(entries, config, "s" * 4_000)) == len(entries) + 1
    with pytest.raises(AgentError, match="not shorter"):
        compacted(entries, config, "s" * 4_000, overflow=True)


def test_a_compaction_of_another_session_fails() -> None:
    manager = ContextManager(COMPACT)
    updates = manager.compute_context_updates(ContextInput(fold=ContextFold.of(chain(*rounds(25, "z" * 1_600)))))
    with pytest.raises(AgentError, match="not in the context"):
        manager.compaction(ContextInput(fold=ContextFold()), updates, "They read.")


# -- asking for a summary


def test_a_summary_request_contains_the_conversation_as_text() -> None:
    updates = ContextUpdateResult(needs_compaction=True, tokens=9, budget=9, to_summarise=(user("hi"),))
    prompt, question = summary_messages(updates.to_summarise)
    assert prompt == system(SUMMARY_INSTRUCTIONS)
    assert "<conversation>\nUser: hi\n</conversation>" in question.text


def test_a_transcript_has_messages_calls_and_results() -> None:
    searched = ToolCall("s", "search", {"q": 1}, executed_by="provider", result=ToolResult("s", {"found": 2}))
    messages = [
        user("look", Image("image/png", data=b"x"), FileRef("a.txt")),
        assistant(Thinking("hm"), "yes", ToolCall("c", "read", {"path": LONG}), searched),
        result("c", "gone", is_error=True),
        result("d", (Text("a"), Text("b"))),
        result("e", LONG),
    ]
    lines = transcript(messages).split("\n\n")
    assert lines[:4] == ["User: look", "User: [image]", "User: [file a.txt]", "Assistant: yes"]
    assert lines[4].startswith('Assistant: [call c] read {"path":"xxx')
    assert lines[5] == 'Assistant: [call s] search {"q":1}\n=> {"found":2}'
    assert lines[6:8] == ["Tool: [error of c] gone", "Tool: [result of d] a\nb"]
    assert len("".join(lines)) < 3_000


def test_d_6_2_the_context_is_normalised_deduplicated_trimmed_compacted_and_assembled() -> None:
    """D-6.2, 002-non-goals.2: each step works on the result of the previous one, independently of the feed."""
    ignored = user(Text(LONG * 50, ignored=True), "the first intent")  # never counted: normalised before anything else
    facts = [ignored, *rounds(6)[1:]]
    entries = chain(*facts)
    repeated = [entry for entry in entries for _ in range(3)]  # never counted: repeats go before trimming
    config = trimmed(10_000, compaction=True)
    once, thrice = (
        ContextManager(config).build_context(ContextInput(fold=ContextFold.of(some))) for some in (entries, repeated)
    )
    assert once == thrice
    assert [note.entry_id for note in once.notes] == ["e2", "e4"]
    assert not update(*facts, config=config).needs_compaction  # trimming was enough, so nothing is compacted
    assert [message.role for message in build(*facts, system_prompt="Be brief.").messages][:2] == ["system", "user"]
    again = Meta(model_call_index=0, attempt=1)  # an answer that was stored twice, under two ids
    assert build(user("Hi"), assistant("Hello.", meta=again), assistant("Hello.", meta=again)).messages == (
        build(user("Hi"), assistant("Hello.", meta=again)).messages
    )
    assert not hasattr(feed, "build_context")
