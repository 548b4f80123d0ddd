"""Bedrock's InvokeModel and InvokeModelWithResponseStream: each model family in its own format, inside Amazon's frames.

**Requests.** The model and the choice to stream are part of the URL. Claude takes the Messages body with an
`anthropic_version`, Nova the Converse body with a `schemaVersion`, Titan a plain-text prompt, and gpt-oss, Qwen and
Jamba the Chat Completions body (docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html). Other families are
reached through Converse.

**Responses.** The frames are Amazon's. A `chunk` holds, in base64, one event of the model's own format, and the first
chunk decides which decoder reads the rest:

- Claude sends Anthropic's Messages events, which alone have a `type`.
- Nova sends the events of Converse, each wrapped in its name.
- Models of the Chat Completions format (gpt-oss, Qwen, Jamba, ...) send `choices` with a `delta`. Not recorded.
- All others send pieces of plain text under a name of their own (`TextCompletions`).

A frame whose `:message-type` is not "event" is an error and ends the stream. The counts that Bedrock adds to the last
chunk (`amazon-bedrock-invocationMetrics`) omit some of Claude's tokens, 32 of 130 in
recordings/bedrock-invoke/openinference--TestInvokeModelWithStreamResponse.test_invoke--0-0cc80a, so they are used only
if the model reports none. A guardrail that masked words is named on every chunk, but the model's own stop reason holds
(recordings/bedrock-invoke/openllmetry--test_nova-test_nova_invoke_stream--0-bb275d).
"""

from typing import Any, ClassVar, assert_never

import msgspec
from msgspec.structs import replace

from bartack.formats.anthropic_messages import FORMAT as MESSAGES
from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.formats.bedrock_converse import FORMAT as CONVERSE
from bartack.formats.bedrock_converse.capabilities import family_of
from bartack.formats.bedrock_converse.decode import BedrockConverse
from bartack.formats.body_values import Json, beyond, number_at, object_at, object_of, text_at
from bartack.formats.decoder import UNREADABLE, Decoder
from bartack.formats.format import ALL_FEATURES, NO_SCHEMA, Feature, Format, HistoryRules
from bartack.formats.framing import Frame, FramingName
from bartack.formats.losses import Losses
from bartack.formats.media import placeholder
from bartack.formats.openai_chat import FORMAT as CHAT
from bartack.formats.openai_chat.decode import OpenAIChat
from bartack.formats.settings import labelled, note_settings, own_extra, take_settings, with_extra, written_settings
from bartack.formats.usage import token_count
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import ConfigError
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import camel

__all__ = ["FORMAT", "BedrockInvoke", "TextCompletions", "encode", "read_request", "rules_for"]

_NAME = "bedrock-invoke"
_ANTHROPIC_VERSION = "bedrock-2023-05-31"
_NOVA_SCHEMA = "messages-v1"
_CHAT_FAMILIES = ("openai", "qwen", "ai21")
_IN_URL = ("model", "stream", "stream_options")
_TITAN_SETTINGS = {  # our setting -> Titan's
    "max_tokens": "maxTokenCount",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}
_TITAN_SPEAKERS = {"user": "User: ", "tool": "User: ", "assistant": "Bot: ", "system": ""}


def encode(request: ModelRequest, losses: Losses) -> Json:
    """The request body; what the model cannot receive is added to `losses`.

    Raises `PartValidationError` for a family whose format is not known.
    """
    family, model_id = family_of(request.config.model_id), request.config.model_id
    if family == "anthropic" or "claude" in model_id:
        body = MESSAGES.encode(_with_default(request, MESSAGES, "anthropic_version", _ANTHROPIC_VERSION), losses)
        return beyond(body, *_IN_URL)
    if "nova" in model_id:
        body = CONVERSE.encode(_with_default(request, CONVERSE, "schemaVersion", _NOVA_SCHEMA), losses)
        own = body.pop("additionalModelRequestFields", {})  # Converse passes these on to the model
        return with_extra(body, own)
    if "titan" in model_id:
        return _encode_titan(request, losses)
    if family in _CHAT_FAMILIES:
        body = CHAT.encode(request, losses)
        return beyond(body, *_IN_URL)
    raise ConfigError(
        f"InvokeModel is not supported for {model_id!r}; use bedrock-converse",
        path="$.config.modelId",
    )


