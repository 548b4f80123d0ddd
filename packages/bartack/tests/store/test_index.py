"""What stores derive from entries: branches, and the results of tool calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns import wire
from bartack.nouns.entries import branch, heads
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack.store.index import branch_heads, branch_ranges, results_in, results_of
from tests.sample_session import SESSION


@given(st.lists(st.integers(0, 100), max_size=30))
def test_branches_are_found_from_branch_starts(choices: list[int]) -> None:
    parents = {1: 0, **{seq: choice % (seq - 1) + 1 for seq, choice in enumerate(choices, 2)}}
    starts = {seq: parent for seq, parent in parents.items() if seq > 1 and parent != seq - 1}
    assert branch_heads(len(parents), starts) == sorted(set(parents) - set(parents.values()))
    for head in parents:
        walked, seq = [], head
        while seq:
            walked.append(seq)
            seq = parents[seq]
        assert [seq for seqs in branch_ranges(head, starts) for seq in seqs] == walked[::-1]


def test_branches_agree_with_the_functions_on_entries() -> None:
    assert heads(SESSION) == (SESSION[-1].id,)
    assert len(branch(SESSION, SESSION[-1].id)) == sum(map(len, branch_ranges(len(SESSION), {})))


@pytest.mark.parametrize(
    "message",
    [
        tool_message(ToolResult("a", "x"), ToolResult("b", (Text("y"),))),
        assistant(ToolCall("c", "t", {"result": 5}), "and"),
        assistant(ToolCall("d", "t", {}, executed_by="provider", result=ToolResult("d", {"result": {}}))),
        user(Text('"tool_result"', extra={"result": "text"})),
        user("plain"),
    ],
)
def test_results_are_found_without_decoding_the_message(message: Message) -> None:
    assert results_in(wire.encode(message)) == results_of(message)
