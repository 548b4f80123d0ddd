"""Every error Bartack raises, and the codes that identify what went wrong.

The class identifies whose fault it is, the code what happened, and the message explains it to people::

    BartackError
    ├── StreamError               a stream violated the streaming contract          rule
    ├── ModelError                the provider, or the connection to it, failed     status, retry_after_ms
    ├── InvalidStateTransition    an event for which the current state has no edge  name, current, attempted, valid
    ├── PartValidationError       an invalid value                                  path, rule
    │   ├── ConfigError           a wrong set-up or argument; also a TypeError
    │   └── MissingRequiredField
    ├── ToolError                 raised by tools; always becomes a ToolResult
    ├── AgentError                a run cannot continue
    ├── QueueFull                 too many runs are waiting for a worker            queued, limit, user
    └── StoreError                the session store failed or refused
        ├── NotFound
        ├── NotAdopted            the session came from a file, and nobody has adopted it
        └── Conflict              the store already holds something else            tail
            ├── SessionInUse      another run holds the session                     owner, expires_in_s
            ├── LeaseLost         another run has taken the session
            ├── NothingToResume   what was to be resumed has ended
            └── KeyReused         the key belongs to another prompt                 key

Codes are part of the API and appear in stored facts. Messages are not, and may change: read attributes, never parse
``str(error)``.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Self

__all__ = [
    "AgentError",
    "BartackError",
    "ConfigError",
    "Conflict",
    "ErrorCode",
    "InvalidStateTransition",
    "KeyReused",
    "LeaseLost",
    "MissingRequiredField",
    "ModelError",
    "NotAdopted",
    "NotFound",
    "NothingToResume",
    "PartValidationError",
    "QueueFull",
    "SessionInUse",
    "StoreError",
    "StreamError",
    "ToolError",
    "exception_text",
    "nearest_name",
]


class ErrorCode(StrEnum):
    """What went wrong. Codes are stable across versions, and each means one thing.

    | code | meaning |
    |---|---|
    | `stream_truncated` | The stream ended without its provider's terminal signal. |
    | `stream_malformed` | The bytes received do not conform to the wire format. |
    | `stream_too_large` | The stream exceeded a size or nesting limit. |
    | `contract_violation` | The deltas violate the streaming contract. |
    | `authentication` | The provider rejected the credentials. |
    | `permission_denied` | The credentials are valid but not authorised for this request. |
    | `model_not_found` | The provider, or this machine, has no such model. |
    | `invalid_request` | The request was rejected as invalid. |
    | `request_too_large` | The request body is larger than the provider accepts. |
    | `context_overflow` | The conversation does not fit the model's context window. |
    | `content_filter` | A content filter blocked the request or the answer. |
    | `rate_limited` | Too many requests or tokens per interval. |
    | `quota_exceeded` | The account is out of credit or over its quota. |
    | `overloaded` | The provider is temporarily out of capacity. |
    | `server_error` | The provider failed internally. |
    | `provider_error` | The provider failed for a reason that no other code covers. |
    | `cancelled` | The provider cancelled the response. |
    | `connection_failed` | The connection could not be established, or broke before the answer. |
    | `timeout` | The provider did not respond in time. |
    | `tool_not_found` | There is no tool of this name. |
    | `tool_bad_arguments` | The arguments are not JSON or do not match the tool's schema. |
    | `tool_failed` | The tool raised an error or reported one. |
    | `tool_timeout` | The tool ran longer than its timeout. |
    | `tool_denied` | The call was not approved. |
    | `tool_aborted` | The run was aborted before the call finished. |
    | `tool_interrupted` | The tool had started when the process ended; its outcome is unknown. |
    | `tool_not_run` | The call was skipped before it started, such as one from a truncated answer. |
    | `aborted` | The run was aborted. |
    | `paused` | The run is paused and has no output yet. |
    | `limit_exceeded` | The run reached one of its limits. |
    | `queue_full` | Too many runs are waiting for a worker. |
    | `compaction_failed` | The context could not be compacted. |
    | `refused` | The model declined to answer. |
    | `answer_truncated` | The answer was cut off at the output limit of the model. |
    | `answer_empty` | The model returned an empty answer. |
    | `invalid_output` | The answer does not match the agent's output type. |
    | `internal_error` | An unexpected exception: a bug in a hook, an extension or Bartack. |
    | `invalid_value` | A value is not valid where it is used. |
    | `missing_field` | A required field is missing. |
    | `unknown_kind` | A tagged value has an unknown tag. |
    | `invalid_transition` | The operation is not possible in the current state. |
    | `invalid_config` | A setting, option or argument is invalid. |
    | `missing_credentials` | No API key or other credentials were found. |
    | `missing_dependency` | An optional package is not installed. |
    | `download_invalid` | A downloaded file does not have the expected content. |
    | `conflict` | The session is in use, or changed in the meantime. |
    | `not_found` | No such session, entry or blob. |
    | `not_adopted` | The session was imported, and nobody has adopted it yet. |
    | `storage_failed` | A file or database could not be read or written. |
    | `storage_corrupt` | Stored data is damaged or lost. |
    | `storage_unsupported` | Not a Bartack store, or one from an unsupported version. |
    """

    # the stream
    STREAM_TRUNCATED = "stream_truncated"
    STREAM_MALFORMED = "stream_malformed"
    STREAM_TOO_LARGE = "stream_too_large"
    CONTRACT_VIOLATION = "contract_violation"
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
    PROVIDER_ERROR = "provider_error"
    CANCELLED = "cancelled"
    # the connection
    CONNECTION_FAILED = "connection_failed"
    TIMEOUT = "timeout"
    # a tool call
    TOOL_NOT_FOUND = "tool_not_found"
    TOOL_BAD_ARGUMENTS = "tool_bad_arguments"
    TOOL_FAILED = "tool_failed"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_DENIED = "tool_denied"
    TOOL_ABORTED = "tool_aborted"
    TOOL_INTERRUPTED = "tool_interrupted"
    TOOL_NOT_RUN = "tool_not_run"
    # a run
    ABORTED = "aborted"
    PAUSED = "paused"
    LIMIT_EXCEEDED = "limit_exceeded"
    QUEUE_FULL = "queue_full"
    COMPACTION_FAILED = "compaction_failed"
    REFUSED = "refused"
    ANSWER_TRUNCATED = "answer_truncated"
    ANSWER_EMPTY = "answer_empty"
    INVALID_OUTPUT = "invalid_output"
    INTERNAL_ERROR = "internal_error"
    # a value
    INVALID_VALUE = "invalid_value"
    MISSING_FIELD = "missing_field"
    UNKNOWN_KIND = "unknown_kind"
    INVALID_TRANSITION = "invalid_transition"
    # the set-up
    INVALID_CONFIG = "invalid_config"
    MISSING_CREDENTIALS = "missing_credentials"
    MISSING_DEPENDENCY = "missing_dependency"
    DOWNLOAD_INVALID = "download_invalid"
    # a store
    CONFLICT = "conflict"
    NOT_FOUND = "not_found"
    NOT_ADOPTED = "not_adopted"
    STORAGE_FAILED = "storage_failed"
    STORAGE_CORRUPT = "storage_corrupt"
    STORAGE_UNSUPPORTED = "storage_unsupported"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed if it is repeated."""
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
        ErrorCode.QUEUE_FULL,
    }
)


