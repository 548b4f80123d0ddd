"""What to do when a run failed: an error code and the model that was asked in, one clause for people out."""

import os

from bartack.cli.agent_setup import LEASE_S
from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.errors import ErrorCode

__all__ = ["failure_hint"]

_LATER = "the fault is the provider's: try again later, or name another model with --model"
_TOO_MUCH = "begin a new session, attach less, or name a model with a larger context"
_KEPT = "everything up to the last entry is in the session, and goes on from there"

_HINTS = {
    ErrorCode.CONNECTION_FAILED: "is there a network, and is the address right? --model local works without one",
    ErrorCode.TIMEOUT: "try again, or name another model with --model",
    ErrorCode.PERMISSION_DENIED: "the key is good, but not for this; the provider's web site says what it may do",
    ErrorCode.QUOTA_EXCEEDED: "the account is used up; --model local costs nothing",
    ErrorCode.OVERLOADED: _LATER,
    ErrorCode.SERVER_ERROR: _LATER,
    ErrorCode.PROVIDER_ERROR: _LATER,
    ErrorCode.STREAM_TRUNCATED: "the answer broke off; try again, or name another model with --model",
    ErrorCode.STREAM_MALFORMED: "does this address speak the format of the vendor that --model names?",
    ErrorCode.CONTEXT_OVERFLOW: _TOO_MUCH,
    ErrorCode.REQUEST_TOO_LARGE: _TOO_MUCH,
    ErrorCode.INVALID_REQUEST: "the provider does not take this; is [model_settings] of the configuration right?",
    ErrorCode.CONTENT_FILTER: "the provider will not answer this; say it differently",
    ErrorCode.REFUSED: "rephrase the request, or choose another model with --model",
    ErrorCode.LIMIT_EXCEEDED: "the session keeps what was done; asking again goes on",
    ErrorCode.STORAGE_FAILED: _KEPT,
    ErrorCode.STORAGE_CORRUPT: "bartack sessions fsck says what is damaged",
    ErrorCode.CONFLICT: f"try again when it is done; one that died lets go within {LEASE_S:.0f} seconds",
}


def failure_hint(code: ErrorCode, model: Model, retry_after_ms: int | None = None) -> str:
    """The hint; it never holds a key, only the name of the variable that does."""
    match code:
        case ErrorCode.AUTHENTICATION | ErrorCode.MISSING_CREDENTIALS:
            return _about_the_key(model)
        case ErrorCode.MODEL_NOT_FOUND:
            return _about_the_name(model)
        case ErrorCode.RATE_LIMITED:
            when = "later" if retry_after_ms is None else f"in {max(1, round(retry_after_ms / 1000))} seconds"
            return f"too many requests for this key: try again {when}"
        case _:
            return _HINTS.get(code, "bartack show tells the session, with all that was done before")


def _about_the_key(model: Model) -> str:
    names = model.vendor.key_names if isinstance(model, ProviderModel) else ()
    said = next((name for name in names if os.environ.get(name, "").strip()), None)
    if said is not None:
        return f"{said} holds a key that the provider does not accept"
    return f"set {' or '.join(names)}" if names else "the provider does not accept who asks"


def _about_the_name(model: Model) -> str:
    if not isinstance(model, ProviderModel):
        return "bartack models list shows what there is, and bartack models pull fetches it"
    return f"{model.vendor.name} has no model of that name for this key; --model names another"
