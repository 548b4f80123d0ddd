"""`ScriptedModel`: a model that says what it was told to say, for tests and examples.

    model = ScriptedModel(["Hello", assistant("Let me look", ToolCall("c1", "look", {})), Failed(ErrorCode.OVERLOADED)])

Each call takes the next answer: a text, an assistant `Message`, a list of deltas, a `Failed`, or a function of the
messages that gives one of these. A script that has run out answers with an error. The place in the script and the list
of `calls` are this model's declared state; one model serves one conversation.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from bartack.environment import Environment
from bartack.models.guard import GuardedStream, guarded
from bartack.models.model import configured, with_system_prompt
from bartack.models.prices import ModelInfo
from bartack.nouns.config import ModelConfig, ToolChoice, ToolSpec
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    MessageDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, assistant
from bartack.nouns.parts import Text, Thinking, ToolCall
from bartack.nouns.requests import RequestMetadata

__all__ = ["Answer", "ScriptedCall", "ScriptedModel"]

Answer = str | Message | Failed | Sequence[Delta]


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True):
    """What one call asked for."""

    messages: tuple[Message, ...]
    tool_specs: tuple[ToolSpec, ...]
    config: ModelConfig
    invocation_state: dict[str, Any] | None = None


class ScriptedModel:
    """Plays its answers in order."""

    def __init__(
        self,
        answers: Iterable[Answer | Callable[[Sequence[Message]], Answer]],
        *,
        model_id: str = "scripted",
        piece: int = 8,
        environment: Environment | None = None,
    ) -> None:
        """Text, thinking and arguments are told in pieces of `piece` characters."""
        self._answers = list(answers)
        self._config = ModelConfig(model_id)
        self._piece = piece
        self._environment = environment or Environment()
        self.calls: list[ScriptedCall] = []

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
        """The next answer of the script."""
        if tool_choice is not None:
            params = {**params, "tool_choice": tool_choice}
        call = ScriptedCall(
            messages=with_system_prompt(messages, system_prompt, system_prompt_content),
            tool_specs=tuple(tool_specs or ()),
            config=configured(self._config, params),
            invocation_state=invocation_state,
        )
        answer = self._next_answer(call.messages)
        self.calls.append(call)
        metadata = request_metadata or RequestMetadata()
        run_id = metadata.run_id or self._environment.new_id()
        return guarded(self._stamped(answer, run_id, metadata), run_id, environment=self._environment)

    def update_config(self, **config: Any) -> None:
        """Change settings for later calls."""
        self._config = configured(self._config, config)

    def get_config(self) -> ModelConfig:
        """The settings as they are now."""
        return self._config

    def model_info(self) -> ModelInfo:
        """Its name."""
        return ModelInfo("scripted", self._config.model_id)

    def supports(self, feature: str) -> bool:
        """A script can say anything."""
        return True

    def _next_answer(self, messages: Sequence[Message]) -> Answer:
        turn = len(self.calls)
        if turn >= len(self._answers):
            return Failed(ErrorCode.PROVIDER_ERROR, f"the script has {len(self._answers)} answers and this is one more")
        answer = self._answers[turn]
        return answer(messages) if callable(answer) else answer

    async def _stamped(self, answer: Answer, run_id: str, metadata: RequestMetadata) -> AsyncIterator[MessageDelta]:
        for seq, delta in enumerate(self._deltas(answer)):
            yield MessageDelta(
                run_id,
                seq,
                delta,
                self._environment.now(),
                model_call_index=metadata.model_call_index,
                attempt=metadata.attempt,
            )

    def _deltas(self, answer: Answer) -> Iterator[Delta]:
        if isinstance(answer, str):
            answer = assistant(answer)
        if not isinstance(answer, Message | Failed):
            yield from answer
            return
        yield Start(self._config.model_id, self._environment.new_id(), provider="scripted")
        if isinstance(answer, Failed):
            yield answer
            return
        for part in answer.parts:
            yield from self._told(part)
        meta = answer.meta
        if meta is not None and meta.usage is not None:
            yield meta.usage
        has_calls = any(call.executed_by == "client" for call in answer.tool_calls)
        reason = None if meta is None else meta.finish_reason
        yield Done(reason or ("tool_calls" if has_calls else "stop"))

    def _told(self, part: Any) -> Iterator[Delta]:
        data = None if part.continuation is None else part.continuation.data
        match part:
            case Text() | Thinking():
                make = TextDelta if isinstance(part, Text) else ThinkingDelta
                for at, piece in enumerate(self._pieces(part.text)):
                    yield make(piece, new_part=at == 0, continuation=data if at == 0 else None)
            case ToolCall():
                call_id, result = part.tool_call_id, part.result
                yield ToolCallStart(call_id, part.tool_name, executed_by=part.executed_by, continuation=data)
                args = part.raw_args_text
                for piece in self._pieces(msgspec.json.encode(part.arguments).decode() if args is None else args):
                    yield ToolCallArgs(call_id, piece)
                yield ToolCallEnd(
                    call_id,
                    result=None if result is None else result.content,
                    result_is_error=result is not None and result.is_error,
                )

    def _pieces(self, text: str) -> list[str]:
        return [text[at : at + self._piece] for at in range(0, len(text), self._piece)] or [""]
