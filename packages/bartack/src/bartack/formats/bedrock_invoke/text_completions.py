"""Chunks of plain text behind Bedrock's InvokeModel to deltas.

Each family has its own names for the same three things. They do not conflict, so one decoder reads them all:

| family | text | stop reason | tokens |
|---|---|---|---|
| Titan | `outputText` | `completionReason` | `inputTextTokenCount`, `totalOutputTextTokenCount` |
| Llama | `generation` | `stop_reason` | `prompt_token_count`, `generation_token_count` |
| Mistral, DeepSeek | `outputs[0].text`, `choices[0]` | `stop_reason` beside it | - |
| Cohere | `text`, `generations[0].text` | `finish_reason` | - |
| Claude before Messages | `completion` | `stop_reason` | - |

Only Titan is recorded; the others follow docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html.

Bedrock's own counts on the last chunk are used where a family reports none. The stop reason is the terminal signal,
but `done` waits for the end of the bytes, since counts may follow. A request that a guardrail blocked has no stop
reason; it ends with the guardrail's action beside the final count
(recordings/bedrock-invoke/openllmetry--test_guardrails-test_guardrail_invoke_stream--0-ac9d3c).
"""

from typing import Any, ClassVar

import msgspec

from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame, FramingName
from bartack.formats.usage import token_count
from bartack.nouns.deltas import FinishReason, Usage

__all__ = ["TextCompletions"]

_FINISH: dict[str, FinishReason] = {
    "finish": "stop",  # what Titan sends, though its documentation has "finished"
    "finished": "stop",
    "stop": "stop",
    "stop_sequence": "stop",
    "stop_criteria_met": "stop",
    "end_turn": "stop",
    "complete": "stop",
    "length": "length",
    "max_tokens": "length",
    "error_limit": "length",
    "tool_calls": "tool_calls",
    "content_filtered": "content_filter",
    "error_toxic": "content_filter",
    "intervened": "content_filter",
}
_Number = int | float | None  # Titan sends 28.0


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None
    name: str | None = None  # Cohere has both on the call itself
    parameters: dict[str, Any] | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Output(msgspec.Struct, gc=False):
    text: str | None = None
    message: _Message | None = None
    stop_reason: str | None = None
    finish_reason: str | None = None


class _Metrics(msgspec.Struct, gc=False, rename="camel"):
    input_token_count: _Number = None
    output_token_count: _Number = None


class _Chunk(msgspec.Struct, gc=False):
    output_text: str | None = msgspec.field(default=None, name="outputText")
    generation: str | None = None
    completion: str | None = None
    text: str | None = None
    index: _Number = None  # the number of this generation; Cohere only, where it may be above 0
    outputs: list[_Output] | None = None
    choices: list[_Output] | None = None
    generations: list[_Output] | None = None
    tool_calls: list[_Call] | None = None
    completion_reason: str | None = msgspec.field(default=None, name="completionReason")
    stop_reason: str | None = None
    finish_reason: str | None = None
    input_count: _Number = msgspec.field(default=None, name="inputTextTokenCount")
    output_count: _Number = msgspec.field(default=None, name="totalOutputTextTokenCount")
    prompt_token_count: _Number = None
    generation_token_count: _Number = None
    metrics: _Metrics | None = msgspec.field(default=None, name="amazon-bedrock-invocationMetrics")
    guardrail: str | None = msgspec.field(default=None, name="amazon-bedrock-guardrailAction")
    message: str | None = None  # the error message


class TextCompletions(Decoder):
    """Decodes chunks of plain text."""

    format: ClassVar[str] = "bedrock-completions"
    framing: ClassVar[FramingName] = "lines"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Chunk)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._input: int | None = None
        self._output: int | None = None
        self._calls = 0

    def read(self, event: _Chunk, frame: Frame) -> None:
        if event.index and event.output_text is None:  # only the first of several alternative answers is read
            self._count(event)
            return
        self.out.text(event.output_text or event.generation or event.completion or event.text or "")
        output = next(iter(event.outputs or event.choices or event.generations or ()), None)
        reason = event.completion_reason or event.stop_reason or event.finish_reason
        calls = event.tool_calls or []
        if output is not None:
            message = output.message or _Message()
            self.out.text(output.text or message.content or "")
            reason = reason or output.stop_reason or output.finish_reason
            calls = calls + (message.tool_calls or [])
        for call in calls:
            self._read_call(call)
        if reason is None and event.guardrail == "INTERVENED" and event.output_count is not None:
            reason = event.guardrail
        if reason:
            self.out.finish(_FINISH.get(reason.lower(), "other"), reason)
        elif event.message is not None and self.out.finish_reason is None:
            self.out.refused(event.message)
            return
        self._count(event)

    def read_end(self) -> None:
        if self.out.finish_reason is None:
            self.truncated("a stop reason")
        else:
            self.out.done()

    def _read_call(self, call: _Call) -> None:
        self._calls += 1
        function = call.function or _Function(call.name, call.parameters)
        arguments = function.arguments or ""
        self.out.open_call(self._calls, function.name or "", provider_id=call.id)
        self.out.call_args(self._calls, self._pending.text_of_json(arguments))
        self.out.close_call(self._calls)

    def _count(self, event: _Chunk) -> None:
        self._input = token_count(event.input_count, event.prompt_token_count, self._input)
        self._output = token_count(event.output_count, event.generation_token_count, self._output)
        if event.metrics is not None:
            self._input = token_count(self._input, event.metrics.input_token_count)
            self._output = token_count(self._output, event.metrics.output_token_count)
        if self._input is not None:
            self.out.usage(Usage(self._input, self._output or 0))
