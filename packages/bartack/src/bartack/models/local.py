"""`LocalModel`: a model that runs in this process, with no key and no network.

    model = bartack.connect("local")                          # BARTACK_LOCAL_MODEL, or the default
    model = bartack.connect("local:qwen2.5-coder-0.5b")       # a model from ``bartack models list``
    model = bartack.connect("local:/models/mine.gguf")        # a file of your own

The file is loaded at the first call. Generation runs in a thread, one answer at a time. For tool use, choosing a tool,
writing its arguments and answering are separate generations (see `bartack.models.local_tools`), and the usage of an
answer is their sum.
"""

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.formats import decoder, encode
from bartack.formats.tools import refuse_required
from bartack.models.guard import GuardedStream, guarded_batches
from bartack.models.local_tools import (
    Route,
    arguments_body,
    asks_for_abilities,
    asks_how,
    bounded_schema,
    chosen_tool,
    direct_answer,
    direct_call,
    is_looping,
    is_too_hard,
    latest_exchange,
    next_step,
    plain_history,
    router_body,
    suited_tools,
    without_wrong_guess,
)
from bartack.models.model import StreamingModel, updated_config
from bartack.models.prices import ModelInfo, Prices
from bartack.models.weights import LocalWeights, weights_named
from bartack.nouns.config import ModelConfig, ToolSpec
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta, ToolCallArgs, ToolCallEnd, ToolCallStart, Usage
from bartack.nouns.errors import ConfigError, ErrorCode, ModelError
from bartack.nouns.requests import ModelRequest

__all__ = ["Engine", "LocalModel"]

# -- the engine
#
# An `Engine` generates and blocks; an `EngineThread` makes its output available to event loops.
#
# An engine takes the body of a Chat Completions request and passes chunks of that format to a callback, which can stop
# it. `LlamaEngine` is llama.cpp in this process, through xllamacpp (extra ``local``). It loads its file at the first
# generation. Measured on two shared cores with half a billion parameters: loading takes 2 to 4 s, and it reads 25 to 70
# tokens per second and writes 10. With a thread for every core of a busy machine it writes 1 to 4, because its threads
# wait for each other.
#
# The thread has one queue: generations run one after the other, in the order of the requests, for any event loop.
# Closing the reader stops the generation at its next token, or at the next batch of the prompt.

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


_TOOL_FEATURES = frozenset({"tools", "tool_choice"})
_MAX_TOKENS = 1024  # default for an answer: a small model may never stop
# Of a demo model: about a minute on a slow machine, and what half a billion parameters can keep in view.
_DEMO_TOKENS, _DEMO_RESULT_TOKENS, _DEMO_SYSTEM_TOKENS = 400, 700, 400
_ABILITIES = (
    "I can read, search and list files here, make small edits, count lines (`how many lines are in README.md?`), "
    "calculate (`17 * 23`), and answer short questions. For everything else choose a larger model: set the API key of "
    "a provider, such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or run one on this machine with Ollama "
    "(`--model ollama:NAME`)."
)
_REFUSAL = (
    "I am a small demo model, and this is too hard for me: it takes several steps, or knowledge that I do not have. "
    + _ABILITIES
)
_LOOP_WINDOW = 1000  # characters of an answer in which repetitions are looked for
_LOOP_END = "(I stopped here because I was repeating myself.)"
_TEMPERATURE = 0.3  # default; small models lose the thread at the usual 0.8 (not measured)
_NO_USAGE = Usage(0, 0, cost=0.0)


