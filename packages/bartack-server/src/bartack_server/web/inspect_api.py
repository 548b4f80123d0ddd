"""Endpoints of the inspector: the request of a model call as it was sent, the current states of the
tables, and what the workers of the store are doing."""

from collections.abc import Sequence
from typing import Any

import msgspec

from bartack.models.provider import ProviderModel
from bartack.nouns.entries import CompactionSummary, Entry, StreamFailed
from bartack.nouns.errors import NotFound
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.tables import AGENT, ASSEMBLY, TOOL
from bartack.nouns.wire import dump
from bartack.session.run_state import RunState
from bartack.session.tool_state import fold_tools
from bartack.store.requests import load_state
from bartack_server.web.endpoint import Call, Endpoint, Query

__all__ = ["INSPECT_ENDPOINTS"]

_TITLES = {"agent": "the run", "tool": "the last tool call", "assembly": "the answer in progress"}


async def _request(call: Call) -> Any:
    """The body of the request that led to this answer or failure, and what was left out of it."""
    service, session_id = call.service, call.session_id
    branch = await service.store.load(session_id, head=call.request.path_params["entry"])
    used = _model_of(branch[-1])
    name = await service.runs.agent_of(session_id) or next(iter(service.agents))
    agent = service.agents[name]
    before = branch[: len(branch) - 1]
    rebuilt = await agent.request_after(session_id, before, used)
    request = rebuilt.request
    summary: dict[str, Any] = {
        "model": f"{request.provider}:{request.config.model_id}",
        "isExact": rebuilt.is_exact,
        "trimmed": [dump(note) for note in rebuilt.notes],
        "compacted": _compacted(before),
    }
    model = await agent.find_model(ModelRef(request.provider, request.config.model_id))
    if not isinstance(model, ProviderModel):
        body = {**dump(request), "messages": [dump(message) for message in request.messages]}
        return {**summary, "format": "canonical", "body": body, "losses": []}
    encoded = model.written(request)
    losses = [dump(loss) for loss in encoded.report.losses]
    return {**summary, "format": model.vendor.format, "body": msgspec.json.decode(encoded.body), "losses": losses}


def _model_of(entry: Entry) -> ModelRef | None:
    match entry.fact:
        case Message(role="assistant", meta=meta):
            return None if meta is None else meta.model
        case StreamFailed(model_call_index=int(), model=model):
            return model
        case _:
            raise NotFound(f"Entry {entry.id!r} is not an answer of a model, nor a failed attempt at one.")


def _compacted(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """The last summary in these entries, and which of them it replaces."""
    for entry in reversed(entries):
        if isinstance(entry.fact, CompactionSummary):
            first_kept_id = entry.fact.first_kept_entry_id
            seqs = [candidate.seq for candidate in entries]
            first = next((candidate.seq for candidate in entries if candidate.id == first_kept_id), entry.seq)
            return {"entryId": entry.id, "summary": entry.fact.summary, "from": seqs[0], "before": first}
    return None


async def _states(call: Call) -> Any:
    """The tables, each with the current state if there is one."""
    store, session_id = call.service.store, call.session_id
    branch = await store.load(session_id, head=call.query("head"))
    _, state = await load_state(store, session_id)
    is_arriving = bool(await store.read_journal(session_id))
    current = {
        "agent": _agent_state(state),
        "tool": _tool_state(branch),
        "assembly": "started" if is_arriving else _assembly_state(state),
    }
    tables: dict[str, Any] = {"agent": AGENT, "tool": TOOL, "assembly": ASSEMBLY}
    return {
        "tables": [
            {
                "name": name,
                "title": _TITLES[name],
                "current": current[name],
                "states": {str(source): {event: str(to) for event, to in row.items()} for source, row in table.items()},
            }
            for name, table in tables.items()
        ]
    }


def _agent_state(state: RunState) -> str:
    if state.run_id is None:
        return "idle" if state.ended is None else state.ended.status
    if state.questions:
        return "awaiting_human"
    return "tool_running" if state.open_calls else "model_running"


def _tool_state(branch: Sequence[Entry]) -> str | None:
    """The state of the last tool call."""
    states = list(fold_tools(branch).values())
    return str(states[-1].status) if states else None


def _assembly_state(state: RunState) -> str:
    if state.last_error is not None:
        return "error"
    return "idle" if state.last_message is None else "done"


async def _workers(call: Call) -> Any:
    """The status of the queue. Users see the runs of their own sessions only."""
    service = call.service
    status = await service.queue.status()
    status_json = status.as_json()
    for name, sessions in (
        ("running", [run.job.session_id for run in status.running]),
        ("stuck", [job.session_id for job in status.stuck]),
    ):
        status_json[name] = [row for row, id in zip(status_json[name], sessions, strict=True) if call.user.may_use(id)]
    return {**status_json, "isUsed": service.has_workers or bool(status.workers)}


_SESSION = "/api/sessions/{session:path}"

INSPECT_ENDPOINTS = (
    Endpoint(
        "GET",
        f"{_SESSION}/entries/{{entry}}/request",
        _request,
        "Return the request of a model call, by its answer or failure, and what was left out of it.",
    ),
    Endpoint(
        "GET",
        f"{_SESSION}/states",
        _states,
        "Return the state tables, with the current states.",
        query=(Query("head", "The last entry of the branch; by default the last entry of the session."),),
    ),
    Endpoint("GET", "/api/workers", _workers, "Return the workers, and the live and waiting runs."),
)
