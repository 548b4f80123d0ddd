"""AG-UI 1.0: the events of a run -> the events that a client of the protocol expects.

    stream = AgUiStream(
        input.thread_id, input.run_id, protocol_version=input.protocol_version, messages=input.messages
    )
    async for event in run:
        send(stream.frames(event))
    send(stream.close())

An answer is an assistant message with text and calls, and a reasoning message for each thinking part. What was shown
and does not count is taken back with ``MESSAGES_SNAPSHOT``, for which the encoder keeps the messages that the client
has. A run that needs approvals finishes with an interrupt for each, and one that waits for tools of the page with their
calls pending; the client continues with a run of its own. A client takes a stream that merely stops for a success, so
every stream ends with ``RUN_FINISHED`` or ``RUN_ERROR``.

The sub-agent that a call runs is announced and ended with ``SUBAGENT_STARTED`` and ``SUBAGENT_FINISHED`` or
``SUBAGENT_ERROR``; its id is that of its session. Its steps are ``CUSTOM`` events of its own, and never messages: the
messages of a thread are those of one session. A client that wants all of it opens that session as a thread.

A fact of the application called ``state`` is a ``STATE_SNAPSHOT``; any other is ``CUSTOM``.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, assert_never

from bartack.display import changes as c
from bartack.display.question_text import question_text
from bartack.display.run_reader import RunReader
from bartack.display.shown_step import ShownCall
from bartack.events import Event, LiveEvent
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import ApprovalRequired, Entry
from bartack.nouns.json_values import json_text, write_time_text
from bartack.nouns.parts import ToolResult
from bartack.protocols.ag_ui_messages import Json, message_json, place_of, result_json
from bartack.protocols.content import HEADERS, content_text, sse
from bartack.session.decisions import approval_id

__all__ = ["HEADERS", "PROTOCOL_VERSION", "STATE", "AgUiStream"]

PROTOCOL_VERSION = "1.0"
STATE = "state"  # the name of the application's fact that is the state shared with the client
_MAX_COUNT = 2**53 - 1  # larger integers are not valid
_USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "reasoningTokens": "reasoning_tokens",
    "cachedInputTokens": "cache_read_tokens",
    "cacheWriteInputTokens": "cache_write_tokens",
}


class AgUiStream:
    """Writes one run of a client."""

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        *,
        parent_run_id: str | None = None,
        protocol_version: str | None = None,
        messages: Iterable[Json] = (),
        state: Json | None = None,
        earlier: Iterable[Entry] = (),
        from_start: bool = False,
        snapshot: bool = False,
    ) -> None:
        """`run_id` is the client's name for the run, `parent_run_id` that of the run which spawned it, and `messages`
        are those that it has. `protocol_version` is the one that its input names, which clients before 1.0 do not.

        `earlier` are the entries of our run that it has received before, if the run continues. With `from_start`, what
        precedes the start of the run is not its own. With `snapshot` it gets all `messages` and the `state` first,
        because it has none.
        """
        self._parent = {} if parent_run_id is None else {"parentRunId": parent_run_id}
        self._is_version_1 = protocol_version is not None
        self._state = state
        self._ids = {"threadId": thread_id, "runId": run_id}
        self.messages: list[Json] = deepcopy(list(messages))
        calls = (call for message in self.messages for call in message.get("toolCalls") or ())
        self._reader = RunReader(earlier, (call["id"] for call in calls), from_start=from_start)
        self._starts_with_snapshot = snapshot
        self._has_started = False
        self._is_outdated = False  # the client needs a snapshot
        self._step: int | None = None
        self._message_id = ""
        self._reasoning: list[str] = []  # the ids of the reasoning messages of the step
        self._pieces: list[str] = []  # what has arrived of the text that grows
        self._arguments: dict[str, list[str]] = {}  # what has arrived of the arguments of open calls, by key
        self._subagents: dict[str, c.Subagent] = {}  # the sub-agents that work, by the keys of their calls

    @property
    def is_ended(self) -> bool:
        """Whether the last event has been written."""
        return self._reader.is_ended

    @property
    def call_ids(self) -> dict[str, str]:
        """The ids of the calls without a result, by the ids that the client knows."""
        return self._reader.call_ids

    @property
    def is_waiting(self) -> bool:
        """Whether the run awaits a decision or a result, so that the stream can be ended with `pause`."""
        return self._reader.is_waiting

    def frames(self, event: Event | LiveEvent) -> bytes:
        """What to send for an event, which may be nothing."""
        return sse(self.events(event))

    def pause(self) -> bytes:
        """What to send for a run that `is_waiting`."""
        return sse(self._encoded(self._reader.pause()))

    def close(self, error: Failed | None = None) -> bytes:
        """What to send if there are no further events; nothing if the stream has ended."""
        return sse(self.closing_events(error))

    def events(self, event: Event | LiveEvent) -> list[Json]:
        """The events of the protocol for one of ours."""
        return self._encoded(self._reader.read(event))

    def closing_events(self, error: Failed | None = None) -> list[Json]:
        """The events for a stream whose run has not ended."""
        return self._encoded(self._reader.close(error))

    def finish(self) -> bytes:
        """What to send if there is no run to show, only the messages."""
        return sse(self._encoded([c.RunEnds(status="completed")]))

    def _encoded(self, all_changes: Iterable[c.Change]) -> list[Json]:
        events: list[Json] = []
        for change in all_changes:
            if not self._has_started:
                self._has_started = True
                ids = {**self._ids, **self._parent}
                events.append({"type": "RUN_STARTED", **ids, "protocolVersion": PROTOCOL_VERSION})
                if self._starts_with_snapshot:
                    events.append(self._snapshot())
                    if self._state is not None:
                        events.append({"type": "STATE_SNAPSHOT", "snapshot": self._state})
            events += self._encode(change)
        return events

    def _encode(self, change: c.Change) -> Iterable[Json]:
        match change:
            case c.TextStarted() | c.TextGrew() | c.TextEnded():
                return self._text(change)
            case c.CallStarted() | c.CallGrew() | c.CallReady() | c.CallDropped():
                return self._call(change)
            case c.CallEnded():
                return self._result(change)
            case c.CallProgressed():
                return self._progress(change)
            case c.CallRunning():
                return self._start_subagent(change)
            case c.CallAsked() | c.CallDecided():  # questions are asked when the run pauses
                return ()
            case c.SubagentChanged() | c.AttemptFailed():  # seen as progress, and as a step that is voided
                return ()
            case c.StepStarted():
                return self._start_step(change.number)
            case c.StepVoided():
                return self._void_step()
            case c.StepFinished():
                return self._finish_step()
            case c.MessageAdded():
                return self._add_message(change)
            case c.Noted():
                return (_noted(change),)
            case c.RunPauses():
                return self._pause(change)
            case c.RunEnds():
                return self._end(change)
            case _:
                assert_never(change)

    # -- steps

    def _start_step(self, number: int) -> Iterator[Json]:
        self._step = number
        self._message_id = f"{self._reader.run_id}-{number}"
        self._reasoning = []
        yield {"type": "STEP_STARTED", "stepName": f"step-{number}"}

    def _finish_step(self) -> Iterator[Json]:
        if self._step is not None:
            yield {"type": "STEP_FINISHED", "stepName": f"step-{self._step}"}
            self._step = None
        if self._is_outdated:
            yield self._snapshot()

    def _void_step(self) -> Iterator[Json]:
        """Take back the messages of the step. A client keeps reasoning that a snapshot leaves out, so it is emptied."""
        voided = self._find(self._message_id)
        if voided is not None:
            calls = {call["id"] for call in voided.get("toolCalls", ())}
            self.messages = [
                message for message in self.messages if message is not voided and message.get("toolCallId") not in calls
            ]
        for message in self.messages:
            if message["id"] in self._reasoning:
                message["content"] = ""
        self._reasoning = []
        yield self._snapshot()

    def _snapshot(self) -> Json:
        self._is_outdated = False
        return {"type": "MESSAGES_SNAPSHOT", "messages": deepcopy(self.messages)}

    # -- messages

    def _find(self, message_id: str) -> Json | None:
        return next((message for message in reversed(self.messages) if message["id"] == message_id), None)

    def _opened(self, message_id: str, **fields: Any) -> Json:
        message = self._find(message_id)
        if message is None:
            message = {"id": message_id, **fields}
            self.messages.append(message)
        return message

    def _text(self, change: c.TextStarted | c.TextGrew | c.TextEnded) -> Iterator[Json]:
        """Text is in the message of the step; each thinking part is a reasoning message, with an event around it."""
        is_thinking = change.kind == "thinking"
        if is_thinking and isinstance(change, c.TextStarted):
            self._reasoning.append(f"{self._message_id}-r{len(self._reasoning) + 1}")
        message_id = self._reasoning[-1] if is_thinking else self._message_id
        role, prefix = ("reasoning", "REASONING") if is_thinking else ("assistant", "TEXT")
        to = {"messageId": message_id}
        match change:
            case c.TextStarted():
                self._opened(message_id, role=role, content="").setdefault("content", "")
                if is_thinking:
                    yield {"type": "REASONING_START", **to}
                yield {"type": f"{prefix}_MESSAGE_START", **to, "role": role}
            case c.TextGrew():
                self._pieces.append(change.text)
                yield {"type": f"{prefix}_MESSAGE_CONTENT", **to, "delta": change.text}
            case _:
                self._opened(message_id)["content"] += self._taken()
                yield {"type": f"{prefix}_MESSAGE_END", **to}
                if is_thinking:
                    yield {"type": "REASONING_END", **to}

    def _taken(self) -> str:
        text = "".join(self._pieces)
        self._pieces = []
        return text

    def _add_message(self, change: c.MessageAdded) -> Iterator[Json]:
        yield from self._finish_step()
        messages = message_json(change.message.id or change.entry_id, change.message)
        if self._find(messages[0]["id"]) is not None:
            return  # the client sent it together with its answers
        self.messages += messages
        for message in messages:
            if not isinstance(message["content"], str):  # only text can be streamed
                yield self._snapshot()
                return
            to = {"messageId": message["id"]}
            yield {"type": "TEXT_MESSAGE_START", **to, "role": "user"}
            if message["content"]:
                yield {"type": "TEXT_MESSAGE_CONTENT", **to, "delta": message["content"]}
            yield {"type": "TEXT_MESSAGE_END", **to}

    # -- calls

    def _call(self, change: c.CallStarted | c.CallGrew | c.CallReady | c.CallDropped) -> Iterator[Json]:
        key = change.key
        match change:
            case c.CallStarted():
                function = {"name": change.tool_name, "arguments": ""}
                owner = self._opened(self._message_id, role="assistant")
                owner.setdefault("toolCalls", []).append({"id": key, "type": "function", "function": function})
                self._arguments[key] = []
                ids = {"toolCallId": key, "toolCallName": change.tool_name, "parentMessageId": self._message_id}
                yield {"type": "TOOL_CALL_START", **ids}
            case c.CallGrew():
                yield self._grow(key, change.text)
            case c.CallReady():
                if key in self._arguments:
                    yield from self._complete(change)
            case _:
                if self._arguments.pop(key, None) is not None:
                    yield {"type": "TOOL_CALL_END", "toolCallId": key}
                self._drop(key)

    def _grow(self, key: str, text: str) -> Json:
        self._arguments[key].append(text)
        return {"type": "TOOL_CALL_ARGS", "toolCallId": key, "delta": text}

    def _complete(self, change: c.CallReady) -> Iterator[Json]:
        key = change.key
        if not "".join(self._arguments[key]).strip() and change.is_whole:
            yield self._grow(key, "{}")  # a client parses what it has received
        text = "".join(self._arguments.pop(key))
        yield {"type": "TOOL_CALL_END", "toolCallId": key}
        self._function(key)["arguments"] = text if change.is_whole else json_text(change.arguments)
        self._is_outdated = self._is_outdated or not change.is_whole

    def _function(self, key: str) -> Json:
        calls = self._opened(self._message_id)["toolCalls"]
        function: Json = next(call for call in calls if call["id"] == key)["function"]
        return function

    def _drop(self, key: str) -> None:
        owner = self._opened(self._message_id)
        owner["toolCalls"] = [call for call in owner["toolCalls"] if call["id"] != key]
        if not owner["toolCalls"]:
            del owner["toolCalls"]
            if "content" not in owner:
                self.messages.remove(owner)
        self._is_outdated = True

    def _result(self, change: c.CallEnded) -> Iterator[Json]:
        subagent = self._subagents.pop(change.key, None)
        if subagent is not None:
            yield _subagent_end(subagent, change.result)
        message = result_json(change.key, change.result)
        earlier = next((message for message in self.messages if message.get("toolCallId") == change.key), None)
        if earlier is not None:  # the client executed the tool itself, or has the result from an earlier run
            if earlier != message:  # another client posted first
                earlier.update(message)
                yield self._snapshot()
            return
        self.messages.insert(place_of(self.messages, change.key), message)
        fields = {"messageId": message["id"], "toolCallId": change.key, "content": message["content"], "role": "tool"}
        yield {"type": "TOOL_CALL_RESULT", **fields}

    def _progress(self, change: c.CallProgressed) -> Iterator[Json]:
        yield from self._start_subagent(change)
        value = {"toolCallId": change.key, "content": change.content, "title": change.title}
        yield {"type": "CUSTOM", "name": "tool_progress", "value": value, **_attributed(change.subagent)}

    def _start_subagent(self, change: c.CallRunning | c.CallProgressed) -> Iterator[Json]:
        subagent = change.subagent
        if subagent is None or change.key in self._subagents:
            return
        self._subagents[change.key] = subagent
        ids = {"subagentRunId": subagent.session_id, "parentToolCallId": change.key}
        yield {"type": "SUBAGENT_STARTED", **ids, "name": subagent.name}

    # -- the end

    def _pause(self, change: c.RunPauses) -> Iterator[Json]:
        yield from self._finish_step()
        interrupts = [_interrupt(request, self._reader.find(request.tool_call_id)) for request in change.approvals]
        for subagent in self._subagents.values():
            own = [interrupt["id"] for interrupt in interrupts if interrupt.get("subagentRunId") == subagent.session_id]
            suspended = {"type": "suspended", "interruptIds": own}
            yield {"type": "SUBAGENT_FINISHED", **_attributed(subagent), "outcome": suspended}
        outcome: Json = {"type": "success"}
        if self._is_version_1:  # clients before that refuse the ids
            outcome["pendingToolCallIds"] = list(change.deferred)
        if interrupts:
            outcome = {"type": "interrupt", "interrupts": interrupts}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}

    def _end(self, end: c.RunEnds) -> Iterator[Json]:
        yield from self._finish_step()
        for subagent in self._subagents.values():
            yield {"type": "SUBAGENT_ERROR", **_attributed(subagent), "message": "The run ended."}
        usage = {} if end.usage is None else {"usage": [_usage(end.usage)]}
        match end.status:
            case "completed":
                yield {"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "success"}, **usage}
            case "aborted":
                # Clients before 1.0 refuse this outcome, and have none for it.
                outcome = {"outcome": {"type": "cancelled"}} if self._is_version_1 else {}
                yield {"type": "RUN_FINISHED", **self._ids, **outcome, **usage}
            case "failed":
                error = end.error
                code = {} if error is None else {"code": str(error.error_code)}
                message = (error and (error.message or str(error.error_code))) or end.reason or "The run failed."
                yield {"type": "RUN_ERROR", "message": message, **code, **usage}
            case _:
                assert_never(end.status)


def _attributed(subagent: c.Subagent | None) -> Json:
    return {} if subagent is None else {"subagentRunId": subagent.session_id}


def _subagent_end(subagent: c.Subagent, result: ToolResult) -> Json:
    if result.is_error:
        return {"type": "SUBAGENT_ERROR", **_attributed(subagent), "message": content_text(result.content)}
    return {"type": "SUBAGENT_FINISHED", **_attributed(subagent), "outcome": {"type": "success"}}


def _interrupt(request: ApprovalRequired, call: ShownCall | None) -> Json:
    """A question, whose id names exactly what is shown. Its answer is ``{"approved": ..., "reason": ..., "arguments":
    ...}``."""
    properties: Json = {"approved": {"type": "boolean"}, "reason": {"type": "string"}}
    if request.parameters is not None:
        properties["arguments"] = request.parameters
    schema = {"type": "object", "properties": properties, "required": ["approved"]}
    expires = {} if request.expires_at is None else {"expiresAt": write_time_text(request.expires_at)}
    key = request.tool_call_id if call is None else call.key
    ids = {"id": approval_id(request), "reason": "tool_call", "toolCallId": key}
    preview = {} if request.preview is None else {"metadata": {"preview": request.preview}}
    asked_by = {} if call is None or call.outer is None else _attributed(call.outer.subagent)
    return {**ids, "message": question_text(request), "responseSchema": schema, **preview, **expires, **asked_by}


def _noted(change: c.Noted) -> Json:
    if change.name == STATE:
        return {"type": "STATE_SNAPSHOT", "snapshot": change.data}
    return {"type": "CUSTOM", "name": change.name, "value": change.data}


def _usage(usage: Usage) -> Json:
    counts = {name: getattr(usage, field) for name, field in _USAGE.items()}
    return {name: min(count, _MAX_COUNT) for name, count in counts.items() if count is not None}
