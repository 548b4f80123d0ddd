"""Requests to a session, from any process and at any time, without a model.

    await queue(store, "trip", "And on Tuesday?")
    await decide(store, "trip", "call_1", Decision("approve"))
    await post_result(store, "trip", "call_2", "The printer is out of paper.")
    await request_abort(store, "trip")

A request is a fact like any other, appended after the session's last entry. A live run reads it within a moment and
acts on it once; without a live run, it waits for the next one. Invalid requests are refused here, before anything is
stored.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Literal, get_args

from msgspec.structs import replace

from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    ApprovalRequired,
    Custom,
    Entry,
    Fact,
    MessageQueued,
    ModelChange,
    Redaction,
    ResultPosted,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolStarted,
)
from bartack.nouns.errors import Conflict, ErrorCode, NotFound, PartValidationError, StoreError, ToolError
from bartack.nouns.messages import Message, ModelRef, user
from bartack.nouns.parts import ToolContent, ToolResult
from bartack.session.decisions import Decision, decided_fact
from bartack.session.outline import Past, outlines_of
from bartack.session.redaction import copies_of, is_subagent_session, redacted, subagent_sessions, visible
from bartack.session.run_state import RunState
from bartack.session.schema_check import argument_check
from bartack.session.title import TITLE
from bartack.store.session_store import SessionStore, Tail, next_entries

__all__ = [
    "ThinkingLevel",
    "check_arguments",
    "check_decision",
    "decide",
    "deferred_calls",
    "load_state",
    "note",
    "override_system_prompt",
    "pending_approvals",
    "post",
    "post_from",
    "post_result",
    "queue",
    "redact",
    "rename",
    "request_abort",
    "set_thinking_level",
    "steer",
    "switch_model",
]


_OWN_NAMES = "bartack."
_ATTEMPTS = 1000  # hundreds of callers at once must all get their turn

ThinkingLevel = Literal["default", "none", "minimal", "low", "medium", "high", "max"]


async def post(
    store: SessionStore, session_id: str, *facts: Fact, head: str | None = None, entry_id: str | None = None
) -> Entry:
    """Append facts to a session as it is now, and return the first entry. With `head`, they start a branch there. With
    `entry_id`, the first entry has this id, and posting it again returns the stored one.

    While a run is live, the store refuses facts that are not requests with `SessionInUse`. `NotFound`: the session, or
    the entry that a redaction names, does not exist.
    """

    async def attempt() -> Entry | None:
        return await _append(store, session_id, await store.tail_of(session_id), facts, head=head, entry_id=entry_id)

    return await _repeated(session_id, attempt)


async def post_from(
    store: SessionStore, session_id: str, fact: Callable[[Iterable[Entry]], Fact], *, entry_id: str | None = None
) -> Entry:
    """Append the fact that follows from all entries of the session, redacted ones included, as they are now. If
    others append in the meantime, they are read again. Exceptions from `fact` propagate."""

    async def attempt() -> Entry | None:
        tail = await store.tail_of(session_id)
        posted = fact(await store.entries(session_id))
        return await _append(store, session_id, tail, (posted,), entry_id=entry_id)

    return await _repeated(session_id, attempt)


async def queue(
    store: SessionStore, session_id: str, message: Message | str, *, requested_by: str | None = None
) -> Entry:
    """Add a user message. The live run continues with it instead of ending; without one, the next run gets it."""
    return await post(store, session_id, MessageQueued(message=_as_message(message), requested_by=requested_by))


async def steer(
    store: SessionStore, session_id: str, message: Message | str, *, requested_by: str | None = None
) -> Entry:
    """Add a user message before the next model call of the live run; without one, the next run gets it."""
    return await post(
        store, session_id, MessageQueued(message=_as_message(message), steer=True, requested_by=requested_by)
    )


async def pending_approvals(store: SessionStore, session_id: str) -> tuple[ApprovalRequired, ...]:
    """The tool calls that await a decision."""
    _, state = await load_state(store, session_id)
    return state.questions


async def decide(store: SessionStore, session_id: str, tool_call_id: str, decision: Decision) -> Entry:
    """Decide about a tool call that needs approval. A later decision replaces it until the run has acted on it.

    Raises:
        NotFound: The call is not awaiting approval.
        Conflict: The approval has expired, or the run has acted on an earlier decision.
        PartValidationError: The changed arguments do not match the tool's schema.
        ToolError: The decision was made for other arguments (see `Decision.arguments_digest`).
    """
    return await _checked(store, session_id, lambda state: check_decision(store, state, tool_call_id, decision))


async def deferred_calls(store: SessionStore, session_id: str) -> tuple[ToolStarted, ...]:
    """The deferred calls that await a result."""
    _, state = await load_state(store, session_id)
    return state.deferred


async def post_result(
    store: SessionStore,
    session_id: str,
    tool_call_id: str,
    result: ToolContent | ToolResult,
    *,
    posted_by: str | None = None,
) -> Entry:
    """Post the result of a deferred call: its content, or a `ToolResult`, for example for an error.

    A live run uses it before its next model call; a paused one when it is resumed. A call that failed can be repeated:
    posting the same result again, before it is used, returns the entry that is stored.

    Raises:
        NotFound: There is no such call, or it is not waiting for a result from outside.
        Conflict: The call already has a result.
    """

    outcome = result if isinstance(result, ToolResult) else ToolResult(tool_call_id, result)
    code = (outcome.error_code or ErrorCode.TOOL_FAILED) if outcome.is_error else None
    outcome = replace(outcome, tool_call_id=tool_call_id, error_code=code)

    stored_id: str | None = None

    def fact(state: RunState) -> Fact:
        nonlocal stored_id
        call = state.find(tool_call_id)
        posted = None if call is None else call.posted
        if posted is not None and posted.result == outcome:
            assert call is not None
            stored_id = call.posted_id
        if posted is not None or (call is None and tool_call_id in state.call_ids):
            raise Conflict(f"Call {tool_call_id!r} already has a result.")
        if call is None or not call.is_deferred:
            raise NotFound(f"Call {tool_call_id!r} is not waiting for a result from outside.")
        return ResultPosted(tool_call_id=tool_call_id, result=outcome, posted_by=posted_by)

    try:
        return await _checked(store, session_id, fact)
    except Conflict:
        if stored_id is None:
            raise
        return next(entry for entry in await store.entries(session_id) if entry.id == stored_id)


async def request_abort(
    store: SessionStore, session_id: str, *, reason: str | None = None, requested_by: str | None = None
) -> Entry:
    """Abort the open run: immediately if it is live, otherwise when it is resumed. `NotFound` if none is open."""

    def fact(state: RunState) -> Fact:
        if state.run_id is None:
            raise NotFound(f"Session {session_id!r} has no open run.")
        return AbortRequested(reason=reason, requested_by=requested_by)

    return await _checked(store, session_id, fact)


async def switch_model(store: SessionStore, session_id: str, model: ModelRef | str) -> Entry:
    """Switch the open run to another model, from its next model call to its end; without an open run, switch the next
    one. `model` may be a name such as ``anthropic:claude-sonnet-4-6``.

    The process running the agent must be able to connect to the model; otherwise the run keeps its model and records
    that.
    """
    ref = _as_ref(model) if isinstance(model, str) else model
    return await _checked(store, session_id, lambda state: ModelChange(model=ref, previous=state.model))


async def set_thinking_level(
    store: SessionStore, session_id: str, level: ThinkingLevel, *, head: str | None = None
) -> Entry:
    """Set how much models think from the next run on; ``default`` leaves it to the model's settings.

    This has an effect only as far as a model supports it. `SessionInUse` while a run is live.
    """
    if level not in get_args(ThinkingLevel):
        levels = ", ".join(get_args(ThinkingLevel))
        raise PartValidationError(f"Unknown thinking level {level!r}; known: {levels}.", path="$.level")
    return await post(store, session_id, ThinkingLevelChange(level=level), head=head)


async def override_system_prompt(
    store: SessionStore, session_id: str, text: str | None, *, head: str | None = None
) -> Entry:
    """Replace the agent's instructions from the next run on; None restores them. `SessionInUse` while a run is live.

    What the runtime and the output type add to the system prompt remains.
    """
    return await post(store, session_id, SystemPromptOverride(text=text), head=head)


async def rename(store: SessionStore, session_id: str, title: str, *, head: str | None = None) -> Entry:
    """Change the title by which the session is listed and found; `PartValidationError` for an empty one."""
    title = " ".join(title.split())
    if not title:
        raise PartValidationError("The title of a session cannot be empty.", path="$.title")
    return await post(store, session_id, Custom(name=TITLE, data={"title": title}), head=head)


async def redact(store: SessionStore, session_id: str, entry_id: str, *, reason: str | None = None) -> Entry:
    """Hide the content of an entry from the next model call on. Redacting a queued message withdraws it.

    Other entries with the same content are redacted with it (`bartack.session.redaction.copies_of`): the request that a
    message delivers, the approvals and starts of the calls of an answer, the progress of a tool whose result it is, the
    header if the title is taken from a prompt, and the records of another program that an entry was imported from. With
    the call or the result of a sub-agent, everything in the session of that sub-agent is redacted, if it is in this
    store.
    """
    inner_sessions: list[str] = []

    async def attempt() -> Entry | None:
        tail = await store.tail_of(session_id)  # first: a message that is delivered from here on moves it
        entries = await store.entries(session_id)
        redacted_ids = (entry_id, *copies_of(entries, entry_id))
        inner_sessions[:] = subagent_sessions(entries, redacted_ids)
        facts = tuple(Redaction(entry_id=redacted_id, reason=reason) for redacted_id in redacted_ids)
        return await _append(store, session_id, tail, facts)

    entry = await _repeated(session_id, attempt)
    await _redact_subagents(store, session_id, inner_sessions, reason=reason)
    return entry


async def _redact_subagents(
    store: SessionStore, session_id: str, inner_sessions: Iterable[str], *, reason: str | None
) -> None:
    """Redact everything in these sessions of sub-agents, and in those of their own sub-agents."""
    for inner_session in inner_sessions:
        if not is_subagent_session(inner_session, session_id):
            continue
        with suppress(NotFound):  # in another store, or purged
            entries = await store.entries(inner_session)
            contents = [entry for entry in visible(entries) if redacted(entry.fact) != entry.fact]
            if contents:
                facts = [Redaction(entry_id=entry.id, reason=reason) for entry in contents]
                await post(store, inner_session, *facts)
            innermost = subagent_sessions(entries, {entry.id for entry in entries})
            await _redact_subagents(store, inner_session, innermost, reason=reason)


async def note(store: SessionStore, session_id: str, name: str, data: dict[str, Any]) -> Entry:
    """Add an application's own fact, which runs and models do not see.

    `PartValidationError` for a name that begins with ``bartack.``: facts with such names are interpreted.
    """
    if name.startswith(_OWN_NAMES):
        raise PartValidationError(f"The name {name!r} is reserved: Bartack interprets such facts.", path="$.name")
    return await post(store, session_id, Custom(name=name, data=data))


async def _checked(store: SessionStore, session_id: str, fact: Callable[[RunState], Fact]) -> Entry:
    """Append the fact computed from the state of the session, which is read again if others append first."""

    async def attempt() -> Entry | None:
        tail, state = await load_state(store, session_id)
        return await _append(store, session_id, tail, (fact(state),))

    return await _repeated(session_id, attempt)


async def _repeated(session_id: str, attempt: Callable[[], Awaitable[Entry | None]]) -> Entry:
    """Repeat the attempt until it returns an entry; a retryable `StoreError` after `_ATTEMPTS`."""
    for _ in range(_ATTEMPTS):
        entry = await attempt()
        if entry is not None:
            return entry
        await asyncio.sleep(0)  # the other writers may be tasks of this event loop
    raise StoreError(f"Session {session_id!r} changes faster than it can be appended to. Try again.", retryable=True)


async def load_state(store: SessionStore, session_id: str) -> tuple[Tail, RunState]:
    """The tail of a session, and the run state computed from its entries."""
    tail = await store.tail_of(session_id)
    stored = await store.load(session_id, head=tail.entry_id)
    state = RunState.of_branch(stored, Past(outlines_of(stored.texts)))
    if len(await store.heads(session_id)) > 1:
        state.add_other_branches(outlines_of((await store.entries(session_id)).texts))
    return tail, state


async def _append(
    store: SessionStore,
    session_id: str,
    tail: Tail,
    facts: tuple[Fact, ...],
    *,
    head: str | None = None,
    entry_id: str | None = None,
) -> Entry | None:
    """The first of the new entries, which follow `head` or else the tail; None if the session has another tail."""
    entries = next_entries(session_id, tail, facts, store.environment, parent_id=head, first_id=entry_id)
    try:
        await store.append(session_id, entries, tail.entry_id)
    except Conflict as error:
        if error.tail not in (None, tail.entry_id):
            return None
        stored = (
            [] if entry_id is None else [entry for entry in await store.entries(session_id) if entry.id == entry_id]
        )
        if not stored:
            raise
        return stored[0]
    return entries[0]


def check_decision(store: SessionStore, state: RunState, tool_call_id: str, decision: Decision) -> ApprovalDecided:
    """The decision as a fact; raises what `decide` does."""
    call = state.find(tool_call_id)
    if (call is None and tool_call_id in state.call_ids) or (call is not None and call.is_settled):
        raise Conflict(f"Call {tool_call_id!r} can no longer be decided: the run has already acted on it.")
    question = None if call is None else call.question
    if question is None:
        raise NotFound(f"Call {tool_call_id!r} is not awaiting approval.")
    if question.expires_at is not None and question.expires_at <= store.environment.now():
        raise Conflict(f"The approval of call {tool_call_id!r} expired at {question.expires_at:%Y-%m-%d %H:%M:%S} UTC.")
    fact = decided_fact(question, decision)
    if decision.decision == "modify_args":
        check_arguments(question, fact.arguments or {})
    return fact


def check_arguments(question: ApprovalRequired, arguments: dict[str, Any]) -> None:
    """Raise `PartValidationError` if the tool in question does not accept these arguments, or they cannot be checked
    because a library is missing."""
    if question.parameters is None:
        return
    try:
        argument_check(question.parameters)(arguments)
    except ToolError as error:
        if error.code is ErrorCode.MISSING_DEPENDENCY:
            raise PartValidationError(error.message, path="$.arguments", code=error.code) from error
        raise PartValidationError(f"Invalid arguments: {error.message}", path="$.arguments") from error


def _as_message(message: Message | str) -> Message:
    queued = user(message) if isinstance(message, str) else message
    if queued.role != "user":
        raise PartValidationError(f"Only a user message can be queued, not {queued.role}.", path="$.message")
    return queued


def _as_ref(name: str) -> ModelRef:
    vendor, _, model = re.sub("[:/]", "\n", name, count=1).partition("\n")
    if not vendor or not model:
        raise PartValidationError(f"Invalid model name {name!r}; expected vendor:model.", path="$.model")
    return ModelRef(vendor, model)
