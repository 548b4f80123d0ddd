"""`SessionView`: one branch of a session as an agent holds it in memory: its tail, and the folds over its entries.

It is built once from the store and then grows with the session. The agent keeps the views of the sessions it worked on
last; the next run on one of them reads only what others have appended since, however long the session is.
"""

from typing import NamedTuple

from bartack.agent.progress import Progress
from bartack.nouns.entries import Entry, ToolProgress, ToolStarted
from bartack.nouns.errors import Conflict, NotFound
from bartack.nouns.messages import Message
from bartack.nouns.tool_states import Completed, Errored, ToolState
from bartack.session.context import ContextFold
from bartack.session.tool_state import ToolFold
from bartack.store.session_store import SessionStore, Tail

__all__ = ["SessionView", "ToolStep", "ensure_session"]


class ToolStep(NamedTuple):
    """A call that an entry brought into another state."""

    tool_call_id: str
    tool_name: str
    state: ToolState


class SessionView:
    """A branch, as far as it has been read."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.tail = Tail("", 0)
        self.head = ""  # the last entry of this branch
        self.parent_id: str | None = None  # where the next entry goes on, if that is not the tail
        self.progress = Progress()
        self.context = ContextFold()
        self._tools = ToolFold()
        self._names: dict[str, str] = {}  # of the calls that are not over

    def push(self, entry: Entry) -> list[ToolStep]:
        """Take the next entry of the branch, which is the session's last too; gives what it did to tool calls."""
        steps = self._fold(entry)
        self.tail, self.parent_id = Tail(entry.id, entry.seq), None
        return steps

    def _fold(self, entry: Entry) -> list[ToolStep]:
        self.progress.push(entry)
        self.context.push(entry)
        self.head = entry.id
        fact, tools = entry.fact, self._tools
        if isinstance(fact, Message):
            self._names.update((call.tool_call_id, call.tool_name) for call in fact.tool_calls)
        call_ids = _calls_in(entry)
        before = [tools.states.get(call_id) for call_id in call_ids]
        tools.push(entry)
        steps = [
            ToolStep(call_id, self._names.get(call_id, ""), state)
            for call_id, old in zip(call_ids, before, strict=True)
            if (state := tools.states.get(call_id)) is not None and state is not old
        ]
        for step in steps:  # what is over is not kept: a session may have any number of calls
            if isinstance(step.state, Completed | Errored):
                del tools.states[step.tool_call_id]
                self._names.pop(step.tool_call_id, None)
        return steps

    async def refresh(self, store: SessionStore) -> bool:
        """Read what was appended since; False if that is not simply more of this branch."""
        for entry in await store.entries(self.session_id, after_seq=self.tail.seq):
            if entry.parent_id != self.head:
                return False
            self.push(entry)
        return True

    @classmethod
    async def load(cls, store: SessionStore, session_id: str, head: str | None = None) -> "SessionView":
        """The branch that ends in `head`, or the one of the session's last entry; `NotFound` if it is not there."""
        view = cls(session_id)
        tail = await store.tail_of(session_id)
        for entry in await store.load(session_id, head=head or tail.entry_id):
            view._fold(entry)
        if view.head != tail.entry_id or len(await store.heads(session_id)) > 1:
            view.progress.note_branches(await store.entries(session_id))
        view.tail = tail
        view.parent_id = None if view.head == tail.entry_id else view.head
        return view


def _calls_in(entry: Entry) -> list[str]:
    match entry.fact:
        case Message() as message:
            calls = [call.tool_call_id for call in message.tool_calls]
            return calls + [result.tool_call_id for result in message.tool_results]
        case ToolStarted() | ToolProgress() as fact:
            return [fact.tool_call_id]
        case _:
            return []


async def ensure_session(store: SessionStore, session_id: str) -> None:
    """Create the session if it is not there."""
    try:
        await store.tail_of(session_id)
    except NotFound:
        try:
            await store.create_session(session_id)
        except Conflict:  # another was quicker, which is just as well
            pass
