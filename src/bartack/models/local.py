"""`LocalModel`: a real model in this process, with no key and no network.

    model = bartack.connect("local")                          # BARTACK_LOCAL_MODEL, or else the default
    model = bartack.connect("local:qwen2.5-coder-0.5b")       # one of ``bartack models list``
    model = bartack.connect("local:/models/mine.gguf")        # a file of one's own

It is a `Model` like any other. The file is loaded at the first call; the generating happens in a thread, one answer at
a time. How tools are called is told in `bartack.models.local_tools`: choosing one, writing its arguments and answering are
separate generations, and the usage of an answer is their sum.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from bartack.environment import Environment
from bartack.formats import decoder, encode
from bartack.models.guard import GuardedStream, guarded
from bartack.models.local_engine import Engine, LlamaEngine, Worker
from bartack.models.local_tools import (
    Route,
    arguments_body,
    bounded,
    chosen,
    latest_exchange,
    next_step,
    plain_history,
    router_body,
)
from bartack.models.model import configured, with_system_prompt
from bartack.models.prices import ModelInfo, Prices
from bartack.models.weights import weights_named
from bartack.nouns.config import ModelConfig, ToolChoice, ToolSpec
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    MessageDelta,
    Start,
    TextDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.nouns.requests import ModelRequest, RequestMetadata

__all__ = ["LocalModel"]

_PROVIDER = "local"
_FEATURES = frozenset({"output_schema"})
_TOOL_FEATURES = frozenset({"tools", "tool_choice"})
_MAX_TOKENS = 1024  # of an answer, unless more is asked for: a small model may never find its end
_TEMPERATURE = 0.3  # unless another is asked for; small models wander off at the usual 0.8 (not measured)


class _Call(NamedTuple):
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    config: ModelConfig


class LocalModel:
    """A model file, run by llama.cpp. Safe for many calls at once: they wait for each other."""

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
        """Loads nothing yet. `name` is a known model or the path of a .gguf file.

        `threads` is one less than there are cores. `tool_rounds` is how often the model may call tools for one request
        before it has to answer; more than one is for larger models, which also see the whole conversation beside a
        result. `engine` replaces llama.cpp. `config` are fields of
        `ModelConfig` and settings of llama.cpp.

        Raises `PartValidationError` with the code `invalid_config` for a name that is not known or a setting that
        cannot be, and `ModuleNotFoundError` without xllamacpp.
        """
        if engine is None and find_spec("xllamacpp") is None:
            raise ModuleNotFoundError("local models need xllamacpp: pip install 'bartack[local]'", name="xllamacpp")
        self.weights = weights_named(name)
        self._config = configured(ModelConfig(self.weights.model_id), config)
        self._context_window = context_window
        self._tool_rounds = tool_rounds
        self._is_llama = engine is None
        path = self.weights.path
        self._worker = Worker(engine or LlamaEngine(path, context_window=context_window, threads=threads))
        self._environment = environment or Environment()

    # -- configuration

    def update_config(self, **config: Any) -> None:
        """Change settings for later calls; a setting that is invalid raises and changes nothing."""
        changed = configured(self._config, config)
        if changed.model_id != self._config.model_id:
            raise PartValidationError(
                f"a local model stays the model it is: {self._config.model_id}",
                path="$.modelId",
                code=ErrorCode.INVALID_CONFIG,
            )
        self._config = changed

    def get_config(self) -> ModelConfig:
        """The settings as they are now."""
        return self._config

    def model_info(self) -> ModelInfo:
        """Its name, and what fits into it. It costs nothing."""
        known = self.weights.known
        return ModelInfo(
            _PROVIDER,
            self._config.model_id,
            name=known.title if known is not None else self.weights.path.name,
            context_window=self._context_window,
            prices=Prices(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0),
        )

    def supports(self, feature: str) -> bool:
        """Whether it can be asked for this. Of a file of one's own it is assumed that it can use tools."""
        return feature in _FEATURES or (feature in _TOOL_FEATURES and self._uses_tools)

    @property
    def _uses_tools(self) -> bool:
        return self.weights.known is None or self.weights.known.uses_tools

    async def aclose(self) -> None:
        """Let go of the memory and the thread."""
        self._worker.close()

    async def __aenter__(self) -> "LocalModel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- asking

    def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: Sequence[str | Text] | None = None,
        invocation_state: dict[str, Any] | None = None,
        request_metadata: RequestMetadata | None = None,
        **params: Any,
    ) -> GuardedStream:
        """One answer, as it is made; see `Model.stream`. Closing the stream stops it."""
        if tool_choice is not None:
            params = {**params, "tool_choice": tool_choice}
        call = _Call(
            with_system_prompt(messages, system_prompt, system_prompt_content),
            tuple(tool_specs or ()),
            configured(self._config, params),
        )
        metadata = request_metadata or RequestMetadata()
        run_id = metadata.run_id or self._environment.new_id()
        return guarded(self._stamped(call, run_id, metadata), run_id, environment=self._environment)

    async def _stamped(self, call: _Call, run_id: str, metadata: RequestMetadata) -> AsyncIterator[MessageDelta]:
        seq = 0
        async with aclosing(self._deltas(call)) as deltas:
            async for delta in deltas:
                yield MessageDelta(
                    run_id,
                    seq,
                    delta,
                    self._environment.now(),
                    model_call_index=metadata.model_call_index,
                    attempt=metadata.attempt,
                )
                seq += 1

    # -- one answer: the guard turns what is raised here into an error delta

    async def _deltas(self, call: _Call) -> AsyncGenerator[Delta, None]:
        yield Start(self._config.model_id, self._environment.new_id(), provider=_PROVIDER)
        self._check_weights()
        step = next_step(call.messages, call.tools, call.config.tool_choice, rounds=self._rounds)
        used = Usage(0, 0, cost=0.0)
        if isinstance(step, Route):
            word, routing = await self._word(router_body(call.messages, step))
            used += routing
            step = chosen(step, word)
        source = self._answer(call) if step is None else self._tool_call(call, step)
        async with aclosing(source) as deltas:
            async for delta in deltas:
                yield used + delta if isinstance(delta, Usage) else delta

    @property
    def _rounds(self) -> int:
        return self._tool_rounds if self._uses_tools else 0

    @property
    def _result_room(self) -> int:
        return self._context_window * 3 // 8  # the rest is for the conversation and the answer

    def _check_weights(self) -> None:
        if self._is_llama and self.weights.known is not None and not self.weights.path.is_file():
            name = self.weights.model_id
            raise ModelError(
                f"{name} is not on this machine yet; get it with: bartack models pull {name}",
                code=ErrorCode.MODEL_NOT_FOUND,
            )

    async def _answer(self, call: _Call) -> AsyncGenerator[Delta, None]:
        config = replace(call.config, tool_choice=None, parallel_tool_calls=None)
        config = replace(config, max_tokens=config.max_tokens or _MAX_TOKENS)
        if config.temperature is None:
            config = replace(config, temperature=_TEMPERATURE)
        if config.output_schema is not None:
            config = replace(config, output_schema=bounded(config.output_schema))
        seen = latest_exchange(call.messages) if self._tool_rounds == 1 else call.messages
        messages = plain_history(seen, room=self._result_room)
        body = encode("openai-chat", ModelRequest(messages, config=config, provider=_PROVIDER)).body
        async with aclosing(self._generated(body)) as deltas:
            async for delta in deltas:
                yield delta

    async def _tool_call(self, call: _Call, tool: ToolSpec) -> AsyncGenerator[Delta, None]:
        call_id = f"call_{self._environment.new_id()}"
        yield ToolCallStart(call_id, tool.name)
        if not (tool.parameter_schema or {}).get("properties"):
            yield ToolCallArgs(call_id, "{}")
            yield ToolCallEnd(call_id)
            yield Usage(0, 0, cost=0.0)
            yield Done("tool_calls")
            return
        limit = call.config.max_tokens or _MAX_TOKENS
        body = arguments_body(call.messages, tool, max_tokens=limit, room=self._result_room)
        async with aclosing(self._generated(body)) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta():
                        yield ToolCallArgs(call_id, delta.text_delta)
                    case Done():
                        yield ToolCallEnd(call_id)
                        yield delta if delta.finish_reason == "length" else Done("tool_calls")
                    case Usage() | Failed():
                        yield delta
                    case _:  # a model that thinks aloud before it writes
                        pass

    # -- one generation

    async def _word(self, body: dict[str, Any]) -> tuple[str, Usage]:
        """The text that a short generation gives, and its usage."""
        word: list[str] = []
        used = Usage(0, 0, cost=0.0)
        async with aclosing(self._generated(body)) as deltas:
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

    async def _generated(self, body: dict[str, Any]) -> AsyncGenerator[Delta, None]:
        """The deltas of one generation, without its `Start`."""
        reader = decoder(
            "openai-chat", framing="ndjson", provider=_PROVIDER, model_id=self._config.model_id, local_id="local"
        )
        async with aclosing(self._worker.chunks(body)) as chunks:
            async for chunk in chunks:
                for delta in _without_start(reader.receive_data(msgspec.json.encode(chunk) + b"\n")):
                    yield delta
                if reader.out.ended:
                    return
        for delta in _without_start(reader.receive_eof()):
            yield delta


def _without_start(deltas: list[Delta]) -> list[Delta]:
    return [delta for delta in deltas if not isinstance(delta, Start)]
