"""`ScriptedModel`: a model that plays a script, for tests and examples.

    model = ScriptedModel(["Hello", assistant("Let me look", ToolCall("c1", "look", {})), Failed(ErrorCode.OVERLOADED)])

Each call takes the next response. Beyond the end of the script, calls fail. The position in the script and the list of
`calls` are state, so use one model per conversation.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, overload

from msgspec.structs import replace

from bartack.environment import Environment
from bartack.models.guard import GuardedStream, guarded_batches
from bartack.models.model import StreamingModel
from bartack.models.prices import ModelInfo
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
)
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.hosted_tools import HOSTED_TOOLS
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, assistant
from bartack.nouns.parts import Text, Thinking, ToolCall
from bartack.nouns.requests import ModelRequest

__all__ = ["Calls", "ScriptedModel", "ScriptedResponse"]

ScriptedResponse = str | Message | Failed | Sequence[Delta]


class Calls(Sequence[ModelRequest]):
    """The requests that a model received, in order.

    A conversation sends its whole history with every call. A request that continues the previous one shares its list of
    messages, so that a thousand turns take the memory of one history, not of a thousand.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[ModelRequest, list[Message], int]] = []

    def append(self, request: ModelRequest) -> None:
        """Add a request."""
        history: list[Message] = []
        if self._calls:
            _, last_history, count = self._calls[-1]
            if count == len(last_history) and list(request.messages[:count]) == last_history:
                history = last_history
        history.extend(request.messages[len(history) :])
        self._calls.append((replace(request, messages=()), history, len(history)))

    def clear(self) -> None:
        """Forget all requests."""
        self._calls.clear()

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, index: int) -> ModelRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[ModelRequest]: ...
    def __getitem__(self, index: int | slice) -> ModelRequest | list[ModelRequest]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        request, history, count = self._calls[index]
        return replace(request, messages=tuple(history[:count]))

    def __eq__(self, requests: object) -> bool:
        return isinstance(requests, Sequence) and list(self) == list(requests)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # like lists, to which it compares equal

    def __repr__(self) -> str:
        return repr(list(self))


class ScriptedModel(StreamingModel):
    """Plays scripted responses in order."""

    provider = "scripted"

    def __init__(
        self,
        responses: Iterable[ScriptedResponse | Callable[[Sequence[Message]], ScriptedResponse]],
        *,
        model_id: str = "scripted",
        chunk_chars: int = 8,
        environment: Environment | None = None,
    ) -> None:
        """A response is a text, a message, an error, a list of deltas, or a function of the messages that returns one.

        Text, thinking and arguments are streamed `chunk_chars` characters at a time.
        """
        if isinstance(responses, str):  # its characters would be the responses
            raise PartValidationError("A script is a list of responses, not a single text.", path="$.responses")
        super().__init__(ModelConfig(model_id), environment)
        self._responses = list(responses)
        self._chunk_chars = chunk_chars
        self.calls: Calls = Calls()

    def respond(self, request: ModelRequest) -> GuardedStream:
        """The next response of the script."""
        response = self._next_response(request.messages)
        self.calls.append(request)
        return guarded_batches(self._batches(response), request.metadata, self._environment)

    def model_info(self) -> ModelInfo:
        """The model's name."""
        return ModelInfo(self.provider, self.config.model_id)

    def supports(self, feature: str) -> bool:
        """Whether this is a feature of answers, of which a script can contain any. It executes no tools."""
        return feature not in HOSTED_TOOLS

    def _next_response(self, messages: Sequence[Message]) -> ScriptedResponse:
        number = len(self.calls)
        if number >= len(self._responses):
            return Failed(
                ErrorCode.PROVIDER_ERROR, f"The script has {len(self._responses)} responses; this is call {number + 1}."
            )
        response = self._responses[number]
        return response(messages) if callable(response) else response

    async def _batches(self, response: ScriptedResponse) -> AsyncGenerator[Sequence[Delta], None]:
        for delta in self._deltas(response):
            await asyncio.sleep(0)  # like a real model, let others work between two pieces
            yield (delta,)

    def _deltas(self, response: ScriptedResponse) -> Iterator[Delta]:
        if isinstance(response, str):
            response = assistant(response)
        if not isinstance(response, Message | Failed):
            yield from response
            return
        yield Start(self.config.model_id, self._environment.new_id(), provider=self.provider)
        if isinstance(response, Failed):
            yield response
            return
        for part in response.parts:
            yield from self._part_deltas(part)
        meta = response.meta
        if meta is not None and meta.usage is not None:
            yield meta.usage
        has_calls = any(call.executed_by == "client" for call in response.tool_calls)
        reason = None if meta is None else meta.finish_reason
        yield Done(reason or ("tool_calls" if has_calls else "stop"))

    def _part_deltas(self, part: Any) -> Iterator[Delta]:
        data = None if part.continuation is None else part.continuation.data
        match part:
            case Text() | Thinking():
                make = TextDelta if isinstance(part, Text) else ThinkingDelta
                for index, chunk in enumerate(self._chunks(part.text)):
                    yield make(chunk, new_part=index == 0, continuation=data if index == 0 else None)
            case ToolCall():
                call_id, result = part.tool_call_id, part.result
                yield ToolCallStart(call_id, part.tool_name, executed_by=part.executed_by, continuation=data)
                args = part.raw_args_text
                for chunk in self._chunks(json_text(part.arguments) if args is None else args):
                    yield ToolCallArgs(call_id, chunk)
                yield ToolCallEnd(
                    call_id,
                    result=None if result is None else result.content,
                    result_is_error=result is not None and result.is_error,
                )

    def _chunks(self, text: str) -> list[str]:
        size = self._chunk_chars
        return [text[start : start + size] for start in range(0, len(text), size)] or [""]
