"""Opening a session from outlines gives what folding all of its entries gives, wherever it is split."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from bartack.nouns import wire
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    BranchSummary,
    CompactionSummary,
    Custom,
    Entry,
    Fact,
    MessageQueued,
    ModelChange,
    Redaction,
    ResultPosted,
    RunEnded,
    RunStarted,
    RuntimeInit,
    StreamFailed,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Meta, ModelRef, assistant, system, tool_message, user
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.session.context import ContextFold
from bartack.session.outline import REPAIRED, UNREADABLE, Past, outlines_of
from bartack.session.run_state import RunState
from tests.properties.strategies import sessions
from tests.sample_session import chain

ids = st.integers(0, 30).map("e{}".format)  # entry ids, mostly of this session
call_ids = st.sampled_from(["c1", "c2", "c3", "c4"])
models = st.sampled_from([ModelRef("p", "m"), ModelRef("p", "n")])
metas = st.builds(
    Meta,
    model=st.none() | models,
    usage=st.none() | st.builds(Usage, st.integers(0, 9), st.just(1)),
    model_call_index=st.none() | st.integers(0, 2),
    attempt=st.none() | st.integers(1, 2),
    is_api_error_message=st.booleans(),
    request_id=st.none() | ids,
)
calls = st.builds(ToolCall, call_ids, st.just("read"), st.just({"path": "a"}))
run_calls = st.builds(
    lambda id: ToolCall(id, "find", {}, executed_by="provider", result=ToolResult(id, "found")), call_ids
)
answers = st.lists(calls | run_calls, max_size=2, unique_by=lambda call: call.tool_call_id).flatmap(
    lambda some: st.builds(lambda meta: assistant("Well.", *some, meta=meta), st.none() | metas)
)
facts: st.SearchStrategy[Fact] = st.one_of(
    st.builds(RunStarted, model=st.none() | models),
    st.builds(RunEnded, status=st.sampled_from(["completed", "failed"])),
    st.just(user("Look.")),
    st.just(system("Be brief.")),
    answers,
    st.builds(lambda id, text: tool_message(ToolResult(id, text)), call_ids, st.sampled_from(["a", "b"])),
    st.builds(
        ToolStarted, tool_call_id=call_ids, tool_name=st.just("read"), arguments=st.just({}), deferred=st.booleans()
    ),
    st.builds(lambda id: ResultPosted(tool_call_id=id, result=ToolResult(id, "late")), call_ids),
    st.builds(ToolProgress, tool_call_id=call_ids, content=st.just("half")),
    st.builds(ApprovalRequired, tool_call_id=call_ids, tool_name=st.just("read"), arguments=st.just({})),
    st.builds(
        ApprovalDecided,
        tool_call_id=call_ids,
        decision=st.sampled_from(["approve", "pause"]),
        original_arguments=st.just({}),
        arguments=st.just({}),
    ),
    st.builds(MessageQueued, message=st.just(user("Wait.")), steer=st.booleans()),
    st.builds(lambda id: user("Wait.", meta=Meta(request_id=id)), ids),
    st.builds(AbortRequested),
    st.builds(StreamFailed, error=st.just(Failed(ErrorCode.SERVER_ERROR, "no")), model_call_index=st.just(0)),
    st.builds(ModelChange, model=models),
    st.builds(ThinkingLevelChange, level=st.sampled_from(["low", "high"])),
    st.builds(RuntimeInit, runtime=st.just("local"), data=st.just({})),
    st.builds(SystemPromptOverride, text=st.none() | st.just("Be long.")),
    st.builds(CompactionSummary, summary=st.just("They looked."), first_kept_entry_id=ids),
    st.builds(BranchSummary, summary=st.just("They tried."), from_entry_id=ids),
    st.builds(Redaction, entry_id=ids),
    st.builds(Custom, name=st.sampled_from(["mine", UNREADABLE, REPAIRED]), data=st.just({"parts": 1})),
)


@st.composite
def any_facts(draw: st.DrawFn) -> list[Entry]:
    """Facts in any order, in runs that are interleaved in any way."""
    entries = chain(*draw(st.lists(facts, max_size=30)))
    run_ids = draw(st.lists(st.sampled_from(["r1", "r2", "r3", None]), min_size=len(entries), max_size=len(entries)))
    return [replace(entry, run_id=run_id) for entry, run_id in zip(entries, run_ids, strict=True)]


def state_of(state: RunState) -> dict[str, Any]:
    return {**vars(state), "_repeats": state.repeats}


def context_of(fold: ContextFold) -> dict[str, Any]:
    fields = {name: value for name, value in vars(fold).items() if not name.startswith("_")}
    return {**fields, "items": [asdict(item) for item in fold.items]}


@given(any_facts() | sessions(), st.integers(0, 30))
def test_a_state_opened_in_the_middle_equals_the_fold_of_all_entries(session: list[Entry], split: int) -> None:
    opened = RunState.of_branch(session[:split], Past(outlines_of(map(wire.encode, session[:split]))))
    folded = RunState()
    for entry in session[:split]:
        folded.push(entry)
    assert state_of(opened) == state_of(folded)
    for entry in session[split:]:
        opened.push(entry)
        folded.push(entry)
    assert state_of(opened) == state_of(folded)


@given(any_facts() | sessions(), st.integers(0, 30))
def test_a_context_opened_in_the_middle_equals_the_fold_of_all_entries(session: list[Entry], split: int) -> None:
    opened = ContextFold.of_branch(session[:split], outlines_of(map(wire.encode, session[:split])))
    folded = ContextFold.of(session[:split])
    assert context_of(opened) == context_of(folded)
    for entry in session[split:]:
        opened.push(entry)
        folded.push(entry)
    assert context_of(opened) == context_of(folded)
