r"""Markdown of models as safe elements: GitHub's flavour, maths as MathML, code with colours.

A text becomes a flat list of *items*: the start of an element, text, or the end of an element. There is no raw HTML:
elements are made here, from the tokens of the parser, and nowhere else. Images are links, because loading one would
tell its server that the answer was read.

A growing text is read piece by piece (`GrowingMarkdown`), and each piece gives the *growth* of the list: the items that
are new. Items that were sent are taken back only where the syntax requires it (an asterisk began an emphasis, a line
was the head of a table), and never beyond the block that is still open. So an answer costs its text and its elements
once, whatever the number of pieces. Two things keep finished lines final:

- The items of a list always contain paragraphs. In CommonMark a blank line between two items would change all others.
- The colours of code are not elements. They are one item at its end, and the page draws them without touching the text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import Any, Final
from xml.etree import ElementTree

import nh3
from latex2mathml import exceptions as latex_exceptions
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments.lexers import get_lexer_by_name
from pygments.token import Token as CodeToken
from pygments.util import ClassNotFound

__all__ = [
    "CLOSE",
    "GrowingMarkdown",
    "Item",
    "Items",
    "grow",
    "items_html",
    "joined_growth",
    "markdown_blocks",
    "markdown_items",
    "utf16_length",
]

CLOSE: Final = 0
COLOURS: Final = "#"  # the name of the item that has the colours of the code before it

Item = str | int | tuple[Any, ...]
"""Text; `CLOSE`; or as a tuple an element with its attributes, the colours of the code before it, or a cut."""
Items = Sequence[Item]

_MAX_COLOURED = 50_000  # characters of code; some lexers are slow on more
_MAX_FORMULA = 1000  # characters of TeX, which takes up to 0.1 s to translate
_MAX_OPEN_FORMULA = 4000  # characters after the start of a formula; if it has no end by then, it is text
_TAG_NAMES = """
    p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a sup div span table thead tbody tr th td
    math mrow mi mn mo ms mtext mspace mover munder munderover msub msup msubsup mfrac msqrt mroot mtable mtr mtd mstyle
    mpadded mphantom menclose mmultiscripts mprescripts none
"""
_MATH_ATTRIBUTE_NAMES = """
    display accent accentunder stretchy fence form separator lspace rspace width height depth linethickness mathvariant
    columnalign columnspacing rowspacing columnlines rowlines minsize maxsize movablelimits displaystyle scriptlevel