def _own_format(model_id: str) -> Format:
    """The format of the model's family."""
    if family_of(model_id) in _CHAT_FAMILIES:
        return CHAT
    return CONVERSE if "nova" in model_id else MESSAGES


def rules_for(provider: str, model_id: str) -> HistoryRules:
    """The history rules of the model's own format."""
    format = _own_format(model_id)
    return format.history_rules(provider, model_id) if format is MESSAGES else format.rules


def _lacking(provider: str, model_id: str) -> frozenset[Feature]:
    """What this model does not support, by the model's own format."""
    if "titan" in model_id:
        return NO_SCHEMA
    return ALL_FEATURES - _own_format(model_id).features_of(provider, model_id)


def _with_default(request: ModelRequest, format: Format, key: str, value: str) -> ModelRequest:
    extra = request.config.extra or {}
    extra = {**extra, format.name: {key: value, **object_of(extra, format.name)}}
    return replace(request, config=replace(request.config, extra=extra))


# -- Titan: a plain-text prompt


def _encode_titan(request: ModelRequest, losses: Losses) -> Json:
    config = request.config
    settings = written_settings(config, _TITAN_SETTINGS)
    body: Json = {"inputText": _prompt(request.messages, losses)}
    if settings:
        body["textGenerationConfig"] = settings
    for name in ("seed", "tool_choice", "thinking", "output_schema", "cache_config"):
        if getattr(config, name) is not None:
            losses.add(f"config.{camel(name)}", camel(name), "not supported by Titan")
    note_settings(config, losses)
    if request.tools:
        losses.add("tools", "tools", "not supported by Titan")
    return with_extra(body, own_extra(request, _NAME, losses))


def _prompt(messages: tuple[Message, ...], losses: Losses) -> str:
    """A single user message as it is; a conversation in the form of Titan's documentation."""
    texts = [(message.role, _text(message, index, losses)) for index, message in enumerate(messages)]
    if [role for role, _ in texts] == ["user"]:
        return texts[0][1]
    return "\n".join([*(_TITAN_SPEAKERS[role] + text for role, text in texts if text), "Bot:"])


def _text(message: Message, index: int, losses: Losses) -> str:
    texts: list[str] = []
    for number, part in enumerate(message.parts):
        where = f"messages[{index}].parts[{number}]"
        match part:
            case Text() | Thinking() if part.ignored:
                pass
            case Text():
                losses.continuation(where, part.continuation)
                texts.append(part.text)
            case Thinking():
                if losses.thinking(where, part) is not None:
                    losses.add(where, "thinking", "Titan accepts text only")
            case Image() | FileRef():
                texts.append(("\n" if texts else "") + placeholder(part, where, "Titan accepts text only", losses))
            case ToolCall() | ToolResult():
                losses.add(where, part.kind.replace("_", " "), "Titan accepts text only")
            case _:
                assert_never(part)
    return "".join(texts)


# -- requests, read


def read_request(body: Json, *, provider: str, model_id: str = "") -> ModelRequest:
    """The request that this body makes; `model_id` is needed because the body does not name the model.

    Raises `PartValidationError` if it is not a body of the model's format.
    """
    model = text_at(model_id or None, "$.model")
    if "inputText" in object_at(body, "$"):
        return _read_titan(dict(body), provider, model)
    return _own_format(model).read_request(body, provider=provider, model_id=model)


def _read_titan(body: Json, provider: str, model: str) -> ModelRequest:
    """The prompt as one message of the user: whether it has the form of a conversation is not certain."""
    prompt = text_at(body.pop("inputText"), "$.inputText")
    generation = dict(object_of(body, "textGenerationConfig"))
    body.pop("textGenerationConfig", None)
    settings = take_settings(generation, _TITAN_SETTINGS, "$.textGenerationConfig", number_at)
    extra = {**body, **({"textGenerationConfig": generation} if generation else {})}
    config = ModelConfig(model, extra=labelled(_NAME, extra), **settings)
    return ModelRequest(messages=(user(prompt),), config=config, provider=provider)


