"""Answers that wait for the test: a `Gated` script pauses at each gate until the test opens it."""

from collections.abc import Iterator
from threading import Event
from typing import Any

__all__ = ["Gated"]

Step = str | dict[str, Any]


class Gated(list[Step]):
    """The steps of one answer; `{"gate": event}` holds it back until the event is set."""

    def __iter__(self) -> Iterator[Step]:
        for step in super().__iter__():
            match step:
                case {"gate": Event() as gate}:
                    while not gate.is_set():
                        yield {"pause": 0.02}
                case _:
                    yield step
