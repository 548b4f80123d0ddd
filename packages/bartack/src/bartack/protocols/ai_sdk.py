"""The UI message stream of the AI SDK, versions 5, 6 and 7: the events of a run -> chunks for `useChat`.

    stream = UIMessageStream(version=6)
    async for event in run:
        send(stream.frames(event))
    send(stream.close())

A client rejects a chunk that its version does not define, and treats a stream that merely stops as a finished answer.
So nothing unknown is sent, and every stream ends with `finish`, `abort` or `error`, then ``[DONE]``. One run is one
message, whose id is that of the run; each model call is a step of it.

What a version lacks is sent as a data part:

- ``data-retry`` (5 and 6): everything since the last ``step-start`` is void, because the model call is repeated or the
  answer was changed. Version 7 has ``reset-step``, which removes it.
- ``data-user-message`` (5 and 6): a message that joined the run; ``steering-message`` in 7.

A question is a part ``data-approval`` in all versions, because their own chunks have neither the preview of the call
nor the time limit; it is sent again with the decision. Its id, like the ``approvalId`` of 6 and 7, names exactly what
is shown (`bartack.session.decisions.approval_id`), so a decision applies to nothing else.

A fact of the application (`bartack.store.requests.note`) is a part ``data-NAME`` in all versions. A call that runs a
sub-agent has a part ``data-subagent``, which names the session of that agent, and its steps are preliminary outputs.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Any, Literal, assert_never

from bartack.display import changes as c
from bartack.display.question_text import question_text
from bartack.display.run_reader import RunReader
from bartack.events import Event, LiveEvent
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Entry
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.json_values import write_time_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, Text, ToolResult
from bartack.nouns.wire import dump
from bartack.protocols.content import HEADERS as SSE_HEADERS
from bartack.protocols.content import content_text, media_type_of, media_url, sse
from bartack.session.decisions import approval_id, question_digest

__all__ = [
    "DONE",
    "HEADERS",
    "Chunk",
    "UIMessageStream",
    "Version",
    "output_json",
    "ui_file",
    "ui_parts",
]

Chunk = dict[str, Any]
Version = Literal[5, 6, 7]

HEADERS = {**SSE_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}
DONE = b"data: [DONE]\n\n"

_FINISH_REASONS = {"stop": "stop", "length": "length", "tool_calls": "tool-calls", "content_filter": "content-filter"}
_APPROVED = {"approve": True, "modify_args": True, "deny": False, "abort": False, "expire": False}


class UIMessageStream:
    """Writes one run for one client."""

    def __init__(
        self,
        version: Version = 6,
        *,
        earlier: Iterable[Entry] = (),
        taken_keys: Iterable[str] = (),
        from_start: bool = False,
        static_tools: Container[str] = (),
        metadata: bool = True,
    ) -> None:
        """`earlier` are the entries of the run that the client has received before, if the run continues, and
        `taken_keys` the ids of the calls in its message. With `from_start`, what precedes the start of the run is not
        its own.

        Tools in `static_tools` are those that the page has types for; their parts are called ``tool-NAME``, all others
        ``dynamic-tool``. With `metadata` the message gets the usage and the cost of the run.
        """
        if version not in (5, 6, 7):
            raise PartValidationError(f"Unknown version {version!r} of the AI SDK; known: 5, 6, 7.", path="$.version")
        self.version = version
        self._reader = RunReader(earlier, taken_keys, from_start=from_start)
        self._static_tools = static_tools
        self._has_metadata = metadata
        self._has_started = False
        self._is_in_step = False
        self._voided = 0
        self._subagents: set[str] = set()  # the keys of calls whose sub-agent has been named

    @property
    def is_ended(self) -> bool:
        """Whether the last frame has been written."""
        return self._reader.is_ended

    def frames(self, event: Event | LiveEvent) -> bytes:
        """What to send for an event, which may be nothing."""
        return self._framed(self.chunks(event))

    def close(self, error: Failed | None = None) -> bytes:
        """What to send if there are no further events; nothing if the stream has ended."""
        return self._framed(self.closing_chunks(error))

    @property
    def call_ids(self) -> dict[str, str]:
        """The ids of the calls without a result, by the ids that the client knows."""
        return self._reader.call_ids

    @property
    def is_waiting(self) -> bool:
        """Whether the run waits for approvals, so that the stream can be ended with `pause`."""
        return self._reader.is_waiting

    def pause(self) -> bytes:
        """What to send for a run that `is_waiting`. The client sends the decisions as a new request."""
        return self._framed(self._encoded(self._reader.pause()))

    def data(self, name: str, data: Any, *, id: str | None = None, transient: bool = False) -> bytes:
        """A data part of your own. One with the same name and id replaces an earlier one."""
        if self.is_ended:
            raise PartValidationError("The stream has ended.", path="$")
        chunk = {"type": f"data-{name}", "data": data, **({} if id is None else {"id": id})}
        return sse([*self._start(), {**chunk, "transient": True} if transient else chunk])

    def _framed(self, chunks: list[Chunk]) -> bytes:
        if not chunks:
            return b""
        return sse(chunks) + DONE if self.is_ended else sse(chunks)

    # -- chunks

    def chunks(self, event: Event | LiveEvent) -> list[Chunk]:
        """The chunks for an event."""
        return self._encoded(self._reader.read(event))

    def closing_chunks(self, error: Failed | None = None) -> list[Chunk]:
        """The chunks for a stream whose run has not ended."""
        return self._encoded(self._reader.close(error))

    def _encoded(self, all_changes: Iterable[c.Change]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for change in all_changes:
            if not self._has_started:
                chunks += self._start()
            chunks += self._encode(change)
        return chunks

    def _start(self) -> list[Chunk]:
        if self._has_started:
            return []
        self._has_started = True
        run_id = self._reader.run_id
        return [{"type": "start"} if run_id is None else {"type": "start", "messageId": run_id}]

    def _encode(self, change: c.Change) -> Iterable[Chunk]:
        match change:
            case c.TextGrew():
                return ({"type": f"{_text(change.kind)}-delta", "id": change.key, "delta": change.text},)
            case c.CallGrew():
                return ({"type": "tool-input-delta", "toolCallId": change.key, "inputTextDelta": change.text},)
            case c.TextStarted():
                return ({"type": f"{_text(change.kind)}-start", "id": change.key},)
            case c.TextEnded():
                return ({"type": f"{_text(change.kind)}-end", "id": change.key},)
            case c.StepStarted():
                return self._start_step()
            case c.StepVoided():
                return self._void_step(change.error)
            case c.StepFinished() | c.CallRunning():  # the step includes its tools
                return ()
            case c.SubagentChanged() | c.AttemptFailed():  # seen as progress, and as a step that is voided
                return ()
            case c.MessageAdded():
                return (*self._finish_step(), self._added(change))
            case c.Noted():
                return ({"type": f"data-{change.name}", "id": change.entry_id, "data": change.data},)
            case c.RunPauses():
                return (*self._finish_step(), {"type": "finish", "finishReason": "tool-calls"})
            case c.RunEnds():
                return self._end(change)
            case _:
                return self._call(change)

    # -- steps and the end

    def _start_step(self) -> Iterator[Chunk]:
        yield from self._finish_step()
        self._is_in_step = True
        yield {"type": "start-step"}

    def _finish_step(self) -> list[Chunk]:
        if not self._is_in_step:
            return []
        self._is_in_step = False
        return [{"type": "finish-step"}]

    def _void_step(self, error: Failed | None) -> Iterator[Chunk]:
        if self.version >= 7:
            yield {"type": "reset-step"}
            return
        self._voided += 1
        reason = "The answer was changed." if error is None else error.message or str(error.error_code)
        yield {"type": "data-retry", "id": f"retry-{self._voided}", "data": {"reason": reason}}
        yield from self._start_step()

    def _added(self, change: c.MessageAdded) -> Chunk:
        parts = ui_parts(change.message)
        if self.version >= 7:
            return {"type": "steering-message", "id": change.entry_id, "parts": parts}
        return {"type": "data-user-message", "id": change.entry_id, "data": {"parts": parts}}

    def _end(self, end: c.RunEnds) -> Iterator[Chunk]:
        yield from self._finish_step()
        metadata = _metadata(end) if self._has_metadata else {}
        if metadata:
            yield {"type": "message-metadata", "messageMetadata": metadata}
        match end.status:
            case "completed":
                yield {"type": "finish", "finishReason": _FINISH_REASONS.get(end.reason or "stop", "other")}
            case "aborted":
                reason = {"reason": end.reason} if end.reason is not None and self.version >= 6 else {}
                yield {"type": "abort", **reason}
            case "failed":
                yield {"type": "error", "errorText": _error_text(end)}
            case _:
                assert_never(end.status)

    # -- calls

    def _call(
        self,
        change: c.CallStarted
        | c.CallReady
        | c.CallDropped
        | c.CallAsked
        | c.CallDecided
        | c.CallProgressed
        | c.CallEnded,
    ) -> Iterable[Chunk]:
        call: Chunk = {"toolCallId": change.key}
        if change.tool_name not in self._static_tools:
            call["dynamic"] = True
        named_call = {**call, "toolName": change.tool_name}
        match change:
            case c.CallStarted():
                # Clients send decisions once no call of the last step is open, and the one of the sub-agent stays open.
                step = self._start_step() if change.is_nested else ()
                return (*step, {"type": "tool-input-start", **named_call, **_executed(change.by_provider)})
            case c.CallReady(fault=None):
                executed = _executed(change.by_provider)
                return ({"type": "tool-input-available", **named_call, "input": change.arguments, **executed},)
            case c.CallReady():
                return (
                    {"type": "tool-input-error", **named_call, "input": change.raw_text, "errorText": change.fault},
                )
            case c.CallDropped():
                return ({"type": "tool-input-error", **named_call, "input": None, "errorText": change.reason},)
            case c.CallAsked():
                return self._asked(change)
            case c.CallDecided():
                return self._decided(change)
            case c.CallProgressed():
                progress = {"type": "tool-output-available", **call, "output": change.content, "preliminary": True}
                return (*self._subagent(change), progress)
            case c.CallEnded():
                return (self._ended(change, call),)
            case _:
                assert_never(change)

    def _subagent(self, change: c.CallProgressed) -> Iterator[Chunk]:
        if change.subagent is not None and change.key not in self._subagents:
            self._subagents.add(change.key)
            data = {
                "toolCallId": change.key,
                "name": change.subagent.name,
                "sessionId": change.subagent.session_id,
            }
            yield {"type": "data-subagent", "id": change.key, "data": data}

    def _asked(self, change: c.CallAsked) -> Iterator[Chunk]:
        request = change.request
        expires_at = None if request.expires_at is None else write_time_text(request.expires_at)
        data = {
            "toolCallId": change.key,
            "toolName": change.tool_name,
            "input": request.arguments,
            "reason": request.reason,
            "expiresAt": expires_at,
            "preview": request.preview,
            "text": question_text(request),
        }
        yield {"type": "data-approval", "id": approval_id(request), "data": data}
        if self.version >= 6:
            reason = {"reason": request.reason} if request.reason is not None and self.version >= 7 else {}
            ids = {"approvalId": approval_id(request), "toolCallId": change.key}
            yield {"type": "tool-approval-request", **ids, **reason}

    def _decided(self, change: c.CallDecided) -> Iterator[Chunk]:
        decided, request = change.decision, change.request
        if request is None or decided.decision not in _APPROVED:
            return  # it leaves the question open
        if decided.question_digest not in (None, question_digest(request)):
            return  # it is about a question that has been asked again since
        outcome: Chunk = {"approved": _APPROVED[decided.decision]}
        if decided.reason is not None:
            outcome["reason"] = decided.reason
        data = {"toolCallId": change.key, "toolName": change.tool_name, **outcome}
        yield {"type": "data-approval", "id": approval_id(request), "data": data}
        if self.version >= 7:  # version 6 learns it from the result
            yield {"type": "tool-approval-response", "approvalId": approval_id(request), **outcome}

    def _ended(self, change: c.CallEnded, call: Chunk) -> Chunk:
        result, executed = change.result, _executed(change.by_provider)
        if not result.is_error:
            return {"type": "tool-output-available", **call, "output": output_json(result), **executed}
        if result.error_code is ErrorCode.TOOL_DENIED and change.was_asked and self.version >= 6:
            return {"type": "tool-output-denied", "toolCallId": change.key}
        return {"type": "tool-output-error", **call, "errorText": content_text(result.content), **executed}


def _text(kind: c.TextKind) -> str:
    return "text" if kind == "text" else "reasoning"


def _executed(by_provider: bool) -> Chunk:
    return {"providerExecuted": True} if by_provider else {}


def _error_text(end: c.RunEnds) -> str:
    error = end.error
    return (error and (error.message or str(error.error_code))) or end.reason or "The run failed."


def _metadata(end: c.RunEnds) -> dict[str, Any]:
    values = {"usage": None if end.usage is None else dump(end.usage)["payload"], "costUsd": end.cost_usd}
    return {name: value for name, value in values.items() if value is not None}


# -- content


def output_json(result: ToolResult) -> Any:
    """What a tool returned, as JSON; images and files as parts with their URL."""
    if isinstance(result.content, tuple):
        return [ui_part(part) for part in result.content]
    return result.value


def ui_parts(message: Message) -> list[Chunk]:
    return [ui_part(part) for part in message.parts if isinstance(part, ContentPart)]


def ui_part(part: ContentPart) -> Chunk:
    return {"type": "text", "text": part.text} if isinstance(part, Text) else ui_file(part)


def ui_file(part: Image | FileRef) -> Chunk:
    """An image or a file as a file part."""
    name = part.path if isinstance(part, FileRef) else part.name
    file = {"type": "file", "mediaType": media_type_of(part), "url": media_url(part)}
    return file if name is None else {**file, "filename": name}