"""
_TAGS = set(_TAG_NAMES.split())
_MATH_ATTRIBUTES = set(_MATH_ATTRIBUTE_NAMES.split())
_SANITISE: dict[str, Any] = {  # nothing else is made above; this is a second wall
    "tags": _TAGS,
    "attributes": {
        **{tag: set(_MATH_ATTRIBUTES) for tag in _TAGS if tag.startswith("m")},
        "a": {"href"},
        "ol": {"start"},
        "pre": {"data-language"},
        "code": {"data-colours"},
        "th": {"align"},
        "td": {"align"},
        "li": {"data-task"},
        "sup": {"data-note"},
        "div": {"data-footnote"},
        "math": {"display"},
        "span": {"class"},
    },
    "url_schemes": {"http", "https", "mailto"},
    "link_rel": "noopener noreferrer nofollow",
    "set_tag_attribute_values": {"a": {"target": "_blank"}, "ul": {"dir": "auto"}, "ol": {"dir": "auto"}},
}
_LATEX_ERRORS: tuple[type[Exception], ...] = (
    *(error for error in vars(latex_exceptions).values() if isinstance(error, type) and issubclass(error, Exception)),
    *(StopIteration, RecursionError, LookupError, ValueError, AttributeError, TypeError, ElementTree.ParseError),
)
_TASK = re.compile(r"\[([ xX])\](?=\s|$)")
_NOTE = re.compile(r" {0,3}\[\^([^\]\s]{1,50})\]:[ \t]+")
_SIGNS = re.compile(r"<br\s*/?>|(?<![\w/.@-])(?:https?://|www\.)[^\s<>\"`|]+|\[\^[^\]\s]{1,50}\]", re.IGNORECASE)
_COLOURS = (  # the first that contains the type of a token; other code has the colour of text
    (CodeToken.Comment, "c"),
    (CodeToken.Keyword, "k"),
    (CodeToken.Operator.Word, "k"),
    (CodeToken.Literal.String, "s"),
    (CodeToken.Literal.Number, "n"),
    (CodeToken.Name.Function, "f"),
    (CodeToken.Name.Class, "f"),
    (CodeToken.Name.Decorator, "f"),
    (CodeToken.Name.Tag, "f"),
    (CodeToken.Name.Builtin, "b"),
    (CodeToken.Name.Attribute, "b"),
    (CodeToken.Generic.Deleted, "d"),
    (CodeToken.Generic.Inserted, "i"),
    (CodeToken.Generic.Heading, "c"),
    (CodeToken.Generic.Subheading, "c"),
)


def _new_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.use(dollarmath_plugin, allow_labels=False, allow_space=False, allow_digits=False, double_inline=True)
    parser.inline.ruler.before("escape", "math_brackets", _bracketed_formula)
    parser.block.ruler.before("fence", "math_bracket_block", _bracketed_block, {"alt": ["paragraph", "list"]})
    parser.use(amsmath_plugin)
    parser.block.ruler.at("reference", _reference, {"alt": []})
    return parser


def _bracketed_formula(state: StateInline, is_probe: bool) -> bool:
    r"""A formula in ``\(...\)`` or ``\[...\]``."""
    start = state.src[state.pos : state.pos + 2]
    if start not in ("\\(", "\\["):
        return False
    end = state.src.find("\\)" if start == "\\(" else "\\]", state.pos + 2)
    if end < 0:
        return False
    if not is_probe:
        kind = "math_inline" if start == "\\(" else "math_inline_double"
        state.push(kind, "math", 0).content = state.src[state.pos + 2 : end]
    state.pos = end + 2
    return True


def _bracketed_block(state: StateBlock, start: int, end: int, is_probe: bool) -> bool:
    r"""A formula between lines that begin with ``\[`` and end with ``\]``."""
    if state.is_code_block(start) or not state.src.startswith("\\[", state.bMarks[start] + state.tShift[start]):
        return False
    for last in range(start, end):
        if last > start and state.sCount[last] < state.blkIndent:
            return False
        text = state.getLines(start, last + 1, state.blkIndent, False).strip()
        if text.endswith("\\]"):
            if not is_probe:
                token = state.push("math_block", "math", 0)
                token.content, token.map = text[2:-2], [start, last + 1]
                state.line = last + 1
            return True
        if len(text) > _MAX_OPEN_FORMULA:
            return False
    return False


def _reference(state: StateBlock, start: int, end: int, is_probe: bool) -> bool:
    """The definition of a link. That of a footnote looks like one if it consists of an address."""
    line = state.src[state.bMarks[start] : state.eMarks[start]]
    return _NOTE.match(line) is None and reference(state, start, end, is_probe)


_PARSER = _new_parser()


def utf16_length(text: str) -> int:
    """The length of a text as a browser counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


# -- from tokens to items


