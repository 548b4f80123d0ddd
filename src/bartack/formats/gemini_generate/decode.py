"""Gemini's streamGenerateContent -> deltas: SSE with ``alt=sse``, one JSON array without it. Vertex AI sends the same.

Each chunk holds some parts of the answer. `finishReason` or a blocked prompt is the terminal signal. Early models gave
it with every chunk, so reading goes on after it and `done` waits for the end of the bytes.

How Gemini's parts become ours:
- Text joins with the text before it, thoughts with thoughts. A part with a `thoughtSignature` stays alone, also if its
  text is empty: Gemini wants each signature back on exactly the part it came with, not merged with others.
- `functionCall` is a call of the client, whole or streamed over several parts (`gemini_arguments`).
- `executableCode` and `toolCall` are calls that Google executes. They stay open until `codeExecutionResult` or
  `toolResponse` comes; both parts are kept whole, since both have to go back.
- `inlineData` and `fileData` are generated media: a call executed by the provider whose result is the picture.
- Grounding and citations are about the text: they are continuation data of the last text part.
"""

from typing import Any, ClassVar

import msgspec

from bartack.formats.decoder import Decoder
from bartack.formats.framing import Frame
from bartack.formats.gemini_generate.arguments import OutOfOrder, StreamedArguments
from bartack.formats.gemini_generate.chunks import Call, Candidate, Chunk, Counts, Part
from bartack.formats.gemini_generate.decode_values import media, media_tool, refuse, text_of
from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import ToolContent

__all__ = ["GeminiGenerate"]

