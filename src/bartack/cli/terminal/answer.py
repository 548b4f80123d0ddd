"""`Answer`: the growing text of a model on its way to the terminal, each block printed once, when it is finished.

A fence is printed some lines at a time, so that one longer than the window is whole in the scrollback. Its colours
depend on what stands before them; only a fixed number of lines back is read, so the work stays linear.
"""

from bartack.cli.terminal.markdown_blocks import Block, BlockSplitter
from bartack.cli.terminal.printer import Printer
from bartack.cli.terminal.rendering import Line, highlighted, indented, lines_of, markdown, plain, unwrapped

__all__ = ["Answer"]

_AT_ONCE = 16  # lines of code that are coloured and printed together
_LOOK_BACK = 100  # lines of code before them that are read for the colours
_RENDERED = 4_000  # characters of an unfinished block that are rendered again and again; of more, only the end is shown


class Answer:
    """Text in, blocks to the printer; what is not finished can be looked at."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._splitter = BlockSplitter()
        self._fences = self._lists = 0
        self._language = ""
        self._before: list[str] = []  # code that is printed
        self._code: list[str] = []  # code that is not
        self._looked_at: tuple[Block, int, int] | None = None
        self._looks: list[Line] = []

    def feed(self, text: str) -> None:
        """The model says more."""
        for block in self._splitter.feed(text):
            self._print(block)

    def finish(self) -> None:
        """It says no more: the rest is printed."""
        for block in self._splitter.finish():
            self._print(block)
        self._print_code()

    def unfinished(self) -> list[Line]:
        """The last block as it looks now, with the blank line before it."""
        block = self._splitter.unfinished
        looked_at = (block, len(self._code), self._printer.console.width)
        if looked_at != self._looked_at:  # clocks move more often than the text grows
            self._looked_at, self._looks = looked_at, self._rendered(block)
        return self._printer.apart(self._looks, self._kind(block))

    def _rendered(self, block: Block) -> list[Line]:
        console = self._printer.console
        if block.kind == "code":
            return self._code_lines([*self._code, block.code] if block.code else self._code)
        if not block.text.strip():
            return []
        if len(block.text) > _RENDERED:
            return lines_of(console, plain(block.text[-_RENDERED:]))
        return markdown(console, block.text, number=block.number)

    def _kind(self, block: Block) -> str:
        """What the printer keeps together: the items of a list, the lines of a fence."""
        if block.kind == "code":
            return f"code {self._fences}"
        return f"list {self._lists + block.is_new_list}" if block.kind == "item" else "text"

    def _print(self, block: Block) -> None:
        console = self._printer.console
        match block.kind:
            case "text" | "item":
                kind = self._kind(block)
                self._lists += block.is_new_list
                self._printer.put(markdown(console, block.text, number=block.number), kind)
            case "fence":
                self._fences += 1
                self._language, self._before = block.code, []
            case "code":
                self._code.append(block.code)
                if len(self._code) >= _AT_ONCE:
                    self._print_code()
            case "fence_end":
                self._print_code()
            case "space":
                pass

    def _print_code(self) -> None:
        lines = self._code_lines(self._code)
        self._before = [*self._before, *self._code][-_LOOK_BACK:]
        self._code = []
        self._printer.put(lines, f"code {self._fences}")

    def _code_lines(self, code: list[str]) -> list[Line]:
        colours = highlighted(code, self._language, after=self._before) if code else []
        return indented(unwrapped(self._printer.console, colours))
