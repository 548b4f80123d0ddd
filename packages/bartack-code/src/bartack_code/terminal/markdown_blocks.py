"""Growing Markdown in, finished blocks out, so that each block is rendered once.

    splitter = BlockSplitter()
    for piece in ("# Ti", "tle\nSome", " text\n\nmore"):
        for block in splitter.feed(piece):
            ...                 # Block('text', '# Title\n'), then Block('text', 'Some text\n\n')
    splitter.rest               # 'more'
    splitter.finish()           # [Block('text', 'more')]

It reads whole lines, and of CommonMark only where blocks end: at a blank line, before a heading, fence, list item,
quote or rule. A list is split into items and a fence into lines, so that long ones can be printed as they grow.
Tables and quotes end like paragraphs. The texts of the blocks add up to the input; how the input was cut into pieces
makes no difference; each character is examined a constant number of times.
"""

import re
from typing import Literal

from msgspec import Struct

BlockKind = Literal["text", "item", "fence", "code", "fence_end", "space"]

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_QUOTE = re.compile(r" {0,3}>")
_ITEM = re.compile(r"( {0,3})([-*+]|(\d{1,9})([.)]))(?:([ \t]+)|$)")


class Block(Struct, frozen=True):
    """A finished block.

    An `item` is one item of a list, with its `number` if the list is ordered. A fence gives a `fence` for its first
    line, a `code` for each line inside (without the indentation of the fence) and a `fence_end`. `space` is blank.
    """

    kind: BlockKind
    text: str
    number: int | None = None
    is_new_list: bool = False  # an item starts another list
    code: str = ""  # the line of code; the language, if it is a fence


class _Fence:
    """An open fence."""

    def __init__(self, line: str, match: "re.Match[str]") -> None:
        self.language = (match[2].split() or [""])[0]
        self._mark = match[1]
        self._indent = len(line) - len(line.lstrip(" "))

    def is_end(self, line: str) -> bool:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        return indent < 4 and set(stripped) == {self._mark[0]} and len(stripped) >= len(self._mark)

    def code(self, line: str) -> str:
        spaces = len(line) - len(line.lstrip(" "))
        return line[min(spaces, self._indent) :]


class _Item:
    """An open list item."""

    def __init__(self, match: "re.Match[str]", before: "_Item | None") -> None:
        self.had_blank = False  # its last line so far is blank
        self.marker = match[4] or match[2]
        spaces = len(match[5] or " ")
        self.content = match.end(2) + (spaces if spaces < 5 else 1)  # the column where its content starts
        self.number = None if match[3] is None else int(match[3])
        continues = before is not None and before.marker == self.marker
        if before is not None and before.number is not None and continues:
            self.number = before.number + 1  # a list numbers its items itself, whatever is written
        self.is_new_list = before is None or (before.had_blank and not continues)
        self.fence: _Fence | None = None

    def read(self, line: str) -> None:
        """Track fences inside, where a blank line ends nothing."""
        inner = line[self.content :]
        if self.fence is not None:
            self.fence = None if self.fence.is_end(inner) else self.fence
        elif match := _FENCE.match(inner):
            self.fence = _Fence(inner, match)


