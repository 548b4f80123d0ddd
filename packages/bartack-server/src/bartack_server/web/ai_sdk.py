"""Routes for `useChat` of the AI SDK: ``api: "/api/ai-sdk/chat"``, or ``/api/ai-sdk/v7/chat`` for another version.

A chat is a session. The session is the truth: of what a client sends, only its last message, its decisions and the
outputs of its tools are new.
"""

from contextlib import suppress
from typing import Any

from starlette.responses import Response

from bartack.display.run_reader import last_run
from bartack.nouns.errors import Conflict, NotFound, PartValidationError
from bartack.protocols.ai_sdk import UIMessageStream, Version
from bartack.protocols.ai_sdk_messages import ChatBody, ChatRequest, read_chat, ui_messages
from bartack.store import requests
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

_VERSIONS: dict[str, Version] = {"v5": 5, "v6": 6, "v7": 7}
_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}


async def _chat(call: Call) -> Response:
    version, request = _version(call), read_chat(call.body)
    session_id = session_of(call, request.chat_id)
    check_prompt(request.prompt)
    stored = await entries_of(call, session_id)
    check_asked(stored, request.decisions)
    if request.prompt is None:
        return await _continue(call, session_id, request, version)
    if request.decisions:
        raise PartValidationError("Send decisions without a new message.", path="$.approvals")
    head = head_before(stored, request.prompt)
    started = await call.service.start_run(call.user, session_id, request.prompt, agent=call.query("agent"), head=head)
    stream = UIMessageStream(version, from_start=True)
    return run_stream(call.service, session_id, started.position, stream, headers=_HEADERS)


async def _continue(call: Call, session_id: str, request: ChatRequest, version: Version) -> Response:
    """Post the decisions and outputs of the client, and follow the run that waited for them."""
    store = call.service.store
    branch = await store.load(session_id)
    ids = UIMessageStream(earlier=last_run(branch), taken_keys=request.call_ids).call_ids
    replies = ClientAnswers(request.decisions, {ids.get(key, key): output for key, output in request.outputs.items()})
    waiting = [entry for entry in last_run(branch) if replies.answers(entry)]
    if not waiting:
        raise Conflict("The last message is neither from the user nor an answer to a pending approval.")
    subagents = await open_subagents(call.service, last_run(branch))
    await post_answers(call, session_id, await open_answers(call, session_id, replies))
    await call.service.runs.resume(session_id)
    shown_entries = [entry for entry in last_run(branch) if entry.seq <= waiting[-1].seq]
    stream = UIMessageStream(version, earlier=shown_entries, taken_keys=request.call_ids)
    return run_stream(call.service, session_id, str(waiting[-1].seq), stream, subagents=subagents, headers=_HEADERS)


async def _resume(call: Call) -> Response:
    """The stream of the run from its start; 204 if none is running."""
    stream = UIMessageStream(_version(call))
    session_id = session_of(call, call.request.path_params["chat"])
    try:
        state = await call.service.state_of(session_id)
    except NotFound:
        state = "idle"
    if state != "running":
        return Response(status_code=204)
    start = last_run(await call.service.store.load(session_id))[0].seq
    return run_stream(call.service, session_id, str(start - 1), stream, headers=_HEADERS)


async def _stop(call: Call) -> Response:
    _version(call)
    session_id = session_of(call, call.request.path_params["chat"])
    with suppress(NotFound):  # it has just ended
        await call.service.request(session_id, lambda store: requests.request_abort(store, session_id))
    return Response(status_code=204)


async def _messages(call: Call) -> Any:
    version = _version(call)
    session_id = session_of(call, call.request.path_params["chat"])
    branch = await branch_of(call, session_id)
    is_running = bool(branch) and await call.service.state_of(session_id) == "running"
    return ui_messages(branch, version, include_open=not is_running)


def _version(call: Call) -> Version:
    name = call.request.path_params.get("version", "v6")
    if name not in _VERSIONS:
        raise NotFound(f"Unknown version {name!r} of the AI SDK; known: {', '.join(_VERSIONS)}.")
    return _VERSIONS[name]


def _rows(prefix: str) -> tuple[Endpoint, ...]:
    chat = f"{prefix}/chat/{{chat:path}}"
    stream = "text/event-stream"
    return (
        Endpoint(
            "POST",
            f"{prefix}/chat",
            _chat,
            "Answer the last message of a chat, or continue after a decision.",
            body=ChatBody,
            max_body=MAX_MESSAGE_BODY,
            media_type=stream,
        ),
        Endpoint(
            "GET",
            f"{chat}/stream",
            _resume,
            "Resume the stream of a chat.",
            media_type=stream,
            empty="No answer is arriving.",
        ),
        Endpoint("POST", f"{chat}/stop", _stop, "Stop the answer of a chat.", media_type=None),
        Endpoint(
            "GET",
            f"{chat}/messages",
            _messages,
            "Return the messages of a chat, for a page that opens it.",
            result="array",
        ),
    )


ENDPOINTS = (*_rows("/api/ai-sdk"), *_rows("/api/ai-sdk/{version}"))
