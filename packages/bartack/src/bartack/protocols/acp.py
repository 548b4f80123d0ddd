"""The Agent Client Protocol of editors: the events of a run -> the updates of a session.

    updates = SessionUpdates("/home/ann/project")
    for event in events:
        for update in updates.of(event): ...        # as `session/update` sends them
    updates.stop_reason

An editor cannot take back what it shows, so a model call that is repeated is announced. `replayed` shows a stored
session from its beginning.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, Literal

from bartack.display import changes as c
from bartack.display.run_reader import RunReader, is_written
from bartack.display.shown_step import ShownKeys, given_id
from bartack.display.visible_text import visible_text
from bartack.events import EntryAppended, Event
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Entry, RunStarted
from bartack.nouns.json_values import write_bytes
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, Image, Text, ToolResult
from bartack.protocols.content import content_text, media_type_of
from bartack.session.redaction import visible

__all__ = ["SessionUpdates", "StopReason", "Update", "call_update", "fenced", "one_line", "replayed", "shown_before"]

Update = dict[str, Any]
StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

_KINDS = {
    "read_file": "read",
    "list_files": "read",
    "search_files": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "run_command": "execute",
    "check_job": "execute",
}
_AGAIN = "\n\n*The answer was interrupted and begins again.*\n\n"
_SUBJECTS = ("path", "command", "pattern", "query", "url")  # arguments that describe what a call is about


class SessionUpdates:
    """The updates of one run."""

    def __init__(self, directory: str, *, shown_keys: set[str] | None = None, from_start: bool = False) -> None:
        """`directory` is where the tools work: the protocol knows absolute paths only. `shown_keys` are the ids of
        the calls that the editor shows, to which those of this run are added: some models use an id more than once.
        With `from_start`, what precedes the start of the run is not its own.
        """
        self._directory = directory
        self._keys = set() if shown_keys is None else shown_keys
        self._reader = RunReader(taken_keys=self._keys, from_start=from_start)
        self.stop_reason: StopReason | None = None  # None as long as the run has not ended
        self.error: Failed | None = None

    def of(self, event: Event) -> Iterator[Update]:
        """The updates for an event."""
        for change in self._reader.read(event):
            yield from self._encode(change)

    def shown_id(self, call_id: str) -> str:
        """The id under which the editor shows a call that has no result."""
        call = self._reader.find(call_id)
        return call_id if call is None else call.key

    def _encode(self, change: c.Change) -> Iterable[Update]:
        match change:
            case c.TextGrew():
                return (_chunk("agent_message_chunk" if change.kind == "text" else "agent_thought_chunk", change.text),)
            case c.CallStarted():
                fields = {"title": change.tool_name, "kind": _KINDS.get(change.tool_name, "other"), "status": "pending"}
                if change.key in self._keys:  # another attempt at the same answer
                    return (_update(change.key, **fields, content=[]),)
                self._keys.add(change.key)
                return ({"sessionUpdate": "tool_call", "toolCallId": change.key, **fields},)
            case c.CallReady():
                return (_update(change.key, **call_update(change.tool_name, change.arguments, self._directory)),)
            case c.CallRunning():
                return (_update(change.key, status="in_progress"),)
            case c.CallProgressed():
                return (_update(change.key, content=[_text_content(change.content)]),)
            case c.CallDropped():
                return (_update(change.key, status="failed", content=[_text_content(change.reason)]),)
            case c.CallEnded():
                return (_result(change.key, change.result),)
            case c.StepFinished():
                return _without_result(change)
            case c.StepVoided():
                return (_chunk("agent_message_chunk", _AGAIN),)
            case c.MessageAdded():
                return message_updates(change.message)
            case c.RunEnds():
                self._end(change)
                return ()
            case _:
                return ()

    def _end(self, end: c.RunEnds) -> None:
        match end.status:
            case "completed":
                self.stop_reason = "end_turn"
            case "aborted":
                self.stop_reason = "cancelled"
            case _:
                reasons: dict[str, StopReason] = {
                    "length": "max_tokens",
                    "refusal": "refusal",
                    "content_filter": "refusal",
                    "max_iterations": "max_turn_requests",
                    "max_tool_rounds": "max_turn_requests",
                }
                self.stop_reason = reasons.get(end.reason or "")
                self.error = end.error


def replayed(entries: Iterable[Entry], directory: str, shown_keys: set[str] | None = None) -> Iterator[Update]:
    """The updates that show a stored session; pass the entries of one branch. The ids of its calls are added to
    `shown_keys`."""
    shown_keys = set() if shown_keys is None else shown_keys
    updates = SessionUpdates(directory, shown_keys=shown_keys)
    run_id: str | None = None
    for entry in visible(entries):
        fact = entry.fact
        if isinstance(fact, RunStarted) and entry.run_id != run_id:  # otherwise it was resumed
            updates, run_id = SessionUpdates(directory, shown_keys=shown_keys), entry.run_id
        if isinstance(fact, Message) and fact.role == "user" and is_written(fact):
            yield from message_updates(fact)
        else:
            yield from updates.of(EntryAppended(entry))


def shown_before(entries: Iterable[Entry]) -> set[str]:
    """The ids of the calls in an editor that shows a session already, whether it was replayed or shown live."""
    keys = ShownKeys()
    call_ids: set[str] = set()
    for entry in entries:
        for call in entry.fact.tool_calls if isinstance(entry.fact, Message) else ():
            call_ids |= {call.tool_call_id, keys.for_call(given_id(call))}
    return call_ids


def message_updates(message: Message) -> list[Update]:
    """A message of the user."""
    parts = [part for part in message.parts if isinstance(part, ContentPart)]
    return [{"sessionUpdate": "user_message_chunk", "content": _block(part)} for part in parts]


def call_update(tool_name: str, arguments: dict[str, Any], directory: str) -> Update:
    """What an editor shows of a call: a title, its kind, the files it is about, and the arguments."""
    subject = next((arguments[name] for name in _SUBJECTS if isinstance(arguments.get(name), str)), None)
    title = one_line(tool_name if subject is None else f"{tool_name}: {subject}")
    path = arguments.get("path")
    locations: Update = {}
    if isinstance(path, str) and tool_name in _KINDS:
        locations = {"locations": [{"path": str(PurePath(directory, path))}]}
    return {"title": title, "kind": _KINDS.get(tool_name, "other"), "rawInput": arguments, **locations}


def one_line(text: str) -> str:
    """Text of a model for a title or a button: nothing in it is invisible, not even the end of a line."""
    return visible_text(text).replace("\n", "\\n")


def fenced(text: str) -> Update:
    """Text of a model as content, which editors render as Markdown: in a block of code that it cannot end."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return _text_content(f"{fence}\n{text}\n{fence}")