class _Reader:
    """Reads the tokens of one text. `notes` are the footnotes that are defined anywhere.

    An open text may grow at its end: code there has no colours, and an address there is not a link yet.
    """

    def __init__(self, notes: Iterable[str], *, is_open: bool) -> None:
        self._notes = frozenset(notes)
        self._is_open = is_open
        self._last: Token | None = None
        self._items: list[Item] = []
        self._links = 0  # how many links are open: there are no links inside links

    def read(self, tokens: Sequence[Token]) -> list[Item]:
        """The items of these tokens."""
        if self._is_open:
            self._last = next((token for token in reversed(tokens) if token.nesting >= 0), None)
            if self._last is not None and self._last.children:
                self._last = self._last.children[-1]
        for token in tokens:
            self._read(token)
        return self._items

    def _open(self, tag: str, **attributes: str) -> None:
        self._items.append((tag, attributes) if attributes else (tag,))

    def _close(self) -> None:
        self._items.append(CLOSE)

    def _text(self, text: str) -> None:
        if text and self._items and isinstance(self._items[-1], str):
            self._items[-1] += text
        elif text:
            self._items.append(text)

    def _element(self, tag: str, text: str = "", **attributes: str) -> None:
        self._open(tag, **attributes)
        self._text(text)
        self._close()

    def _read(self, token: Token) -> None:
        kind = token.type
        if kind == "inline":
            self._read_inline(token)
        elif kind in ("fence", "code_block"):
            self._items += _code_items(token.content, _language(token), has_colours=token is not self._last)
        elif kind in ("hr", "hardbreak"):
            self._element(token.tag)
        elif kind == "softbreak":
            self._text("\n")
        elif kind == "code_inline":
            self._element("code", token.content)
        elif kind == "image":
            address = str(token.attrs.get("src", ""))
            self._link(address, f"[image: {token.content or address}]")
        elif kind.startswith(("math", "amsmath")):
            self._math(token)
        elif kind == "link_open":
            self._links += 1
            self._open("a", href=str(token.attrs.get("href", "")))
        elif kind == "link_close":
            self._links -= 1
            self._close()
        elif token.nesting > 0:
            self._open(token.tag, **_attributes(token))
        elif token.nesting < 0:
            self._close()
        else:  # text, and escaped characters
            self._signs(token.content, is_last=token is self._last)

    def _read_inline(self, token: Token) -> None:
        children = token.children or []
        task = _TASK.match(token.content) if self._begins_item() else None
        if task is not None and children and children[0].type == "text":
            item = self._items[-2]
            assert isinstance(item, tuple)
            self._items[-2] = (item[0], {"data-task": "done" if task[1] != " " else "open"})
            first, *others = children
            self._signs(first.content[task.end() :].lstrip())
            children = others
        for child in children:
            self._read(child)

    def _begins_item(self) -> bool:
        return [item[0] if isinstance(item, tuple) else item for item in self._items[-2:]] == ["li", "p"]

    def _signs(self, text: str, *, is_last: bool = False) -> None:
        """Text with bare addresses, footnotes and line breaks in it."""
        end = 0
        for match in _SIGNS.finditer(text):
            sign = match[0]
            if sign.startswith("<"):
                self._text(text[end : match.start()])
                self._element("br")
            elif sign.startswith("["):
                if sign[2:-1] not in self._notes:
                    continue
                self._text(text[end : match.start()])
                self._element("sup", sign[2:-1], **{"data-note": sign[2:-1]})
            else:
                if self._links or (is_last and match.end() == len(text)):
                    continue
                sign = _address_in(sign)
                self._text(text[end : match.start()])
                self._link(sign if sign.lower().startswith("http") else f"https://{sign}", sign)
            end = match.start() + len(sign)
        self._text(text[end:])

    def _link(self, address: str, text: str) -> None:
        if self._links:
            self._text(text)
        else:
            self._element("a", text, href=address)

    def _math(self, token: Token) -> None:
        is_block = "block" in token.type or token.type == "amsmath"
        formula = _formula_items(token.content.strip(), "block" if is_block or "double" in token.type else "inline")
        self._items += [("p",), *formula, CLOSE] if is_block else formula


def _attributes(token: Token) -> dict[str, str]:
    style = str(token.attrs.get("style", "")).removeprefix("text-align:")
    if style:
        return {"align": style}
    start = token.attrs.get("start")
    return {} if start is None else {"start": str(start)}


def _address_in(text: str) -> str:
    """A bare address without the punctuation that follows it."""
    text = text.rstrip("?!.,:;*_~'")
    while text.endswith(")") and text.count(")") > text.count("("):
        text = text[:-1].rstrip("?!.,:;*_~'")
    return text


