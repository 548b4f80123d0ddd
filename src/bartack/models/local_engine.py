"""What runs a local model: `Engine` generates and blocks, `Worker` lets an event loop listen to it.

An engine takes the body of a Chat Completions request and tells chunks of that format, one at a time, to a function
that says whether to stop. `LlamaEngine` is llama.cpp in this process, by xllamacpp (extra ``local``). It loads its file
at the first generation. Its numbers, measured on two shared cores with a model of half a billion parameters: it loads
in 2 to 4 s, reads 25 to 70 tokens per second and writes 10; with a thread for every core of a busy machine it writes 1
to 4, since its threads wait for each other.

A worker has one thread and one queue: generations come one after the other, in the order in which they were asked for,
and from any event loop. Whoever stops listening stops the generation: at its next token, or at its next piece of the
prompt.
"""

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from bartack.nouns.errors import ErrorCode, ModelError

__all__ = ["Engine", "LlamaEngine", "Worker"]

Json = dict[str, Any]

_PIECE = 64  # tokens of a prompt that are read at once: 1 to 3 s, after which a generation can be stopped
_KEPT_MIB = 256  # of prompts that were read before, so that a conversation's next turn reads only what is new


class Engine(Protocol):
    """Anything that generates."""

    def generate(self, body: Json, on_chunk: Callable[[Json], bool]) -> None:
        """Tell every chunk of one answer, until its end or until `on_chunk` says True. It blocks.

        Raises `ModelError` for a model that cannot be loaded and a body that cannot be understood.
        """


class LlamaEngine:
    """llama.cpp and one model file."""

    def __init__(self, path: Path, *, context_window: int, threads: int | None = None) -> None:
        self._path = path
        self._context_window = context_window
        self._threads = threads or max(1, (os.cpu_count() or 1) - 1)
        self._server: Any = None

    def generate(self, body: Json, on_chunk: Callable[[Json], bool]) -> None:
        """See `Engine`."""
        if self._server is None:
            self._server = self._load()
        try:
            # With progress it also tells a chunk for each piece of the prompt, where it can be stopped.
            self._server.handle_chat_completions({**body, "return_progress": True}, on_chunk)
        except (ValueError, RuntimeError) as error:  # what it raises for messages and schemas it cannot use
            raise ModelError(str(error), code=ErrorCode.INVALID_REQUEST, cause=error) from error

    def _load(self) -> Any:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when the library is loaded: do not wait by spinning
        import xllamacpp  # noqa: PLC0415 - an extra

        if not self._path.is_file():
            raise ModelError(f"there is no model file {self._path}", code=ErrorCode.MODEL_NOT_FOUND)
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = self._context_window
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.n_batch = params.n_ubatch = _PIECE
        params.cache_ram_mib = _KEPT_MIB
        params.verbosity = -1
        params.warmup = False
        # It opens a port on the loopback address, whether one wants it or not. Nobody knows this key.
        params.api_keys = [secrets.token_urlsafe(32)]
        params.ui = params.endpoint_slots = False
        params.n_threads_http = 1
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:  # it does not say more
            raise ModelError(
                f"{self._path} is not a model that can be loaded: damaged, of an unknown kind, or too large",
                code=ErrorCode.INVALID_CONFIG,
                cause=error,
            ) from error


class Worker:
    """Runs an engine in a thread of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Engine | None = engine
        self._thread = ThreadPoolExecutor(1, "bartack-local")

    async def chunks(self, body: Json) -> AsyncGenerator[Json, None]:
        """The chunks of one answer. Closing this stops it, also while it waits for its turn. Raises what the engine
        raises."""
        engine = self._engine
        if engine is None:
            raise ModelError("the model was closed", code=ErrorCode.INVALID_REQUEST)
        loop = asyncio.get_running_loop()
        heard: asyncio.Queue[Json | None] = asyncio.Queue()
        stopped = threading.Event()

        def tell(chunk: Json | None) -> None:
            try:
                loop.call_soon_threadsafe(heard.put_nowait, chunk)
            except RuntimeError:  # the loop was closed: nobody listens any more
                stopped.set()

        def on_chunk(chunk: Json) -> bool:
            if not stopped.is_set():
                tell(chunk)
            return stopped.is_set()

        def work() -> None:
            if not stopped.is_set():
                engine.generate(body, on_chunk)

        job = self._thread.submit(work)
        job.add_done_callback(lambda _: tell(None))
        try:
            while (chunk := await heard.get()) is not None:
                yield chunk
            job.result()
        finally:
            stopped.set()
            job.cancel()

    def close(self) -> None:
        """Take no more work, and let go of the engine. What is under way is stopped by whoever listens to it."""
        self._engine = None
        self._thread.shutdown(wait=False, cancel_futures=True)
