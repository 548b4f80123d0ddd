"""Laws of the context, for every session, every budget and every order of pushing and building."""

import json
from collections.abc import Iterable
from operator import is_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bartack.formats import ModelRequest, encode
from bartack.formats.repair import repair
from bartack.nouns.config import ContextConfig, ModelConfig, ToolSpec
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import (
    CompactionSummary,
    Entry,
    Fact,
    ModelChange,
    Redaction,
    RunStarted,
    SystemPromptOverride,
)
from bartack.nouns.errors import AgentError
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, tool_message, user
from bartack.nouns.parts import Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import History
from bartack.nouns.wire import decode
from bartack.nouns.wire import encode as stored
from bartack.session.context import ContextBuildResult, ContextFold, ContextInput, ContextManager
from bartack.session.context.shortening import shorten_text
from bartack.session.context.window import summary_message
from bartack.session.redaction import visible
from tests.formats.history_check import check_history
from tests.properties.strategies import sessions
from tests.sample_session import chain

FORMATS = {"anthropic-messages": "messages", "openai-chat": "messages", "openai-responses": "input"}
TOOLS = (ToolSpec("read", {"type": "object", "properties": {"path": {"type": "string"}}}),)

configs = st.builds(
    ContextConfig,
    max_tokens=st.none() | st.integers(1, 400) | st.integers(400, 20_000),
    reserve_tokens=st.just(0),
    keep_recent_tokens=st.none() | st.integers(0, 400),
    compaction=st.booleans(),
)


def context_of(entries: Iterable[Entry], config: ContextConfig) -> ContextBuildResult:
    return ContextManager(config).build_context(given_to(ContextFold.of(entries)))


def given_to(fold: ContextFold) -> ContextInput:
    return ContextInput(fold=fold, system_prompt="Be brief.", tools=TOOLS)


def sent(messages: tuple[Message, ...], format: str) -> dict[str, Any]:
    return encode(format, ModelRequest(messages, config=ModelConfig("m"), tools=TOOLS)).body


# -- long conversations with tools, of sizes that matter


@st.composite
def conversations(draw: st.DrawFn) -> list[Fact]:
    """Turns of user, calls, results and answer, as a loop writes them; some with the provider's count."""
    facts: list[Fact] = [RunStarted(model=ModelRef("p", "m"))]
    sizes = st.sampled_from([1, 40, 400, 3_000, 9_000])
    for turn in range(draw(st.integers(1, 8))):
        facts.append(user(f"question {turn} " + "q" * draw(sizes)))
        for call in range(draw(st.integers(0, 3))):
            ids = [f"call{turn}x{call}x{number}" for number in range(draw(st.integers(1, 3)))]
            facts.append(assistant(Thinking("hm"), *(ToolCall(call_id, "read", {"path": "a"}) for call_id in ids)))
            results = [
                tool_message(ToolResult(call_id, f"output of {call_id} " + "o" * draw(sizes))) for call_id in ids
            ]
            facts += draw(st.permutations(results))
        usage = draw(st.none() | st.integers(1, 5_000).map(lambda count: Usage(count, 10)))
        facts.append(assistant(f"answer {turn} " + "a" * draw(sizes), meta=Meta(usage=usage)))
    return facts


def is_asking(entries: list[Entry]) -> bool:
    """Whether a model would be called now."""
    fact = entries[-1].fact
    return isinstance(fact, Message) and fact.role == "user"


# -- laws


@given(sessions(), configs)
def test_every_prefix_of_every_session_gives_a_context_that_providers_accept(
    session: list[Entry], config: ContextConfig
) -> None:
    for end in range(len(session) + 1):
        context = context_of(session[:end], config)
        assert check_history(repair(context.messages).messages) == []


@given(sessions(), configs)
def test_d_6_1_the_same_entries_give_the_same_bytes(session: list[Entry], config: ContextConfig) -> None:
    """Entry by entry with a context built after each, all at once, and loaded from a store."""
    fold, manager = ContextFold(), ContextManager(config)
    context = manager.build_context(given_to(fold))
    for entry in session:
        fold.push(entry)
        manager.compute_context_updates(given_to(fold))
        context = manager.build_context(given_to(fold))
    loaded = context_of([decode(Entry, stored(entry)) for entry in session], config)
    at_once = context_of(session, config)
    assert context == at_once
    for format in FORMATS:
        first, second, third = (json.dumps(sent(result.messages, format)) for result in (context, at_once, loaded))
        assert first == second == third


