"""`UIMessageAssembler`: chunks of a UI message stream -> the `UIMessage` that a client of the AI SDK makes of them.

It follows the clients of versions 5, 6 and 7, and is stricter where they are lenient: a chunk that a version does not
define, a piece of a part that was not begun, and anything after the end raise `PartValidationError`.
"""

from typing import Any

from bartack.nouns.errors import PartValidationError
from bartack.protocols.ai_sdk import Chunk, Version
from bartack.stream.partial_json import PartialJson

__all__ = ["CHUNK_TYPES", "UIMessageAssembler"]

_SINCE_5 = """
    start start-step finish-step finish abort message-metadata error text-start text-delta text-end reasoning-start
    reasoning-delta reasoning-end tool-input-start tool-input-delta tool-input-available tool-input-error
    tool-output-available tool-output-error source-url source-document file
"""
_SINCE_6 = "tool-approval-request tool-output-denied"
_SINCE_7 = "tool-approval-response custom reasoning-file steering-message reset-step"

# The types that each version knows. Beside them, it knows those that begin with ``data-``.
CHUNK_TYPES: dict[Version, frozenset[str]] = {
    5: frozenset(_SINCE_5.split()),
    6: frozenset(f"{_SINCE_5} {_SINCE_6}".split()),
    7: frozenset(f"{_SINCE_5} {_SINCE_6} {_SINCE_7}".split()),
}
_OUTCOME = ("output", "errorText", "preliminary")  # the fields of a call that its next outcome replaces