def nearest_name(name: str, names: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The name that a misspelled one most likely stands for; None if no name is that similar."""
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and needed only for errors

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=cutoff)), None)


def exception_text(error: BaseException) -> str:
    """The type and the text of any exception. Foreign ones may fail even to print themselves."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except BaseException:  # noqa: BLE001 - user code, while it is being reported; it may panic as well
        return f"{name} (its text cannot be read)"


class BartackError(Exception):
    """The base of all errors, with ``code``, ``message``, ``retryable`` and ``cause``."""

    default_code = ErrorCode.INTERNAL_ERROR

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
        self.code: ErrorCode = self.default_code if code is None else code
        self.retryable: bool = self.code.retryable if retryable is None else retryable
        self.cause = cause
        if cause is not None:  # setting it to None would hide the context in tracebacks
            self.__cause__: BaseException | None = cause


class StreamError(BartackError):
    """A stream violated the contract; ``rule`` is the id of the violated rule in docs/spec.md."""

    default_code = ErrorCode.CONTRACT_VIOLATION

    def __init__(self, message: str, *, rule: str | None = None, code: ErrorCode | None = None) -> None:
        super().__init__(message, code=code)
        self.rule = rule


class ModelError(BartackError):
    """The provider, or the connection to it, failed."""

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
    """An event that the current state has no edge for (003 §6.2); nothing has changed.

    ``current``, ``attempted`` and ``valid`` are statuses: where it is, where ``event`` would have led, and where the
    events that are allowed lead.
    """

    name = "InvalidStateTransition"
    default_code = ErrorCode.INVALID_TRANSITION

    def __init__(self, current: str, event: str, edges: Mapping[str, str], *, attempted: str | None = None) -> None:
        """`edges` are the allowed events and their statuses. Without `attempted`, the event leads nowhere at all."""
        self.current: str = str(current)
        self.event = event
        self.attempted: str = event if attempted is None else str(attempted)
        self.edges: dict[str, str] = {allowed: str(status) for allowed, status in edges.items()}
        self.valid: tuple[str, ...] = tuple(dict.fromkeys(self.edges.values()))
        allowed = ", ".join(self.edges) or "nothing"
        super().__init__(f"{event!r} is not valid in state {self.current!r}; valid: {allowed}")

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[str, str, dict[str, str]]]:
        # An exception is copied and pickled by its arguments, and these are not those of `__init__`.
        return partial(type(self), attempted=self.attempted), (self.current, self.event, self.edges)

    @property
    def details(self) -> dict[str, object]:
        """The machine-readable form of 003 §6.2."""
        return {
            "currentStatus": self.current,
            "attemptedStatus": self.attempted,
            "validTransitions": list(self.valid),
        }