@given(conversations(), configs)
def test_trimming_step_by_step_equals_trimming_at_once(facts: list[Fact], config: ContextConfig) -> None:
    fold, manager = ContextFold(), ContextManager(config)
    for place, entry in enumerate(entries := chain(*facts)):
        fold.push(entry)
        if place % 3 == 0:
            manager.build_context(given_to(fold))
    assert manager.build_context(given_to(fold)) == context_of(entries, config)


@given(sessions(), configs)
def test_pushing_a_redaction_equals_loading_redacted_entries(session: list[Entry], config: ContextConfig) -> None:
    assert context_of(session, config) == context_of(visible(session), config)


def marked(entry: Entry) -> Entry:
    """The entry with its own id in every text of its message."""
    if not isinstance(entry.fact, Message):
        return entry
    text = f"<{entry.id}>"
    parts = [
        ToolResult(part.tool_call_id, text)
        if isinstance(part, ToolResult)
        else ToolCall(part.tool_call_id, "t", {"a": text})
        if isinstance(part, ToolCall)
        else Text(text)
        for part in entry.fact.parts
    ]
    return replace(entry, fact=replace(entry.fact, parts=tuple(parts), meta=None, extra=None))


@given(sessions(), configs)
def test_redacted_and_compacted_content_is_not_sent(session: list[Entry], config: ContextConfig) -> None:
    entries = [marked(entry) for entry in session]
    seqs = {entry.id: entry.seq for entry in entries}
    hidden_ids = {entry.fact.entry_id for entry in entries if isinstance(entry.fact, Redaction)}
    for summary in entries:
        if isinstance(summary.fact, CompactionSummary):
            first = seqs[summary.fact.first_kept_entry_id]
            hidden_ids |= {entry.id for entry in entries if entry.seq < min(first, summary.seq)}
    text = repr(context_of(entries, config).messages)
    assert [entry_id for entry_id in hidden_ids if f"<{entry_id}>" in text] == []


@given(sessions())
def test_a_session_that_grows_keeps_its_context_as_a_prefix(session: list[Entry]) -> None:
    fold, manager = ContextFold(), ContextManager()
    before: tuple[Message, ...] = ()
    for entry in session:
        fold.push(entry)
        messages = manager.build_context(given_to(fold)).messages
        if not isinstance(entry.fact, Redaction | CompactionSummary | SystemPromptOverride):
            assert messages[: len(before)] == before
        before = messages


@pytest.mark.parametrize("format", FORMATS)
@given(facts=conversations())
def test_a_request_has_the_one_before_it_as_a_prefix(format: str, facts: list[Fact]) -> None:
    fold, manager = ContextFold(), ContextManager()
    before: list[Any] = []
    for entry in chain(*facts):
        fold.push(entry)
        if is_asking([entry]):
            items = sent(manager.build_context(given_to(fold)).messages, format)[FORMATS[format]]
            assert items[: len(before)] == before
            before = items


@given(conversations() | sessions().map(lambda session: [entry.fact for entry in session]), configs)
def test_contexts_of_one_thread_have_the_same_messages(facts: list[Fact], config: ContextConfig) -> None:
    fold, manager = ContextFold(), ContextManager(config)
    threads: dict[int, History] = {}  # the last one of each thread, which also keeps the thread alive
    for entry in chain(*facts):
        fold.push(entry)
        messages = manager.build_context(given_to(fold)).messages
        assert isinstance(messages, History)
        before = threads.setdefault(id(messages.thread), messages)
        assert all(map(is_, messages[messages.head :], before[before.head :]))
        threads[id(messages.thread)] = messages


@given(conversations(), configs)
def test_the_turns_after_a_trim_keep_the_prefix(facts: list[Fact], config: ContextConfig) -> None:
    """The prefix changes only when the budget is reached; then as much as possible is cut, down to the target."""
    fold, manager = ContextFold(), ContextManager(config)
    before = manager.build_context(given_to(fold))
    for entry in chain(*facts):
        fold.push(entry)
        context = manager.build_context(given_to(fold))
        if context.messages[: len(before.messages)] != before.messages:
            assert context.budget is not None
            assert len(context.notes) > len(before.notes)
            fully_cut = len(fold.items) - sum(note.action == "dropped" for note in context.notes) <= 6
            assert context.tokens <= context.budget * 3 // 4 or fully_cut
        before = context


