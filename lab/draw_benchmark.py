"""Draw docs/pictures/benchmark.svg from bench/results/peers.json, which `make lab NAME=peers` writes.

    python -m lab.draw_benchmark            # write it
    python -m lab.draw_benchmark --check    # exit with status 1 if it is out of date

One bar for each library: CPU microseconds per event of a stream of text over loopback HTTP. A library that can be used
in several ways is drawn in its cheapest one.
"""

import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "bench" / "results" / "peers.json"
PICTURE = ROOT / "docs" / "pictures" / "benchmark.svg"

FORMATS = ("chat", "messages", "responses")
WIDTH, LEFT, RIGHT, BAR, GAP, TITLE = 760, 130, 130, 16, 8, 58


def main(words: list[str]) -> int:
    drawn = picture(json.loads(RESULT.read_text(encoding="utf-8")))
    if words == ["--check"]:
        if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawn:
            return 0
        print(f"{PICTURE.relative_to(ROOT)} is not current; make docs draws it", file=sys.stderr)
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


def cheapest(streams: list[dict[str, Any]], format: str) -> dict[str, float]:
    """The CPU microseconds per text event of each library that supports the format, fastest first."""
    costs: dict[str, float] = {}
    for row in streams:
        if row["format"] == format and row["content"] == "text" and row.get("microseconds") is not None:
            costs[row["peer"]] = min(row["microseconds"], costs.get(row["peer"], row["microseconds"]))
    return dict(sorted(costs.items(), key=lambda item: item[1]))


def picture(result: dict[str, Any]) -> str:
    """The whole picture as SVG, readable on light and dark pages."""
    groups = {format: cheapest(result["streams"], format) for format in FORMATS}
    longest = max(value for bars in groups.values() for value in bars.values())
    scale = (WIDTH - LEFT - RIGHT) / longest
    pieces: list[str] = []
    y = TITLE
    for format, bars in groups.items():
        pieces.append(text(16, y + 4, f"{format} stream", weight="bold"))
        y += 16
        for name, value in bars.items():
            own = bars["bartack"]
            pieces.append(
                text(LEFT - 8, y + BAR - 4, name, anchor="end", weight="bold" if name == "bartack" else "normal")
            )
            colour = "#0f8a6a" if name == "bartack" else "#9aa4b2"
            pieces.append(
                f'<rect x="{LEFT}" y="{y}" width="{max(2.0, value * scale):.1f}" height="{BAR}" fill="{colour}"/>'
            )
            label = f"{value:.1f} µs" if name == "bartack" else f"{value:.0f} µs, {value / own:.0f} times"
            pieces.append(text(LEFT + value * scale + 6, y + BAR - 4, label))
            y += BAR + GAP
        y += 14
    machine = result["machine"]
    foot = f"{machine['kind']}, Python {machine['python']}, {result['date']}; make lab NAME=peers measures it again"
    pieces.append(text(16, y + 4, foot, colour="#57606a", size=11))
    body = "\n".join(pieces)
    head = text(16, 26, "CPU time per streamed event, from HTTP bytes to a typed message", weight="bold", size=15)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 20}" width="{WIDTH}" '
        'font-family="system-ui, sans-serif">\n'
        f'<rect width="{WIDTH}" height="{y + 20}" rx="8" fill="#ffffff" stroke="#d0d7de"/>\n{head}\n{body}\n</svg>\n'
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = "#1f2328",
    size: int = 12,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" '
        f'fill="{colour}">{escape(words)}</text>'
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
