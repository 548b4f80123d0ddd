"""`PartValidator` (003 §4.3): which part is which, and whether it follows the rules BR-01 to BR-10."""

from collections.abc import Iterator
from typing import Any, TypeGuard, get_args
from uuid import UUID

from bartack.nouns.errors import PartValidationError
from bartack.nouns.logs import logger
from bartack.nouns.noun import Noun, wrong_types
from bartack.nouns.parts import Span
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

_log = logger("views")

# The rule that lists the fields of a part.
_FIELDS: dict[type[Any], str] = {
    TextPart: "003-3.2.1",
    ReasoningPart: "003-3.3.1",
    ToolPart: "003-3.5.1",
    StepStartPart: "003-3.6.1",
    StepFinishPart: "003-3.6.2",
    FilePart: "003-3.7.1",
}


class ValidationResult(Noun, frozen=True):
    """Whether a part is valid; if not, what is wrong with it, and the ids of the violated rules in docs/spec.md."""

    valid: bool
    errors: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


def is_text_part(part: object) -> TypeGuard[TextPart]:
    """Whether it is a `TextPart`."""
    return isinstance(part, TextPart)


def is_reasoning_part(part: object) -> TypeGuard[ReasoningPart]:
    """Whether it is a `ReasoningPart`."""
    return isinstance(part, ReasoningPart)


def is_tool_part(part: object) -> TypeGuard[ToolPart]:
    """Whether it is a `ToolPart`."""
    return isinstance(part, ToolPart)


def is_step_start_part(part: object) -> TypeGuard[StepStartPart]:
    """Whether it is a `StepStartPart`."""
    return isinstance(part, StepStartPart)


def is_step_finish_part(part: object) -> TypeGuard[StepFinishPart]:
    """Whether it is a `StepFinishPart`."""
    return isinstance(part, StepFinishPart)


def validate_part(part: DocumentPart) -> ValidationResult:
    """Check a part against BR-01 to BR-04, and the type of every value in it.

    Tool states satisfy BR-05 to BR-10 by construction.
    """
    faults = tuple(_faults(part))
    return ValidationResult(not faults, tuple(fault for _, fault in faults), tuple(rule for rule, _ in faults))


def _faults(part: DocumentPart) -> Iterator[tuple[str, str]]:
    if not isinstance(part, get_args(DocumentPart)):
        yield "003-BR-03", f"{type(part).__name__} is not a part of a document"
        return
    if not part.id or not isinstance(part.id, str):
        yield "003-BR-01", f"id must be text and not empty, got {part.id!r}"
    for key, value in (("sessionID", part.session_id), ("messageID", part.message_id)):
        try:
            UUID(value)
        except (ValueError, AttributeError, TypeError):
            yield "003-BR-04", f"{key} {value!r} is not a UUID"
    if isinstance(part, ReasoningPart) and isinstance(part.time, Span) and part.time.start is None:
        yield "003-3.3.1", "a reasoning part needs a start time"
    for path, problem in wrong_types(part):
        if path not in ("$.id", "$.session_id", "$.message_id"):
            yield "003-3.7.2" if path.startswith("$.source") else _FIELDS[type(part)], f"{path[2:]}: {problem}"


def _refused_error(problem: str, path: str, rule: str) -> PartValidationError:
    """The error, logged without the values that it quotes (003 §6.1)."""
    _log.warning("Refused a part at %s: it violates %s.", path, rule)
    return PartValidationError(problem, path=path, rule=rule)


class WithPartsBuilder:
    """Builds a `WithParts` part by part, in order (003 §7.2)."""

    def __init__(self, info: UserInfo | AssistantInfo) -> None:
        self._info = info
        self._parts: dict[str, DocumentPart] = {}

    def add(self, part: DocumentPart) -> "WithPartsBuilder":
        """Append one part; raise `PartValidationError`, and add nothing, if it is invalid here."""
        path = f"$.parts[{len(self._parts)}]"
        result = validate_part(part)
        if not result.valid:
            raise _refused_error("; ".join(result.errors), path, result.rules[0])
        if part.id in self._parts:
            raise _refused_error(f"duplicate part id {part.id!r}", path, "003-BR-02")
        if part.message_id != self._info.id:
            raise _refused_error("the part belongs to another message", path, "003-3.1.1")
        self._parts[part.id] = part
        return self

    def build(self) -> WithParts:
        """The message with the parts added so far."""
        return WithParts(self._info, tuple(self._parts.values()))