def _without_result(step: c.StepFinished) -> Iterator[Update]:
    """The end of calls that the provider executed without reporting a result: nothing more will be known of them."""
    faults = (step.message.meta and step.message.meta.bad_args) or {}
    for call in step.message.tool_calls:
        if call.executed_by == "provider" and call.result is None:
            key, fault = step.keys[call.tool_call_id], faults.get(call.tool_call_id)
            if fault is None:
                yield _update(key, status="completed")
            else:
                yield _update(key, status="failed", content=[_text_content(fault)])


def _update(key: str, **fields: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": key, **fields}


def _result(key: str, result: ToolResult) -> Update:
    content = result.content
    if isinstance(content, tuple):
        blocks = [{"type": "content", "content": _block(part)} for part in content]
    else:
        blocks = [_text_content(content_text(content))]
    raw = {} if isinstance(content, tuple) else {"rawOutput": result.value}
    return _update(key, status="failed" if result.is_error else "completed", content=blocks, **raw)


def _chunk(kind: str, text: str) -> Update:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def _text_content(text: str) -> Update:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _block(part: ContentPart) -> Update:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image(data=bytes(data)):
            return {"type": "image", "data": write_bytes(data), "mimeType": part.mime_type}
        case Image():
            return {"type": "resource_link", "uri": part.url, "name": part.name or "image", "mimeType": part.mime_type}
        case _:
            uri = part.url or part.path
            return {"type": "resource_link", "uri": uri, "name": part.path, "mimeType": media_type_of(part)}
