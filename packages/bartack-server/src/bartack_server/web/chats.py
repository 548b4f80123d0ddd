"""Sessions as the chats and threads of UI protocols, whose clients choose the ids and send everything each time."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from bartack.nouns.entries import ApprovalRequired, Entry, RunEnded, RunStarted, ToolStarted
from bartack.nouns.errors import Conflict, NotFound, PartValidationError, ToolError
from bartack.nouns.messages import Message
from bartack.nouns.parts import ToolResult
from bartack.protocols.content import is_blank
from bartack.session.decisions import Decision, question_digest
from bartack.store import requests
from bartack_server.web.endpoint import Call

__all__ = [
    "ClientAnswers",
    "branch_of",
    "check_asked",
    "check_prompt",
    "entries_of",
    "head_before",
    "open_answers",
    "post_answers",
    "session_of",
]


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


async def branch_of(call: Call, session_id: str) -> Sequence[Entry]:
    """The entries of the newest branch; none if there is no such session: a chat exists once it has a message."""
    try:
        return await call.service.store.load(session_id)
    except NotFound:
        return ()


def head_before(entries: Sequence[Entry], prompt: Message) -> str | None:
    """Where the answer begins a branch: before the message that is edited or answered again, and the start of its run.
    None: at the end."""
    by_id: dict[str | None, Entry] = {}
    for entry in entries:
        by_id[entry.id] = entry
        if not (isinstance(entry.fact, Message) and entry.fact.role == "user" and entry.fact.id == prompt.id):
            continue
        before = by_id.get(entry.parent_id)
        while before is not None and not isinstance(before.fact, Message | RunEnded):
            if isinstance(before.fact, RunStarted):
                return before.parent_id
            before = by_id.get(before.parent_id)
        return entry.parent_id  # no run began with it: it was posted, or is history that a run began with
    return None


class ClientAnswers(NamedTuple):
    """What a client answers: decisions about calls, and outputs of deferred calls, by the ids of the calls."""

    decisions: Mapping[str, Decision]
    outputs: Mapping[str, ToolResult]

    def answers(self, entry: Entry) -> bool:
        """Whether this is a question that the client has decided about, or a call whose output it has."""
        match entry.fact:
            case ApprovalRequired():
                return self.decides(entry.fact)
            case ToolStarted(deferred=True):
                return entry.fact.tool_call_id in self.outputs
            case _:
                return False

    def decides(self, question: ApprovalRequired) -> bool:
        """Whether the client has decided about exactly this question."""
        decision = self.decisions.get(question.tool_call_id)
        return decision is not None and decision.question_digest == question_digest(question)


def check_prompt(prompt: Message | None) -> None:
    """`PartValidationError` for an empty message."""
    if prompt is not None and is_blank(prompt.parts):
        raise PartValidationError("The message is empty.", path="$.messages")


def check_asked(entries: Sequence[Entry], decisions: Mapping[str, Decision]) -> None:
    """`NotFound` for a decision about a question that was never asked.

    Others may have decided since, the question may have been asked again about something else, and clients repeat old
    decisions: those of AG-UI must, after an error.
    """
    questions = [entry.fact for entry in entries if isinstance(entry.fact, ApprovalRequired)]
    asked = {(question.tool_call_id, question_digest(question)) for question in questions}
    for call_id, decision in decisions.items():
        if (call_id, decision.question_digest) not in asked:
            raise NotFound(f"Call {call_id!r} has never required approval, or not of what was shown.")


async def open_answers(call: Call, session_id: str, answers: ClientAnswers) -> ClientAnswers:
    """Those answers that the session still waits for; raises for an invalid one, before any is posted. A decision
    about a question that has been asked again since, about something else, is none of them."""
    store = call.service.store
    _, state = await requests.load_state(store, session_id)
    questions = {question.tool_call_id for question in state.questions if answers.decides(question)}
    deferred = {started.tool_call_id for started in state.deferred}
    decisions = {id: answer for id, answer in answers.decisions.items() if id in questions}
    for call_id, decision in decisions.items():
        with suppress(Conflict):  # it has expired, which the run finds out as well
            requests.check_decision(store, state, call_id, decision)
    return ClientAnswers(decisions, {id: output for id, output in answers.outputs.items() if id in deferred})


async def post_answers(call: Call, session_id: str, answers: ClientAnswers) -> None:
    """Post answers that the session waits for."""
    store, name = call.service.store, call.user.name
    # If someone else has answered since, or another question is open, the stream shows that.
    for call_id, decision in answers.decisions.items():
        with suppress(Conflict, NotFound, ToolError):
            await requests.decide(store, session_id, call_id, replace(decision, decided_by=name))
    for call_id, result in answers.outputs.items():
        with suppress(Conflict, NotFound):
            await requests.post_result(store, session_id, call_id, result, posted_by=name)
