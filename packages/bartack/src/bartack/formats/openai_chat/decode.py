"""Chat Completions chunks, of OpenAI and of vendors with a compatible API, to deltas.

The answer is the sum of ``choices[0].delta``; other choices are ignored. The decoder does not need to know the vendor:
the variants do not contradict each other, so it reads all of them. Case names are folders in recordings/.

The end: a chunk has a `finish_reason`, usage may follow, ``[DONE]`` comes last. Cerebras omits ``[DONE]``
(cerebras-chat/*), Snowflake the `finish_reason` (openai-compat-chat/pydantic-ai--test_snowflake-*). Either one ends the
answer; without both it was cut off. OpenRouter and Cloudflare repeat the `finish_reason`, correct it
(openrouter-chat/req_llm--openrouter-google_gemini_2_5_flash_lite-object_streaming--0-d0a9ef) and report errors after it
(openrouter-chat/pydantic-ai--test_openrouter-test_openrouter_stream_error--0-baafd4), so the last one holds and `Done`
waits. ``[DONE]`` without a `finish_reason` counts only if there is content and all arguments are complete JSON.

Thinking arrives in its own field. The field's name is kept as continuation data, because thinking is sent back in the
same field. `reasoning_details` are reassembled from their pieces and sent back unchanged, with signatures and
ciphertexts.

Calls arrive in pieces, too. A piece belongs to the latest call of its `index`, unless it has another id or another
name: Ollama has sent the index 0 for every call (github.com/ollama/ollama/issues/15457), and Mistral sends none. Only
the end of the answer ends a call.
"""

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import msgspec

from bartack.formats.body_values import beyond, shown, text_of
from bartack.formats.decoder import Decoder
from bartack.formats.emitter import Emitter, PendingData
from bartack.formats.framing import LIMIT, Frame
from bartack.formats.media import split_data_url
from bartack.formats.openai_chat.capabilities import capabilities_of
from bartack.formats.openai_chat.events import (
    FAILED_FINISHES,
    FINISH_REASONS,
    CallPiece,
    ChatChunk,
    ChatDelta,
    FunctionPiece,
    ReportedError,
    error_in,
    usage_in,
)
from bartack.formats.openai_chat.settings import NAME
from bartack.nouns.deltas import TextDelta, ToolCallArgs
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import FileRef, Image

__all__ = ["OpenAIChat"]

# -- calls


_LEGACY = -1  # the index of a function_call, which has none


class _Call:
    """A tool call under construction. It is opened once its name is known."""

    __slots__ = ("extra", "id", "is_custom", "is_open", "key", "name", "outer_id", "pieces")

    def __init__(self, key: int) -> None:
        self.key = key
        self.id: str | None = None
        self.name = ""
        self.pieces: list[str] = []
        self.is_open = False
        self.outer_id = ""  # the id outside of the decoder, once it is open
        self.is_custom = False  # its input is free text, which is wrapped in an object at the end
        self.extra: dict[str, Any] = {}  # continuation data that has not been emitted yet

    @property
    def is_complete(self) -> bool:
        """Whether the arguments so far are a JSON value, or there are none."""
        text = "".join(self.pieces)
        try:
            return not text or self.is_custom or json.loads(text) is not None
        except (ValueError, RecursionError):
            return False


