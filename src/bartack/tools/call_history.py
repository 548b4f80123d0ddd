"""What a session already says about each tool call: a fold over entries that the executor goes on from.

It answers what must be known after a crash: was the call started, may it run again, who was asked and what did they
say, is there a result.
"""

from msgspec import Struct
from msgspec.structs import replace

from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, Entry, ToolStarted
from bartack.nouns.messages import Message

__all__ = ["CallFold", "CallHistory"]


class CallHistory(Struct, frozen=True, kw_only=True):
    """The past of one call."""

    starts: int = 0
    idempotent: bool = False  # as the last start declared
    required: ApprovalRequired | None = None  # the last question
    decided: ApprovalDecided | None = None  # the last answer to it
    finished: bool = False


class CallFold:
    """The past of every call, entry by entry."""

    def __init__(self) -> None:
        self.histories: dict[str, CallHistory] = {}

    def push(self, entry: Entry) -> None:
        """Take the next entry."""
        fact = entry.fact
        match fact:
            case ToolStarted():
                past = self._of(fact.tool_call_id)
                self.histories[fact.tool_call_id] = replace(past, starts=past.starts + 1, idempotent=fact.idempotent)
            case ApprovalRequired():
                past = self._of(fact.tool_call_id)
                self.histories[fact.tool_call_id] = replace(past, required=fact, decided=None)
            case ApprovalDecided():
                past = self._of(fact.tool_call_id)
                self.histories[fact.tool_call_id] = replace(past, decided=fact)
            case Message():
                for result in fact.tool_results:
                    self.histories[result.tool_call_id] = replace(self._of(result.tool_call_id), finished=True)
            case _:
                pass

    def _of(self, tool_call_id: str) -> CallHistory:
        return self.histories.get(tool_call_id, CallHistory())
