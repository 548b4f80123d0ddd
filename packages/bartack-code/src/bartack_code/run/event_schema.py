"""The JSON Schema of the lines that `bartack run --json` prints (`bartack_code.run.event_json`).

The promise to programs: within a major version, events and keys are added, but none is removed, renamed or given
another type. So programs ignore events and keys that they do not know, which the schema allows.
"""

from typing import Any

from bartack.nouns.schema import json_schema
from bartack.nouns.tables import AgentStatus

__all__ = ["event_schema"]

_TEXT = {"type": "string"}
_COUNT = {"type": "integer"}
_OBJECT = {"type": "object"}


def _noun(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _list_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


_CALL = {"toolCallId": _TEXT, "toolName": _TEXT}
_STATUS = {"enum": sorted(map(str, AgentStatus))}
_STATES = {"enum": ["pending", "running", "completed", "error"]}
_LOSS = {"type": "object", "properties": {"where": _TEXT, "what": _TEXT, "why": _TEXT}}

_EVENTS: dict[str, dict[str, Any]] = {
    "delta": {"runId": _TEXT, "seq": _COUNT, "kind": _TEXT, "payload": _OBJECT, "timestamp": _TEXT},
    "snapshot": {"message": _noun("Message")},
    "tool": {**_CALL, "state": {"type": "object", "properties": {"status": _STATES}, "required": ["status"]}},
    "approval": {"request": _noun("ApprovalRequired")},
    "entry": {"entry": _noun("Entry")},
    "status": {"status": _STATUS, "previous": _STATUS},
    "retry": {"error": _noun("Failed"), "modelCallIndex": _or_null(_COUNT), "attempt": _COUNT, "delayMs": _COUNT},
    "model": {
        "model": _noun("ModelRef"),
        "previous": _or_null(_noun("ModelRef")),
        "reason": {"enum": ["chosen", "fallback"]},
        "losses": _list_of(_LOSS),
    },
    "compacted": {"entry": _noun("Entry"), "tokensBefore": _or_null(_COUNT), "tokensAfter": _or_null(_COUNT)},
    "subagent": {"toolCallId": _TEXT, "agent": _TEXT, "inner": {"$ref": "#"}},
    "paused": {"approvals": _list_of(_noun("ApprovalRequired")), "deferred": _list_of(_noun("ToolStarted"))},
    "finished": {
        "status": _STATUS,
        "sessionId": _or_null(_TEXT),
        "runId": _or_null(_TEXT),
        "text": _or_null(_TEXT),
        "usage": _or_null(_noun("Usage")),
        "costUsd": _or_null({"type": "number"}),
        "reason": _or_null(_TEXT),
        "error": _or_null(_noun("Failed")),
    },
}


def event_schema() -> dict[str, Any]:
    """The schema of one line."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An event of bartack run --json",
        "type": "object",
        "properties": {"event": _TEXT},
        "required": ["event"],
        "allOf": [
            {
                "if": {"properties": {"event": {"const": name}}},
                "then": {"properties": keys, "required": list(keys)},
            }
            for name, keys in _EVENTS.items()
        ],
        "$defs": json_schema()["$defs"],
    }
