"""A minimal terminal emulator that accepts only the sequences a screen may send."""

import re
import unicodedata

from rich.cells import cell_len

TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\s\S])")


class Emulator:
    """The rows of a window and its scrollback."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._rows = [""]
        self._row = self._column = 0

    def write(self, text: str) -> None:
        for found in TOKEN.finditer(text):
            number, letter, sign = found.groups()
            match letter or sign:
                case "A" if letter:
                    top = max(len(self._rows) - self._height, 0)
                    self._row = max(self._row - int(number or 1), top)
                case "K" if letter and number == "2":
                    self._rows[self._row] = ""
                case "m" | "h" | "l" if letter:
                    pass
                case "\r":
                    self._column = 0
                case "\n":
                    self._down()
                case _:
                    assert sign is not None, found[0]
                    assert unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp"), repr(sign)
                    self._put(sign)

    def lines(self) -> list[str]:
        """All rows including the scrollback, without trailing blanks."""
        return "\n".join(row.rstrip() for row in self._rows).rstrip().split("\n")

    def _put(self, sign: str) -> None:
        if self._column + cell_len(sign) > self._width:
            self._down()
        row = self._rows[self._row]
        assert cell_len(row) <= self._column, "overwrote existing text"
        self._rows[self._row] = row + " " * (self._column - cell_len(row)) + sign
        self._column += cell_len(sign)

    def _down(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._rows):
            self._rows.append("")
