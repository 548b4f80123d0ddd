"""Routes for clients of AG-UI: ``new HttpAgent({ url: "/api/ag-ui" })``.

A thread is a session. The session is the truth: of what a client sends, only its last message, its answers to
interrupts, the outputs of its tools and its state are new. ``/api/ag-ui/connect`` takes the same input and shows a
session from its beginning, together with the run that is live in it.
"""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from bartack.display.run_reader import last_run
from bartack.nouns.entries import Custom, Entry
from bartack.nouns.errors import Conflict
from bartack.nouns.json_values import json_text
from bartack.protocols.ag_ui import HEADERS, STATE, AgUiStream
from bartack.protocols.ag_ui_messages import AgUiRequest, RunInput, ag_ui_messages, read_run
from bartack.store import requests
from bartack.tools import ToolDefinition
from bartack_server.web.chats import (
    ClientAnswers,
    branch_of,
    check_asked,
    check_prompt,
    entries_of,
    head_before,
    open_answers,
    post_answers,
    session_of,
)
from bartack_server.web.endpoint import MAX_MESSAGE_BODY, Call, Endpoint
from bartack_server.web.run_stream import open_subagents, run_stream

__all__ = ["ENDPOINTS"]


async def _run(call: Call) -> Response:
    request = read_run(call.body)
    session_id = session_of(call, request.thread_id)
    check_prompt(request.prompt)
    stored = await entries_of(call, session_id)
    check_asked(stored, request.decisions)
    if request.prompt is None or request.decisions:
        continued = await _continue(call, session_id, request)
        if continued is not None:
            return continued
    if request.prompt is None:
        raise Conflict("The input contains neither a message to answer nor an answer to an interrupt.")
    started = await call.service.start_run(
        call.user,
        session_id,
        request.prompt,
        agent=call.query("agent"),
        head=head_before(stored, request.prompt),
        **_settings(request),
    )
    if isinstance(request.state, dict) and request.state and request.state != _state(stored):
        await requests.note(call.service.store, session_id, STATE, request.state)
    stream = AgUiStream(
        request.thread_id,
        request.run_id,
        parent_run_id=request.parent_run_id,
        protocol_version=request.protocol_version,
        messages=request.messages,
        from_start=True,
    )
    return run_stream(call.service, session_id, started.position, stream)


async def _continue(call: Call, session_id: str, request: AgUiRequest) -> Response | None:
    """Post the answers and outputs of the client, and follow the run that waited for them. A message that comes with
    them joins that run.

    None if the run waits for none of them, and there is a message to answer instead, or nothing to follow.
    """
    store = call.service.store
    branch = await store.load(session_id)
    ids = AgUiStream("", "", messages=request.messages, earlier=last_run(branch)).call_ids
    replies = ClientAnswers(request.decisions, {ids.get(key, key): output for key, output in request.outputs.items()})
    answers = await open_answers(call, session_id, replies)
    waiting = [entry for entry in last_run(branch) if replies.answers(entry)]
    if not waiting or (request.prompt is not None and not any(answers)):
        return None
    subagents = await open_subagents(call.service, last_run(branch))
    if request.prompt is not None:
        await requests.steer(store, session_id, request.prompt, requested_by=call.user.name)
    await post_answers(call, session_id, answers)
    await call.service.runs.resume(session_id, **_settings(request))
    shown_entries = [entry for entry in last_run(branch) if entry.seq <= waiting[-1].seq]
    stream = AgUiStream(
        request.thread_id,
        request.run_id,
        parent_run_id=request.parent_run_id,
        protocol_version=request.protocol_version,
        messages=request.messages,
        earlier=shown_entries,
    )
    return run_stream(call.service, session_id, str(waiting[-1].seq), stream, subagents=subagents)


async def _connect(call: Call) -> Response:
    """The whole session, and what happens in it if a run is live."""
    request = read_run(call.body)
    session_id = session_of(call, request.thread_id)
    branch = await branch_of(call, session_id)
    stream = AgUiStream(
        request.thread_id,
        request.run_id,
        parent_run_id=request.parent_run_id,
        protocol_version=request.protocol_version,
        messages=ag_ui_messages(branch),
        state=_state(branch),
        earlier=last_run(branch),
        snapshot=True,
    )
    if branch and await call.service.state_of(session_id) == "running":
        subagents = await open_subagents(call.service, last_run(branch))
        return run_stream(call.service, session_id, str(branch[-1].seq), stream, subagents=subagents)
    return Response(stream.pause() or stream.finish(), headers=dict(HEADERS))


def _settings(request: AgUiRequest) -> dict[str, Any]:
    """The settings of a run: the tools of the page, and its state and context for the model."""
    tools = [
        ToolDefinition(
            name=spec.name,
            description=spec.description or spec.name,
            parameter_schema=spec.parameter_schema,
            deferred=True,
        )
        for spec in request.tools
    ]
    context = list(request.context)
    if request.state:
        context.append(("State shared with the user interface", json_text(request.state)))
    if not context:
        return {"tools": tools}
    return {"tools": tools, "instructions": "\n\n".join(f"{name}:\n{value}" for name, value in context)}


def _state(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """The state that was shared last."""
    for entry in reversed(entries):
        if isinstance(entry.fact, Custom) and entry.fact.name == STATE:
            return entry.fact.data
    return None


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/ag-ui",
        _run,
        "Run the agent for a client of AG-UI.",
        body=RunInput,
        max_body=MAX_MESSAGE_BODY,
        media_type="text/event-stream",
    ),
    Endpoint(
        "POST",
        "/api/ag-ui/connect",
        _connect,
        "Return a thread and its live run as a stream, for a client of AG-UI.",
        body=RunInput,
        max_body=MAX_MESSAGE_BODY,
        media_type="text/event-stream",
    ),
)
