"""Events of a run as JSON objects. `bartack run --json` prints one per line.

Each has ``event``, and depending on it:

- ``delta``: the latest delta of the stream, with the keys of a stored delta: ``runId seq kind payload timestamp``;
  for kind ``text`` the payload is ``{"textDelta": ...}``.
- ``snapshot``: the answer so far, as ``message``.
- ``tool``: ``toolCallId toolName state``; the state has a ``status``: pending, running, completed or error.
- ``approval``: a tool call that needs approval, as ``request``: ``toolCallId toolName arguments reason``.
- ``entry``: an entry that has just been stored, as ``entry``, in the canonical JSON of sessions.
- ``status``: ``status previous`` of the run.
- ``retry``: a model call failed and will be repeated: ``error modelCallIndex attempt delayMs``. The deltas of that call
  so far are void.
- ``model``: the run switched to another model: ``model previous reason losses``; losses are what is not sent to it.
- ``compacted``: older turns were replaced by a summary: ``entry tokensBefore tokensAfter``.
- ``subagent``: an event of an agent that a tool call runs: ``toolCallId agent inner``; inner is such an object again.
- ``paused``: the ``approvals`` that the run is waiting for.
- ``finished``: always the last one, also if the run could not start: ``status`` (completed, failed or aborted),
  ``sessionId runId text usage costUsd reason error``. Unknown values are null. ``error`` is
  ``{"errorCode", "message", "retryable", ...}``; it is null if and only if the run completed. This line is missing only
  after an unknown option or if the process is killed.

Later versions may add keys.
"""

from typing import Any, assert_never

from bartack import events
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.errors import ErrorCode
from bartack.nouns.tables import AgentStatus
from bartack.nouns.wire import dump

Json = dict[str, Any]


def event_json(event: events.Event) -> Json:
    """The event as a JSON object."""
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
            counts = {"modelCallIndex": event.model_call_index, "attempt": event.attempt, "delayMs": event.delay_ms}
            return {"event": "retry", "error": _payload(event.error), **counts}
        case events.ModelSwitched():
            models = {"model": dump(event.model), "previous": event.previous and dump(event.previous)}
            losses = list(map(dump, event.report.losses))
            return {"event": "model", **models, "reason": event.reason, "losses": losses}
        case events.Compacted():
            tokens = {"tokensBefore": event.tokens_before, "tokensAfter": event.tokens_after}
            return {"event": "compacted", "entry": dump(event.entry), **tokens}
        case events.SubagentEvent():
            call = {"toolCallId": event.tool_call_id, "agent": event.agent}
            return {"event": "subagent", **call, "inner": event_json(event.event)}
        case events.RunPaused():
            approvals, deferred = list(map(dump, event.approvals)), list(map(dump, event.deferred))
            return {"event": "paused", "approvals": approvals, "deferred": deferred}
        case events.RunFinished():
            return finished_json(event.result, event.result.error)
        case _:
            assert_never(event)


def finished_json(result: events.RunResult | None, error: Failed | None) -> Json:
    """The `finished` object; `result` is None if the run failed or was stopped before it had one."""
    message = None if result is None else result.message
    status = AgentStatus.FAILED if result is None else result.status
    if result is not None and error is None and status is AgentStatus.ABORTED:
        error = Failed(ErrorCode.ABORTED, result.reason or "stopped")
    if result is None and error is not None and error.error_code is ErrorCode.ABORTED:
        status = AgentStatus.ABORTED
    usage = None if result is None else result.usage
    return {
        "event": "finished",
        "status": str(status),
        "sessionId": result and result.session_id,
        "runId": result and result.run_id,
        "text": message and message.text,
        "usage": usage and _payload(usage),
        "costUsd": result and result.cost_usd,
        "reason": result and result.reason,
        "error": error and _payload(error),
    }


def _payload(delta: Failed | Usage) -> Json:
    """The delta without its kind."""
    payload: Json = dump(delta)["payload"]
    return payload
