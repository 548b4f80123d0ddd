"""An engine that plays a script, in place of llama.cpp."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from bartack.models.local import Json

EngineResponse = Sequence[str] | Json | Exception  # chunks of text, an error chunk, or an exception to raise


def chunk(content: str | None = None, finish: str | None = None) -> Json:
    delta = {} if content is None else {"content": content}
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


class ScriptedEngine:
    """Plays one response for each generation, and records its requests. It waits for `gate` after some free chunks."""

    def __init__(
        self, *answers: EngineResponse, finish: str = "stop", gate: threading.Event | None = None, free_chunks: int = 0
    ) -> None:
        self._answers = list(answers)
        self._free_chunks = free_chunks
        self._finish = finish
        self._gate = gate
        self.bodies: list[Json] = []
        self.sent = 0
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
        for number, chunk in enumerate(self._chunks(answer)):
            if self._gate is not None and number >= self._free_chunks:
                assert self._gate.wait(300)
            self.sent += 1
            if on_chunk(chunk):
                self.stopped.set()
                return

    def _chunks(self, answer: Any) -> list[Json]:
        if isinstance(answer, dict):
            return [answer]
        usage = {"prompt_tokens": 10, "completion_tokens": len(answer), "prompt_tokens_details": {"cached_tokens": 4}}
        return [*map(chunk, answer), chunk(finish=self._finish), {"choices": [], "usage": usage}]
