"""The JSON API: sessions, their entries and views, runs, requests, live events, models and tools.

Every list is an object with ``items`` and ``cursor``, which requests the next page and is null on the last one. Values
are in the canonical JSON of `bartack.nouns.wire`, with redacted content removed.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from starlette.responses import Response

from bartack.app.modes import MODE_TEXTS, Mode
from bartack.app.permissions import Rule
from bartack.app.sessions import directory_in, home_path
from bartack.app.usage import context_tokens
from bartack.display.run_reader import turn_start
from bartack.models.prices import Prices, model_info
from bartack.models.vendors import VENDORS
from bartack.nouns.entries import ApprovalRequired, Entry, SessionHeader
from bartack.nouns.errors import AgentError, Conflict, ErrorCode, NotFound, PartValidationError, ToolError
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, ToolResult
from bartack.nouns.wire import dump
from bartack.session.decisions import Decision, question_digest
from bartack.session.run_state import RunState
from bartack.session.title import TITLE, title_in
from bartack.store import requests
from bartack.store.foreign import find_foreign
from bartack.store.live import Position
from bartack.store.requests import load_state
from bartack.store.session_store import SessionInfo, SessionStore
from bartack.views import document, feed, ledger
from bartack_server.web import bodies
from bartack_server.web.document import html_document
from bartack_server.web.endpoint import (
    MAX_MESSAGE_BODY,
    MAX_NUMBER,
    PAGE,
    POSITION,
    SESSION_PAGE,
    Call,
    Endpoint,
    Query,
    json_response,
)
from bartack_server.web.event_stream import EventStream, frame, live_frame
from bartack_server.web.page import PageEvents, page_entries
from bartack_server.web.runs import AGENT_KEY
from bartack_server.web.service import SessionService, gateway_key_in
from bartack_server.web.session_rules import Scope, rule_for, rules_for, tools_root
from bartack_server.web.session_search import SESSION_SEARCH, USAGE
from bartack_transcripts.formats import FORMATS

__all__ = ["ENDPOINTS"]

_FREE = ("local", "ollama")  # providers whose models run on machines of the user
_MAX_HITS = 10_000  # the limit of a search, which has no further pages
_SHOWN_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # a browser may show these; others are downloads
_VIEWS: Mapping[str, Callable[[Iterable[Entry]], dict[str, Any]]] = {
    "ledger": ledger.dump,
    "feed": feed.dump,
    "document": document.dump,
}
_ITEMS = {"ledger": "entries", "feed": "messages", "document": "messages"}


def _page(items: Sequence[Any], cursor: str | None) -> dict[str, Any]:
    return {"items": items, "cursor": cursor}


def _offset_page(call: Call, items: Sequence[Any]) -> dict[str, Any]:
    """A page of a list that is in memory; its cursor is a number."""
    start = call.number("cursor", 0)
    end = start + call.limit
    return _page(items[start:end], str(end) if end < len(items) else None)


# -- agents, models, tools


async def _me(call: Call) -> Any:
    return {"user": call.user.name, "prefix": call.user.prefix, "agents": list(call.service.agents)}


async def _agents(call: Call) -> Any:
    items = []
    for name, agent in call.service.agents.items():
        info = await call.service.model_info(name)
        model = {"model": f"{info.provider}:{info.model_id}", "contextWindow": info.context_window}
        directory = call.service.directory_of(name)
        shown = {"directory": None if directory is None else home_path(directory)}
        modes = call.service.modes_of(name)
        items.append({"name": name, **model, "tools": len(agent.tools), **shown, "modes": _modes_json(modes)})
    return _offset_page(call, items)


def _modes_json(modes: Iterable[Mode]) -> list[dict[str, str]]:
    return [{"name": mode, "text": MODE_TEXTS[mode]} for mode in modes]


def _agent(call: Call) -> str:
    return call.service.agent_named(call.query("agent") or next(iter(call.service.agents)))


async def _tools(call: Call) -> Any:
    tools = [
        {**dump(tool.spec), "requiresApproval": tool.requires_approval is not False}
        for tool in call.service.agents[_agent(call)].tools
    ]
    return _offset_page(call, tools)


async def _models(call: Call) -> Any:
    """The models to choose from, that of the agent first."""
    info = await call.service.model_info(_agent(call))
    names = dict.fromkeys([f"{info.provider}:{info.model_id}", *await call.service.offered_models()])
    return _offset_page(call, await asyncio.to_thread(list, map(_model_json, names)))


def _model_json(name: str) -> dict[str, Any]:
    """A model, with its list prices if they are known; 0 for one of this machine."""
    provider, _, model_id = name.partition(":")
    vendor = VENDORS.get(provider)
    info = model_info(provider, model_id, prices=provider if vendor is None else vendor.prices)
    prices = Prices(input=0.0, output=0.0) if provider in _FREE else info.prices
    return {"name": name, "contextWindow": info.context_window, "prices": None if prices is None else dump(prices)}


# -- sessions


async def _sessions(call: Call) -> Any:
    page = await call.service.store.sessions(
        call.limit, call.query("cursor"), call.query("query"), prefix=call.user.prefix
    )
    items = []
    for info in page.items:
        with suppress(NotFound):  # purged in the meantime
            items.append(await _session_json(call, info))
    return _page(items, page.cursor)


async def _session_json(call: Call, info: SessionInfo) -> dict[str, Any]:
    header = await call.service.header_of(info.id, info.tail.entry_id)
    state, model = await _activity(call.service, info.id, info.tail.entry_id, header)
    activity = {"state": state, "viewers": call.service.hub.viewers(info.id)}
    return {**dump(info), **activity, **_source(header), "model": model}


async def _activity(
    service: SessionService, session_id: str, tail: str, header: SessionHeader
) -> tuple[str, str | None]:
    """The state of a session, and the model that answers or has answered last in one of a gateway."""
    state, model = await service.state_of(session_id, tail), await service.model_of(session_id, tail)
    if state == "idle" and (answering := await service.answering(session_id, header)) is not None:
        return "running", answering
    return state, model


def _source(header: SessionHeader) -> dict[str, str | None]:
    """Where a session comes from: its agent here, the program that it was imported from, the key of a gateway, and its
    directory."""
    agent, directory = (header.metadata or {}).get(AGENT_KEY), directory_in(header)
    return {
        "agent": agent if isinstance(agent, str) else None,
        "origin": FORMATS[header.origin].title if header.origin in FORMATS else header.origin,
        "gatewayKey": gateway_key_in(header),
        "directory": None if directory is None else home_path(directory),
    }


async def _create(call: Call) -> Any:
    body: bodies.NewSession = call.body
    service = call.service
    session_id = body.id or f"{call.user.prefix}{service.store.environment.new_id()}"
    service.check_access(call.user, session_id)
    agent = service.agent_named(body.agent) if body.agent is not None else next(iter(service.agents))
    header = service.new_header(agent, call.user, body.title)
    entry = await service.store.create_session(session_id, header)
    return json_response({"id": entry.session_id, "position": str(entry.seq)}, 201)


async def _session(call: Call) -> Any:
    store, session_id = call.service.store, call.session_id
    branch = await store.load(session_id, head=call.query("head"))
    state = await call.service.run_state(session_id)
    tail = await store.tail_of(session_id)
    header = await call.service.header_of(session_id, tail.entry_id)
    agent = await call.service.runs.agent_of(session_id, state) or next(iter(call.service.agents))
    info = await call.service.model_info(agent, state.requested_model or state.model)
    foreign = await find_foreign(store, session_id)
    activity, gateway_model = await _activity(call.service, session_id, tail.entry_id, header)
    return {
        "id": session_id,
        "title": title_in(branch.naming(SessionHeader.kind, TITLE)),
        "metadata": header.metadata or {},
        "created": _time_text(branch[0]),
        "state": activity,
        **_source(header),
        "agent": agent,
        "model": f"{info.provider}:{info.model_id}",
        "gatewayModel": gateway_model,
        "contextWindow": info.context_window,
        "contextTokens": context_tokens(branch),
        "totals": dump(await store.totals(session_id)),
        "heads": list(await store.heads(session_id)),
        "forks": await _forks(store, session_id, branch),
        "tail": dump(tail),
        "foreign": None if foreign is None else dump(foreign),
        "mode": call.service.runs.rules.mode_of(session_id),
        "modes": _modes_json(call.service.modes_of(agent)),
        "allowed": [rule.text for rule in call.service.runs.rules.of(session_id)],
    }


async def _forks(store: SessionStore, session_id: str, branch: Sequence[Entry]) -> list[dict[str, Any]]:
    """The places where other branches leave this one. Each has the first entry of this branch after the fork, the last
    entry of every branch that goes on from there, and which of them this branch is."""
    heads = await store.heads(session_id)
    if len(heads) < 2:
        return []
    parents = {entry.id: entry.parent_id for entry in await store.entries(session_id)}
    own = {entry.id: number for number, entry in enumerate(branch)}
    branches: dict[int, dict[str, str]] = {}  # where a fork is -> the first entry after it -> the latest head
    for head in heads:
        first, parent = head, parents.get(head)
        while parent is not None and parent not in own:
            first, parent = parent, parents.get(parent)
        if parent is not None and first not in own:
            branches.setdefault(own[parent], {})[first] = head
    order = {id: number for number, id in enumerate(parents)}
    forks = []
    for place, others in sorted(branches.items()):
        firsts = {**others, branch[place + 1].id: branch[-1].id} if place + 1 < len(branch) else others
        ordered = sorted(firsts, key=order.__getitem__)
        if place + 1 < len(branch):
            entry_id = branch[place + 1].id
            forks.append(
                {"entryId": entry_id, "heads": [firsts[id] for id in ordered], "index": ordered.index(entry_id)}
            )
    return forks


async def _delete(call: Call) -> Any:
    """Delete a session for good. A live run has to be stopped first."""
    service, session_id = call.service, call.session_id
    if await service.state_of(session_id) == "running":
        raise AgentError(
            "A run is live in this session. Stop it before you delete the session.", code=ErrorCode.CONFLICT
        )
    tail = await service.store.tail_of(session_id)
    await service.store.drop_session(session_id, expected_tail=tail.entry_id)
    service.runs.rules.clear(session_id)
    service.runs.rules.set_mode(session_id, "ask")
    return {}


async def _export(call: Call) -> Response:
    """A branch as a file."""
    branch = await call.service.store.load(call.session_id, head=call.query("head"))
    name = call.query("format") or "html"
    if name == "html":
        content, media_type = html_document(branch), "text/html"
    elif name == "json":
        content, media_type = json_text([dump(entry) for entry in branch]), "application/json"
    else:
        raise PartValidationError(f"Unknown format {name[:20]!r}; known: html, json.", path="$.query.format")
    headers = {"content-disposition": f'attachment; filename="session.{name}"'}
    return Response(content, headers=headers, media_type=f"{media_type}; charset=utf-8")


def _time_text(entry: Entry) -> str:
    """The time of an entry as text."""
    text: str = dump(entry)["timestamp"]
    return text


async def _entries(call: Call) -> Any:
    """The entries of one branch: after the cursor or, with `before`, the last ones before that entry."""
    branch = await call.service.store.load(call.session_id, head=call.query("head"))
    if call.query("before") is not None:
        end = bisect_left(branch.seqs, call.number("before", 0))
        start = max(0, end - call.limit)
        cursor = branch.seqs[start] if start > 0 else None
    else:
        start = bisect_right(branch.seqs, call.number("cursor", 0))
        end = min(start + call.limit, len(branch))
        cursor = branch.seqs[end - 1] if end < len(branch) else None
    items = page_entries(branch, start, end) if call.query("html") else [dump(entry) for entry in branch[start:end]]
    return _page(items, None if cursor is None else str(cursor))


async def _view(call: Call) -> Any:
    name = call.request.path_params["view"]
    if name not in _VIEWS:
        raise NotFound(f"There is no view {name!r}; known: {', '.join(_VIEWS)}.")
    document = _VIEWS[name](await call.service.store.load(call.session_id, head=call.query("head")))
    items = document.pop(_ITEMS[name])
    return {**document, **_offset_page(call, items)}


async def _search(call: Call) -> Any:
    query = call.query("query")
    if query is None:
        raise PartValidationError("The parameter query is missing.", path="$.query.query")
    start = call.number("cursor", 0, maximum=_MAX_HITS)
    end = min(start + call.limit, _MAX_HITS)
    is_ranked = call.query("best") == "true"
    hits = await call.service.store.search(query, end + 1, prefix=call.user.prefix, best_first=is_ranked)
    return _page([dump(hit) for hit in hits[start:end]], str(end) if end < min(len(hits), _MAX_HITS) else None)


async def _content(call: Call) -> Response:
    """The bytes of an image or file in a message."""
    params, store = call.request.path_params, call.service.store
    branch = await store.load(call.session_id, head=params["entry"])
    message = branch[-1].fact
    parts = _media(message) if isinstance(message, Message) else []
    part = dict(zip(map(str, range(len(parts))), parts, strict=True)).get(params["number"])
    if part is None or part.data is None:
        raise NotFound(f"Entry {params['entry']!r} has no file {params['number'][:20]!r}.")
    kind = part.mime_type or ""
    headers = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "private, max-age=3600"}
    if kind in _SHOWN_TYPES:
        return Response(part.data, headers=headers, media_type=kind)
    headers["content-disposition"] = "attachment"
    return Response(part.data, headers=headers, media_type="application/octet-stream")


def _media(message: Message) -> list[Image | FileRef]:
    """The images and files of a message, also those in its tool results, in order."""
    media: list[Image | FileRef] = []
    for part in message.parts:
        inner = part.content if isinstance(part, ToolResult) and isinstance(part.content, tuple) else (part,)
        media += [piece for piece in inner if isinstance(piece, Image | FileRef)]
    return media


# -- runs and requests


async def _run(call: Call) -> Any:
    body: bodies.RunRequest = call.body
    started = await call.service.start_run(
        call.user,
        call.session_id,
        bodies.message_of(body),
        agent=body.agent,
        head=body.head,
        model=body.model,
        mode=body.mode,
        adopt=body.adopt,
    )
    run_json = {"sessionId": started.session_id, "runId": started.run_id, "position": started.position}
    return json_response(run_json if started.job_id is None else {**run_json, "jobId": started.job_id}, 202)


async def _pending(call: Call) -> Any:
    """Pending approvals, deferred calls, and messages that have not been delivered."""
    _, state = await load_state(call.service.store, call.session_id)
    root = await _root(call, call.session_id, state)
    approvals = [
        {
            "type": "approval",
            **dump(question),
            "questionDigest": question_digest(question),
            "rules": _rules(call, question, root),
        }
        for question in state.questions
    ]
    queued = [
        {"type": "steer" if post.steer else "queue", "entryId": id, "message": dump(post.message)}
        for id, post in state.inbox.items()
    ]
    deferred = [
        {
            "type": "deferred",
            "toolCallId": call_started.tool_call_id,
            "toolName": call_started.tool_name,
            "arguments": call_started.arguments,
        }
        for call_started in state.deferred
    ]
    return _offset_page(call, [*approvals, *deferred, *queued])


def _rules(call: Call, question: ApprovalRequired, root: Path | None) -> list[dict[str, str]]:
    """The rules that would allow this call and similar ones, with the scope of each."""
    rules = rules_for(question, root) if call.service.runs.obeys_rules else {}
    return [{"scope": scope, "text": rule.text} for scope, rule in rules.items()]


async def _root(call: Call, session_id: str, state: RunState) -> Path | None:
    """The directory that the tools of the session's agent work in."""
    agent = await call.service.runs.agent_of(session_id, state) or next(iter(call.service.agents))
    return tools_root(call.service.agents[agent])