class UIMessageAssembler:
    """Assembles one message. `message` is complete after each chunk."""

    def __init__(self, version: Version = 6) -> None:
        self.version = version
        self.message: dict[str, Any] = {"id": None, "role": "assistant", "parts": []}
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.is_ended = False
        self._is_in_step = False
        self._open: dict[tuple[str, str], Chunk] = {}  # texts and reasoning, by kind and id
        self._inputs: dict[str, PartialJson] = {}

    @property
    def parts(self) -> list[Chunk]:
        """The parts so far."""
        parts: list[Chunk] = self.message["parts"]
        return parts

    def add(self, chunk: Chunk) -> None:
        """Apply the next chunk."""
        kind = chunk["type"]
        if self.is_ended:
            raise _broken_stream_error(f"{kind} after the end")
        if kind.startswith("data-"):
            self._add_data(chunk)
        elif kind not in CHUNK_TYPES[self.version]:
            raise _broken_stream_error(f"version {self.version} has no chunk {kind}")
        elif kind.startswith("tool-"):
            self._add_tool(kind, chunk)
        elif kind.startswith(("text-", "reasoning-")):
            name, _, step = kind.partition("-")
            self._add_text(name, step, chunk)
        else:
            self._add_frame(kind, chunk)

    def _add_frame(self, kind: str, chunk: Chunk) -> None:
        match kind:
            case "start":
                self.message["id"] = chunk.get("messageId")
            case "start-step":
                self._expect_step(kind, is_open=False)
                self._is_in_step = True
                self.parts.append({"type": "step-start"})
            case "finish-step":
                self._expect_step(kind, is_open=True)
                self._is_in_step = False
                if self._open:
                    raise _broken_stream_error(f"finish-step while {sorted(self._open)} are open")
            case "reset-step":
                del self.parts[self._step_at :]
                self._open.clear()
                self._inputs.clear()
            case "message-metadata":
                self.message["metadata"] = {**self.message.get("metadata", {}), **chunk["messageMetadata"]}
            case "steering-message":
                self.parts.append({"type": kind, "id": chunk["id"], "parts": chunk["parts"]})
            case "finish" | "abort" | "error":
                self._expect_step(kind, is_open=False)
                if self._open:
                    raise _broken_stream_error(f"{kind} while {sorted(self._open)} are open")
                self.is_ended = True
                self.finish_reason, self.error = chunk.get("finishReason"), chunk.get("errorText")
            case _:
                raise _broken_stream_error(f"{kind} is not supported")

    def _expect_step(self, kind: str, *, is_open: bool) -> None:
        if self._is_in_step is not is_open:
            raise _broken_stream_error(f"{kind} {'outside of' if is_open else 'inside'} a step")

    def _add_data(self, chunk: Chunk) -> None:
        if chunk.get("transient"):
            return
        part: Chunk = {key: chunk[key] for key in ("type", "id", "data") if key in chunk}
        for earlier in self.parts:
            if "id" in part and (earlier["type"], earlier.get("id")) == (part["type"], part["id"]):
                earlier["data"] = part["data"]
                return
        self.parts.append(part)

    def _add_text(self, kind: str, step: str, chunk: Chunk) -> None:
        key = (kind, chunk["id"])
        if step == "start":
            if key in self._open:
                raise _broken_stream_error(f"{kind}-start of {chunk['id']!r}, which is open")
            self._open[key] = {"type": kind, "text": "", "state": "streaming"}
            self.parts.append(self._open[key])
            return
        part = self._open.get(key)
        if part is None:
            raise _broken_stream_error(f"{kind}-{step} of {chunk['id']!r}, which was not started")
        if step == "delta":
            part["text"] += chunk["delta"]
        else:
            part["state"] = "done"
            del self._open[key]

    # -- tools

    @property
    def _step_at(self) -> int:
        """Where the parts of the current step begin."""
        index = len(self.parts)
        while index and self.parts[index - 1]["type"] != "step-start":
            index -= 1
        return index

    def _add_tool(self, kind: str, chunk: Chunk) -> None:
        if kind == "tool-approval-response":
            if not self.respond(chunk):
                raise _broken_stream_error(f"{kind} to {chunk['approvalId']!r}, which was not requested")
        elif kind.startswith("tool-input-"):
            self._add_input(kind.removeprefix("tool-input-"), chunk)
        else:
            call_id = chunk["toolCallId"]
            part = _find(self.parts[self._step_at :], call_id) or _find(self.parts, call_id)
            if part is None:
                raise _broken_stream_error(f"{kind} of {call_id!r}, which was not started")
            if self.version == 5 and ("dynamic" in chunk) != (part["type"] == "dynamic-tool"):
                raise _broken_stream_error(f"{kind} of {call_id!r} differs from its part in being dynamic")
            _replace_outcome(part, _outcome(kind, chunk))

    def _add_input(self, step: str, chunk: Chunk) -> None:
        call_id = chunk["toolCallId"]
        part = _find(self.parts[self._step_at :], call_id)
        if step == "delta":
            if part is None or call_id not in self._inputs:
                raise _broken_stream_error(f"tool-input-delta of {call_id!r}, which was not started")
            self._inputs[call_id].feed(chunk["inputTextDelta"])
            part["input"] = self._inputs[call_id].value
            return
        if part is None:
            name = chunk["toolName"]
            kind = {"type": "dynamic-tool", "toolName": name} if chunk.get("dynamic") else {"type": f"tool-{name}"}
            part = {**kind, "toolCallId": call_id}
            self.parts.append(part)
        if step == "start":
            self._inputs[call_id] = PartialJson()
            _replace_outcome(part, {"state": "input-streaming", "input": None})
        elif step == "available":
            _replace_outcome(part, {"state": "input-available", "input": chunk["input"]})
        else:
            outcome = {"state": "output-error", "input": chunk["input"], "errorText": chunk["errorText"]}
            _replace_outcome(part, outcome)
        if "providerExecuted" in chunk:
            part["providerExecuted"] = True

    def respond(self, chunk: Chunk) -> bool:
        """Add the response to an approval; False if that was not requested.

        Version 6 has no chunk for it: its clients add what they respond to their own messages.
        """
        for part in self.parts:
            is_open = part.get("state") in ("approval-requested", "approval-responded")
            if is_open and part["approval"]["id"] == chunk["approvalId"]:
                part["state"] = "approval-responded"
                part["approval"].update({key: chunk[key] for key in ("approved", "reason") if key in chunk})
                return True
        return False


def _find(parts: list[Chunk], call_id: str) -> Chunk | None:
    """The last part of this call."""
    return next((part for part in reversed(parts) if part.get("toolCallId") == call_id), None)


def _replace_outcome(part: Chunk, outcome: Chunk) -> None:
    """Change a call. A field without a value is left out: clients refuse null where they expect nothing."""
    for name in _OUTCOME:
        part.pop(name, None)
    part.update(outcome)


def _outcome(kind: str, chunk: Chunk) -> Chunk:
    match kind:
        case "tool-approval-request":
            reason = {"requestReason": chunk["reason"]} if "reason" in chunk else {}
            return {"state": "approval-requested", "approval": {"id": chunk["approvalId"], **reason}}
        case "tool-output-denied":
            return {"state": "output-denied"}
        case "tool-output-error":
            return {"state": "output-error", "errorText": chunk["errorText"]}
        case _:
            preliminary = {"preliminary": True} if chunk.get("preliminary") else {}
            return {"state": "output-available", "output": chunk["output"], **preliminary}


def _broken_stream_error(text: str) -> PartValidationError:
    return PartValidationError(f"Invalid UI message stream: {text}.", path="$.type")