# -- responses: each model's own


_CONVERSE_EVENTS = frozenset(
    ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata")
)


class _Envelope(msgspec.Struct, gc=False):
    payload: bytes | None = msgspec.field(default=None, name="bytes")  # msgspec decodes the base64
    message: str | None = None
    Message: str | None = None
    original_message: str | None = msgspec.field(default=None, name="originalMessage")
    original_status: int | None = msgspec.field(default=None, name="originalStatusCode")


class _Choice(msgspec.Struct, gc=False):
    delta: Json | None = None


class _Choices(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


class _Nova(BedrockConverse):
    """Joins pieces of text, each of which Nova puts in a block of its own.

    Recorded: bedrock-invoke/openllmetry--test_nova-test_nova_invoke_stream--0-bb275d.
    """

    def _emit(self, kind: str, piece: str, continuation: Json | None = None) -> None:
        if "block" not in (continuation or {}):
            self._is_fresh = False
        super()._emit(kind, piece, continuation)


class BedrockInvoke(Decoder):
    """Unwraps chunks and passes them to the decoder of the model's own format."""

    format: ClassVar[str] = _NAME
    framing: ClassVar[FramingName] = "aws"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Envelope)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._model: Decoder | None = None

    def read(self, event: _Envelope, frame: Frame) -> None:
        if frame.headers.get(":message-type", "event") != "event":
            self._read_exception(event, frame)
        elif event.payload is not None:
            self._read_chunk(event.payload)
        elif not frame.event:  # a recording without frames
            self._read_chunk(frame.data)

    def read_unparsed(self, frame: Frame) -> bool:
        if frame.headers.get(":message-type", "event") != "event":
            self._read_exception(_Envelope(), frame)
            return True
        if frame.event:
            return frame.event != "chunk"
        self._read_chunk(frame.data)  # a recording without frames, whose events are not envelopes
        return True

    def read_end(self) -> None:
        if self._model is None:
            self.truncated("the first chunk")
        else:
            self._model.read_end()

    def _read_chunk(self, payload: bytes) -> None:
        if self._model is None:
            decoder = _decoder_for(payload)
            if decoder is None:
                return
            self._model = decoder(out=self.out)
        self._model.receive_frame(Frame(payload))

    def _read_exception(self, event: _Envelope, frame: Frame) -> None:
        reported = event.message or event.Message or event.original_message or frame.headers.get(":error-message")
        message = str(reported) if reported else f"The stream ended with {frame.event or 'an error'}."
        self.out.refused(message, raw_code=frame.event or None, status=event.original_status)


def _decoder_for(payload: bytes) -> type[Decoder] | None:
    """The decoder that a model's first chunk calls for; None if the chunk has only Bedrock's own fields."""
    try:
        names = msgspec.json.decode(payload, type=dict[str, msgspec.Raw]).keys()
    except UNREADABLE:
        return TextCompletions  # it reports the chunk as malformed
    if all(name.startswith("amazon-bedrock-") for name in names):
        return None
    if names & _CONVERSE_EVENTS:
        return _Nova
    if "choices" in names and _has_delta(payload):
        return OpenAIChat
    return AnthropicMessages if "type" in names and "completion" not in names else TextCompletions


def _has_delta(payload: bytes) -> bool:
    try:
        choices = msgspec.json.decode(payload, type=_Choices).choices or []
    except UNREADABLE:
        return False
    return not choices or any(choice.delta is not None for choice in choices)


# -- responses of plain text

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
    arguments: str | Json | None = None


class _Call(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None
    name: str | None = None  # Cohere has both on the call itself
    parameters: Json | None = None


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
    """Decodes chunks of plain text.

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


FORMAT = Format(
    decoder=BedrockInvoke,
    encode=encode,
    read_request=read_request,
    streams=None,
    rules=MESSAGES.rules,  # Claude's
    carries=MESSAGES.carries,
    rules_for=rules_for,
    lacks=_lacking,
    event_types=("chunk",),
)
