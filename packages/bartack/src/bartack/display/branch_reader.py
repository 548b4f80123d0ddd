"""`BranchReader`: the entries of a branch, run after run -> changes to a client's display of it.

`RunReader` stops at the end of its run. A branch may have any number of runs, and in imported sessions none; every
answer in it is shown, also those of the history that a run began with.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from bartack.display.changes import Change
from bartack.display.run_reader import RunReader
from bartack.events import LiveEntry, LiveEvent
from bartack.nouns.entries import Entry, RunEnded, RunStarted
from bartack.nouns.messages import Message

__all__ = ["BranchReader", "turn_start"]


def turn_start(branch: Sequence[Entry], end: int) -> int:
    """The index to read from, so that all calls are known that the entry at `end` may be about: where the run before it
    ended, or a person wrote a message outside of any run."""
    for index in range(end - 1, -1, -1):
        entry = branch[index]
        if isinstance(entry.fact, RunEnded):
            return index + 1
        if isinstance(entry.fact, Message) and entry.fact.role == "user" and entry.run_id is None:
            return index
    return 0


class BranchReader:
    """Reads one branch, from any entry on."""

    def __init__(self) -> None:
        self._reader = RunReader()

    def read(self, event: LiveEvent) -> Iterator[Change]:
        """The changes that an event brings about."""
        if not isinstance(event, LiveEntry):
            yield from self._reader.read(event)
            return
        entry = event.entry
        if isinstance(entry.fact, RunStarted) and entry.run_id != self._reader.run_id:
            self._reader.next_run()
        if isinstance(entry.fact, Message):  # without its run, so that the reader does not take it for mere history
            entry = replace(entry, run_id=None)
        yield from self._reader.read(LiveEntry(event.position, entry))
        if isinstance(entry.fact, RunEnded):
            self._reader.next_run()

    def find_id(self, key: str) -> str:
        """The id of a call that has no result."""
        return self._reader.call_ids[key]
