"""Sessions as the chats and threads of UI protocols, whose clients choose the ids and send everything each time."""

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from bartack.nouns.entries import ApprovalRequired, Entry, RunStarted, ToolStarted
from bartack.nouns.errors import Conflict, NotFound
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolResult
from bartack.session.decisions import Decision
from bartack.store import requests
from bartack.web.endpoint import Call

__all__ = ["entries_of", "head_before", "is_answered", "last_run", "post_answers", "session_of"]


def session_of(call: Call, chat_id: str) -> str:
    """The session of a chat; `NotFound` if it is not the user's. Their prefix is added to ids that lack it."""
    session_id = chat_id if call.user.may_use(chat_id) else call.user.prefix + chat_id
    call.service.check_access(call.user, session_id)
    return session_id


async def entries_of(call: Call, session_id: str) -> Sequence[Entry]:
    """The entries of all branches; none if there is no such session."""
    try:
        return await call.service.store.entries(session_id)
    except NotFound:
        return ()


def head_before(entries: Sequence[Entry], prompt: Message) -> str | None:
    """Where the answer begins a branch: before the message that is edited, or answered again. None: at the end."""
    before_run: str | None = None
    for entry in entries:
        if isinstance(entry.fact, RunStarted):
            before_run = entry.parent_id
        elif isinstance(entry.fact, Message) and entry.fact.role == "user" and entry.fact.id == prompt.id:
            return before_run
    return None


def last_run(branch: Sequence[Entry]) -> Sequence[Entry]:
    """The entries since the last run started."""
    starts = [at for at, entry in enumerate(branch) if isinstance(entry.fact, RunStarted)]
    return branch[starts[-1] if starts else len(branch) :]


def is_answered(entry: Entry, decisions: Container[str], outputs: Container[str]) -> bool:
    """Whether this is a question that the client has decided about, or a call whose output it has."""
    match entry.fact:
        case ApprovalRequired():
            return entry.fact.tool_call_id in decisions
        case ToolStarted(deferred=True):
            return entry.fact.tool_call_id in outputs
        case _:
            return False


async def post_answers(
    call: Call, session_id: str, decisions: Mapping[str, Decision], outputs: Mapping[str, ToolResult]
) -> None:
    """Post what a client has decided, and the outputs of deferred calls among those that it sends."""
    store, name = call.service.store, call.user.name
    for call_id, decision in decisions.items():
        with suppress(Conflict):  # someone else was faster; the stream shows what became of it
            await requests.decide(store, session_id, call_id, replace(decision, decided_by=name))
    for waiting in await requests.deferred_calls(store, session_id):
        result = outputs.get(waiting.tool_call_id)
        if result is not None:
            with suppress(Conflict):
                await requests.post_result(store, session_id, waiting.tool_call_id, result, posted_by=name)
