"""Every error Bartack raises, and the codes that name what went wrong.

The class says who is to blame, the code says what happened, the message is prose for people::

    BartackError
    ├── StreamError               the provider's stream broke the contract       rule
    ├── ModelError                the provider said no                           status, retry_after_ms
    ├── InvalidStateTransition    we asked a state for what it has no edge to    current, attempted, valid
    ├── PartValidationError       a value may not stand where it was put         path, rule
    │   └── MissingRequiredField
    ├── ToolError                 raised by tools, always ends as a ToolResult
    ├── AgentError                a run cannot go on
    └── StoreError                the session store refused or failed
        ├── NotFound
        └── Conflict              the entry, or a second outcome for a call, is already there

Codes are part of the contract and appear in stored facts; messages are not and may change. A caller
reads attributes and never parses ``str(error)``.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

__all__ = [
    "AgentError",
    "BartackError",
    "Conflict",
    "ErrorCode",
    "InvalidStateTransition",
    "MissingRequiredField",
    "ModelError",
    "NotFound",
    "PartValidationError",
    "StoreError",
    "StreamError",
    "ToolError",
]


class ErrorCode(StrEnum):
    """What went wrong, in one word that stays the same across versions."""

    # the stream
    STREAM_TRUNCATED = "stream_truncated"  # it ended without its provider's own terminal signal
    STREAM_MALFORMED = "stream_malformed"  # bytes that are not the format
    STREAM_TOO_LARGE = "stream_too_large"  # a buffer reached its limit
    CONTRACT_VIOLATION = "contract_violation"  # deltas that break the streaming contract
    # the provider
    AUTHENTICATION = "authentication"
    PERMISSION_DENIED = "permission_denied"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request"
    REQUEST_TOO_LARGE = "request_too_large"
    CONTEXT_OVERFLOW = "context_overflow"
    CONTENT_FILTER = "content_filter"
    RATE_LIMITED = "rate_limited"
    QUOTA_EXCEEDED = "quota_exceeded"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    PROVIDER_ERROR = "provider_error"  # the provider said no and gave no reason we know
    # the way to the provider
    CONNECTION_FAILED = "connection_failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    # a tool call
    TOOL_NOT_FOUND = "tool_not_found"
    TOOL_BAD_ARGUMENTS = "tool_bad_arguments"
    TOOL_FAILED = "tool_failed"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_DENIED = "tool_denied"
    TOOL_ABORTED = "tool_aborted"
    TOOL_INTERRUPTED = "tool_interrupted"  # started, and nobody knows how it ended
    TOOL_NOT_RUN = "tool_not_run"  # the call came from an answer that was cut off
    # a run
    ABORTED = "aborted"
    LIMIT_EXCEEDED = "limit_exceeded"
    COMPACTION_FAILED = "compaction_failed"
    # a value
    INVALID_VALUE = "invalid_value"
    MISSING_FIELD = "missing_field"
    UNKNOWN_KIND = "unknown_kind"
    INVALID_TRANSITION = "invalid_transition"
    INVALID_CONFIG = "invalid_config"
    # a store
    CONFLICT = "conflict"
    NOT_FOUND = "not_found"
    STORAGE_FAILED = "storage_failed"
    STORAGE_CORRUPT = "storage_corrupt"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without being changed."""
        return self in _RETRYABLE


_RETRYABLE = frozenset(
    {
        ErrorCode.STREAM_TRUNCATED,
        ErrorCode.STREAM_MALFORMED,
        ErrorCode.RATE_LIMITED,
        ErrorCode.OVERLOADED,
        ErrorCode.SERVER_ERROR,
        ErrorCode.CONNECTION_FAILED,
        ErrorCode.TIMEOUT,
    }
)


class BartackError(Exception):
    """The root of the tree: ``code``, ``message``, ``retryable`` and ``cause`` on every error."""

    default_code = ErrorCode.INVALID_VALUE

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        retryable: bool | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.retryable = self.code.retryable if retryable is None else retryable
        self.cause = cause
        if cause is not None:  # setting it to None would hide the context in tracebacks
            self.__cause__ = cause


class StreamError(BartackError):
    """A stream broke the contract; ``rule`` is the id of the broken rule in docs/spec.md."""

    default_code = ErrorCode.CONTRACT_VIOLATION

    def __init__(self, message: str, *, rule: str | None = None, code: ErrorCode | None = None) -> None:
        super().__init__(message if rule is None else f"{message} [{rule}]", code=code)
        self.rule = rule


class ModelError(BartackError):
    """The provider, or the way to it, failed."""

    default_code = ErrorCode.PROVIDER_ERROR

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        retryable: bool | None = None,
        cause: BaseException | None = None,
        status: int | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message, code=code, retryable=retryable, cause=cause)
        self.status = status
        self.retry_after_ms = retry_after_ms


class InvalidStateTransition(BartackError):
    """A state was asked for a step it has no edge for (003 §6.2); nothing has changed."""

    default_code = ErrorCode.INVALID_TRANSITION

    def __init__(self, current: str, attempted: str, valid: Iterable[str]) -> None:
        self.current = current
        self.attempted = attempted
        self.valid = tuple(valid)
        allowed = ", ".join(self.valid) or "nothing"
        super().__init__(f"{attempted!r} is not possible in state {str(current)!r}; possible: {allowed}")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, tuple[str, ...]]]:
        return type(self), (self.current, self.attempted, self.valid)  # copied and pickled by its own arguments

    @property
    def details(self) -> dict[str, object]:
        """The machine-readable form that 003 §6.2 asks for."""
        return {
            "currentStatus": str(self.current),
            "attemptedStatus": self.attempted,
            "validTransitions": list(self.valid),
        }


class PartValidationError(BartackError):
    """A value may not stand where it was put; ``path`` says where (``$.parts[0].payload.text``)."""

    def __init__(
        self, message: str, *, path: str = "$", rule: str | None = None, code: ErrorCode | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.path = path
        self.rule = rule

    def __str__(self) -> str:
        rule = "" if self.rule is None else f" [{self.rule}]"
        return f"{self.message}{rule} - at `{self.path}`"

    def under(self, prefix: str) -> "PartValidationError":
        """The same error seen from the value that holds it: ``prefix`` goes between ``$`` and the path."""
        self.path = f"${prefix}{self.path[1:]}"
        return self


class MissingRequiredField(PartValidationError):
    """A field that must be there is not."""

    default_code = ErrorCode.MISSING_FIELD


class ToolError(BartackError):
    """A tool could not do its work; the model is told the message."""

    default_code = ErrorCode.TOOL_FAILED


class AgentError(BartackError):
    """A run cannot go on."""

    default_code = ErrorCode.LIMIT_EXCEEDED


class StoreError(BartackError):
    """The session store refused or failed."""

    default_code = ErrorCode.STORAGE_FAILED


class NotFound(StoreError):
    """No such session, entry or blob."""

    default_code = ErrorCode.NOT_FOUND


class Conflict(StoreError):
    """What is there already says otherwise; ``tail`` is the real last entry where one was expected."""

    default_code = ErrorCode.CONFLICT

    def __init__(self, message: str, *, tail: str | None = None) -> None:
        super().__init__(message)
        self.tail = tail
