"""Markdown as safe HTML, also while it grows."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bartack import MessageDelta, Text, Thinking, ToolCall, assistant
from bartack.environment import Environment
from bartack.events import LiveDeltas, LiveEntry, LiveReset
from bartack.nouns.deltas import Start, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallStart
from bartack.nouns.entries import Entry
from bartack_server.web.markdown import GrowingMarkdown, Item, grow, markdown_blocks, markdown_items
from bartack_server.web.page import PageEvents
from tests.web.agents import MARKDOWN

PIECES = [
    *("# Title\n", "text ", "\n", "\n\n", "- item\n", "1. one\n", "```py\n", "x = 1\n", "```\n", "> quote\n", "===\n"),
    *("| a | b |\n", "|---|---|\n", "    code\n", "<b>html</b>\n", "***\n", "`", "[a](http://b)"),
    *("\u2028", "\x0c", "\t", "\r", "\r\n", "**", "*", "_", "$x^2$", "$$\n", "\\(a\\)", "\\[", "\\]", "\\begin{align}"),
    *("\\end{align}", "https://a.b/c_d)", "- [x] t\n", "<br>", "  - in\n", "* star\n", "~~~\n", "  ```\n", "   deep\n"),
    *("def f(): # 1\n", "\U0001f600", "\n\n  "),
]


HARMFUL = re.compile(r"<(script|img|svg|iframe|style|object)|\son\w+=|javascript:|data:|style=", re.IGNORECASE)
TAGS = """
    p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a sup div table thead tbody tr th td
    math mrow mi mn mo ms mtext mspace mover munder munderover msub msup msubsup mfrac msqrt mroot mtable mtr mtd mstyle
    mpadded mphantom menclose mmultiscripts mprescripts none
