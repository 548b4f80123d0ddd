"""003 §4.3: which part is which, and whether one keeps the rules BR-01 to BR-10."""

from collections.abc import Iterator
from typing import TypeGuard, get_args
from uuid import UUID

from bartack.nouns.errors import PartValidationError
from bartack.nouns.noun import Noun
from bartack.views.document_parts import (
    AssistantInfo,
    DocumentPart,
    FilePart,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    UserInfo,
    WithParts,
)

__all__ = [
    "ValidationResult",
    "WithPartsBuilder",
    "is_reasoning_part",
    "is_step_finish_part",
    "is_step_start_part",
    "is_text_part",
    "is_tool_part",
    "validate_part",
]

_SOURCES = ("file", "symbol", "resource")  # 003 §3.7


class ValidationResult(Noun, frozen=True):
    """Whether a part is valid, and every rule it breaks."""

    valid: bool
    errors: tuple[str, ...] = ()


def is_text_part(part: object) -> TypeGuard[TextPart]:
    """Whether this is a `TextPart`."""
    return isinstance(part, TextPart)


def is_reasoning_part(part: object) -> TypeGuard[ReasoningPart]:
    """Whether this is a `ReasoningPart`."""
    return isinstance(part, ReasoningPart)


def is_tool_part(part: object) -> TypeGuard[ToolPart]:
    """Whether this is a `ToolPart`."""
    return isinstance(part, ToolPart)


def is_step_start_part(part: object) -> TypeGuard[StepStartPart]:
    """Whether this is a `StepStartPart`."""
    return isinstance(part, StepStartPart)


def is_step_finish_part(part: object) -> TypeGuard[StepFinishPart]:
    """Whether this is a `StepFinishPart`."""
    return isinstance(part, StepFinishPart)


def validate_part(part: DocumentPart) -> ValidationResult:
    """Every rule that the part breaks; states keep BR-05 to BR-10 by construction."""
    errors = tuple(_faults(part))
    return ValidationResult(not errors, errors)


def _faults(part: DocumentPart) -> Iterator[str]:
    if not isinstance(part, get_args(DocumentPart)):
        yield f"{type(part).__name__} is not a part [003-BR-03]"
        return
    if not part.id:
        yield "id is empty [003-BR-01]"
    for key, value in (("sessionID", part.session_id), ("messageID", part.message_id)):
        try:
            UUID(value)
        except (ValueError, AttributeError, TypeError):
            yield f"{key} {value!r} is not a UUID [003-BR-04]"
    if isinstance(part, ReasoningPart) and part.time.start is None:
        yield "reasoning has no start time [003-3.3.1]"
    if isinstance(part, FilePart) and part.source is not None and part.source.get("type") not in _SOURCES:
        yield f"source is a file, a symbol or a resource, not {part.source.get('type')!r} [003-3.7.2]"


class WithPartsBuilder:
    """Builds a `WithParts` part by part, in order (003 §7.2). A part that breaks a rule raises and is not added."""

    def __init__(self, info: UserInfo | AssistantInfo) -> None:
        self._info = info
        self._parts: dict[str, DocumentPart] = {}

    def add(self, part: DocumentPart) -> "WithPartsBuilder":
        """Append one part; `PartValidationError` names the rule it breaks."""
        path = f"$.parts[{len(self._parts)}]"
        result = validate_part(part)
        if not result.valid:
            raise PartValidationError("; ".join(result.errors), path=path)
        if part.id in self._parts:
            raise PartValidationError(f"part id {part.id!r} appears twice", path=path, rule="003-BR-02")
        if part.message_id != self._info.id:
            raise PartValidationError("the part belongs to another message", path=path, rule="003-3.1.1")
        self._parts[part.id] = part
        return self

    def build(self) -> WithParts:
        """The message with the parts added so far."""
        return WithParts(self._info, tuple(self._parts.values()))
