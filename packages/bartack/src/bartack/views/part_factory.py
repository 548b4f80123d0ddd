"""`PartFactory` (003 §4.1): creates parts of the document view. Ids and times are inputs, as everywhere in the core.

An argument of the wrong type raises `PartValidationError`, here and not when the part is written.
"""

from datetime import datetime

from bartack.nouns.noun import check_types
from bartack.nouns.parts import Span
from bartack.nouns.tool_states import ToolState
from bartack.views.document_parts import ReasoningPart, StepFinishPart, StepStartPart, TextPart, TokenStats, ToolPart

__all__ = [
    "create_reasoning_part",
    "create_step_finish_part",
    "create_step_start_part",
    "create_text_part",
    "create_tool_part",
]


def create_text_part(session_id: str, message_id: str, text: str, *, id: str) -> TextPart:
    """Create a `TextPart`."""
    return check_types(TextPart(id=id, session_id=session_id, message_id=message_id, text=text), "003-3.2.1")


def create_reasoning_part(session_id: str, message_id: str, text: str, *, id: str, start: datetime) -> ReasoningPart:
    """Create a `ReasoningPart` that started at `start`."""
    return check_types(
        ReasoningPart(id=id, session_id=session_id, message_id=message_id, text=text, time=Span(start=start)),
        "003-3.3.1",
    )


def create_tool_part(
    session_id: str, message_id: str, call_id: str, tool: str, state: ToolState, *, id: str
) -> ToolPart:
    """Create a `ToolPart` in the given state."""
    return check_types(
        ToolPart(id=id, session_id=session_id, message_id=message_id, call_id=call_id, tool=tool, state=state),
        "003-3.5.1",
    )


def create_step_start_part(session_id: str, message_id: str, *, id: str) -> StepStartPart:
    """Create a `StepStartPart`."""
    return check_types(StepStartPart(id=id, session_id=session_id, message_id=message_id), "003-3.6.1")


def create_step_finish_part(
    session_id: str, message_id: str, reason: str, cost: float | None, tokens: TokenStats | None, *, id: str
) -> StepFinishPart:
    """Create a `StepFinishPart`."""
    return check_types(
        StepFinishPart(id=id, session_id=session_id, message_id=message_id, reason=reason, cost=cost, tokens=tokens),
        "003-3.6.2",
    )
