"""An engine for tests that plays answers instead of generating: the place of llama.cpp, not of our own code."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from bartack.models.local_engine import Json

Played = Sequence[str] | Json | Exception  # pieces of text, an error chunk, or what is raised


def chunk(content: str | None = None, finish: str | None = None) -> Json:
    delta = {} if content is None else {"content": content}
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


class PlayedEngine:
    """Answers each generation with the next of its answers, and notes what it was asked and how it was stopped."""

    def __init__(self, *answers: Played, finish: str = "stop", gate: threading.Event | None = None) -> None:
        self._answers = list(answers)
        self._finish = finish
        self._gate = gate
        self.bodies: list[Json] = []
        self.told = 0
        self.stopped = threading.Event()
        self.begun = threading.Event()
        self.threads: set[int] = set()

    def generate(self, body: Json, on_chunk: Callable[[Json], bool]) -> None:
        self.threads.add(threading.get_ident())
        self.bodies.append(body)
        self.begun.set()
        answer = self._answers[len(self.bodies) - 1]
        if isinstance(answer, Exception):
            raise answer
        for one in self._chunks(answer):
            if self._gate is not None:
                assert self._gate.wait(10)
            self.told += 1
            if on_chunk(one):
                self.stopped.set()
                return

    def _chunks(self, answer: Any) -> list[Json]:
        if isinstance(answer, dict):
            return [answer]
        usage = {"prompt_tokens": 10, "completion_tokens": len(answer), "prompt_tokens_details": {"cached_tokens": 4}}
        return [*map(chunk, answer), chunk(finish=self._finish), {"choices": [], "usage": usage}]