class BlockSplitter:
    """Takes text in pieces and returns blocks as they are completed."""

    def __init__(self) -> None:
        self._partial: list[str] = []  # the pieces of the incomplete line
        self._lines: list[str] = []  # the unfinished block
        self._fence: _Fence | None = None
        self._item: _Item | None = None
        self._last_item: _Item | None = None
        self._is_quote = False
        self._blocks: list[Block] = []

    @property
    def rest(self) -> str:
        """The text that does not belong to a finished block yet."""
        self._partial = ["".join(self._partial)]
        return "".join(self._lines) + self._partial[0]

    @property
    def unfinished(self) -> Block:
        """The rest as the block it would be if the text ended here; inside a fence, the incomplete line."""
        if self._fence is not None:
            return Block("code", self.rest, code=self._fence.code(self.rest))
        if self._item is not None:
            return Block("item", self.rest, number=self._item.number, is_new_list=self._item.is_new_list)
        return Block("text", self.rest)

    def feed(self, text: str) -> list[Block]:
        """Add text and return the blocks that it completes."""
        *completed_lines, partial = text.split("\n")
        for line in completed_lines:
            self._partial.append(line)
            self._line("".join(self._partial) + "\n")
            self._partial = []
        if partial:
            self._partial.append(partial)
        return self._take()

    def finish(self) -> list[Block]:
        """End the text and return the rest as blocks."""
        partial = "".join(self._partial)
        self._partial = []
        if partial:
            self._line(partial)
        self._end()
        self._fence = self._last_item = None
        return self._take()

    def _take(self) -> list[Block]:
        blocks, self._blocks = self._blocks, []
        return blocks

    def _line(self, line: str) -> None:
        bare = line.rstrip("\r\n")
        if self._fence is not None:
            self._in_fence(line, bare)
        elif self._item is not None:
            self._in_item(line, bare)
        elif not bare.strip():
            self._blank(line)
        elif self._lines:
            self._in_paragraph(line, bare)
        else:
            self._start(line, bare)

    def _in_fence(self, line: str, bare: str) -> None:
        assert self._fence is not None
        if self._fence.is_end(bare):
            self._fence = None
            self._blocks.append(Block("fence_end", line))
        else:
            self._blocks.append(Block("code", line, code=self._fence.code(bare)))

    def _in_item(self, line: str, bare: str) -> None:
        item = self._item
        assert item is not None
        indent = len(bare) - len(bare.lstrip(" "))
        if not bare.strip():
            item.had_blank = item.had_blank or item.fence is None
            self._lines.append(line)
        elif indent >= item.content or bare.startswith("\t"):
            item.had_blank = False
            item.read(bare)
            self._lines.append(line)
        elif item.fence is not None or item.had_blank or _starts_block(bare) or _ITEM.match(bare):
            self._end()
            self._start(line, bare)
        else:
            self._lines.append(line)  # a paragraph continues, although not indented

    def _blank(self, line: str) -> None:
        if self._lines:
            self._lines.append(line)
            self._end()
        else:
            self._blocks.append(Block("space", line))

    def _in_paragraph(self, line: str, bare: str) -> None:
        item = _ITEM.match(bare)
        interrupts = item is not None and item[5] is not None and item[3] in (None, "1")
        starts_quote = _QUOTE.match(bare) is not None and not self._is_quote
        if _UNDERLINE.match(bare) and not self._is_quote:
            self._lines.append(line)
            self._end()
        elif _starts_block(bare) or interrupts or starts_quote:
            self._end()
            self._start(line, bare)
        else:
            self._lines.append(line)

    def _start(self, line: str, bare: str) -> None:
        if match := _FENCE.match(bare):
            self._fence = _Fence(bare, match)
            self._last_item = None
            self._blocks.append(Block("fence", line, code=self._fence.language))
            return
        self._lines.append(line)
        if _HEADING.match(bare) or _RULE.match(bare):
            self._end()
        elif match := _ITEM.match(bare):
            self._item = _Item(match, self._last_item)
            self._item.read(bare)
        else:
            self._is_quote = _QUOTE.match(bare) is not None

    def _end(self) -> None:
        """Finish the open block."""
        text = "".join(self._lines)
        if self._item is not None:
            item = self._item
            self._blocks.append(Block("item", text, number=item.number, is_new_list=item.is_new_list))
        elif text:
            self._blocks.append(Block("text", text))
        self._last_item, self._item = self._item, None
        self._lines = []
        self._is_quote = False


def _starts_block(bare: str) -> bool:
    return any(pattern.match(bare) for pattern in (_FENCE, _HEADING, _RULE))