@lru_cache(maxsize=512)
def _formula_items(formula: str, display: str) -> tuple[Item, ...]:
    """MathML; the source, if it is not valid TeX."""
    source: tuple[Item, ...] = (("code",), formula, CLOSE)
    if len(formula) > _MAX_FORMULA:
        return source
    try:
        root = ElementTree.fromstring(convert(formula, display=display))
    except _LATEX_ERRORS:
        return source
    return tuple(_xml_items(root))


def _xml_items(element: ElementTree.Element) -> Iterator[Item]:
    tag = element.tag.rpartition("}")[2]
    if tag not in _TAGS:
        tag = "mrow"
    attributes = {name: value for name, value in element.attrib.items() if name in _MATH_ATTRIBUTES}
    yield (tag, attributes) if attributes else (tag,)
    if element.text:
        yield element.text
    for child in element:
        yield from _xml_items(child)
    yield CLOSE


def _language(token: Token) -> str:
    return (token.info.split() or [""])[0]


def _code_start(language: str) -> list[Item]:
    return [("pre", {"data-language": language}) if language else ("pre",), ("code",)]


def _code_items(code: str, language: str, *, has_colours: bool) -> list[Item]:
    """A block of code, with its colours if its language is known."""
    colours = _colours(code, language) if has_colours else ()
    return [*_code_start(language), *([code] if code else []), *colours, CLOSE, CLOSE]


@lru_cache(maxsize=64)
def _colours(code: str, language: str) -> tuple[Item, ...]:
    """The colours of code as one item: lengths, each after the letter of its colour or a full stop."""
    if not language or not code or len(code) > _MAX_COLOURED:
        return ()
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return ()
    runs: list[list[Any]] = []
    for kind, text in lexer.get_tokens(code):
        letter = next((letter for group, letter in _COLOURS if kind in group), ".")
        if not text.strip():  # blanks have no colour, so they lengthen any run
            letter = runs[-1][0] if runs else "."
        if runs and runs[-1][0] == letter:
            runs[-1][1] += utf16_length(text)
        else:
            runs.append([letter, utf16_length(text)])
    colours = "".join(f"{letter}{length}" for letter, length in runs)
    return ((COLOURS, colours),) if colours.strip(".0123456789") else ()


# -- whole texts