class _ToolCalls:
    """The calls of one answer."""

    def __init__(self, out: Emitter, pending: PendingData, before_opening: Callable[[], None]) -> None:
        self._out = out
        self._pending = pending
        self._before_opening = before_opening
        self._all: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}  # the latest call of each index

    @property
    def count(self) -> int:
        """How many calls have started."""
        return len(self._all)

    @property
    def are_complete(self) -> bool:
        """Whether the arguments of every call are complete."""
        return all(call.is_complete for call in self._all)

    def read(self, pieces: list[CallPiece]) -> None:
        """Add the pieces of one chunk."""
        pending, out = self._pending, self._out
        for piece in pieces:
            call, function = self._latest.get(piece.index), piece.function
            if call is None or piece.id or function is None or function.name or piece.extra_content:
                call = self._call_of(call, piece)
                if piece.custom is not None:
                    call.pieces.append(piece.custom.input or "")
                    pending.hold(len(call.pieces[-1]))
                if function is None:
                    continue
            arguments = function.arguments
            if arguments:
                if type(arguments) is not str:
                    arguments = pending.text_of_json(arguments)
                call.pieces.append(arguments)
                pending.size = size = pending.size + len(arguments)
                if size > LIMIT:
                    pending.hold(0)
                if call.is_open and not out.joins_surrogates:
                    out.deltas.append(ToolCallArgs(call.outer_id, arguments))
                elif call.is_open:
                    out.more_args(call.outer_id, arguments)

    def read_legacy(self, function: FunctionPiece) -> None:
        """Add a piece of a `function_call`, the form before tool calls: at most one per answer, without an id."""
        self.read([CallPiece(index=_LEGACY, function=function)])

    def close(self) -> None:
        """End all calls: the answer is complete."""
        for call in self._all:
            if not call.is_open:  # it never got a name
                self._open(call)
            if call.is_custom:
                self._out.call_args(call.key, json_text({"input": "".join(call.pieces)}))
            self._out.close_call(call.key, continuation=call.extra or None)

    def _call_of(self, call: _Call | None, piece: CallPiece) -> _Call:
        """The call that a piece belongs to, a new one if necessary, updated with the name and id of the piece."""
        target = piece.function or piece.custom
        name = (target.name or "") if target is not None else ""
        if call is None and piece.index is None and not piece.id and not name and self._all:
            call = self._all[-1]
        if call is None or _begins_another(call, piece, name):
            call = _Call(len(self._all))
            self._all.append(call)
            self._latest[piece.index] = call
        call.id = call.id or piece.id
        call.name = call.name or name
        call.is_custom = call.is_custom or piece.custom is not None
        if piece.index == _LEGACY:
            call.extra["field"] = "function_call"
        if piece.extra_content and self._pending.can_keep(piece.extra_content):
            call.extra["extra_content"] = piece.extra_content
        if call.name and not call.is_open:
            self._open(call)
        return call

    def _open(self, call: _Call) -> None:
        self._before_opening()
        call.is_open = True
        if call.is_custom:
            call.extra["type"] = "custom"
        call.outer_id = self._out.open_call(call.key, call.name, provider_id=call.id, continuation=call.extra or None)
        call.extra = {}
        if not call.is_custom:
            for text in call.pieces:
                self._out.call_args(call.key, text)


def _begins_another(call: _Call, piece: CallPiece, name: str) -> bool:
    if piece.id and call.id and piece.id != call.id:
        return True
    if name and call.name and name != call.name:
        return True
    # Without ids, a repeated name starts another call of the same tool only once the arguments are complete: some
    # servers repeat the name in every piece. Not recorded.
    arguments = piece.function.arguments if piece.function is not None else None
    return bool(name and not piece.id and arguments and call.pieces and call.is_complete)


# -- the answer


class _Detail:
    """One of the `reasoning_details` under construction: text and summary arrive in pieces, other fields whole."""

    __slots__ = ("_fields", "_pieces")

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._pieces: dict[str, list[str]] = {"text": [], "summary": []}

    def is_continued_by(self, piece: dict[str, Any]) -> bool:
        fields = self._fields
        same_id = fields.get("id") is None or piece.get("id") in (None, fields["id"])
        return same_id and all(piece.get(name) == fields.get(name) for name in ("type", "index"))

    def add(self, piece: dict[str, Any]) -> None:
        for name, value in piece.items():
            if name in self._pieces and isinstance(value, str):
                self._pieces[name].append(value)
                self._fields[name] = ""  # keeps its position among the fields
            elif value or name not in self._fields:
                self._fields[name] = value

    @property
    def whole(self) -> dict[str, Any]:
        joined = {name: "".join(pieces) for name, pieces in self._pieces.items() if pieces}
        return {**self._fields, **joined}