async def _request(call: Call) -> Any:
    """Post a request. A live run acts on it immediately, in any process."""
    session_id, by = call.session_id, call.user.name
    body: bodies.PostedRequest = call.body
    match body:
        case bodies.QueueRequest() | bodies.SteerRequest():
            message = bodies.message_of(body)
            send = requests.queue if isinstance(body, bodies.QueueRequest) else requests.steer
            entry = await call.service.request(
                session_id, lambda store: send(store, session_id, message, requested_by=by)
            )
        case bodies.DecideRequest():
            if body.decision != "deny" and body.question_digest is None:
                raise PartValidationError("An approval must name the question that was shown.", path="$.questionDigest")
            decision = Decision(
                body.decision,
                arguments=body.arguments,
                reason=body.reason,
                decided_by=by,
                question_digest=body.question_digest,
            )
            entry = await call.service.request(session_id, await _deciding(call, session_id, body, decision))
        case bodies.ResultRequest():
            code = ErrorCode.TOOL_FAILED if body.is_error else None
            result = ToolResult(body.tool_call_id, body.content, is_error=body.is_error, error_code=code)
            entry = await call.service.request(
                session_id,
                lambda store: requests.post_result(store, session_id, body.tool_call_id, result, posted_by=by),
            )
        case bodies.AbortRequest():
            entry = await call.service.request(
                session_id,
                lambda store: requests.request_abort(store, session_id, reason=body.reason, requested_by=by),
            )
        case bodies.SwitchRequest():
            await call.service.check_model(body.model)
            entry = await requests.switch_model(call.service.store, session_id, body.model)
        case bodies.ThinkingRequest():
            entry = await requests.set_thinking_level(call.service.store, session_id, body.level)
        case bodies.RenameRequest():
            entry = await requests.rename(call.service.store, session_id, body.title)
        case bodies.RedactRequest():
            entry = await requests.redact(call.service.store, session_id, body.entry_id, reason=body.reason)
    return json_response({"entryId": entry.id, "seq": entry.seq}, 202)


