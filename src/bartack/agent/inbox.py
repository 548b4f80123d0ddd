"""`Inbox`: what is said to a run while it works. It becomes a fact at the next safe point, never in between."""

from collections import deque

from bartack.models.model import Model
from bartack.nouns.messages import Message

__all__ = ["Inbox"]


class Inbox:
    """Messages and a wish for another model, waiting for their moment."""

    def __init__(self) -> None:
        self.steering: deque[Message] = deque()  # delivered before the next model call
        self.queued: deque[Message] = deque()  # delivered when the run would end
        self.model: Model | None = None

    def take_steering(self) -> list[Message]:
        """What is to be said before the next model call."""
        taken = list(self.steering)
        self.steering.clear()
        return taken

    def take_queued(self) -> list[Message]:
        """The next message that waited for its turn, if there is one."""
        return [self.queued.popleft()] if self.queued else []

    @property
    def undelivered(self) -> tuple[Message, ...]:
        """What nobody heard."""
        return (*self.steering, *self.queued)
