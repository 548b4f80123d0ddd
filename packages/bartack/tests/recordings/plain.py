"""The content of a recorded stream, independent of providers and decoders.

In: a case folder of the recordings. Out: a `Case` (meta and body), and the `PlainReading` that an oracle makes of it.
The oracles read a whole body at once with the json module and import nothing from Bartack, so that they can verify it.

Conventions of all oracles:

- `text` is all visible text joined, refusals included; `thinking` is all thinking and all reasoning summaries joined.
  Several blocks join with nothing between them. Tags such as `<think>` inside visible text stay visible text.
- `calls` are in order of first appearance. `raw` is the argument text exactly as sent, "" if the provider sent a JSON
  value instead of text. Empty argument text means no arguments: `{}`. Text that is not a JSON object gives None.
- A tool that takes free text instead of JSON (`custom_tool_call`) has `arguments={"input": raw}`.
- `server_side` calls are those the provider executes itself. They never turn a stop into `tool_calls`.
  `provider_id` is the id that a result would refer to, else the id of the item, else None.
- `finish` is "error" after an in-band error, "truncated" if the provider's own terminal signal is missing, else our
  finish reason; `raw_finish` is the provider's, None after an error. A plain stop with client calls is `tool_calls`.
- `usage` is the last one reported. None in the breakdown means "not reported", which is not zero.
- `order` lists kinds by their first content, adjacent repeats collapsed; an empty string is not content, nor is
  encrypted reasoning. A tool call counts where it begins.
- `continuation` is the set of the strings that must survive byte for byte.
- Of several alternative answers (n > 1) only the first is read.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from lab.repository import ROOT


@dataclass
class PlainCall:
    name: str
    arguments: object | None
    raw: str
    provider_id: str | None
    server_side: bool


@dataclass
class PlainUsage:
    input: int  # includes cache reads and writes
    output: int  # includes reasoning
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


@dataclass
class PlainReading:
    text: str = ""
    thinking: str = ""
    calls: list[PlainCall] = field(default_factory=list)
    finish: str = "truncated"
    raw_finish: str | None = None
    usage: PlainUsage | None = None
    model: str | None = None
    response_id: str | None = None
    order: list[str] = field(default_factory=list)
    continuation: list[str] = field(default_factory=list)

    def saw(self, kind: str) -> None:
        """Record that content of this kind ("text", "thinking", "tool_call") came next."""
        if not self.order or self.order[-1] != kind:
            self.order.append(kind)


@dataclass
class Case:
    api: str
    name: str
    path: Path
    meta: dict[str, object]
    file: str  # response.sse, response.chunks.jsonl, response.ndjson, response.bin or response.json
    body: bytes

    @property
    def http_status(self) -> int:
        status = self.meta["http_status"]
        return status if isinstance(status, int) else 200


def recordings_root() -> Path:
    """BARTACK_RECORDINGS, or the folder beside the repository. It need not exist: a test then skips."""
    beside = ROOT.parent / "shared" / "recordings"
    return Path(os.environ.get("BARTACK_RECORDINGS", beside))


def case_dirs(api: str) -> list[Path]:
    """The case folders of one api, sorted by name; empty if there are no recordings here."""
    folder = recordings_root() / api
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def load_case(case_dir: Path) -> Case:
    meta = json.loads((case_dir / "meta.json").read_text("utf-8"))
    file = meta["response_file"]
    return Case(case_dir.parent.name, case_dir.name, case_dir, meta, file, (case_dir / file).read_bytes())


def sse_events(body: bytes) -> list[tuple[str, str]]:
    """Every (event name, data) of a whole SSE body; the name is "" where none was given.

    The HTML standard drops an event that no blank line ends. It is kept here: recordings lose their last newline.
    """
    text = body.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events = []
    for block in text.split("\n\n"):
        name, data = "", []
        for line in block.split("\n"):
            label, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if label == "event":
                name = value
            elif label == "data":
                data.append(value)
        if data:
            events.append((name, "\n".join(data)))
    return events


def json_lines(body: bytes) -> list[str]:
    """The non-empty lines of an ndjson or chunks.jsonl body."""
    return [line for line in body.decode("utf-8").split("\n") if line.strip()]


def parsed_arguments(raw: str) -> object | None:
    """The JSON object in an argument text: `{}` if it is empty, None if it is not an object."""
    if not raw.strip():
        return {}
    try:
        value: object = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