async def _deciding(
    call: Call, session_id: str, body: bodies.DecideRequest, decision: Decision
) -> Callable[[SessionStore], Awaitable[Entry]]:
    """How to post a decision, and with it the rule that it makes."""
    rule = None if body.always is None else await _new_rule(call, session_id, body, body.always)

    async def decide(store: SessionStore) -> Entry:
        entry = await requests.decide(store, session_id, body.tool_call_id, decision)
        if rule is not None:
            call.service.runs.rules.add(session_id, rule)
        return entry

    return decide


async def _new_rule(call: Call, session_id: str, body: bodies.DecideRequest, scope: Scope) -> Rule:
    if not call.service.runs.obeys_rules:
        raise PartValidationError("Rules are not supported for runs that workers execute.", path="$.always")
    if body.decision != "approve":
        raise PartValidationError("always requires the decision approve.", path="$.always")
    _, state = await load_state(call.service.store, session_id)
    for question in state.questions:
        if question.tool_call_id == body.tool_call_id:
            return rule_for(question, await _root(call, session_id, state), scope)
    raise NotFound(f"Call {body.tool_call_id!r} is not awaiting approval.")


async def _ask_again(call: Call) -> Any:
    call.service.runs.rules.clear(call.session_id)
    return {}


async def _set_mode(call: Call) -> Any:
    """Choose the permission mode, which also decides about the calls that wait for a decision."""
    service, session_id, mode = call.service, call.session_id, call.body.mode
    state = await service.run_state(session_id)
    agent = await service.runs.agent_of(session_id, state) or next(iter(service.agents))
    service.check_mode(agent, mode)
    service.runs.rules.set_mode(session_id, mode)
    for question in state.questions:
        decision = service.runs.rules.decision(session_id, service.agents[agent], question)
        if decision is not None and decision.decision == "approve":
            bound = replace(decision, question_digest=question_digest(question))
            with suppress(Conflict, NotFound, ToolError):  # someone else has decided in the meantime
                await service.request(session_id, partial(_decide, session_id, question.tool_call_id, bound))
    return {"mode": mode}


