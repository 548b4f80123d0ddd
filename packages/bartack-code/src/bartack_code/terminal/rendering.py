"""Markdown, code and plain text in, lines of segments out. Everything printed during a run is rendered here.

Every segment is made safe after rendering, because Markdown can spell a control character as an entity. The spaces that
rich pads lines with are removed, so that copied text has none and a narrower window wraps nothing needlessly.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import BlockQuote, CodeBlock, Heading, ListElement, ListItem, Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from bartack.app.safe_text import encodable, safe_text
from bartack_code.terminal.style import THEME, ChatConsole, code_theme, symbols_for

Line = list[Segment]
INDENT = 2
# HTML tags stay visible, as in an answer about Vec<String>; an image is shown as a link.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable(["image", "autolink"])


def lines_of(console: Console, renderable: RenderableType, *, width: int | None = None) -> list[Line]:
    """The renderable in this many columns, by default the width of the window."""
    options = console.options.update(width=max(width or console.width, 1), height=None, highlight=False)
    with _themed(console):
        lines = console.render_lines(renderable, options, pad=False)
    return [_tidy(line, console.encoding) for line in lines]


def unwrapped(console: Console, texts: Iterable[Text]) -> list[Line]:
    """One line for each text, however long; the terminal wraps it, so that it can be copied as one line."""
    lines = []
    with _themed(console):
        for text in texts:
            text.stylize_before(text.style)  # Text.render applies the spans only, not the base style
            lines.append(_tidy(text.render(console), console.encoding))
    return lines


def _themed(console: Console) -> AbstractContextManager[object]:
    """The styles of this package, which the console of a chat has already."""
    return nullcontext() if isinstance(console, ChatConsole) else console.use_theme(THEME)


def indented(lines: Iterable[Line]) -> list[Line]:
    """The lines, indented."""
    return [[Segment(" " * INDENT), *line] if line else line for line in lines]


def plain(text: str, style: str = "") -> Text:
    """Safe text in one style; brackets are not markup."""
    return Text(safe_text(text), style=style, overflow="fold")


def _tidy(line: Iterable[Segment], encoding: str) -> Line:
    tidy = []
    for text, style, control in line:
        safe = "" if control else encodable(safe_text(text).replace("\n", ""), encoding)
        if safe:
            tidy.append(Segment(safe, style))
    while tidy and not (tidy[-1].style and (tidy[-1].style.bgcolor or tidy[-1].style.underline)):
        text, style, _ = tidy.pop()
        if text.rstrip(" "):
            tidy.append(Segment(text.rstrip(" "), style))
            break
    return tidy


# -- code


def highlighted(console: Console, code: Sequence[str], language: str, *, preceding: Sequence[str] = ()) -> list[Text]:
    """The code, highlighted according to the theme; `preceding` are the lines before it, which decide whether a string
    or comment is open."""
    texts = [safe_text(line).replace("\n", " ") for line in (*preceding, *code)]
    theme = code_theme(console)
    if theme is None:
        return [Text(line) for line in texts[len(preceding) :]]
    syntax = Syntax("", language or "text", theme=theme, background_color="default")
    lines = syntax.highlight("\n".join(texts)).split("\n", allow_blank=True)
    if [line.plain for line in lines[: len(texts)]] != texts:  # the lexer changed the text
        lines = [Text(line) for line in texts]  # type: ignore[assignment]
    return list(lines[len(preceding) : len(texts)])


# -- Markdown


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in highlighted(console, str(self.text).rstrip().split("\n"), self.lexer_name):
            line.overflow = "fold"
            yield Padding(line, (0, 0, 0, INDENT))


class _Heading(Heading):
    LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _Quote(BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _hanging(console, options, f"{symbols_for(console).quote} ", self, every_line=True)


class _Item(ListItem):
    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _hanging(console, options, f" {symbols_for(console).bullet} ", self)

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        yield from _hanging(console, options, f"{number:2}. ", self)


def _hanging(
    console: Console, options: ConsoleOptions, first: str, element: Any, *, every_line: bool = False
) -> RenderResult:
    """The lines of an element, with a symbol before the first one or before each."""
    inner = options.update(width=max(options.max_width - len(first), 1))
    style = console.get_style("markdown.item.bullet")
    for index, line in enumerate(console.render_lines(element.elements, inner, style=element.style, pad=False)):
        yield Segment(first if every_line or index == 0 else " " * len(first), style)
        yield from line
        yield Segment.line()


class _Markdown(Markdown):
    elements = {  # noqa: RUF012 - as in the parent class
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
        "heading_open": _Heading,
        "blockquote_open": _Quote,
        "bullet_list_open": ListElement,
        "ordered_list_open": ListElement,
        "list_item_open": _Item,
    }

    def __init__(self, text: str, number: int | None) -> None:
        super().__init__("", hyperlinks=False)  # show addresses, because the text of a link can be misleading
        self.parsed = _PARSER.parse(text)
        if number is not None and self.parsed and self.parsed[0].type == "ordered_list_open":
            self.parsed[0].attrs["start"] = number


def markdown(console: Console, text: str, *, number: int | None = None) -> list[Line]:
    """The lines of a Markdown block; `number` is the number of a list item."""
    safe = safe_text(text)
    try:
        lines = lines_of(console, _Markdown(safe, number))
    except Exception:  # noqa: BLE001 - a parser failed on untrusted text, which is then shown verbatim
        lines = lines_of(console, plain(safe))
    lines = _trimmed(lines)
    return lines or _trimmed(
        lines_of(console, plain(safe))
    )  # a block with nothing but link definitions renders as nothing


def _trimmed(lines: list[Line]) -> list[Line]:
    """Without blank lines at the start and the end."""
    indexes = [index for index, line in enumerate(lines) if any(segment.text.strip() for segment in line)]
    return lines[indexes[0] : indexes[-1] + 1] if indexes else []
