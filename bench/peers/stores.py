"""One long conversation stored by each peer: time, CPU and bytes on disk, and the table of the results."""

import json
import shutil
from typing import Any, NamedTuple

from bench.peers.environments import BARTACK, HOME, CannotRun, run

TURNS = 1000
ROUNDS = 3  # the best counts: other processes may be using the disk
ENOUGH_SECONDS = 20.0  # a store this slow needs no further rounds


class StorePeer(NamedTuple):
    name: str
    packages: tuple[str, ...]


PEERS = (
    StorePeer("langgraph", ("langgraph", "langgraph-checkpoint-sqlite")),
    StorePeer("openai-agents", ("openai-agents",)),
    StorePeer("strands", ("strands-agents",)),
)
# field of a result, head of its column, how to show it
COLUMNS = (
    ("write_seconds", "written in s", "{:.2f}"),
    ("write_cpu_seconds", "CPU s", "{:.2f}"),
    ("read_cpu_seconds", "read, CPU s", "{:.3f}"),
    ("megabytes", "MB on disk", "{:.1f}"),
)

Result = dict[str, Any]


def measured(names: set[str]) -> list[Result]:
    """The result, or the error, of Bartack and of each of these peers that stores conversations."""
    results = [_result(name) for name in (BARTACK, *(peer.name for peer in PEERS if peer.name in names))]
    bartack = results[0]
    for result in results:
        if "fault" not in result and "fault" not in bartack:
            result["ratio"] = {field: round(result[field] / bartack[field], 1) for field, _, _ in COLUMNS}
    return results


def _result(name: str) -> Result:
    rounds: list[Result] = []
    try:
        while len(rounds) < ROUNDS and sum(result["write_seconds"] for result in rounds) < ENOUGH_SECONDS:
            rounds.append(_round(name))
    except CannotRun as fault:
        return {"peer": name, "fault": str(fault)}
    best = {field: min(result[field] for result in rounds) for field, _, _ in COLUMNS}
    return {"peer": name, **rounds[0], **best, "rounds": len(rounds)}


def _round(name: str) -> Result:
    # Next to the environments: the system's temporary folder may be in memory, where fsync costs nothing.
    folder = HOME / f"store-of-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        (line,) = run(name, "store", folder, TURNS)
    finally:
        shutil.rmtree(folder)
    result: Result = json.loads(line)
    return result


def table(results: list[Result]) -> str:
    lines = [f"{'':32}" + "".join(f"{head:>20}" for _, head, _ in COLUMNS) + "    synced"]
    for result in results:
        title = f"{result['peer']} {result.get('store', '')}"
        if "fault" in result:
            lines.append(f"{title:32} could not be run: {result['fault']}")
            continue
        cells = [_cell(result, field, template) for field, _, template in COLUMNS]
        synced = "each message" if result["durable"] else "never"
        lines.append(f"{title:32}" + "".join(f"{cell:>20}" for cell in cells) + f"    {synced}")
    return "\n".join(lines)


def _cell(result: Result, field: str, template: str) -> str:
    times = f" ({result['ratio'][field]:.1f}x)" if "ratio" in result else ""
    return template.format(result[field]) + times