async def _decide(session_id: str, call_id: str, decision: Decision, store: SessionStore) -> Entry:
    return await requests.decide(store, session_id, call_id, decision)


# -- live events


async def _events(call: Call) -> Response:
    session_id, is_page = call.session_id, call.query("html") is not None
    position = Position.parse(call.request.headers.get("last-event-id") or call.query("position") or "")
    if is_page:  # its frames build on each other, so it gets the whole answer in progress again
        position = Position(position.entry_seq)
    tail = await call.service.store.tail_of(session_id)
    if position.entry_seq > tail.seq:  # it would wait for entries that may never come, and miss those before them
        text = f"Position {position} is after the last entry, which has seq {tail.seq}: it is not one of this session."
        raise PartValidationError(text, path="$.query.position")
    if call.service.closing.is_set():
        raise AgentError("The server is shutting down.", code=ErrorCode.OVERLOADED)
    to_frame = live_frame
    if is_page:
        branch = await call.service.store.load(session_id)
        end = bisect_right(branch.seqs, position.entry_seq)
        to_frame = PageEvents(branch[turn_start(branch, end) : end]).frame

    async def frames() -> AsyncIterator[list[bytes]]:
        async for events in call.service.follow(session_id, str(position)):
            yield [to_frame(event) for event in events]

    if is_page:  # it has to notice when the network is gone
        return EventStream(frames(), call.service.closing, beat=frame("beat", {}))
    return EventStream(frames(), call.service.closing)