"""


def whole(text: str) -> list[Item]:
    return [item for block in markdown_items(text) for item in block]


def grown(text: str, size: int) -> tuple[list[Item], GrowingMarkdown]:
    """What a viewer has after the text has arrived in pieces of this size."""
    growing = GrowingMarkdown()
    items: list[Item] = []
    for start in range(0, len(text), size):
        grow(items, growing.add(text[start : start + size]))
    grow(items, growing.end())
    return items, growing


@given(st.lists(st.sampled_from(PIECES)), st.integers(1, 9))
def test_a_growing_text_ends_as_the_whole_text(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    items, growing = grown(text, size)
    assert items == whole(text)
    assert growing.is_final()


@pytest.mark.parametrize(
    "text", ["See [this].\n\nSo.\n\n[this]: https://a.example\n", "Noted[^1].\n\nSo.\n\n[^1]: Here.\n"]
)
def test_a_text_that_refers_to_something_later_is_not_final(text: str) -> None:
    _, growing = grown(text, 3)
    assert not growing.is_final()


def test_finished_lines_are_not_sent_again() -> None:
    growing = GrowingMarkdown()
    growing.add("Look:\n\n```python\n")
    for number in range(500):
        assert growing.add(f"x = {number}\n") == [f"x = {number}\n"]
    code = "".join(f"x = {number}\n" for number in range(500))
    colours, *ends = growing.add("```\n")
    assert (isinstance(colours, tuple) and colours[0], ends) == ("#", [0, 0])
    assert growing.is_final()
    assert code in whole(growing.text)


def test_a_list_does_not_change_when_a_blank_line_comes_between_its_items() -> None:
    growing = GrowingMarkdown()
    growing.add("- one\n- two\n- th")
    assert growing.add("ree\n\n- four") == ["ree", 0, 0, ("li",), ("p",), "four"]


def test_only_what_the_syntax_changes_is_taken_back() -> None:
    growing = GrowingMarkdown()
    growing.add("Some **bold")
    assert growing.add("** text") == [(1, 5), ("strong",), "bold", 0, " text"]
    assert growing.add(" \U0001f600 *b") == [" \U0001f600 *b"]
    assert growing.add("*") == [(5, 9), ("em",), "b"], "as a browser counts, which is two for an emoji"


def test_code_is_highlighted_and_tables_are_aligned() -> None:
    text = MARKDOWN + "\n| a |\n|:-:|\n| b |\n"
    html = "".join(markdown_blocks(text))
    assert '<pre data-language="python"><code data-colours="k4f4' in html
    assert '<td align="center">b</td>' in html
    assert "style=" not in html
    spans = "".join(markdown_blocks(text, has_spans=True))
    assert '<code><span class="hl-k">def </span><span class="hl-f">rain</span>(' in spans
    assert "data-colours" not in spans


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("- [x] a\n- [ ] b", '<li data-task="done"><p>a</p></li><li data-task="open"><p>b</p></li>'),
        ("Go to https://a.example/b_c_d (now).", '<a href="https://a.example/b_c_d"'),
        ("(www.a.example/x(1))", '<a href="https://www.a.example/x(1)"'),
        ("[https://a.example](https://b.example)", ">https://a.example</a>"),
        ("A[^n] b\n\n[^n]: https://a.example", '<sup data-note="n">n</sup>'),
        ("A[^n] b\n\n[^n]: Text *it*", '<div data-footnote="n"><sup>n</sup><p>Text <em>it</em></p></div>'),
        ("use [^a] here", "<p>use [^a] here</p>"),
        ("a<br>b", "<p>a<br>b</p>"),
        ("```mermaid\ngraph TD\n```", '<pre data-language="mermaid"><code>graph TD\n</code></pre>'),
        ("costs $5 and $6", "<p>costs $5 and $6</p>"),
        ("$a_1*b_1 + a_2*b_2$", "<msub><mi>a</mi><mn>1</mn></msub><mo>*</mo>"),
        (r"\(\int x\,dx\)", '<mspace width="0.167em">'),
        ("$$\n\\begin{pmatrix} a \\\\ b \\end{pmatrix}\n$$", '<math display="block"><mrow><mo>(</mo><mtable>'),
        ("\\[\nx^2\n\\]", '<p><math display="block">'),
        ("$\\frac{$", "\\frac{"),
        ("$\\frac$", "<code>\\frac</code>"),
        ("$" + "x" * 2000 + "$", "<code>xxx"),
    ],
)
def test_what_models_write_is_rendered(text: str, html: str) -> None:
    assert html in "".join(markdown_blocks(text))


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
    assert first.startswith('data:[[],[0,null,"thinking"],[0,["p"],"hm"],[1,null,"text"],[1,["h1"],"A",0,["p"],"b"]]')
    second = shown(events.frame(stamped(TextDelta("c"), ToolCallStart("c1", "pay"), ToolCallArgs("c1", '{"a"'))))
    assert second == 'data:[[1,"\\nc"],[2,null,"call","c1","pay"],[2,"{\\"a\\""]]\n\n'


def test_a_reset_has_the_whole_answer_so_far() -> None:
    snapshot = assistant(Thinking("hm"), Text("one\n\ntwo\n"), ToolCall("c1", "pay", {}, raw_args_text='{"a": 1'))
    frame = shown(PageEvents().frame(LiveReset("r:1:9", snapshot)))
    assert '[1,["p"],"one",0,["p"],"two"]' in frame
    assert '[2,"{\\"a\\": 1"]' in frame


LATE = "See [a].\n\nSo.\n\n[a]: https://a.example\n"


def entry(*parts: Text | Thinking) -> LiveEntry:
    timestamp = Environment().now()
    fact = structs.replace(assistant(*parts), id="m", timestamp=timestamp)
    return LiveEntry("9", Entry(id="e", session_id="s", seq=9, timestamp=timestamp, fact=fact))


def test_the_entry_of_an_answer_does_not_repeat_what_has_arrived() -> None:
    events = PageEvents()
    events.frame(stamped(Start("m", "1"), TextDelta("one **two**")))
    frame = shown(events.frame(entry(Text("one **two**"))))
    assert frame.startswith("data:[[0,0,0]]\n\nid: 9\nevent: entry\n")
    assert '"isShown":true' in frame
    assert "two" not in frame


def test_the_last_pieces_of_an_answer_come_with_its_entry() -> None:
    events = PageEvents()
    events.frame(stamped(Start("m", "1"), ThinkingDelta("hm")))
    frame = shown(events.frame(entry(Thinking("hm, so"), Text("Fine."))))
    assert frame.startswith('data:[[0,", so",0],[1,null,"text"],[1,["p"],"Fine.",0]]\n\n')
    assert '"isShown":true' in frame


@pytest.mark.parametrize(
    ("arrived", "stored"),
    [("one", "other"), (LATE, LATE)],
)
def test_an_answer_that_is_not_what_has_arrived_is_sent_whole(arrived: str, stored: str) -> None:
    events = PageEvents()
    events.frame(stamped(Start("m", "1"), TextDelta(arrived[:15])))
    events.frame(stamped(TextDelta(arrived[15:])))
    frame = shown(events.frame(entry(Text(stored))))
    assert '"isShown"' not in frame
    assert '"html":[["<p>' in frame
