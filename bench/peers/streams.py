"""CPU per event of each peer reading the same streams from the same server, and the table of the results."""

import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench._streams import ARGS, PIECE
from bench.peers.environments import BARTACK, CannotRun, run
from bench.stream import EVENTS, serve

ROUNDS = 5
FORMATS = ("chat", "messages", "responses")
CONTENTS = ("text", "arguments")
CASES = [(name, content) for name in FORMATS for content in CONTENTS]

SDK, FRAMEWORK = 5, 30  # targets: Bartack uses this many times less CPU than an SDK, and than a framework


class StreamPeer(NamedTuple):
    name: str
    target: int
    packages: tuple[str, ...]


PEERS = (
    StreamPeer("openai", SDK, ("openai",)),
    StreamPeer("anthropic", SDK, ("anthropic",)),
    StreamPeer("pydantic-ai", FRAMEWORK, ("pydantic-ai-slim", "openai", "anthropic")),
    StreamPeer("langchain", FRAMEWORK, ("langchain-core", "langchain-openai", "langchain-anthropic")),
    StreamPeer("litellm", FRAMEWORK, ("litellm", "openai")),
    StreamPeer("strands", FRAMEWORK, ("strands-agents", "openai", "anthropic")),
)

Result = dict[str, Any]


def measured(names: set[str]) -> list[Result]:
    """A result for each case of Bartack and of these peers: microseconds and ratio, or the error.

    Other load on the machine varies over time. Bartack is therefore measured before and after each peer, and the peer's
    ratio is relative to the mean of the two.
    """
    results: list[Result] = []
    with _server() as address:
        runs = [_bartack(address)]
        for peer in (peer for peer in PEERS if peer.name in names):
            peer_results = _results(peer.name, address)
            runs.append(_bartack(address))
            for result in peer_results:
                result["target"] = peer.target
                if "microseconds" in result:
                    ours = [_micros(run, result) for run in runs[-2:]]
                    result["ratio"] = round(result["microseconds"] / (sum(ours) / len(ours)), 1)
            results += peer_results
    best = [min(cases, key=lambda case: float(case["microseconds"])) for cases in zip(*runs, strict=True)]
    return [{**case, "ratio": 1.0} for case in best] + results


def _bartack(address: str) -> list[Result]:
    results = _results(BARTACK, address)
    if faults := [result["fault"] for result in results if "fault" in result]:
        raise CannotRun(f"Bartack itself: {faults[0]}")
    return results


def _micros(run: list[Result], case: Result) -> float:
    same = (result for result in run if (result["format"], result["content"]) == (case["format"], case["content"]))
    return float(next(same)["microseconds"])


def _results(name: str, address: str) -> list[Result]:
    try:
        lines = run(name, "stream", address, EVENTS, ROUNDS)
    except CannotRun as fault:
        return [{"peer": name, "way": "", "fault": str(fault)}]
    return [{"peer": name, **_checked(json.loads(line))} for line in lines]


def _checked(line: Result) -> Result:
    """A runner's line with the best round; lost content is an error, however fast the runner was."""
    characters, costs = line.pop("characters", None), line.pop("cpu_seconds", [])
    first, middle, last = (len(piece) for piece in ARGS)
    events = line["events"]
    whole = {"text": len(PIECE) * events, "arguments": first + middle * (events - 2) + last}[line["content"]]
    if "fault" in line:
        return line
    if characters != whole:
        return line | {"fault": f"received {characters} of {whole} characters"}
    rounds = [round(cost / events * 1e6, 2) for cost in costs]
    return line | {"microseconds": min(rounds), "rounds": rounds}


@contextmanager
def _server() -> Iterator[str]:
    near, far = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(far,), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{near.recv()}"
    finally:
        server.terminate()
        server.join()


# -- the table


def table(results: list[Result]) -> str:
    """One line for each API of each peer: microseconds per event and, in brackets, the multiple of Bartack's."""
    rows: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for result in results:
        cells = rows.setdefault((result["peer"], result["way"]), {})
        if "format" in result:
            cells[result["format"], result["content"]] = _cell(result)
    heads = [f"{name} {content}" for name, content in CASES]
    lines = [f"{'':32}" + "".join(f"{head:>20}" for head in heads)]
    for (peer, way), cells in rows.items():
        columns = [cells.get(case, "-") for case in CASES] if cells else [" could not be run"]
        lines.append(f"{f'{peer} {way}':32}" + "".join(f"{cell:>20}" for cell in columns))
    return "\n".join(lines)


def _cell(result: Result) -> str:
    return "failed" if "fault" in result else f"{result['microseconds']:.1f} ({result['ratio']:.0f}x)"


def verdicts(results: list[Result]) -> Iterator[str]:
    """The number of cases that reached the target, then each case that missed it and each that failed."""
    judged = [result for result in results if "ratio" in result and result["peer"] != BARTACK]
    for target, kind in ((SDK, "SDK"), (FRAMEWORK, "framework")):
        cases = [result for result in judged if result["target"] == target]
        missed = [result for result in cases if result["ratio"] < target]
        yield f"{target} times less CPU than each {kind}: reached in {len(cases) - len(missed)} of {len(cases)} cases"
        for result in missed:
            yield f"  not reached: {_name(result)}: {result['ratio']:.1f} times"
    for result in results:
        if "fault" in result:
            yield f"  failed: {_name(result)}: {result['fault']}"


def _name(result: Result) -> str:
    return " ".join(filter(None, (result["peer"], result["way"], result.get("format"), result.get("content"))))
