"""`Work`: what the parts of one run share: its setup, its ledger, its status, and the way to those who watch."""

from bartack.agent.channel import Channel
from bartack.agent.events import EntryAppended, Event, StatusChanged, ToolChanged
from bartack.agent.ledger import Ledger
from bartack.agent.progress import Progress
from bartack.agent.setup import Setup
from bartack.agent.view import SessionView, ToolStep
from bartack.models.model import Model
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import Entry
from bartack.nouns.errors import ErrorCode
from bartack.nouns.tables import AGENT, AgentStatus, advance
from bartack.session.context import ContextInput

__all__ = ["RunFailed", "Work"]


class RunFailed(Exception):
    """The run cannot go on, and this is what its result will say."""

    def __init__(self, code: ErrorCode, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.failed = Failed(code, message)
        self.reason = reason or str(code)


class Work:
    """The shared state of one run."""

    def __init__(self, setup: Setup, view: SessionView, run_id: str, model: Model, channel: Channel) -> None:
        self.setup = setup
        self.view = view
        self.run_id = run_id
        self.model = model
        self.channel = channel
        self.status = AgentStatus.IDLE
        self.ledger: Ledger  # set when the lease is held
        self.hints: tuple[str, ...] = ()
        self.context_window: int | None = None
        self.specs = setup.registry.build_model_tool_specs()

    @property
    def progress(self) -> Progress:
        """What the entries amount to."""
        return self.view.progress

    @property
    def context_input(self) -> ContextInput:
        """What the context is made from, now."""
        return ContextInput(
            self.view.context,
            system_prompt=self._system_prompt,
            hints=self.hints,
            tools=self.specs,
            context_window=self.context_window,
        )

    @property
    def _system_prompt(self) -> str | None:
        output, instructions = self.setup.output, self.setup.instructions
        if output is None or self.model.supports("output_schema"):
            return instructions
        return output.instructions if instructions is None else f"{instructions}\n\n{output.instructions}"

    def move(self, event: str) -> None:
        """Go where the table AGENT says; `InvalidStateTransition` where it says nothing."""
        previous, self.status = self.status, advance(AGENT, self.status, event)
        if self.status is not previous:
            self.tell(StatusChanged(self.status, previous))

    def tell(self, event: Event) -> None:
        """Tell whoever watches."""
        self.channel.put(event)

    def tell_entry(self, entry: Entry, steps: list[ToolStep]) -> None:
        """An entry is durable, and this is what it did to tool calls."""
        if self.channel.is_open:
            self.channel.put(EntryAppended(entry))
            for step in steps:
                self.channel.put(ToolChanged(step.tool_call_id, step.tool_name, step.state))
