"""HTML -> Markdown for a model: headings, paragraphs, lists, code, links, tables and quotes; everything else is text.

Whatever the markup, the text comes out in its order. Scripts, styles and drawings are left out. Tags that are not
closed, or closed twice, change the layout at most.
"""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

__all__ = ["markdown_of_html"]

_LEFT_OUT = {"script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "head", "select"}
_BLOCKS = {
    "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "form", "fieldset", "figure",
    "figcaption", "table", "ul", "ol", "dl", "dt", "dd", "pre", "blockquote", "details", "summary", "address",
}  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`", "del": "~~"}
_VOID_LEFT_OUT = {"meta", "link", "base"}  # they may stand in the body, and have no end


def markdown_of_html(html: str, base_url: str = "") -> str:
    """The document as Markdown. Links are made absolute with `base_url`."""
    reader = _Reader(base_url)
    reader.feed(html)
    reader.close()
    text = re.sub(r"[ \t]+\n", "\n", "".join(reader.pieces))
    body = re.sub(r"\n{3,}", "\n\n", text).strip()
    title = " ".join("".join(reader.title).split())
    return body if not title or title in body[:500] else f"# {title}\n\n{body}"


class _Reader(HTMLParser):
    def __init__(self, base_url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._base_url = base_url
        self._left_out = 0  # how many elements without text are open
        self._is_title = False
        self._lists: list[int] = []  # the number of the next item of each open list; -1 for bullets
        self._code = 0  # how many <pre> are open
        self._links: list[str] = []
        self._is_first_cell = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self._is_title = tag == "title"
        if tag == "body":
            self._left_out = 0  # whatever was left open above
        elif tag in _LEFT_OUT:
            self._left_out += 1
        if self._left_out or tag in _VOID_LEFT_OUT:
            return
        self._open(tag, attributes)

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _HEADINGS:
            self.pieces.append(f"\n\n{_HEADINGS[tag]} ")
        elif tag == "li":
            self.pieces.append(f"\n{'  ' * (len(self._lists) - 1)}{self._bullet()} ")
        elif tag == "br":
            self.pieces.append("\n")
        elif tag == "hr":
            self.pieces.append("\n\n---\n\n")
        elif tag == "tr":
            self._is_first_cell = True
            self.pieces.append("\n")
        elif tag in ("td", "th"):
            self.pieces.append("| " if self._is_first_cell else " | ")
            self._is_first_cell = False
        elif tag == "img" and attributes.get("alt"):
            self.pieces.append(f"[image: {attributes['alt']}]")
        elif tag == "a":
            self._links.append(attributes.get("href", ""))
            self.pieces.append("[")
        elif tag in _MARKS and not self._code:
            self.pieces.append(_MARKS[tag])
        elif tag in _BLOCKS:
            self._open_block(tag, attributes)

    def _open_block(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in ("ul", "ol"):
            start = attributes.get("start", "1")
            self._lists.append(-1 if tag == "ul" else int(start) if start.isdecimal() else 1)
        is_nested = tag in ("ul", "ol") and len(self._lists) > 1
        if not is_nested:
            self.pieces.append("\n\n")
        if tag == "pre":
            self._code += 1
            self.pieces.append("```\n")
        elif tag == "blockquote":
            self.pieces.append("> ")

    def _bullet(self) -> str:
        if not self._lists or self._lists[-1] < 0:
            return "-"
        self._lists[-1] += 1
        return f"{self._lists[-1] - 1}."

    def handle_endtag(self, tag: str) -> None:
        self._is_title = False
        if tag in _LEFT_OUT:
            self._left_out = max(0, self._left_out - 1)
        elif self._left_out:
            return
        elif tag == "a" and self._links:
            self._close_link(self._links.pop())
        elif tag in _MARKS and not self._code:
            self.pieces.append(_MARKS[tag])
        elif tag in _HEADINGS:
            self.pieces.append("\n\n")
        elif tag == "tr":
            self.pieces.append(" |")
        elif tag in _BLOCKS:
            if tag == "pre" and self._code:
                self._code -= 1
                self.pieces.append("\n```")
            if tag in ("ul", "ol") and self._lists:
                self._lists.pop()
            if not (tag in ("ul", "ol") and self._lists):
                self.pieces.append("\n\n")

    def _close_link(self, target: str) -> None:
        try:
            address = urljoin(self._base_url, target)
        except ValueError:  # such as an unclosed bracket of an IPv6 address
            address = ""
        is_link = address.startswith(("http://", "https://"))
        self.pieces.append(f"]({address})" if is_link else "]")

    def handle_data(self, data: str) -> None:
        if self._is_title:
            self.title.append(data)
        elif not self._left_out:
            text = data if self._code else re.sub(r"\s+", " ", data)
            is_line_start = bool(self.pieces) and self.pieces[-1].endswith("\n")
            if stripped := text.lstrip(" ") if is_line_start and not self._code else text:
                self.pieces.append(stripped)