class LocalModel(StreamingModel):
    """A model file, run by llama.cpp. Safe for concurrent calls: they wait for each other."""

    provider = "local"

    def __init__(
        self,
        name: str | None = None,
        *,
        context_window: int = 8192,
        threads: int | None = None,
        tool_rounds: int = 1,
        engine: Engine | None = None,
        environment: Environment | None = None,
        **config: Any,
    ) -> None:
        """Does not load the model yet.

        Args:
            name: A known model, or the path of a .gguf file (default: ``BARTACK_LOCAL_MODEL``).
            threads: Threads for generation (default: the number of cores minus one).
            tool_rounds: How often the model may call tools for one request before it has to answer. Use more than one
                only with larger models, which then also see the whole conversation next to a tool result.
            engine: Replaces llama.cpp.
            config: Fields of `ModelConfig` and settings of llama.cpp.

        Raises:
            PartValidationError: The name is unknown or a setting is invalid (code `invalid_config`).
            ModuleNotFoundError: xllamacpp is not installed.
        """
        if engine is None and find_spec("xllamacpp") is None:
            raise ModuleNotFoundError(
                "Local models require xllamacpp. Run: pip install 'bartack[local]'", name="xllamacpp"
            )
        self.weights: LocalWeights = weights_named(name)
        super().__init__(updated_config(ModelConfig(self.weights.model_id), config), environment)
        self._context_window = context_window
        self._tool_rounds = tool_rounds
        self._is_llama = engine is None
        self._threads = threads
        self._worker = EngineThread(engine or self._llama())

    def update_config(self, **config: Any) -> None:
        """Change settings for later calls, except the model. An invalid setting raises and changes nothing."""
        if config.get("model_id", self.config.model_id) != self.config.model_id:
            raise ConfigError(
                f"Cannot change the model of a local model ({self.config.model_id}). Create another one.",
                path="$.modelId",
            )
        super().update_config(**config)

    def model_info(self) -> ModelInfo:
        """Name and context window. A local model costs nothing."""
        listed = self.weights.known
        return ModelInfo(
            self.provider,
            self.config.model_id,
            name=listed.title if listed is not None else self.weights.path.name,
            context_window=self._context_window,
            prices=Prices(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0),
        )

    def supports(self, feature: str) -> bool:
        """Whether calls may use this feature. Files of your own are assumed to support tools."""
        return feature == "output_schema" or (feature in _TOOL_FEATURES and self._uses_tools)

    @property
    def _uses_tools(self) -> bool:
        return self.weights.known is None or self.weights.known.uses_tools

    def _llama(self) -> LlamaEngine:
        return LlamaEngine(self.weights.path, context_window=self._context_window, threads=self._threads)

    async def aclose(self) -> None:
        """Release the memory and the thread. A later call loads the model again, as `Agent.run_sync` needs it."""
        self._worker.close()

    def respond(self, request: ModelRequest) -> GuardedStream:
        """The answer to a request. Raises `PartValidationError` if it requires a tool of a provider."""
        refuse_required(request.tools, self.provider)
        return guarded_batches(self._batches(request), request.metadata, self._environment)

    # -- one answer: exceptions become an error delta in the guard

    async def _batches(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        yield (Start(self.config.model_id, self._environment.new_id(), provider=self.provider),)
        self._check_weights()
        if self._is_demo and (instant := self._instant(request)) is not None:
            yield instant
            return
        rounds = self._tool_rounds if self._uses_tools else 0
        tools = suited_tools(request.tools) if self._is_demo else request.tools
        step = next_step(request.messages, tools, request.config.tool_choice, rounds=rounds)
        used = _NO_USAGE
        if isinstance(step, Route):
            if self._is_demo and is_too_hard(request.messages, step):
                yield (TextDelta(_REFUSAL), used, Done("stop"))
                return
            if self._is_demo and asks_how(request.messages, step):
                step = None
            else:
                word, routing = await self._word(router_body(request.messages, step))
                used += routing
                step = chosen_tool(step, word)
        source = self._answer(request) if step is None else self._tool_call(request, step)
        async with aclosing(source) as deltas:
            async for delta in deltas:
                yield (used + delta if isinstance(delta, Usage) else delta,)

    def _instant(self, request: ModelRequest) -> Sequence[Delta] | None:
        """What a demo model answers without a generation: a call that follows from the request alone, its result, or
        what it can do."""
        if request.config.tool_choice not in (None, "auto") or request.config.output_schema is not None:
            return None
        call = direct_call(request.messages, request.tools)
        if call is not None:
            call_id = f"call_{self._environment.new_id()}"
            arguments = ToolCallArgs(call_id, msgspec.json.encode(call.arguments).decode())
            start, end = ToolCallStart(call_id, call.tool.name), ToolCallEnd(call_id)
            return start, arguments, end, _NO_USAGE, Done("tool_calls")
        text = _ABILITIES if asks_for_abilities(request.messages) else direct_answer(request.messages)
        return None if text is None else (TextDelta(text), _NO_USAGE, Done("stop"))

    @property
    def _is_demo(self) -> bool:
        return self.weights.known is not None and self.weights.known.is_demo

    @property
    def _max_tokens(self) -> int:
        return _DEMO_TOKENS if self._is_demo else _MAX_TOKENS

    @property
    def _max_result_tokens(self) -> int:
        share = self._context_window * 3 // 8  # the rest is for the conversation and the answer
        return min(share, _DEMO_RESULT_TOKENS) if self._is_demo else share

    def _check_weights(self) -> None:
        if self._is_llama and self.weights.known is not None and not self.weights.path.is_file():
            name = self.weights.model_id
            raise ModelError(
                f"{name} has not been downloaded yet. Run: bartack models pull {name}", code=ErrorCode.MODEL_NOT_FOUND
            )

    def _answer(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        config = request.config
        config = replace(
            config,
            tool_choice=None,
            parallel_tool_calls=None,
            max_tokens=config.max_tokens or self._max_tokens,
            temperature=_TEMPERATURE if config.temperature is None else config.temperature,
            output_schema=None if config.output_schema is None else bounded_schema(config.output_schema),
        )
        history = without_wrong_guess(request.messages) if self._is_demo else request.messages
        visible = latest_exchange(history) if self._tool_rounds == 1 else history
        messages = plain_history(
            visible,
            max_result_tokens=self._max_result_tokens,
            max_system_tokens=_DEMO_SYSTEM_TOKENS if self._is_demo else None,
        )
        body = encode("openai-chat", replace(request, messages=messages, config=config, tools=())).body
        answer = self._generate(body)
        return _until_loop(answer) if self._is_demo and config.output_schema is None else answer

    async def _tool_call(self, request: ModelRequest, tool: ToolSpec) -> AsyncGenerator[Delta, None]:
        call_id = f"call_{self._environment.new_id()}"
        yield ToolCallStart(call_id, tool.name)
        if not (tool.parameter_schema or {}).get("properties"):
            yield ToolCallArgs(call_id, "{}")
            yield ToolCallEnd(call_id)
            yield _NO_USAGE
            yield Done("tool_calls")
            return
        body = arguments_body(
            request.messages,
            tool,
            max_tokens=request.config.max_tokens or _MAX_TOKENS,
            max_result_tokens=self._max_result_tokens,
        )
        async with aclosing(self._generate(body)) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta():
                        yield ToolCallArgs(call_id, delta.text_delta)
                    case Done():
                        yield ToolCallEnd(call_id)
                        yield delta if delta.finish_reason == "length" else Done("tool_calls")
                    case Usage() | Failed():
                        yield delta
                    case _:  # thinking before the arguments
                        pass

    # -- one generation

    async def _word(self, body: dict[str, Any]) -> tuple[str, Usage]:
        """The text of a short generation, and its usage."""
        word: list[str] = []
        used = _NO_USAGE
        async with aclosing(self._generate(body)) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta():
                        word.append(delta.text_delta)
                    case Usage():
                        used = delta
                    case Failed():
                        raise ModelError(delta.message, code=delta.error_code, retryable=delta.retryable)
                    case _:
                        pass
        return "".join(word).strip(), used

    async def _generate(self, body: dict[str, Any]) -> AsyncGenerator[Delta, None]:
        """The deltas of one generation, without its `Start`."""
        reader = decoder(
            "openai-chat", framing="ndjson", provider=self.provider, model_id=self.config.model_id, local_id="local"
        )
        if self._worker.is_closed and self._is_llama:
            self._worker = EngineThread(self._llama())
        async with aclosing(self._worker.chunks(body)) as chunks:
            async for chunk in chunks:
                for delta in reader.receive_data(msgspec.json.encode(chunk) + b"\n"):
                    if not isinstance(delta, Start):
                        yield delta
                if reader.out.ended:
                    return
        for delta in reader.receive_eof():
            if not isinstance(delta, Start):
                yield delta


async def _until_loop(answer: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """The answer, ended where it begins to repeat itself: a small model may continue so until the limit. Its usage is
    then unknown."""
    text = ""
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            yield delta
            if isinstance(delta, TextDelta):
                text = (text + delta.text_delta)[-_LOOP_WINDOW:]
                if is_looping(text):
                    yield TextDelta(("\n" if text.endswith("\n") else "\n\n") + _LOOP_END)
                    yield Done("stop")
                    return
