"""Runs a local model: an `Engine` generates and blocks, a `EngineThread` makes its output available to event loops.

An engine takes the body of a Chat Completions request and passes chunks of that format to a callback, which can stop
it. `LlamaEngine` is llama.cpp in this process, through xllamacpp (extra ``local``). It loads its file at the first
generation. Measured on two shared cores with half a billion parameters: loading takes 2 to 4 s, and it reads 25 to 70
tokens per second and writes 10. With a thread for every core of a busy machine it writes 1 to 4, because its threads
wait for each other.

A worker has one thread and one queue: generations run one after the other, in the order of the requests, for any event
loop. Closing the reader stops the generation at its next token, or at the next batch of the prompt.
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

__all__ = ["Engine", "EngineThread", "LlamaEngine"]

Json = dict[str, Any]

# A batch of the prompt takes 1 to 3 s, after which a generation can be stopped.
_BATCH_TOKENS = 64
# Caches prompts, so that the next turn of a conversation reads only what is new.
_CACHE_MIB = 256


class Engine(Protocol):
    """Generates answers."""

    def generate(self, body: Json, on_chunk: Callable[[Json], bool]) -> None:
        """Pass every chunk of one answer to `on_chunk`, until the end or until it returns True. Blocks.

        Raises `ModelError` if the model cannot be loaded or the body is invalid.
        """


class LlamaEngine:
    """llama.cpp with one model file."""

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
            # return_progress adds a chunk for each batch of the prompt, where the generation can be stopped.
            self._server.handle_chat_completions({**body, "return_progress": True}, on_chunk)
        except (ValueError, RuntimeError) as error:  # invalid messages or schemas
            raise ModelError(str(error), code=ErrorCode.INVALID_REQUEST, cause=error) from error

    def _load(self) -> Any:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when the library is loaded: no busy waiting
        import xllamacpp  # noqa: PLC0415 - an extra

        if not self._path.is_file():
            raise ModelError(f"Model file {self._path} not found.", code=ErrorCode.MODEL_NOT_FOUND)
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = self._context_window
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.n_batch = params.n_ubatch = _BATCH_TOKENS
        params.cache_ram_mib = _CACHE_MIB
        params.verbosity = -1
        params.warmup = False
        # It always opens a port on the loopback address. The random key closes it to others.
        params.api_keys = [secrets.token_urlsafe(32)]
        params.ui = params.endpoint_slots = False
        params.n_threads_http = 1
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:  # without details
            raise ModelError(
                f"Cannot load {self._path}: the file is damaged, of an unknown type, or too large.",
                code=ErrorCode.INVALID_CONFIG,
                cause=error,
            ) from error


class EngineThread:
    """Runs an engine in its own thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Engine | None = engine
        self._thread = ThreadPoolExecutor(1, "bartack-local")

    @property
    def is_closed(self) -> bool:
        """Whether the engine has been released."""
        return self._engine is None

    async def chunks(self, body: Json) -> AsyncGenerator[Json, None]:
        """The chunks of one answer. Closing the generator cancels it. Raises what the engine raises."""
        engine = self._engine
        if engine is None:
            raise ModelError("The model is closed.", code=ErrorCode.INVALID_REQUEST)
        loop = asyncio.get_running_loop()
        received: asyncio.Queue[Json | None] = asyncio.Queue()
        stopped = threading.Event()

        def put(chunk: Json | None) -> None:
            try:
                loop.call_soon_threadsafe(received.put_nowait, chunk)
            except RuntimeError:  # the event loop was closed
                stopped.set()

        def on_chunk(chunk: Json) -> bool:
            if not stopped.is_set():
                put(chunk)
            return stopped.is_set()

        def work() -> None:
            if not stopped.is_set():
                engine.generate(body, on_chunk)

        job = self._thread.submit(work)
        job.add_done_callback(lambda _: put(None))
        try:
            while (chunk := await received.get()) is not None:
                yield chunk
            job.result()
        finally:
            stopped.set()
            job.cancel()

    def close(self) -> None:
        """Accept no more work and release the engine. A generation in progress ends with its reader."""
        self._engine = None
        self._thread.shutdown(wait=False, cancel_futures=True)
