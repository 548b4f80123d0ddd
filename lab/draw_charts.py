"""Draw two charts in docs/pictures: what a streamed event costs, and the spans of a run.

python -m lab.draw_charts benchmark          # benchmark.svg
python -m lab.draw_charts trace [--appends]  # trace.svg
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from bartack import Entry
from bartack.nouns.entries import RunStarted, ToolStarted
from bartack.store import open_store
from lab.repository import ROOT
from tests.telemetry.collector import attributes_of, collector
from tests.telemetry.story import SESSION, run_story

PICTURES = ROOT / "docs" / "pictures"
INK, PALE, RED = "#1f2328", "#57606a", "#c9372c"


def main(words: list[str]) -> int:
    match words:
        case ["benchmark"]:
            results = json.loads((ROOT / "bench" / "results" / "peers.json").read_text(encoding="utf-8"))
            svg = benchmark_picture(results)
        case ["trace", *options]:
            svg = trace_picture(killed_and_resumed(with_appends="--appends" in options))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    (PICTURES / f"{words[0]}.svg").write_text(svg, encoding="utf-8")
    return 0


def svg_page(width: int, height: float, pieces: list[str]) -> str:
    """A picture that is readable on light and dark pages."""
    body = "\n".join(pieces)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" '
        'font-family="system-ui, sans-serif">\n'
        f'<rect width="{width}" height="{height:.0f}" rx="8" fill="#ffffff" stroke="#d0d7de"/>\n{body}\n</svg>\n'
    )


def text(
    x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal", colour: str = INK, size: int = 12
) -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'


# -- the benchmark
#
# From bench/results/peers.json, which `make lab NAME=peers` writes. One bar for each library: CPU microseconds per
# event of a stream of text over loopback HTTP. A library that can be used in several ways is drawn in its cheapest one.

FORMATS = ("chat", "messages", "responses")


def cheapest(streams: list[dict[str, Any]], format: str) -> dict[str, float]:
    """The CPU microseconds per text event of each library that supports the format, fastest first."""
    costs: dict[str, float] = {}
    for row in streams:
        if row["format"] == format and row["content"] == "text" and row.get("microseconds") is not None:
            costs[row["peer"]] = min(row["microseconds"], costs.get(row["peer"], row["microseconds"]))
    return dict(sorted(costs.items(), key=lambda item: item[1]))


def benchmark_picture(result: dict[str, Any]) -> str:
    """The whole picture."""
    width, left, right, bar, gap, y = 760, 130, 130, 16, 8, 58
    groups = {format: cheapest(result["streams"], format) for format in FORMATS}
    longest = max(value for bars in groups.values() for value in bars.values())
    scale = (width - left - right) / longest
    pieces: list[str] = []
    for format, bars in groups.items():
        pieces.append(text(16, y + 4, f"{format} stream", weight="bold"))
        y += 16
        for name, value in bars.items():
            own = bars["bartack"]
            pieces.append(
                text(left - 8, y + bar - 4, name, anchor="end", weight="bold" if name == "bartack" else "normal")
            )
            colour = "#0f8a6a" if name == "bartack" else "#9aa4b2"
            pieces.append(
                f'<rect x="{left}" y="{y}" width="{max(2.0, value * scale):.1f}" height="{bar}" fill="{colour}"/>'
            )
            label = f"{value:.1f} µs" if name == "bartack" else f"{value:.0f} µs, {value / own:.0f} times"
            pieces.append(text(left + value * scale + 6, y + bar - 4, label))
            y += bar + gap
        y += 14
    machine = result["machine"]
    foot = f"{machine['kind']}, Python {machine['python']}, {result['date']}; make lab NAME=peers measures it again"
    pieces.append(text(16, y + 4, foot, colour=PALE, size=11))
    head = text(16, 26, "CPU time per streamed event, from HTTP bytes to a typed message", weight="bold", size=15)
    return svg_page(width, y + 20, [head, *pieces])


# -- the trace
#
# A real run that is killed in the middle and resumed by another process. `tests/telemetry/story.py` makes the run, and
# the spans are those that arrive at a collector. The two spans that the killed process never ended are known from what
# they left behind: the session contains the ids of the run's span, and the append of `tool_started` names the span of
# the tool call as its parent. They are drawn as open bars.

WIDTH, LEFT, RIGHT, ROW, BAR, TOP = 860, 250, 96, 21, 13, 74
COLOURS = {  # first word of a name -> colour
    "invoke_agent": "#5b6cc9",
    "chat": "#0f8a6a",
    "execute_tool": "#b7791f",
    "wait_for_approval": "#8a63b8",
    "append": "#9aa4b2",
}


class Bar(NamedTuple):
    """One span, as it is drawn."""

    name: str
    depth: int
    start: float  # seconds since the first one
    end: float
    error: str | None
    is_open: bool  # its process was killed before it ended


class Process(NamedTuple):
    """The bars of one process, with a title."""

    title: str
    bars: list[Bar]


def killed_and_resumed(*, with_appends: bool) -> list[Process]:
    """The spans of the run, by process."""
    with tempfile.TemporaryDirectory() as folder, collector() as receiver:
        run_story(Path(folder), receiver)
        entries = asyncio.run(stored_entries(Path(folder)))
        spans = [span for span in receiver.spans if span.name != "append" or with_appends]
        appends = [span for span in receiver.spans if span.name == "append"]
    return processes(spans, appends, entries)


async def stored_entries(folder: Path) -> list[Entry]:
    """The session of the run."""
    store = await open_store(f"sqlite:{folder / 'sessions.db'}")
    try:
        return list(await store.load(SESSION))
    finally:
        await store.close()


def processes(spans: list[Span], appends: list[Span], entries: list[Entry]) -> list[Process]:
    """What each of the two processes did."""
    first, second = [entry.fact for entry in entries if isinstance(entry.fact, RunStarted)]
    killed = [span for span in spans if span.trace_id.hex() == first.trace_id]
    resumed = [span for span in spans if span.trace_id.hex() == second.trace_id]
    unfinished = list(open_spans(killed, appends, entries, str(first.span_id)))
    end = max(span.end_time_unix_nano for span in (*killed, *appends) if span.trace_id.hex() == first.trace_id)
    for span in unfinished:
        span.end_time_unix_nano = end + 40_000_000  # it was killed a moment after its last append
    opened = {span.span_id for span in unfinished}
    begin = min(span.start_time_unix_nano for span in unfinished)
    again = min(span.start_time_unix_nano for span in resumed)
    return [
        Process("first process, killed with kill -9", list(bars([*unfinished, *killed], begin, opened))),
        Process("second process: agent.resume(), linked to the first", list(bars(resumed, again, set()))),
    ]


def open_spans(killed: list[Span], appends: list[Span], entries: list[Entry], run: str) -> Iterator[Span]:
    """The spans of the run and of the tool call that were open when the process was killed."""
    ended_ids = {span.span_id.hex() for span in killed}
    own = [span for span in appends if span.trace_id == killed[0].trace_id]
    parents = {span.parent_span_id.hex(): span.start_time_unix_nano for span in reversed(own)}
    tool = next(entry.fact for entry in reversed(entries) if isinstance(entry.fact, ToolStarted)
                and entry.fact.tool_name == "book")  # fmt: skip
    for span_id, start in sorted(parents.items(), key=lambda item: item[1]):
        if span_id not in ended_ids:
            is_run = span_id == run
            name = "invoke_agent guide" if is_run else f"execute_tool {tool.tool_name}"
            parent = b"" if is_run else bytes.fromhex(run)
            yield Span(name=name, span_id=bytes.fromhex(span_id), parent_span_id=parent, start_time_unix_nano=start)


def bars(spans: list[Span], begin: int, opened: set[bytes], parent: bytes = b"", depth: int = 0) -> Iterator[Bar]:
    """The spans below one, each followed by those below it."""
    own = [span for span in spans if span.parent_span_id == parent]
    for span in sorted(own, key=lambda span: span.start_time_unix_nano):
        start, end = ((moment - begin) / 1e9 for moment in (span.start_time_unix_nano, span.end_time_unix_nano))
        yield Bar(span.name, depth, start, end, attributes_of(span).get("error.type"), span.span_id in opened)
        yield from bars(spans, begin, opened, span.span_id, depth + 1)


def trace_picture(processes: list[Process]) -> str:
    """The whole picture."""
    longest = max(bar.end for process in processes for bar in process.bars)
    scale = (WIDTH - LEFT - RIGHT) / longest
    pieces = [text(16, 26, "A run that is killed and resumed, as its spans show it", weight="bold", size=15)]
    y = float(TOP)
    for process in processes:
        pieces.append(text(16, y - 12, process.title, colour=PALE))
        for bar in process.bars:
            pieces += drawn(bar, y, scale)
            y += ROW
        y += 34
    pieces.append(text(16, y - 18, "drawn by lab/draw_charts.py from the spans of a real run", colour=PALE, size=11))
    return svg_page(WIDTH, y - 4, pieces)


def drawn(bar: Bar, y: float, scale: float) -> list[str]:
    """One row: the name, the bar, and how long it took or how it ended."""
    kind = bar.name.partition(" ")[0]
    x, width = LEFT + bar.start * scale, max(3.0, (bar.end - bar.start) * scale)
    colour = RED if bar.error else COLOURS.get(kind, PALE)
    style = f'fill="{colour}"'
    if bar.is_open:
        style = f'fill="{colour}" fill-opacity="0.18" stroke="{colour}" stroke-dasharray="4 3"'
    label = bar.error or ("killed" if bar.is_open else f"{(bar.end - bar.start) * 1000:.0f} ms")
    label_colour = RED if bar.error or bar.is_open else PALE
    return [
        text(16 + 14 * bar.depth, y + BAR - 2, bar.name, weight="bold" if kind == "invoke_agent" else "normal"),
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" rx="2" {style}/>',
        text(x + width + 6, y + BAR - 2, label, colour=label_colour, size=11),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