class PartValidationError(BartackError):
    """An invalid value; ``path`` is where it was found (``$.parts[0].payload.text``)."""

    default_code = ErrorCode.INVALID_VALUE

    def __init__(
        self, message: str, *, path: str = "$", rule: str | None = None, code: ErrorCode | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.path: str = path
        self.rule = rule

    def __str__(self) -> str:
        return self.message if self.path == "$" else f"{self.message} - at `{self.path}`"

    def under(self, prefix: str) -> "PartValidationError":
        """The same error, with ``prefix`` inserted after the ``$`` of its path."""
        self.path = f"${prefix}{self.path[1:]}"
        return self


class ConfigError(PartValidationError, TypeError):
    """An agent, a model or a tool was set up wrongly, or called with wrong arguments; nothing was done.

    Also a `TypeError`, as Python raises for wrong arguments.
    """

    default_code = ErrorCode.INVALID_CONFIG


class MissingRequiredField(PartValidationError):
    """A required field is missing."""

    default_code = ErrorCode.MISSING_FIELD


class ToolError(BartackError):
    """Raised by a tool that cannot complete its call; the model receives the message."""

    default_code = ErrorCode.TOOL_FAILED


class TryAgain(ToolError):
    """Raised by a tool or a check of the output: the model receives the message, and should try again."""


class AgentError(BartackError):
    """A run cannot continue."""


class QueueFull(BartackError):
    """Too many runs are waiting for a worker, of all users or of this ``user``; nothing was stored."""

    default_code = ErrorCode.QUEUE_FULL

    def __init__(self, message: str, *, queued: int = 0, limit: int = 0, user: str | None = None) -> None:
        super().__init__(message)
        self.queued = queued
        self.limit = limit
        self.user = user


class StoreError(BartackError):
    """The session store failed, or refused the operation."""

    default_code = ErrorCode.STORAGE_FAILED


class NotFound(StoreError):
    """No such session, entry or blob."""

    default_code = ErrorCode.NOT_FOUND


class NotAdopted(StoreError):
    """The session came from a file, and no run starts in it before a person has adopted it; nothing was stored."""

    default_code = ErrorCode.NOT_ADOPTED


class Conflict(StoreError):
    """The store already holds something else; ``tail`` is the actual last entry where another was expected."""

    default_code = ErrorCode.CONFLICT

    def __init__(self, message: str, *, tail: str | None = None) -> None:
        super().__init__(message)
        self.tail = tail


class SessionInUse(Conflict):
    """Another run holds the session's lease; nothing was stored. ``expires_in_s`` is when the lease runs out."""

    def __init__(self, message: str, *, owner: str = "", expires_in_s: float = 0.0) -> None:
        super().__init__(message)
        self.owner = owner
        self.expires_in_s = expires_in_s


class LeaseLost(Conflict):
    """The lease is no longer the session's current one: it expired and was taken, was taken over, or was released."""


class NothingToResume(Conflict):
    """What was to be resumed has ended in the meantime; nothing was stored."""


class KeyReused(Conflict):
    """A prompt with this key was submitted before, with other content; nothing was stored."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key
