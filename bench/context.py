"""The cost of building the context of one more turn as the session grows, which should not depend on what came before.

The first part pushes a session of 1,000 turns with tools entry by entry and builds its context for every model call,
with and without compactions. It prints the time per call for each tenth of the session, and the number of messages,
because building a list takes time in proportion to its length. The second part measures one turn in compacted sessions
of 1,000 and 10,000 entries: summarised entries must cost nothing. This only measures; it never fails.
"""

import time
from datetime import UTC, datetime
from statistics import median

from bartack import Entry, Message, Meta, ToolCall, ToolResult, assistant, tool_message, user
from bartack.nouns.config import ContextConfig, ToolSpec
from bartack.nouns.entries import Fact, RunStarted
from bartack.nouns.messages import ModelRef, stamped
from bartack.session.context import ContextFold, ContextInput, ContextManager

TURNS = 1_000
PARTS = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOOLS = tuple(ToolSpec(f"tool_{n}", {"type": "object", "properties": {"path": {"type": "string"}}}) for n in range(8))
OUTPUT = "a line of output of some tool\n" * 30


class Session:
    """A growing session and its context."""

    def __init__(self, config: ContextConfig) -> None:
        self.fold = ContextFold()
        self.manager = ContextManager(config)
        self.input = ContextInput(fold=self.fold, system_prompt="Be brief. " * 100, tools=TOOLS)
        self.size = 0
        self.compactions = 0
        self.add(RunStarted(model=ModelRef("p", "m")))

    def add(self, fact: Fact) -> None:
        """Append a fact."""
        self.size += 1
        if isinstance(fact, Message):
            fact = stamped(fact, id=f"m{self.size}", timestamp=NOW, run_id="run")
        self.fold.push(Entry(id=f"e{self.size}", session_id="s", seq=self.size, timestamp=NOW, fact=fact))

    def ask(self) -> int:
        """Build the context as the loop does before a model call; returns the number of messages."""
        update = self.manager.compute_context_updates(self.input)
        if update.needs_compaction:
            self.compactions += 1
            self.add(self.manager.compaction(self.input, update, "They read some files."))
        return len(self.manager.build_context(self.input).messages)

    def turn(self) -> int:
        """A user's question, two calls in one answer, their results, and an answer: five messages, two model calls."""
        number = self.size
        self.add(user("What is in these files?"))
        self.ask()
        self.add(assistant(*(ToolCall(f"call{number}{n}", "tool_0", {"path": "a.txt"}) for n in "ab"), meta=Meta()))
        for n in "ab":
            self.add(tool_message(ToolResult(f"call{number}{n}", OUTPUT)))
        messages = self.ask()
        self.add(assistant("Lines of output.", meta=Meta()))
        return messages


def times(session: Session, turns: int) -> list[tuple[float, int]]:
    """For each turn, its microseconds and the messages of its last context."""
    durations = []
    for _ in range(turns):
        begin = time.process_time_ns()
        messages = session.turn()
        durations.append(((time.process_time_ns() - begin) / 1_000, messages))
    return durations


def growing() -> None:
    unlimited = times(Session(ContextConfig()), TURNS)
    compacting = Session(ContextConfig(max_tokens=60_000))
    compacted = times(compacting, TURNS)
    trimmed = times(Session(ContextConfig(max_tokens=60_000, compaction=False)), TURNS)
    print(f"{'turns':>11} | {'no limit':>10} {'messages':>9} | {'trimmed':>10} | {'compacted':>10} {'messages':>9}")
    step = TURNS // PARTS
    for start in range(0, TURNS, step):
        row = [rows[start : start + step] for rows in (unlimited, trimmed, compacted)]
        micros = [median(micro for micro, _ in rows) for rows in row]
        sizes = [rows[-1][1] for rows in row]
        print(
            f"{start:5,}-{start + step:5,} | {micros[0]:7.0f} us {sizes[0]:9,} | {micros[1]:7.0f} us | "
            f"{micros[2]:7.0f} us {sizes[2]:9,}"
        )
    print(f"({compacting.compactions} compactions; the slowest turn with one took {max(compacted)[0]:,.0f} us)")


def compacted_sizes() -> None:
    for entries in (1_000, 10_000):
        session = Session(ContextConfig(max_tokens=60_000))
        while session.size < entries:
            session.turn()
        micros = median(micro for micro, _ in times(session, 50))
        print(f"{entries:7,} entries before: {micros:6.0f} us for a turn of five entries and two contexts")


def main() -> None:
    growing()
    compacted_sizes()


if __name__ == "__main__":
    main()
