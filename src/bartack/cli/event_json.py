"""Events of a run as JSON, one object per line: what `bartack run --json` prints.

Every line has ``event``, and by it:

- ``delta``: what the model said just now, with the keys of a stored delta: ``runId seq kind payload timestamp``;
  of kind ``text`` the payload is ``{"textDelta": ...}``.
- ``snapshot``: the answer so far as one ``message``.
- ``tool``: ``toolCallId toolName state``; the state has a ``status``: pending, running, completed or error.
- ``approval``: a call that may not run by itself, as ``request``: ``toolCallId toolName arguments reason``.
- ``entry``: a fact that is stored now, as ``entry``, in the canonical JSON of sessions.
- ``status``: ``status previous`` of the run.
- ``retry``: a model call failed and is made again: ``error modelCallIndex attempt delayMs``.
- ``model``: another model answers: ``model previous reason losses``; losses are what it is not told.
- ``compacted``: older turns became a summary: ``entry tokensBefore tokensAfter``.
- ``paused``: ``approvals`` that the run waits for.
- ``finished``: the last line, also of a run that could not begin: ``status`` (completed, failed or aborted),
  ``sessionId runId text usage costUsd reason error``. What is not known is null. ``error`` is
  ``{"errorCode", "message", "retryable", ...}`` and null for a run that completed, and for no other. Only options that
  do not exist and a process that is killed leave this line out.

Keys may be added in later versions.
"""

from typing import Any, assert_never

from bartack.agent import events
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.tables import AgentStatus
from bartack.nouns.wire import dump

__all__ = ["event_json", "finished_json"]

Json = dict[str, Any]


def event_json(event: events.Event) -> Json:
    """The event as a JSON object in Python values."""
    match event:
        case events.DeltaReceived():
            return {"event": "delta", **dump(event.delta)}
        case events.Snapshot():
            return {"event": "snapshot", "message": dump(event.message)}
        case events.ToolChanged():
            call = {"toolCallId": event.tool_call_id, "toolName": event.tool_name}
            return {"event": "tool", **call, "state": dump(event.state)}
        case events.ApprovalRequested():
            return {"event": "approval", "request": dump(event.request)}
        case events.EntryAppended():
            return {"event": "entry", "entry": dump(event.entry)}
        case events.StatusChanged():
            return {"event": "status", "status": str(event.status), "previous": str(event.previous)}
        case events.Retrying():
            return {
                "event": "retry",
                "error": _payload(event.error),
                "modelCallIndex": event.model_call_index,
                "attempt": event.attempt,
                "delayMs": event.delay_ms,
            }
        case events.ModelSwitched():
            return {
                "event": "model",
                "model": dump(event.model),
                "previous": None if event.previous is None else dump(event.previous),
                "reason": event.reason,
                "losses": [dump(loss) for loss in event.report.losses],
            }
        case events.Compacted():
            counts = {"tokensBefore": event.tokens_before, "tokensAfter": event.tokens_after}
            return {"event": "compacted", "entry": dump(event.entry), **counts}
        case events.RunPaused():
            return {"event": "paused", "approvals": list(map(dump, event.approvals))}
        case events.RunFinished():
            return finished_json(event.result, event.result.error)
        case _:
            assert_never(event)


def finished_json(result: events.RunResult | None, error: Failed | None) -> Json:
    """The last line; without a result the run failed, or was stopped, before there was one."""
    message = None if result is None else result.message
    status = AgentStatus.FAILED if result is None else result.status
    if result is not None and error is None and status is AgentStatus.ABORTED:
        error = Failed(ErrorCode.ABORTED, result.reason or "stopped")
    if result is None and error is not None and error.error_code is ErrorCode.ABORTED:
        status = AgentStatus.ABORTED
    return {
        "event": "finished",
        "status": str(status),
        "sessionId": None if result is None else result.session_id,
        "runId": None if result is None else result.run_id,
        "text": None if message is None else message.text,
        "usage": None if result is None or result.usage is None else _payload(result.usage),
        "costUsd": None if result is None else result.cost_usd,
        "reason": None if result is None else result.reason,
        "error": None if error is None else _payload(error),
    }


def _payload(delta: Failed | Usage) -> Json:
    """A delta without the word for its kind, which the key says already."""
    payload: Json = dump(delta)["payload"]
    return payload