class OpenAIChat(Decoder):
    """One streamed Chat Completions answer."""

    format = NAME
    events = msgspec.json.Decoder(ChatChunk)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._reasoning_apart = capabilities_of(options.get("provider") or NAME).reasoning_apart
        self._request_id = self._model = ""
        self._writing = ""  # the kind of the open part: text, thinking, a piece of content of another type, or none
        self._notes: dict[str, Any] = {}  # continuation data of the text part, emitted when the part ends
        self._details: list[_Detail] = []  # collected for the thinking part and emitted when it ends
        self._calls = _ToolCalls(self.out, self._pending, before_opening=lambda: self._switch_to(""))
        self._executed: set[str] = set()
        self._audio: list[str] = []
        self._has_usage = False
        self._refused = False
        self._raw_finish: str | None = None
        self._server_error: ReportedError | None = None

    # -- chunks

    def read(self, event: ChatChunk, frame: Frame) -> None:
        if not self.out.started:
            self._begin(event)
        if event.usage is not None:
            self._read_usage(event.usage)
        if event.x_groq is not None:
            self._read_groq(event.x_groq)
        choices = event.choices
        for choice in choices or ():
            if not choice.index:
                delta = choice.delta
                if delta is not None:
                    self._read_delta(delta, frame)
                elif choice.message is not None:
                    self._read_message(choice.message, event, frame)
                if choice.finish_reason:
                    self._read_finish(choice.finish_reason, event, frame)
        if event.error is not None or not choices:
            self._read_error_in(frame)

    def _begin(self, chunk: ChatChunk) -> None:
        """Start once the id and model are known: Azure's first chunk has neither.

        Recorded in azure-openai-chat/ai--azure-model-router.1--0-8749f1.
        """
        self._request_id = self._request_id or str(chunk.id or "")
        self._model = self._model or chunk.model or ""
        if chunk.choices or (self._request_id and self._model):
            self.out.start(self._model, self._request_id)

    def _read_delta(self, delta: ChatDelta, frame: Frame) -> None:
        # The hot path: every token comes through here. Comparing with None is cheaper than testing truth.
        thought = delta.reasoning_content
        if thought is not None or delta.reasoning is not None or delta.reasoning_details is not None:
            if thought and self._writing == "thinking" and delta.reasoning_details is None:
                self.out.more_thinking(thought)
            else:
                self._read_thinking(delta, frame)
        content = delta.content
        if content:
            if isinstance(content, str):
                if self._writing == "text" and not self.out.joins_surrogates:
                    self.out.deltas.append(TextDelta(content))
                else:
                    self._add_text(content)
            else:
                self._read_content_list(content, frame)
        if delta.tool_calls is not None:
            self._calls.read(delta.tool_calls)
        if (
            delta.refusal is not None
            or delta.function_call is not None
            or delta.executed_tools is not None
            or delta.annotations is not None
            or delta.images is not None
            or delta.audio is not None
            or delta.extra_content is not None
        ):
            self._read_rest(delta, frame)

    def _read_rest(self, delta: ChatDelta, frame: Frame) -> None:
        if delta.refusal:
            self._read_refusal(delta.refusal)
        if delta.function_call is not None:
            self._calls.read_legacy(delta.function_call)
        for tool in delta.executed_tools or ():
            self._read_executed(tool)
        if delta.annotations and self._pending.can_keep(delta.annotations):
            self._pending.hold(len(frame.data))
            self._notes.setdefault("annotations", []).extend(delta.annotations)
        for image in delta.images or ():
            self._read_image(image)
        if isinstance(delta.audio, dict):
            self._read_audio(delta.audio, frame)
        if isinstance(delta.extra_content, dict) and self._pending.can_keep(delta.extra_content):
            self._pending.hold(len(frame.data))
            self._notes.setdefault("message", {}).setdefault("extra_content", {}).update(delta.extra_content)

    def _read_message(self, message: Any, chunk: ChatChunk, frame: Frame) -> None:
        """Read an answer that was not streamed. Beside deltas, the message only repeats them."""
        if chunk.object in ("chat.completion", None) and not self._has_content:  # Z.ai does not name the object
            try:
                self._read_delta(msgspec.convert(message, ChatDelta), frame)
            except ValueError as error:
                self.out.fail(ErrorCode.STREAM_MALFORMED, f"Invalid {self.format} message: {error}")

    @property
    def _has_content(self) -> bool:
        return bool(self._writing or self._calls.count or self._executed or self._details or self._notes)

    # -- text and thinking

    def _switch_to(self, kind: str) -> None:
        """End the open part, whose continuation data is complete now, and begin one of this kind."""
        if self._notes and self._writing == "text":
            self.out.text("", continuation=self._notes)
            self._notes = {}
        if self._details and kind != "thinking":
            self.out.thinking("", continuation={"reasoning_details": [detail.whole for detail in self._details]})
            self._details = []
        self._writing = kind

    def _think(self, piece: str, field: str) -> None:
        if self._writing == "thinking":
            self.out.more_thinking(piece)
        elif piece:
            self._switch_to("thinking")
            self.out.thinking(piece, continuation={"field": field})

    def _read_thinking(self, delta: ChatDelta, frame: Frame) -> None:
        """Read the first field that has text: where there are several, they repeat each other (OpenRouter)."""
        if delta.reasoning_content:
            self._think(delta.reasoning_content, "reasoning_content")
        elif delta.reasoning:
            self._think(delta.reasoning, "reasoning")
        if delta.reasoning_details is None:
            return
        details = [detail for detail in delta.reasoning_details if isinstance(detail, dict)]
        if not details or not self._pending.can_keep(details):
            return
        self._pending.hold(len(frame.data))
        if not delta.reasoning_content and not delta.reasoning:
            texts = (detail.get("text") or detail.get("summary") or "" for detail in details)
            self._think("".join(text for text in texts if isinstance(text, str)), "reasoning_details")
        for detail in details:
            self._join_detail(detail)

    def _join_detail(self, piece: dict[str, Any]) -> None:
        """Append a piece to the last detail if it continues it; a ciphertext is always a detail of its own."""
        last = self._details[-1] if self._details else None
        if last is None or piece.get("type") == "reasoning.encrypted" or not last.is_continued_by(piece):
            last = _Detail()
            self._details.append(last)
        last.add(piece)

    def _read_content_list(self, pieces: list[Any], frame: Frame) -> None:
        for piece in pieces:
            kind = piece.get("type") if isinstance(piece, dict) else None
            if kind == "thinking":
                self._read_thinking_chunk(piece)
            elif kind == "text":
                self._add_text(piece.get("text"))
            elif kind == "image_url":
                self._read_image(piece)
            elif isinstance(piece, dict) and self._pending.can_keep(piece):
                # Mistral's references to sources (not recorded), and whatever comes next, at its place in the content.
                self._switch_to("piece")
                self.out.text("", new_part=True, continuation={"content": piece})

    def _add_text(self, text: Any) -> None:
        if text and isinstance(text, str):
            is_after_piece = self._writing == "piece"
            if self._writing != "text":
                self._switch_to("text")
            self.out.text(text, new_part=is_after_piece)

    def _read_thinking_chunk(self, chunk: dict[str, Any]) -> None:
        inner = chunk.get("thinking")
        pieces = inner if isinstance(inner, list) else [{"text": inner}]
        texts = [piece.get("text") for piece in pieces if isinstance(piece, dict)]
        self._think("".join(text for text in texts if isinstance(text, str)), "content")
        extra = beyond(chunk, "type", "thinking")
        if extra and self._writing == "thinking" and self._pending.can_keep(extra):
            self.out.thinking("", continuation={"chunk": extra})

    def _read_refusal(self, piece: str) -> None:
        if self._refused:
            self.out.text(piece)
        else:
            self._refused = True
            self._switch_to("text")
            self.out.text(piece, new_part=True, continuation={"field": "refusal"})

    # -- what the provider executed and generated

    def _read_executed(self, tool: Any) -> None:
        """Groq reports its own tools twice: when one is called, and again with the output.

        Recorded in groq-chat/langchain--test_code_interpreter--0-2e4fe8.
        """
        if not isinstance(tool, dict) or not self._pending.can_keep(tool):
            return
        key = f"executed-{tool.get('index')}"
        if key not in self._executed:
            self._executed.add(key)
            self._switch_to("")
            self.out.open_call(key, text_of(tool, "name") or text_of(tool, "type"), executed_by="provider")
            arguments = tool.get("arguments")
            self.out.call_args(key, self._pending.text_of_json(arguments or {}))
        output = tool.get("output")
        if output is not None:
            result = self._pending.text_of_json(output)
            self.out.close_call(key, continuation={"executed_tool": tool}, result=result)

    def _read_image(self, image: Any) -> None:
        """A generated image becomes the result of a call that the provider executed."""
        address = image.get("image_url") if isinstance(image, dict) else None
        url = address.get("url") if isinstance(address, dict) else address
        if not isinstance(url, str) or not url:
            return
        generated = _generated_image(url)
        key = f"image-{len(self._executed)}"
        self._executed.add(key)
        self._switch_to("")
        self.out.open_call(key, "image_output", executed_by="provider")
        self.out.close_call(key, result=(generated,), continuation={"field": "images"})

    def _read_audio(self, audio: dict[str, Any], frame: Frame) -> None:
        """Speech: the transcript becomes text, the data a file; the id stands for the audio in later requests."""
        fields = {name: audio[name] for name in ("id", "expires_at") if audio.get(name)}
        if fields and self._pending.can_keep(fields):
            self._notes["audio"] = {**self._notes.get("audio", {}), **fields}
        self._add_text(audio.get("transcript"))
        if isinstance(data := audio.get("data"), str) and data:
            self._pending.hold(len(frame.data))
            self._audio.append(data)

    def _close_audio(self) -> None:
        if not self._audio:
            return
        try:
            sound = b"".join(b64decode(piece, validate=True) for piece in self._audio)
        except ValueError:  # also for characters other than ASCII
            self.out.fail(ErrorCode.STREAM_MALFORMED, "The audio data is not base64.")
            return
        self.out.open_call("audio", "audio_output", executed_by="provider")
        self.out.close_call("audio", result=(FileRef("audio", data=sound),))

    # -- usage and the end

    def _read_usage(self, raw: Any) -> None:
        usage = usage_in(raw, reasoning_apart=self._model.startswith(self._reasoning_apart))
        if usage is None or (self._has_usage and usage.input_tokens == usage.output_tokens == 0):
            # Cloudflare sends zeros after the real counts: openai-compat-chat/opencode--cloudflare-ai-gateway-*-f42c52.
            return
        self._has_usage = True
        self.out.usage(usage)

    def _read_groq(self, report: Any) -> None:
        """Groq's own field: usage in the last chunk (groq-chat/*), and why a stream stopped early (not recorded)."""
        if isinstance(report, dict):
            self._read_usage(report.get("usage"))
            if report.get("error"):
                self._server_error = ReportedError(shown(report["error"]))

    def _read_finish(self, word: str, chunk: ChatChunk, frame: Frame) -> None:
        self._raw_finish = word
        if word.lower() in FAILED_FINISHES:
            fault = error_in(frame.data, frame.event)
            self._server_error = fault or ReportedError(f"The provider ended the answer with {word!r}.", raw_code=word)
        else:
            self.out.finish(FINISH_REASONS.get(word.lower(), "other"), word)
        # Perplexity repeats its sources in every chunk (perplexity-chat/*); the last list is the longest.
        if chunk.citations and self._pending.can_keep(chunk.citations):
            self._notes["citations"] = chunk.citations
        if chunk.search_results and self._pending.can_keep(chunk.search_results):
            self._notes["search_results"] = chunk.search_results

    def _read_error_in(self, frame: Frame) -> None:
        fault = error_in(frame.data, frame.event)
        if fault is not None:
            self._fail(fault)

    def _fail(self, fault: ReportedError) -> None:
        self.out.start(self._model, self._request_id)
        self.out.refused(fault.message, raw_code=fault.raw_code, status=fault.status)

    def read_unparsed(self, frame: Frame) -> bool:
        payload = frame.data.strip()
        if payload == b"[DONE]":
            self._end(has_done=True)
            return True
        fault = error_in(payload, frame.event)
        if fault is not None:
            self._fail(fault)
            return True
        # An empty event keeps the connection alive; anything after the finish_reason does not invalidate the answer.
        return not payload or self.out.finish_reason is not None

    def read_end(self) -> None:
        self._end(has_done=False)

    def _end(self, *, has_done: bool) -> None:
        out = self.out
        if self._server_error is not None:
            self._fail(self._server_error)
        elif out.finish_reason is None and not (has_done and self._is_complete):
            self.truncated("a finish_reason")
        else:
            self._close_parts()
            if self._refused and out.finish_reason in (None, "stop") and not self._calls.count:
                out.finish("refusal", self._raw_finish)
            out.done()

    @property
    def _is_complete(self) -> bool:
        return (self._has_content or self._has_usage) and self._calls.are_complete

    def _close_parts(self) -> None:
        self._calls.close()
        if self._notes and self._writing != "text":
            self._switch_to("text")
        self._switch_to("")
        self._close_audio()


def _generated_image(url: str) -> Image:
    inline = split_data_url(url)
    return Image("image/*", url=url) if inline is None else Image(inline[0] or "image/png", data=inline[1])
