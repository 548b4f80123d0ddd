"""Markdown as safe HTML, also while it grows."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack import MessageDelta, Text, Thinking, ToolCall, assistant
from bartack.environment import Environment
from bartack.events import LiveDeltas, LiveReset
from bartack.nouns.deltas import Start, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallStart
from bartack_server.web.markdown import GrowingMarkdown, HtmlCache, markdown_blocks
from bartack_server.web.page import PageEvents
from tests.web.agents import MARKDOWN

PIECES = [
    *("# Title\n", "text ", "\n", "\n\n", "- item\n", "1. one\n", "```py\n", "x = 1\n", "```\n", "> quote\n", "===\n"),
    *("| a | b |\n", "|---|---|\n", "    code\n", "<b>html</b>\n", "***\n", "`", "[a](http://b)"),
    *("\u2028", "\x0c", "\t"),
]


HARMFUL = re.compile(r"<(script|img|svg|iframe|style|object)|\son\w+=|javascript:|data:|style=", re.IGNORECASE)
TAGS = """
    p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a span div table thead tbody tr th td
"""


def whole(cuts: list[str]) -> list[str]:
    growing = GrowingMarkdown()
    finished: list[str] = []
    tail = ""
    for piece in cuts:
        blocks = growing.add(piece)
        finished += blocks.finished
        tail = blocks.tail
    return [*finished, *([tail] if tail else [])]


@given(st.lists(st.sampled_from(PIECES)), st.integers(1, 9))
def test_a_growing_text_ends_as_the_same_html_as_the_whole_text(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    cuts = [text[start : start + size] for start in range(0, len(text), size)]
    assert "".join(whole(cuts)) == "".join(markdown_blocks(text))


@given(st.lists(st.sampled_from(PIECES)))
def test_a_finished_block_never_changes(pieces: list[str]) -> None:
    growing = GrowingMarkdown()
    finished: list[str] = []
    for piece in pieces:
        finished += growing.add(piece).finished
        assert growing.count == len(finished)


def test_code_is_highlighted_with_classes_and_tables_are_aligned() -> None:
    html = "".join(markdown_blocks(MARKDOWN + "\n| a |\n|:-:|\n| b |\n"))
    assert '<pre data-language="python"><code><span class="k">def</span>' in html
    assert '<td align="center">b</td>' in html
    assert "style=" not in html


def test_the_html_that_is_kept_for_other_viewers_takes_limited_memory() -> None:
    cache = HtmlCache(max_size=1000)
    for length in range(1, 600):
        text = "x" * length
        assert cache.html(text) == cache.html(text) == f"<p>{text}</p>\n"
        assert cache.size <= 1000


def test_links_that_are_defined_at_the_end_are_links() -> None:
    assert 'href="https://example.com"' in "".join(
        markdown_blocks("See [this].\n\nMore.\n\n[this]: https://example.com")
    )


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '<img src="x" onerror="alert(1)">',
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "![x](http://evil.example/x.png)",
        '![x](http://evil.example/" onerror="alert(1))',
        "<javascript:alert(1)>",
        '```"><img onerror=alert(1)>\ncode\n```',
        "```html\n<script>alert(1)</script>\n```",
        '| <img src=x onerror=alert(1)> |\n|:"onload=alert(1):|\n| x |',
        "<a href='javascript:alert(1)'>x</a>",
        "[x]: javascript:alert(1)\n\n[x]",
        '<div style="position:fixed">x</div>',
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "<svg/onload=alert(1)>",
    ],
)
def test_hostile_text_becomes_harmless(text: str) -> None:
    html = "".join(markdown_blocks(text))
    tags = re.findall(r"<[^>]*>", html)
    assert not [
        tag
        for tag in tags
        if re.search(r"<(script|img|svg|iframe|style|object)|\son\w+=|javascript:|data:|style=", tag, re.I)
    ]


@given(st.text(max_size=200))
def test_any_text_has_only_known_tags(text: str) -> None:
    html = "".join(markdown_blocks(text))
    names = set(re.findall(r"<([a-zA-Z][\w-]*)", html))
    assert names <= set(TAGS.split())


def stamped(*deltas: object) -> LiveDeltas:
    timestamp = Environment().now()
    stamped_deltas = tuple(MessageDelta("r", seq, delta, timestamp) for seq, delta in enumerate(deltas))  # type: ignore[arg-type]
    return LiveDeltas("r:1:9", stamped_deltas)


def shown(frame: bytes) -> str:
    return frame.decode()


def test_frames_of_an_answer_have_what_is_new_in_each_part() -> None:
    events = PageEvents()
    first = shown(events.frame(stamped(Start("m", "1"), ThinkingDelta("hm"), TextDelta("# A\nb\n"))))
    assert '"isNew":true' in first
    assert '"blocks":["<h1>A</h1>\\n"]' in first
    second = shown(events.frame(stamped(TextDelta("c"), ToolCallStart("c1", "pay"), ToolCallArgs("c1", '{"a"'))))
    assert '"isNew":false' in second
    assert '"index":0' not in second, "the thinking has not changed"
    assert '"first":1,"blocks":[],"tail":"<p>b\\nc</p>\\n"' in second
    assert '"toolName":"pay","arguments":"{\\"a\\""' in second


def test_a_reset_has_the_whole_answer_so_far() -> None:
    snapshot = assistant(Thinking("hm"), Text("one\n\ntwo\n"), ToolCall("c1", "pay", {}, raw_args_text='{"a": 1'))
    frame = shown(PageEvents().frame(LiveReset("r:1:9", snapshot)))
    assert frame.startswith("id: r:1:9\nevent: answer\n")
    assert '"blocks":["<p>one</p>\\n"],"tail":"<p>two</p>\\n"' in frame
    assert '"arguments":"{\\"a\\": 1"' in frame
