"""Markdown of models, as HTML that is safe to show: rendered, highlighted, sanitised.

Raw HTML in the Markdown is shown as text. Images are shown as links, because loading one would tell its server that the
answer was read. What remains passes a sanitiser that knows only the tags and classes made here.

A growing text is rendered block by block (`GrowingMarkdown`): once a block of CommonMark is followed by another one, it
no longer changes, so it is rendered once; only the last block is rendered again.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

__all__ = ["Blocks", "GrowingMarkdown", "HtmlCache", "markdown_blocks"]

_MAX_HIGHLIGHTED = 50_000  # characters; some lexers are slow on more
_TAG_NAMES = """
    p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a span div table thead tbody tr th td
"""
_CLASSES = {name for name in STANDARD_TYPES.values() if name}
_SANITISE: dict[str, Any] = {
    "tags": set(_TAG_NAMES.split()),
    "attributes": {"a": {"href"}, "ol": {"start"}, "pre": {"data-language"}, "th": {"align"}, "td": {"align"}},
    "allowed_classes": {"span": _CLASSES},
    "url_schemes": {"http", "https", "mailto"},
    "link_rel": "noopener noreferrer nofollow",
    "set_tag_attribute_values": {"a": {"target": "_blank"}, "ul": {"dir": "auto"}, "ol": {"dir": "auto"}},
}
_FORMATTER = HtmlFormatter(nowrap=True)


def _fence(self: Any, tokens: list[Token], index: int, options: Any, environment: Any) -> str:
    token = tokens[index]
    language = (token.info.split() or [""])[0]
    return f'<pre data-language="{_escaped(language)}"><code>{_highlighted(token.content, language)}</code></pre>\n'


def _image(self: Any, tokens: list[Token], index: int, options: Any, environment: Any) -> str:
    token = tokens[index]
    address = str(token.attrs.get("src", ""))
    return f'<a href="{_escaped(address)}">[image: {_escaped(token.content or address)}]</a>'


def _cell(self: Any, tokens: list[Token], index: int, options: Any, environment: Any) -> str:
    """A cell with its alignment as an attribute: inline styles are not allowed."""
    token = tokens[index]
    style = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} align="{_escaped(style)}">' if style else f"<{token.tag}>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    for name, rule in {
        "fence": _fence,
        "code_block": _fence,
        "image": _image,
        "th_open": _cell,
        "td_open": _cell,
    }.items():
        parser.add_render_rule(name, rule)
    return parser


_PARSER = _parser()


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _highlighted(code: str, language: str) -> str:
    if not language or len(code) > _MAX_HIGHLIGHTED:
        return _escaped(code)
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return _escaped(code)
    html: str = highlight(code, lexer, _FORMATTER)
    return html


class HtmlCache:
    """The HTML of the latest blocks, which all viewers of a session need. A growing block is another one each time, so
    what is kept is limited by its size."""

    def __init__(self, max_size: int = 16_000_000) -> None:
        self._max_size = max_size
        self._cached: dict[str, str] = {}
        self.size = 0  # characters of text and HTML

    def html(self, text: str) -> str:
        """The text as HTML, without references to links that are defined elsewhere."""
        cached = self._cached.get(text)
        if cached is not None:
            return cached
        html = nh3.clean(_PARSER.render(text), **_SANITISE)
        size = len(text) + len(html)
        if self.size + size > self._max_size:
            self._cached.clear()
            self.size = 0
        if size <= self._max_size:
            self._cached[text] = html
            self.size += size
        return html


_html = HtmlCache().html


def markdown_blocks(text: str) -> list[str]:
    """The text as HTML, one piece for each of its blocks."""
    references: dict[str, Any] = {}
    _PARSER.parse(text, references)  # they may be defined after their use
    blocks = GrowingMarkdown(references).add(text)
    return [*blocks.finished, *([blocks.tail] if blocks.tail else [])]


class Blocks(NamedTuple):
    """The blocks that are finished since the last time, and the one that still grows, as HTML."""

    finished: list[str]
    tail: str


class GrowingMarkdown:
    """A text that arrives in pieces."""

    def __init__(self, references: dict[str, Any] | None = None) -> None:
        self._rest = ""  # what does not belong to a finished block
        self._references: dict[str, Any] = {} if references is None else references  # links defined so far
        self.count = 0  # how many blocks are finished

    def add(self, text: str) -> Blocks:
        """Add a piece."""
        self._rest += text.replace("\r\n", "\n").replace("\r", "\n")
        lines = self._rest.split("\n")
        whole_lines = self._rest[: self._rest.rfind("\n") + 1]  # what begins as a paragraph may become a list item
        tokens = _PARSER.parse(whole_lines, self._references)
        cuts = sorted({token.map[0] for token in tokens if token.level == 0 and token.map})
        blocks = ["\n".join(lines[start:end]) + "\n" for start, end in pairwise(cuts)]
        if len(cuts) > 1:
            self._rest = "\n".join(lines[cuts[-1] :])
        self.count += len(blocks)
        return Blocks([self._rendered(block) for block in blocks], self._rendered(self._rest))

    def _rendered(self, text: str) -> str:
        if not text.strip():
            return ""
        if not self._references.get("references"):
            return _html(text)
        return nh3.clean(_PARSER.render(text, self._references), **_SANITISE)
