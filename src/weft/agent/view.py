"""`SessionView`: one branch of a session as an agent holds it in memory: its tail, and the folds over its entries.

It is built once from the store and then grows with the session. The agent keeps the views of the sessions it worked on
last; the next run on one of them reads only what others have appended since, however long the session is.
"""

from weft.agent.progress import Progress
from weft.context import ContextFold
from weft.entries import Entry
from weft.errors import Conflict, NotFound
from weft.store.session_store import SessionStore, Tail

__all__ = ["SessionView", "ensure_session"]


class SessionView:
    """A branch, as far as it has been read."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.tail = Tail("", 0)
        self.head = ""  # the last entry of this branch
        self.parent_id: str | None = None  # where the next entry goes on, if that is not the tail
        self.progress = Progress()
        self.context = ContextFold()

    def push(self, entry: Entry) -> None:
        """Take the next entry of the branch, which is the session's last too."""
        self._fold(entry)
        self.tail, self.parent_id = Tail(entry.id, entry.seq), None

    def _fold(self, entry: Entry) -> None:
        self.progress.push(entry)
        self.context.push(entry)
        self.head = entry.id

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
        view.tail = tail
        view.parent_id = None if view.head == tail.entry_id else view.head
        return view


async def ensure_session(store: SessionStore, session_id: str) -> None:
    """Create the session if it is not there."""
    try:
        await store.tail_of(session_id)
    except NotFound:
        try:
            await store.create_session(session_id)
        except Conflict:  # another was quicker, which is just as well
            pass
