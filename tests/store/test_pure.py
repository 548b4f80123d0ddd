"""The parts of the stores that are pure: trees told by starts, words, pages, errors of locks."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns import wire
from bartack.nouns.entries import branch, heads
from bartack.nouns.messages import Message, assistant, tool_message, user
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack.store import search
from bartack.store.entries import Entries
from bartack.store.files import network_kind
from bartack.store.index import branch_heads, branch_ranges, results_in, results_of
from tests.sample_session import SESSION


@given(st.lists(st.integers(0, 100), max_size=30))
def test_a_tree_is_told_by_its_starts(choices: list[int]) -> None:
    parents = {1: 0, **{seq: choice % (seq - 1) + 1 for seq, choice in enumerate(choices, 2)}}
    starts = {seq: parent for seq, parent in parents.items() if seq > 1 and parent != seq - 1}
    assert branch_heads(len(parents), starts) == sorted(set(parents) - set(parents.values()))
    for head in parents:
        walked, here = [], head
        while here:
            walked.append(here)
            here = parents[here]
        assert [seq for seqs in branch_ranges(head, starts) for seq in seqs] == walked[::-1]


def test_the_tree_functions_of_entries_agree() -> None:
    assert heads(SESSION) == (SESSION[-1].id,)
    assert len(branch(SESSION, SESSION[-1].id)) == sum(map(len, branch_ranges(len(SESSION), {})))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Don't snow_fall 3.5%", ["don", "t", "snow", "fall", "3", "5"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("今日は rain", ["今", "日", "は", "rain"]),
        ("", []),
    ],
)
def test_words_are_letters_and_digits_in_one_case(text: str, found: list[str]) -> None:
    assert search.words(text) == found


def test_a_snippet_is_the_text_around_the_first_word() -> None:
    text = "a " * 100 + "needle\n\n  and" + " b" * 100
    assert search.snippet(text, [["needle"]]) == "…" + "a " * 30 + "needle and" + " b" * 23 + "…"
    assert search.snippet("short", []) == "short"


def test_entries_are_a_sequence_like_any_other() -> None:
    entries = Entries("s", [], [])
    assert list(entries) == []
    assert entries == []
    assert entries != "s"
    assert (entries == 5) is False
    with pytest.raises(IndexError):
        entries[0]
    with pytest.raises(TypeError):
        hash(entries)


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
def test_results_are_found_without_reading_the_whole_message(message: Message) -> None:
    assert results_in(wire.encode(message)) == results_of(message)


MOUNTS = """\
1 0 0:1 / / rw - ext4 /dev/vda rw
2 1 0:2 / /home/share rw shared:1 - nfs4 server:/x rw
3 1 0:3 / /mnt/my\\040disk rw - fuse.sshfs host: rw
4 2 0:4 / /home/share/local rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/home", None), ("/home/share/x", "nfs4"), ("/mnt/my disk/y", "fuse.sshfs"), ("/home/share/local/z", None)],
)
def test_network_file_systems_are_known(folder: str, kind: str | None) -> None:
    assert network_kind(Path(folder), MOUNTS) == kind