_FINISH: dict[str | int, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    # Enum numbers: these four mean the same on the Gemini API and on Vertex AI, the higher ones do not.
    1: "stop",
    2: "length",
    3: "content_filter",
    4: "content_filter",
}
_UNSAID = frozenset((0, "", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED"))
_SUCCESS = ("OUTCOME_OK", 1)
_ABOUT_TEXT = {
    "groundingMetadata": "grounding_metadata",
    "citationMetadata": "citation_metadata",
    "urlContextMetadata": "url_context_metadata",
}


class GeminiGenerate(Decoder):
    """Reads chunks of `candidates`."""

    format: ClassVar[str] = "gemini-generate"
    events: ClassVar[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(Chunk)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._kind = ""  # of the part that is being written: text, thinking or call
        self._sealed = False  # that part has its signature, the next piece begins another
        self._calls = 0
        self._streamed: StreamedArguments | None = None  # the last call's arguments, while more are to come
        self._running: list[tuple[int, str, str]] = []  # Google's own calls without result: key, kind, id
        self._about_text: dict[str, Any] = {}
        self._counts: Counts | None = None

    def read(self, event: Chunk, frame: Frame) -> None:
        out = self.out
        if not out.started:
            out.start(event.model_version, event.response_id)
        if event.candidates:
            for candidate in event.candidates:
                if not candidate.index:  # of several alternative answers the first is read
                    self._read_candidate(candidate)
        counts = event.usage_metadata
        if counts is not None and counts.prompt_token_count is not None:
            if self._counts is None:
                self._tell_usage(counts)
            self._counts = counts
        if event.prompt_feedback is not None and event.prompt_feedback.block_reason not in (None, *_UNSAID):
            out.finish("content_filter", str(event.prompt_feedback.block_reason))
        if event.error is not None:
            self._tell_usage(self._counts)
            refuse(out, event.error)

    def read_unparsed(self, frame: Frame) -> bool:
        # Gateways add [DONE]; what else follows the terminal signal takes nothing away from the answer.
        return frame.data == b"[DONE]" or self.out.finish_reason is not None

    def read_end(self) -> None:
        self._tell_usage(self._counts)
        reason = self.out.finish_reason
        if reason is None:
            self.truncated("a finishReason")
            return
        if reason == "stop":  # else arguments without an end were cut off, and stay that way
            self._end_streamed()
        self._tell_about_text()
        self.out.done()

    def _read_candidate(self, candidate: Candidate) -> None:
        if candidate.grounding_metadata or candidate.citation_metadata or candidate.url_context_metadata:
            self._read_about_text(candidate)
        content = candidate.content
        if content is not None and content.parts:
            for part in content.parts:
                if self.out.ended:
                    return
                text = part.text
                if text is None or part.thought or part.thought_signature is not None:
                    self._read_part(part)
                elif text:
                    self.out.text(text, new_part=self._sealed)
                    self._sealed = False
                    self._kind = "text"
        reason = candidate.finish_reason
        if reason is not None and reason not in _UNSAID:
            self.out.finish(_FINISH.get(reason, "other"), str(reason))

    def _tell_usage(self, counts: Counts | None) -> None:
        """Every chunk counts; the first and the last are told. The last hold as a whole: with server-side tools, single
        counts go up and down."""
        if counts is None or self.out.ended:
            return
        thoughts = counts.thoughts_token_count
        self.out.usage(
            Usage(
                max(0, (counts.prompt_token_count or 0) + (counts.tool_use_prompt_token_count or 0)),
                max(0, (counts.candidates_token_count or 0) + (thoughts or 0)),
                cache_read_tokens=counts.cached_content_token_count,
                reasoning_tokens=thoughts,
            )
        )

    # -- parts that are not plain text

    def _read_part(self, part: Part) -> None:
        signature = part.thought_signature
        if part.function_call is not None:
            self._read_call(part.function_call, signature)
        elif part.executable_code is not None:
            code = part.executable_code
            arguments = {key: value for key, value in code.items() if key != "id"}
            self._open_provider_call("executableCode", code, signature, "code_execution", arguments)
        elif part.tool_call is not None:
            call = part.tool_call
            self._open_provider_call("toolCall", call, signature, text_of(call, "toolType"), call.get("args") or {})
        elif part.code_execution_result is not None:
            result = part.code_execution_result
            is_error = result.get("outcome") not in _SUCCESS
            self._close_provider_call("executableCode", "codeExecutionResult", result, signature, is_error=is_error)
        elif part.tool_response is not None:
            self._close_provider_call("toolCall", "toolResponse", part.tool_response, signature)
        elif part.inline_data is not None:
            self._read_media("inlineData", part.inline_data, signature)
        elif part.file_data is not None:
            self._read_media("fileData", part.file_data, signature)
        else:
            self._write(part.text or "", part.thought is True, signature)

    def _write(self, text: str, is_thought: bool, signature: str | None) -> None:
        kind = "thinking" if is_thought else "text"
        data: dict[str, Any] = {}
        if signature is not None:
            if not text and self._kind == "text":
                self._tell_about_text()
            data["thoughtSignature"] = signature
        elif not text:
            return
        new_part = self._sealed or signature is not None
        if is_thought:
            if new_part or self._kind != "thinking":
                data["thought"] = True  # says that these are Gemini's own thoughts, which it takes back
            self.out.thinking(text, new_part=new_part, continuation=data or None)
        else:
            self.out.text(text, new_part=new_part, continuation=data or None)
        self._kind = kind
        self._sealed = signature is not None

    def _read_about_text(self, candidate: Candidate) -> None:
        for name, field in _ABOUT_TEXT.items():
            value = getattr(candidate, field)
            if value and self._pending.can_keep(value):
                self._about_text.setdefault(name, {}).update(value)

    def _tell_about_text(self) -> None:
        if self._about_text:
            self.out.text("", continuation=self._about_text)
            self._about_text = {}

    # -- calls of the client

    def _read_call(self, call: Call, signature: str | None) -> None:
        data: dict[str, Any] = {} if signature is None else {"thoughtSignature": signature}
        if call.name:
            self._end_streamed()
            self._open_call(call, data)
        streamed = self._streamed
        if streamed is None or self.out.ended:
            return  # the end of a call that has ended already
        try:
            for piece in call.partial_args or ():
                self.out.call_args(self._calls, streamed.write(piece))
        except OutOfOrder as error:
            self.out.fail(ErrorCode.STREAM_MALFORMED, f"streamed arguments do not follow each other: {error}")
            return
        if not call.will_continue:
            self._end_streamed(None if call.name else data)

    def _open_call(self, call: Call, data: dict[str, Any]) -> None:
        self._calls += 1
        self._kind = "call"
        self._sealed = False
        if call.id:
            data["id"] = call.id  # says that Gemini knows this call by an id
        self.out.open_call(self._calls, call.name or "", provider_id=call.id, continuation=data or None)
        self._streamed = StreamedArguments()
        whole = bytes(call.args)
        if whole and whole != b"null":
            try:
                self.out.call_args(self._calls, whole.decode())
            except UnicodeDecodeError as error:  # what is not parsed has not been checked either
                self.out.fail(ErrorCode.STREAM_MALFORMED, f"arguments are not text: {error}")

    def _end_streamed(self, data: dict[str, Any] | None = None) -> None:
        if self._streamed is not None:
            self.out.call_args(self._calls, self._streamed.end())
            self.out.close_call(self._calls, continuation=data or None)
            self._streamed = None

    # -- calls of the provider

    def _open_provider_call(
        self, kind: str, value: dict[str, Any], signature: str | None, name: str, arguments: Any
    ) -> None:
        if not self._pending.can_keep(value):
            return
        self._begin_provider_call(name, text_of(value, "id"), _whole_part(kind, value, signature))
        self.out.call_args(self._calls, json_text(arguments))
        self._running.append((self._calls, kind, text_of(value, "id")))

    def _begin_provider_call(self, name: str, provider_id: str, part: dict[str, Any] | None) -> None:
        self._end_streamed()
        self._calls += 1
        self._kind = "call"
        self._sealed = False
        self.out.open_call(
            self._calls,
            name,
            provider_id=provider_id or None,
            executed_by="provider",
            continuation=None if part is None else {"part": part},
        )

    def _close_provider_call(
        self, call_kind: str, kind: str, value: dict[str, Any], signature: str | None, *, is_error: bool = False
    ) -> None:
        if not self._pending.can_keep(value):
            return
        call_id = text_of(value, "id")
        fitting = [one for one in self._running if one[1] == call_kind and call_id in ("", one[2])]
        if fitting:
            self._running.remove(fitting[0])
            key = fitting[0][0]
        else:  # its call stood in an earlier message
            self._begin_provider_call(text_of(value, "toolType") or "code_execution", call_id, None)
            key = self._calls
        data = {"resultPart": _whole_part(kind, value, signature)}
        self.out.close_call(key, continuation=data, result=_readable(value), result_is_error=is_error)

    def _read_media(self, kind: str, value: dict[str, Any], signature: str | None) -> None:
        mime_type = text_of(value, "mimeType")
        content = media(mime_type, text_of(value, "data"), text_of(value, "fileUri"))
        if content is None:
            self.out.fail(ErrorCode.STREAM_MALFORMED, f"{kind} of type {mime_type!r} cannot be read")
            return
        kept = {key: item for key, item in value.items() if key != "data"}
        if self._pending.can_keep(kept):
            self._begin_provider_call(media_tool(mime_type), "", _whole_part(kind, kept, signature))
            self.out.close_call(self._calls, result=(content,))


def _whole_part(kind: str, value: dict[str, Any], signature: str | None) -> dict[str, Any]:
    return {kind: value} if signature is None else {kind: value, "thoughtSignature": signature}


def _readable(value: dict[str, Any]) -> ToolContent:
    response = value.get("response")
    return response if isinstance(response, dict) else text_of(value, "output")