@given(conversations(), configs)
def test_d_6_3_trimming_keeps_calls_with_results_and_the_users_requests(
    facts: list[Fact], config: ContextConfig
) -> None:
    context = context_of(chain(*facts), config)
    calls = [call.tool_call_id for message in context.messages for call in message.tool_calls]
    results = [result.tool_call_id for message in context.messages for result in message.tool_results]
    assert sorted(calls) == sorted(results)
    assert [message.role for message in context.messages[:2]] == ["system", "user"]
    first = chain(*facts)[1].fact
    assert isinstance(first, Message)
    assert context.messages[1] in (first, shorten_text(first))
    assert context.over_budget == (context.budget is not None and context.tokens > context.budget)


@given(conversations(), st.integers(1_000, 16_000))
def test_nothing_is_dropped_while_a_seen_output_can_be_shortened(facts: list[Fact], max_tokens: int) -> None:
    fold, manager = ContextFold(), ContextManager(ContextConfig(max_tokens=max_tokens, reserve_tokens=0))
    dropped = 0
    for entry in chain(*facts):
        fold.push(entry)
        context = manager.build_context(given_to(fold))
        before, dropped = dropped, sum(note.action == "dropped" for note in context.notes)
        if dropped > before:
            answers = [place for place, message in enumerate(context.messages) if message.role == "assistant"]
            results = [
                result for message in context.messages[: max(answers, default=0)] for result in message.tool_results
            ]
            assert all(len(str(result.content)) <= 2_000 for result in results)


# -- compaction


def grown(entries: list[Entry], fact: Fact) -> Entry:
    last = entries[-1]
    return replace(last, id=f"x{last.seq}", seq=last.seq + 1, parent_id=last.id, fact=fact)


@given(conversations(), st.integers(200, 4_000), st.sampled_from(["", "s", "s" * 40, "s" * 4_000]))
def test_compactions_shrink_the_context_or_fail_and_cover_everything(
    facts: list[Fact], max_tokens: int, summary: str
) -> None:
    """As the loop does: before each prompt, one compaction at a time, until none is needed."""
    manager = ContextManager(ContextConfig(max_tokens=max_tokens, reserve_tokens=0))
    entries = chain(facts[0])
    fold = ContextFold.of(entries)
    for fact in facts[1:]:
        entries.append(grown(entries, replace(fact, id=f"m{len(entries)}", timestamp=entries[0].timestamp)))
        fold.push(entries[-1])
        while is_asking(entries) and (update := manager.compute_context_updates(given_to(fold))).needs_compaction:
            before = {item.entry_id: item for item in fold.items}
            earlier = fold.summary
            try:
                compaction = manager.compaction(given_to(fold), update, summary)
            except AgentError:
                assert len(summary) in (0, 4_000)  # nothing, or more than what it replaces
                return
            assert (compaction.tokens_after or 0) < (compaction.tokens_before or 0)
            entries.append(grown(entries, compaction))
            fold.push(entries[-1])
            remaining = {item.entry_id for item in fold.items}
            assert remaining < set(before)
            removed = {item.message.id for item in before.values() if item.entry_id not in remaining}
            summarised = {message.id for message in update.to_summarise}
            assert removed <= summarised or any(
                "were omitted to save space" in message.text for message in update.to_summarise
            )
            assert earlier is None or update.to_summarise[0] == earlier
            assert fold.summary == summary_message(summary)
            tied = [item.message for item in fold.items]
            calls = {call.tool_call_id for message in tied for call in message.tool_calls}
            assert calls == {result.tool_call_id for message in tied for result in message.tool_results}
    assert manager.build_context(given_to(fold)) == context_of(entries, manager.config)


@given(conversations())
def test_a_change_of_model_changes_the_count_and_not_the_messages(facts: list[Fact]) -> None:
    changed = [*facts, ModelChange(model=ModelRef("q", "other"))]
    config = ContextConfig()
    assert context_of(chain(*changed), config).messages == context_of(chain(*facts), config).messages
