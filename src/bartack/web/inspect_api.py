"""What the inspector shows: the request of a model call as it was sent, and where the state tables stand."""

from collections.abc import Sequence
from typing import Any

import msgspec

from bartack.models.provider import ProviderModel
from bartack.nouns.entries import Entry
from bartack.nouns.errors import NotFound
from bartack.nouns.messages import Message
from bartack.nouns.tables import AGENT, ASSEMBLY, TOOL
from bartack.nouns.wire import dump
from bartack.session.run_state import RunState
from bartack.session.tool_state import fold_tools
from bartack.store.requests import load_state
from bartack.web.endpoint import Call, Endpoint, Query

__all__ = ["INSPECT_ENDPOINTS"]


async def _request(call: Call) -> Any:
    """The body of the request that this answer answers, rebuilt from the entries before it."""
    service, session_id = call.service, call.session_id
    branch = await service.store.load(session_id, head=call.request.path_params["entry"])
    answer = branch[-1].fact
    if not isinstance(answer, Message) or answer.role != "assistant":
        raise NotFound(f"Entry {branch[-1].id!r} is not an answer of a model.")
    name = await service.runs.agent_of(session_id) or next(iter(service.agents))
    agent = service.agents[name]
    used = None if answer.meta is None else answer.meta.model
    request = await agent.request_after(session_id, branch[: len(branch) - 1], used)
    model = f"{request.provider}:{request.config.model_id}"
    own = agent.model
    if isinstance(own, ProviderModel) and own.provider == request.provider:
        prepared = own.prepare(request.messages, request.tools)
        body = msgspec.json.decode(prepared.http_request.body)
        losses = [dump(loss) for loss in prepared.report.losses]
        return {"model": model, "format": own.vendor.format, "body": body, "losses": losses}
    body = {"messages": [dump(one) for one in request.messages], "tools": [dump(tool) for tool in request.tools]}
    return {"model": model, "format": "canonical", "body": body, "losses": []}


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
                "current": current[name],
                "states": {str(one): {event: str(to) for event, to in row.items()} for one, row in table.items()},
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


_SESSION = "/api/sessions/{session:path}"

INSPECT_ENDPOINTS = (
    Endpoint(
        "GET",
        f"{_SESSION}/entries/{{entry}}/request",
        _request,
        "The request of a model call, rebuilt from the entries before its answer, and what was left out of it.",
    ),
    Endpoint(
        "GET",
        f"{_SESSION}/states",
        _states,
        "The state tables, with the current states.",
        query=(Query("head", "The last entry of the branch; by default the last entry of the session."),),
    ),
)
