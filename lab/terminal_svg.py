"""Screens of a terminal as SVG: one of them, or several that follow each other like a film.

In: the text of screens with escape sequences, as ``tmux capture-pane -e`` gives it. Out: an SVG without web fonts and
scripts. A film is animated by its style sheet, so that it also plays as a picture in a README; for readers who prefer
less motion it shows its last screen.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

__all__ = ["Shot", "as_png", "film", "still"]

_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
_TEMPLATE = _FONTS.sub("", CONSOLE_SVG_FORMAT)
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Shot(NamedTuple):
    """One screen of a film, and how long it is shown."""

    ansi: str
    seconds: float


def still(ansi: str, *, columns: int, title: str, name: str = "bartack", rows: int | None = None) -> str:
    """One screen, without the empty lines at its end, or with this number of rows. `name` is unique in a document."""
    lines = ansi.rstrip().splitlines()
    while lines and not Text.from_ansi(lines[-1]).plain.strip():
        lines.pop()
    lines += [""] * ((rows or 0) - len(lines))
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=True)
    return console.export_svg(title=title, theme=MONOKAI, code_format=_TEMPLATE, unique_id=name)


def film(shots: Sequence[Shot], *, columns: int, rows: int, title: str) -> str:
    """The screens one after the other, again and again."""
    frames = [
        still(shot.ansi, columns=columns, rows=rows, title=title, name=f"shot{number}")
        for number, shot in enumerate(shots)
    ]
    size_match = _SIZE.search(frames[0])
    assert size_match is not None  # the template has it
    total = sum(shot.seconds for shot in shots)
    rules, begin = [], 0.0
    for number, shot in enumerate(shots):
        end = begin + shot.seconds
        rules.append(_rule(number, begin / total * 100, end / total * 100, total))
        begin = end
    last = len(shots) - 1
    calm = f"@media (prefers-reduced-motion) {{ .shot {{ animation: none !important }} .shot{last} {{ opacity: 1 }} }}"
    style = "\n".join([".shot { opacity: 0 }", *rules, calm])
    body = "\n".join(f'<g class="shot shot{number}">{frame}</g>' for number, frame in enumerate(frames))
    size = f'viewBox="0 0 {size_match[1]} {size_match[2]}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>\n{style}\n</style>\n{body}\n</svg>\n'


def _rule(number: int, begin: float, end: float, total: float) -> str:
    """When a screen is seen, in percent of the film."""
    beginning = f"0%, {begin - 0.01:.2f}% {{ opacity: 0 }} " if begin else ""
    ending = "" if end > 99.99 else f" {end + 0.01:.2f}%, 100% {{ opacity: 0 }}"
    frames = f"{beginning}{begin:.2f}%, {end:.2f}% {{ opacity: 1 }}{ending}"
    return f"@keyframes shot{number} {{ {frames} }} .shot{number} {{ animation: shot{number} {total:.1f}s infinite }}"


def as_png(svg: Path, png: Path) -> None:
    """The picture as a PNG, drawn by Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed")
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={png}", "--window-size=1150,800"]
    subprocess.run([chromium, *words, str(svg)], check=True, capture_output=True)
