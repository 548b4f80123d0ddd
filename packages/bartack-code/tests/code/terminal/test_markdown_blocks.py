"""The splitter ends blocks as CommonMark does, loses nothing, and does not depend on how the text is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack_code.terminal.markdown_blocks import Block, BlockSplitter
from tests.code.terminal.scripted_run import LONG_CODE, MARKDOWN

PIECES = [
    *("word", " ", "\n", "\n\n", "# ", "## Title\n", "- ", "* x\n", "1. ", "1. one\n", "7) ", "  ", "    ", "\t"),
    *("```", "```py\n", "````\n", "~~~\n", "> quote\n", "---\n", "***\n", "===\n", "| a | b |\n", "|---|---|\n"),
    *("\r\n", "\r", "`", "<b>", "é", "日本", "\x1b[1m", "\u2028"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def blocks_of(*pieces: str) -> list[Block]:
    splitter = BlockSplitter()
    found = [block for piece in pieces for block in splitter.feed(piece)]
    return found + splitter.finish()


def kinds(text: str) -> list[tuple[str, str]]:
    return [(block.kind, block.text) for block in blocks_of(text) if block.kind != "space"]


@given(texts)
def test_the_blocks_add_up_to_the_text(text: str) -> None:
    assert "".join(block.text for block in blocks_of(text)) == text


@given(texts, st.lists(st.integers(0, 200), max_size=8))
def test_cutting_the_text_differently_changes_nothing(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert blocks_of(*pieces) == blocks_of(text) == blocks_of(*text)


@given(texts, st.integers(0, 200))
def test_at_any_time_blocks_and_rest_add_up_to_the_text(text: str, cut: int) -> None:
    splitter = BlockSplitter()
    found = splitter.feed(text[:cut])
    assert "".join(block.text for block in found) + splitter.rest == text[:cut]


@pytest.mark.parametrize("text", [MARKDOWN, LONG_CODE])
def test_whole_answers_are_preserved(text: str) -> None:
    assert "".join(block.text for block in blocks_of(*text)) == text


def test_a_paragraph_ends_at_a_blank_line() -> None:
    assert kinds("one\ntwo\n\nthree") == [("text", "one\ntwo\n\n"), ("text", "three")]


def test_headings_and_rules_end_with_their_line() -> None:
    splitter = BlockSplitter()
    assert splitter.feed("# Title\n") == [Block("text", "# Title\n")]
    assert splitter.feed("***\n") == [Block("text", "***\n")]
    assert kinds("text\n## Title\nmore\n") == [("text", "text\n"), ("text", "## Title\n"), ("text", "more\n")]


def test_an_underline_belongs_to_its_heading() -> None:
    assert kinds("Title\n---\ntext") == [("text", "Title\n---\n"), ("text", "text")]


def test_a_fence_is_split_into_lines() -> None:
    assert blocks_of("say\n```py title\na\n\n  b\n```\n") == [
        Block("text", "say\n"),
        Block("fence", "```py title\n", code="py"),
        Block("code", "a\n", code="a"),
        Block("code", "\n", code=""),
        Block("code", "  b\n", code="  b"),
        Block("fence_end", "```\n"),
    ]


def test_a_fence_ends_only_with_its_own_marker() -> None:
    lines = [block.code for block in blocks_of("~~~~\n```\n~~~\n# no\n~~~~~\n# yes\n") if block.kind == "code"]
    assert lines == ["```", "~~~", "# no"]


def test_everything_in_an_open_fence_is_code() -> None:
    assert kinds("```\na\nb") == [("fence", "```\n"), ("code", "a\n"), ("code", "b")]


def test_a_list_is_split_into_items_and_numbered() -> None:
    items = blocks_of("1. a\n1. b\n   still b\n\n   and b\n1. c\nlazy\n\nafter")
    assert [(block.kind, block.number) for block in items] == [("item", 1), ("item", 2), ("item", 3), ("text", None)]
    assert items[1].text == "1. b\n   still b\n\n   and b\n"
    assert items[2].text == "1. c\nlazy\n\n"


def test_nested_items_belong_to_the_outer_item() -> None:
    assert kinds("- a\n  - b\n    - c\n- d\n") == [("item", "- a\n  - b\n    - c\n"), ("item", "- d\n")]


def test_a_fence_in_an_item_does_not_end_it() -> None:
    item = "1. run\n   ```sh\n   make\n\n   - not an item\n   ```\n"
    assert kinds(f"{item}2. done\n") == [("item", item), ("item", "2. done\n")]


def test_another_list_is_marked() -> None:
    found = blocks_of("- a\n- b\n\n1. c\n2. d\n")
    assert [block.is_new_list for block in found] == [True, False, True, False]


def test_a_number_in_a_paragraph_starts_no_list() -> None:
    assert kinds("born in\n1984. Then\n") == [("text", "born in\n1984. Then\n")]


def test_tables_and_quotes_end_like_paragraphs() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    assert kinds(f"{table}> one\n> ```\n> two\n\nend") == [
        ("text", table),
        ("text", "> one\n> ```\n> two\n\n"),
        ("text", "end"),
    ]


def test_a_rule_of_spaced_dashes_is_not_a_list() -> None:
    assert kinds("- - -\n") == [("text", "- - -\n")]