def _normalised(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _notes_in(text: str) -> frozenset[str]:
    return frozenset(match[1] for line in text.split("\n") if (match := _NOTE.match(line)))


def _block_items(text: str, references: dict[str, Any], notes: frozenset[str], *, is_open: bool = False) -> list[Item]:
    """The items of a text. A footnote is a paragraph with a sign of its own."""
    note = _NOTE.match(text)
    tokens = _PARSER.parse(text if note is None else text[note.end() :], references)
    inner = _Reader(notes, is_open=is_open).read(tokens)
    if note is None:
        return inner
    return [("div", {"data-footnote": note[1]}), ("sup",), note[1], CLOSE, *inner, CLOSE]


@lru_cache(maxsize=2048)
def _plain_items(text: str, is_open: bool) -> tuple[Item, ...]:
    """The items of a text that refers to nothing outside of it: several viewers need those of a growing block."""
    return tuple(_block_items(text, {}, frozenset(), is_open=is_open))


def markdown_items(text: str) -> list[list[Item]]:
    """The items of each block of a text."""
    text = _normalised(text)
    references: dict[str, Any] = {}
    _PARSER.parse(text, references)  # links may be defined after their use, and so may footnotes
    notes = _notes_in(text)
    return [_block_items(block, references, notes) for block in _split(text, references)]


@lru_cache(maxsize=16)
def _whole_items(text: str) -> tuple[Item, ...]:
    return tuple(item for block in markdown_items(text) for item in block)


def _split(text: str, references: dict[str, Any]) -> list[str]:
    lines = text.split("\n")
    cuts = _cuts(_PARSER.parse(text, references), lines)
    blocks = ["\n".join(lines[start:end]) for start, end in pairwise([*cuts, len(lines)])]
    return [f"{block}\n" for block in blocks[:-1]] + blocks[-1:]


def _cuts(tokens: Iterable[Token], lines: Sequence[str]) -> list[int]:
    """The lines on which blocks begin. Each footnote is a block, though to the parser it continues a paragraph."""
    starts = set()
    for token in tokens:
        if token.level == 0 and token.map:
            starts.add(token.map[0])
            if token.type == "paragraph_open":
                starts |= {number for number in range(*token.map) if _NOTE.match(lines[number])}
    return sorted(starts)


def markdown_blocks(text: str, *, has_spans: bool = False) -> list[str]:
    """The text as HTML, one piece for each of its blocks. With `has_spans`, colours are elements."""
    return [html for items in markdown_items(text) if (html := items_html(items, has_spans=has_spans))]


def items_html(items: Items, *, has_spans: bool = False) -> str:
    """Items as HTML. Without `has_spans`, colours are an attribute of the code."""
    pieces: list[str] = []
    opened: list[str] = []
    starts: dict[int, int] = {}  # the depth of an element -> where its start is in `pieces`
    for item in items:
        if isinstance(item, str):
            pieces.append(escape(item))
        elif isinstance(item, int):
            tag = opened.pop()
            if tag not in ("br", "hr"):
                pieces.append(f"</{tag}>")
        elif item[0] == COLOURS:
            runs = str(item[1])
            if has_spans:
                pieces[-1] = _spans(str(_last_text(items, item)), runs)
            else:
                pieces[starts[len(opened)]] = f'<code data-colours="{runs}">'
        else:
            attributes = item[1] if len(item) > 1 else {}
            assert isinstance(attributes, dict)
            written = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
            opened.append(item[0])
            starts[len(opened)] = len(pieces)
            pieces.append(f"<{item[0]}{written}>")
    pieces += [f"</{tag}>" for tag in reversed(opened)]
    return nh3.clean("".join(pieces), **_SANITISE)


def _last_text(items: Items, colours: Item) -> Item:
    return items[items.index(colours) - 1]


def _spans(code: str, runs: str) -> str:
    """Code in which each run is an element of its colour."""
    units = code.encode("utf-16-le", "surrogatepass")
    pieces: list[str] = []
    start = 0
    for letter, length in re.findall(r"(\D)(\d+)", runs):
        end = start + 2 * int(length)
        text = escape(units[start:end].decode("utf-16-le", "surrogatepass"))
        pieces.append(text if letter == "." else f'<span class="hl-{letter}">{text}</span>')
        start = end
    return "".join(pieces) + escape(units[start:].decode("utf-16-le", "surrogatepass"))


# -- growing texts


def grow(items: list[Item], growth: Items) -> None:
    """Apply a growth to the items that a viewer has."""
    for item in growth:
        if isinstance(item, tuple) and isinstance(item[0], int):
            count, length = item
            remaining = items[count] if length else ""
            del items[count:]
            if isinstance(remaining, str) and remaining:
                items.append(_cut_utf16(remaining, length))
        elif isinstance(item, str) and items and isinstance(items[-1], str):
            items[-1] += item
        else:
            items.append(item)


def _cut_utf16(text: str, length: int) -> str:
    return text.encode("utf-16-le", "surrogatepass")[: 2 * length].decode("utf-16-le", "surrogatepass")


class _OpenCode:
    """A block of code that is neither indented nor closed yet. Its lines are final as they arrive."""

    def __init__(self, token: Token) -> None:
        self.language = _language(token)
        sign = re.escape(token.markup[0])
        self._end = re.compile(rf" {{0,3}}{sign}{{{len(token.markup)},}}[ \t]*")
        self._start_of_end = re.compile(rf" {{0,3}}{sign}*[ \t]*")
        self._pieces: list[str] = []  # the code that the viewer has
        self._line = ""  # the last line, as it was written so far
        self._shown = 0  # how much of it the viewer has

    @property
    def code(self) -> str:
        """What the viewer has."""
        return "".join(self._pieces)

    def add(self, text: str) -> tuple[str, str | None]:
        """More code, and the text after the end if it ends here."""
        *lines, last = (self._line + text).split("\n")
        new: list[str] = []
        for number, line in enumerate(lines):
            if self._end.fullmatch(line):
                return self._keep(new), "\n".join([*lines[number + 1 :], last])
            new.append(f"{line}\n"[self._shown :])
            self._shown = 0
        self._line = last
        if not self._start_of_end.fullmatch(last):
            new.append(last[self._shown :])
            self._shown = len(last)
        return self._keep(new), None

    def finish(self) -> str:
        """What is missing at the end of the text, where nothing closes it."""
        if not self._line.strip() or self._end.fullmatch(self._line):
            return ""
        return self._keep([self._line[self._shown :]])

    def _keep(self, pieces: list[str]) -> str:
        self._pieces += pieces
        return "".join(pieces)


class GrowingMarkdown:
    """A text that arrives in pieces.

    A block of CommonMark no longer changes once another one has begun, nor does an item of a list, nor a line of code.
    Everything before the last such place is *finished*, and is neither parsed nor compared again.
    """

    def __init__(self) -> None:
        self._rest = ""  # the text after the last finished place
        self._held = ""  # a carriage return whose line feed may follow
        self._references: dict[str, Any] = {}  # links that are defined so far
        self._notes: frozenset[str] = frozenset()
        self._finished = 0  # the number of finished items
        self._sent: list[Item] = []  # the items after them that the viewer has
        self._is_in_list = False  # the rest begins with an item of a list whose start is finished
        self._code: _OpenCode | None = None
        self._all: list[Item] = []  # what the viewer has
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def is_final(self) -> bool:
        """Whether the viewer has what the whole text is rendered as. It has not if something was used before it was
        defined: a link, or a footnote."""
        return tuple(self._all) == _whole_items(self.text)

    @property
    def _has_references(self) -> bool:
        """Whether something is defined that earlier blocks may refer to, so that they have to be rendered again."""
        return bool(self._references.get("references") or self._notes)

    def add(self, text: str) -> list[Item]:
        """Add a piece, and return the growth: the items to append, after a cut if some that were sent do not hold.

        A cut is a pair: how many items remain, and how much of the text after them.
        """
        self._pieces.append(text)
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return self._send(self._grow(_normalised(text.removesuffix("\r"))))

    def end(self) -> list[Item]:
        """The growth at the end of the text."""
        growth = self._grow(_normalised(self._held))
        if self._code is not None:
            return self._send(joined_growth(growth, self._close_code(self._code, self._code.finish())))
        return self._send(joined_growth(growth, self._advance(self._items(self._rest), [])))

    def _send(self, growth: list[Item]) -> list[Item]:
        grow(self._all, growth)
        return growth

    def _grow(self, text: str) -> list[Item]:
        growth: list[Item] = []
        if self._code is not None:
            new, after = self._code.add(text)
            if after is None:
                return [new] if new else []
            growth, text = self._close_code(self._code, new), after
        self._rest += text
        finished, fence = self._finish_blocks() if "\n" in text else ([], None)
        if fence is None:
            return joined_growth(growth, self._advance(finished, self._items(self._rest, is_open=True)))
        self._code = code = _OpenCode(fence)
        new, after = code.add(self._rest.partition("\n")[2])
        growth = joined_growth(growth, self._advance(finished, [*_code_start(code.language), *([new] if new else [])]))
        self._sent, self._rest = [], ""
        if after is None:
            return growth
        self._rest = after
        return joined_growth(joined_growth(growth, self._close_code(code, "")), self._grow(""))

    def _finish_blocks(self) -> tuple[list[Item], Token | None]:
        """The items up to the last block, or the last item of a list, which is all that remains of the text; and the
        token of that block if it is code."""
        whole_lines = self._rest[: self._rest.rfind("\n") + 1]  # the last line may turn out to begin something else
        lines = self._rest.split("\n")
        tokens = _PARSER.parse(whole_lines, self._references)
        self._notes |= _notes_in(whole_lines)
        cuts = _cuts(tokens, lines)
        open_formula = _find_open_formula(tokens, lines)
        if open_formula is not None and len(self._rest) < _MAX_OPEN_FORMULA:
            cuts = [start for start in cuts if start <= open_formula]
            tokens = []
        if not cuts:
            return [], None
        finished: list[Item] = []
        for start, end in pairwise(cuts):
            finished += self._items("\n".join(lines[start:end]) + "\n")
            self._is_in_list = False
        last = [token for token in tokens if token.map and token.map[0] >= cuts[-1]]
        places = [token.map[0] for token in last if token.type == "list_item_open" and token.level == 1 and token.map]
        if len(places) > 1:
            finished += self._items("\n".join(lines[cuts[-1] : places[-1]]) + "\n")[:-1]  # the list is still open
            self._is_in_list = True
            cuts.append(places[-1])
        self._rest = "\n".join(lines[cuts[-1] :])
        is_code = bool(last) and last[0].type == "fence" and not self._rest.startswith(" ")
        return finished, last[0] if is_code else None

    def _advance(self, finished: list[Item], items: Items) -> list[Item]:
        """The growth to these finished items, and to the open ones after them."""
        growth = self._replace([*finished, *items])
        if len(self._sent) < len(finished):
            growth = joined_growth(growth, finished[len(self._sent) :])
        self._finished += len(finished)
        self._sent = self._sent[len(finished) :]
        return growth

    def _items(self, text: str, *, is_open: bool = False) -> list[Item]:
        if self._has_references or _NOTE.match(text):
            items = _block_items(text, self._references, self._notes, is_open=is_open)
        else:
            items = list(_plain_items(text, is_open))
        return items[1:] if self._is_in_list else items

    def _replace(self, items: Items) -> list[Item]:
        """The growth from the items that were sent to these, except for the ends of elements that may still grow."""
        end = len(items)
        while end and (items[end - 1] == CLOSE or _is_colours(items[end - 1])):
            end -= 1
        sent, wanted = self._sent, list(items[:end])
        same = 0
        while same < min(len(sent), len(wanted)) and sent[same] == wanted[same]:
            same += 1
        self._sent = wanted
        if same == len(sent):
            return wanted[same:]
        old, new = sent[same], wanted[same] if same < len(wanted) else None
        common = _common_length(old, new) if isinstance(old, str) and isinstance(new, str) else 0
        more = wanted[same:]
        if common and isinstance(new, str):
            more = [*([new[common:]] if len(new) > common else []), *wanted[same + 1 :]]
            if same == len(sent) - 1 and old == new[:common]:
                return more
            common = utf16_length(new[:common])
        cut = (self._finished + same, common)
        return [cut, *more]

    def _close_code(self, code: _OpenCode, new: str) -> list[Item]:
        """The growth at the end of the code."""
        self._code = None
        text = code.code
        ends = [*_colours(text, code.language), CLOSE, CLOSE]
        self._finished += 2 + bool(text) + len(ends)
        return [*([new] if new else []), *ends]


def _find_open_formula(tokens: Iterable[Token], lines: Sequence[str]) -> int | None:
    """The line of the first text that may become a formula, once the end of that has arrived."""
    for token in tokens:
        if token.type == "paragraph_open" and token.level == 0 and token.map:
            starts = (line.lstrip().startswith(("$$", "\\[", "\\begin{")) for line in lines[slice(*token.map)])
            if any(starts):
                return token.map[0]
    return None


def _is_colours(item: Item) -> bool:
    return isinstance(item, tuple) and item[0] == COLOURS


def _common_length(one: str, two: str) -> int:
    length = min(len(one), len(two))
    while not one.startswith(two[:length]):
        length -= 1
    return length


def joined_growth(growth: list[Item], more: Items) -> list[Item]:
    """Two growths as one: text that follows text belongs to it."""
    if growth and more and isinstance(growth[-1], str) and isinstance(more[0], str):
        return [*growth[:-1], growth[-1] + more[0], *more[1:]]
    return [*growth, *more]
