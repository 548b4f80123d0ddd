"""The tool calls of a run: their names, arguments, times and states, as the events tell them."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from bartack.agent.events import ApprovalRequested, EntryAppended
from bartack.nouns.deltas import ToolCallArgs, ToolCallStart
from bartack.nouns.entries import ApprovalDecided, ToolProgress
from bartack.nouns.messages import Message
from bartack.nouns.tool_states import Completed, Errored, Pending, Running, ToolState
from bartack.stream.partial_json import PartialJson

__all__ = ["Call", "Calls"]


class Call:
    """One call, as far as it is known."""

    def __init__(self, call_id: str, name: str, now: float, *, by_provider: bool = False) -> None:
        self.id = call_id
        self.name = name
        self.by_provider = by_provider
        self.began = now  # when it was first heard of, then when it started
        self.state: ToolState | None = None  # None while the model writes it
        self.waits = False  # for a human
        self.ran = by_provider
        self.progress = ""  # what it said last
        self._writing = PartialJson()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, or what the model has written of them."""
        if self.state is not None:
            return self.state.input
        value = self._writing.value
        return value if value is not UNSET and isinstance(value, dict) else {}

    @property
    def is_over(self) -> bool:
        """Whether it has its outcome."""
        return isinstance(self.state, Completed | Errored)

    @property
    def duration(self) -> float | None:
        """How many seconds it ran; None if it never did, or if only the provider knows."""
        if not isinstance(self.state, Completed | Errored) or not self.ran or self.by_provider:
            return None
        time = self.state.time
        return None if time.end is None else (time.end - time.start).total_seconds()

    def write(self, text: str) -> None:
        """More of its arguments."""
        self._writing.feed(text)


class Calls:
    """Every call that is not over, in the order in which they were made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, Call] = {}
        self._over: set[str] = set()

    @property
    def open(self) -> list[Call]:
        """The calls that are not over."""
        return list(self._open.values())

    def start(self, delta: ToolCallStart) -> None:
        """The model begins to write a call. An id that it used before gets its own when the answer is whole."""
        by_provider = delta.executed_by == "provider"
        self._over.discard(delta.tool_call_id)
        self._open[delta.tool_call_id] = Call(
            delta.tool_call_id, delta.tool_name, self._clock(), by_provider=by_provider
        )

    def write(self, delta: ToolCallArgs) -> None:
        """The model writes on."""
        if call := self._open.get(delta.tool_call_id):
            call.write(delta.args_text_delta)

    def note(self, event: ApprovalRequested | EntryAppended) -> None:
        """Take what events besides states tell about calls."""
        if isinstance(event, ApprovalRequested):
            self._asked(event.request.tool_call_id, waits=True)
            return
        match event.entry.fact:
            case Message() as message:
                self._settle(message)
            case ToolProgress() as said:
                if call := self._open.get(said.tool_call_id):
                    call.progress = said.content
            case ApprovalDecided() as decided:
                self._asked(decided.tool_call_id, waits=decided.decision == "pause")
            case _:
                pass

    def _asked(self, call_id: str, *, waits: bool) -> None:
        if call := self._open.get(call_id):
            call.waits = waits

    def _settle(self, message: Message) -> None:
        """The answer is whole: a call whose id was changed goes by its new one."""
        for part in message.tool_calls:
            said = (part.metadata or {}).get("providerToolCallId")
            call = self._open.get(said) if isinstance(said, str) else None
            if call is not None and call.state is None and part.tool_call_id not in self._open:
                del self._open[call.id]
                call.id = part.tool_call_id
                self._open[call.id] = call

    def change(self, call_id: str, name: str, state: ToolState) -> Call | None:
        """The call is in another state; None if it was over before."""
        if call_id in self._over:
            return None
        call = self._open.get(call_id)
        if call is None:
            call = self._open[call_id] = Call(call_id, name, self._clock())
        if isinstance(state, Running) and not isinstance(call.state, Running):
            call.began = self._clock()
            call.ran = True
        call.ran = call.ran or isinstance(state, Completed)
        call.waits = call.waits and isinstance(state, Pending)
        call.state = state
        if call.is_over:
            del self._open[call_id]
            self._over.add(call_id)
        return call

    def cut(self) -> list[Call]:
        """The calls that the model was still writing: they will never be made."""
        lost = [call for call in self.open if call.state is None]
        for call in lost:
            del self._open[call.id]
        return lost

    def end(self) -> list[Call]:
        """Nothing more comes: the calls that have no outcome."""
        lost = self.open
        self._open.clear()
        return lost