_SESSION = "/api/sessions/{session:path}"
_HEAD = Query("head", "The last entry of the branch; by default the last entry of the session.")
_BEST = Query("best", "`true`: the best matches first, instead of those of the latest sessions.")
_HTML = Query("html", "With any value, entries include what the page draws: rendered Markdown, and states of calls.")
_BEFORE = Query("before", "Instead of a cursor: return the last entries before this seq.", "integer", 0, MAX_NUMBER)
_AGENT = Query("agent", "The name of the agent; by default the first one.")

ENDPOINTS = (
    Endpoint("GET", "/api/me", _me, "Return the user, and the agents they may use."),
    Endpoint("GET", "/api/agents", _agents, "List the agents.", query=PAGE),
    Endpoint("GET", "/api/models", _models, "List the models to choose from.", query=(*PAGE, _AGENT)),
    Endpoint("GET", "/api/tools", _tools, "List the tools of an agent.", query=(*PAGE, _AGENT), items="ToolSpec"),
    Endpoint(
        "GET",
        "/api/sessions",
        _sessions,
        "List sessions, most recently changed first.",
        query=(*SESSION_PAGE, Query("query", "List only sessions with these words.")),
    ),
    Endpoint("POST", "/api/sessions", _create, "Create a session without messages.", body=bodies.NewSession),
    Endpoint(
        "GET",
        "/api/search",
        _search,
        "Find entries by their words.",
        query=(
            PAGE[0],
            Query("cursor", "The cursor of the last page.", "integer", 0, _MAX_HITS),
            Query("query", "The words.", is_required=True, pattern=r"\S"),
            _BEST,
        ),
    ),
    SESSION_SEARCH,
    USAGE,
    Endpoint(
        "GET",
        f"{_SESSION}/entries",
        _entries,
        "List the entries of a branch.",
        query=(*PAGE, _HEAD, _BEFORE, _HTML),
        items="Entry",
    ),
    Endpoint(
        "GET",
        f"{_SESSION}/entries/{{entry}}/files/{{number}}",
        _content,
        "Download an image or file.",
        media_type="*/*",
    ),
    Endpoint("GET", f"{_SESSION}/views/{{view}}", _view, "Return a view of a branch.", query=(*PAGE, _HEAD)),
    Endpoint(
        "POST",
        f"{_SESSION}/runs",
        _run,
        "Start a run, which belongs to the server and continues without viewers.",
        body=bodies.RunRequest,
        max_body=MAX_MESSAGE_BODY,
    ),
    Endpoint("GET", f"{_SESSION}/requests", _pending, "List pending approvals and queued messages.", query=PAGE),
    Endpoint(
        "POST",
        f"{_SESSION}/requests",
        _request,
        "Queue or steer with a message, decide about a tool call or post its result, abort, switch the model, redact.",
        body=bodies.PostedRequest,
        max_body=MAX_MESSAGE_BODY,
    ),
    Endpoint(
        "GET",
        f"{_SESSION}/events",
        _events,
        "Follow a session: entries, and the deltas of the answer in progress. Continue with Last-Event-ID.",
        query=(Query("position", "Start after this event; by default at the first entry.", pattern=POSITION), _HTML),
        media_type="text/event-stream",
    ),
    Endpoint(
        "POST",
        f"{_SESSION}/mode",
        _set_mode,
        "Choose the permission mode of a session: what it may do without asking.",
        body=bodies.ModeChoice,
    ),
    Endpoint("DELETE", f"{_SESSION}/allowed", _ask_again, "Remove the approval rules of a session."),
    Endpoint(
        "GET",
        f"{_SESSION}/export",
        _export,
        "Download a branch as a page or as JSON.",
        query=(Query("format", "html, which is the default, or json.", pattern="^(html|json)?$"), _HEAD),
        media_type="*/*",
    ),
    Endpoint("DELETE", _SESSION, _delete, "Delete a session."),
    Endpoint("GET", _SESSION, _session, "Return a session: state, model, usage, branches.", query=(_HEAD,)),
)
