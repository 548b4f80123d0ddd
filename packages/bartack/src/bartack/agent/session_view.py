"""`SessionView`: one branch of a session in memory: its tail, and the folds over its entries.

A view is loaded once and then grows with the session. An agent keeps the views of the sessions it used last, so the
next run on one of them reads only what was appended in the meantime, however long the session is.

Loading a session reads the outlines of its entries and decodes only those of the last run. What the model may see is
decoded when a model is called.
"""

from collections import OrderedDict
from collections.abc import Sequence

from bartack.events import ToolChanged
from bartack.nouns.entries import Entry
from bartack.nouns.messages import Message
from bartack.nouns.tool_states import Completed, Errored
from bartack.session.context import ContextFold
from bartack.session.outline import Outline, Past, outlines_of
from bartack.session.run_state import RunState
from bartack.session.tool_state import ToolFold
from bartack.store.foreign import is_foreign
from bartack.store.session_store import SessionStore, Tail

__all__ = ["SessionView", "SessionViews"]

_KEPT = 16  # sessions


class SessionView:
    """The part of a branch that has been read."""

    def __init__(self, session_id: str, stored: Sequence[Entry] = (), outlines: Sequence[Outline] = ()) -> None:
        self.session_id = session_id
        self.tail = Tail("", 0)
        self.head = stored[-1].id if stored else ""  # the last entry of this branch
        self.is_foreign = False  # see bartack.store.foreign
        self.parent_id: str | None = None  # the parent of the next entry, unless that is the tail
        past = Past(outlines)
        self.state = RunState.of_branch(stored, past)
        self._tools = ToolFold()
        self._tool_names: dict[str, str] = {}  # only calls that have not ended
        self._load_tools(stored, past)
        self._context: ContextFold | None = None
        self._stored, self._outlines = stored, outlines  # until the context is needed
        self._pushed: list[Entry] = []

    @property
    def context(self) -> ContextFold:
        """The messages that a model may see. Their entries are decoded when this is first read."""
        if self._context is None:
            self._context = ContextFold.of_branch(self._stored, self._outlines)
            self._stored = self._outlines = ()
        for entry in self._pushed:
            self._context.push(entry)
        self._pushed.clear()
        return self._context

    def push(self, entry: Entry) -> list[ToolChanged]:
        """Add the next entry of the branch, which is the session's last as well; returns what it changed for tools."""
        self.state.push(entry)
        self._pushed.append(entry)
        self.head = entry.id
        self.tail, self.parent_id = Tail(entry.id, entry.seq), None
        return self._push_tools(entry)

    def _push_tools(self, entry: Entry) -> list[ToolChanged]:
        states, names = self._tools.states, self._tool_names
        if isinstance(entry.fact, Message):
            names.update((call.tool_call_id, call.tool_name) for call in entry.fact.tool_calls)
        before = states.copy()
        self._tools.push(entry)
        changes = [
            ToolChanged(call_id, names.get(call_id, ""), state)
            for call_id, state in states.items()
            if state is not before.get(call_id)
        ]
        for change in changes:  # ended calls are forgotten: a session may have any number of them
            if isinstance(change.state, Completed | Errored):
                del states[change.tool_call_id]
                names.pop(change.tool_call_id, None)
        return changes

    def _load_tools(self, stored: Sequence[Entry], past: Past) -> None:
        for index in past.about_open_calls:
            self._push_tools(stored[index])
        for call_id in self._tools.states.keys() - past.open_calls:  # made together with an open one
            del self._tools.states[call_id], self._tool_names[call_id]
        for index in range(past.end, len(stored)):
            self._push_tools(stored[index])

    async def current(self, store: SessionStore) -> "SessionView":
        """This view with the entries appended since, or a new one if they are not a continuation of this branch.

        A session that has not grown may be another one: this one was deleted, and its id used again.
        """
        added = await store.entries(self.session_id, after_seq=self.tail.seq)
        if not added and (await store.tail_of(self.session_id)).entry_id != self.tail.entry_id:
            return await SessionView.load(store, self.session_id)
        for entry in added:
            if entry.parent_id != self.head:
                return await SessionView.load(store, self.session_id)
            self.push(entry)
        if added or self.is_foreign:  # an import marks a session together with the entries that it adds
            self.is_foreign = await is_foreign(store, self.session_id)
        return self

    @classmethod
    async def load(cls, store: SessionStore, session_id: str, head: str | None = None) -> "SessionView":
        """The branch that ends in `head` (default: the session's last entry); `NotFound` if there is none."""
        tail = await store.tail_of(session_id)
        stored = await store.load(session_id, head=head or tail.entry_id)
        view = cls(session_id, stored, outlines_of(stored.texts))
        if view.head != tail.entry_id or len(await store.heads(session_id)) > 1:
            view.state.add_other_branches(outlines_of((await store.entries(session_id)).texts))
        view.tail = tail
        view.is_foreign = await is_foreign(store, session_id)
        view.parent_id = None if view.head == tail.entry_id else view.head
        return view


class SessionViews:
    """The views of the sessions that an agent used last."""

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[int, str], SessionView] = OrderedDict()

    async def take(self, store: SessionStore, session_id: str) -> SessionView:
        """The session as it is now, for the caller to change; `NotFound` if there is none."""
        view = self._views.pop((id(store), session_id), None)
        return await (SessionView.load(store, session_id) if view is None else view.current(store))

    def put(self, store: SessionStore, view: SessionView) -> None:
        """Keep a view that agrees with the store."""
        self._views[id(store), view.session_id] = view
        while len(self._views) > _KEPT:
            self._views.popitem(last=False)
