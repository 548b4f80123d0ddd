"""`MarkdownStream`: growing Markdown on its way to the terminal, each block printed once, when it is finished.

A code block is printed some lines at a time, so that one longer than the window is complete in the scrollback. Its
highlighting depends on the lines before; only a fixed number of them is considered, so the work stays linear.
"""

from bartack_code.terminal.live_area import Printer
from bartack_code.terminal.markdown_blocks import Block, BlockSplitter
from bartack_code.terminal.rendering import Line, highlighted, indented, lines_of, markdown, plain, unwrapped

_CODE_LINES = 16  # highlighted and printed together
_LOOK_BACK = 100  # lines of code before them, considered for highlighting
_RENDERED = 4_000  # characters of an unfinished block that are rendered repeatedly; of a longer one only the end


class MarkdownStream:
    """Text in, finished blocks to the printer."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._splitter = BlockSplitter()
        self._fences = self._lists = 0
        self._language = ""
        self._printed_code: list[str] = []
        self._code: list[str] = []  # not printed yet
        self._preview_key: tuple[Block, int, int] | None = None
        self._preview: list[Line] = []

    def feed(self, text: str) -> None:
        """Add text, and print the blocks that it finishes."""
        for block in self._splitter.feed(text):
            self._print(block)

    def finish(self) -> None:
        """Print the rest."""
        for block in self._splitter.finish():
            self._print(block)
        self._print_code()

    def unfinished(self) -> list[Line]:
        """A preview of the unfinished block, with the blank line before it."""
        block = self._splitter.unfinished
        key = (block, len(self._code), self._printer.console.width)
        if key != self._preview_key:  # this is called more often than the text grows
            self._preview_key, self._preview = key, self._rendered(block)
        return self._printer.spaced(self._preview, self._kind(block))

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
        """The kind for the printer, which keeps the items of a list and the lines of a code block together."""
        if block.kind == "code":
            return f"code {self._fences}"
        return f"list {self._lists + block.is_new_list}" if block.kind == "item" else "text"

    def _print(self, block: Block) -> None:
        match block.kind:
            case "text" | "item":
                kind = self._kind(block)
                self._lists += block.is_new_list
                self._printer.put(markdown(self._printer.console, block.text, number=block.number), kind)
            case "fence":
                self._fences += 1
                self._language, self._printed_code = block.code, []
            case "code":
                self._code.append(block.code)
                if len(self._code) >= _CODE_LINES:
                    self._print_code()
            case "fence_end":
                self._print_code()
            case "space":
                pass

    def _print_code(self) -> None:
        lines = self._code_lines(self._code)
        self._printed_code = [*self._printed_code, *self._code][-_LOOK_BACK:]
        self._code = []
        self._printer.put(lines, f"code {self._fences}")

    def _code_lines(self, code: list[str]) -> list[Line]:
        texts = highlighted(self._printer.console, code, self._language, preceding=self._printed_code) if code else []
        return indented(unwrapped(self._printer.console, texts))
