"""Errors for people: what failed, in one line, and a hint about what to do.

The command line imports this before anything that an extra installs.
"""

import os
from typing import TYPE_CHECKING, TypeVar

from bartack.nouns.errors import BartackError, ErrorCode, StoreError

if TYPE_CHECKING:
    from bartack.models.model import Model


Error = TypeVar("Error", bound=BaseException)

_TRY_LATER = "The problem is on the provider's side. Try again later, or choose another model with --model."
_TOO_LARGE = "Start a new session, attach less, or choose a model with a larger context window."
_HINTS = {
    ErrorCode.CONNECTION_FAILED: "Check the network, the proxy (HTTPS_PROXY) and the provider's address. "
    "--model local works offline.",
    ErrorCode.TIMEOUT: "Check the network and try again, or choose another model with --model.",
    ErrorCode.PERMISSION_DENIED: "The API key is valid but lacks permission. Check it on the provider's website.",
    ErrorCode.QUOTA_EXCEEDED: "Your account is out of credit. --model local is free.",
    ErrorCode.OVERLOADED: _TRY_LATER,
    ErrorCode.SERVER_ERROR: _TRY_LATER,
    ErrorCode.PROVIDER_ERROR: _TRY_LATER,
    ErrorCode.STREAM_TRUNCATED: "The answer is incomplete. Try again, or choose another model with --model.",
    ErrorCode.STREAM_MALFORMED: "Check that this address uses the API format of the vendor in --model.",
    ErrorCode.INVALID_CONFIG: "Check the base URL and the other settings of the model.",
    ErrorCode.CONTEXT_OVERFLOW: _TOO_LARGE,
    ErrorCode.REQUEST_TOO_LARGE: _TOO_LARGE,
    ErrorCode.INVALID_REQUEST: "The provider rejected the request. Check [model_settings] in the configuration file.",
    ErrorCode.CONTENT_FILTER: "The provider's content filter blocked the answer. Rephrase the prompt.",
    ErrorCode.REFUSED: "Rephrase the request, or choose another model with --model.",
    ErrorCode.LIMIT_EXCEEDED: "The session keeps everything done so far. Send another prompt to continue.",
    ErrorCode.QUEUE_FULL: "Try again later, or start more workers with 'bartack worker'.",
    ErrorCode.STORAGE_FAILED: "Everything up to the last stored entry is kept. Continue the session from there.",
    ErrorCode.STORAGE_CORRUPT: "Run 'bartack sessions fsck' to see what is damaged.",
    ErrorCode.CONFLICT: "Try again when the other process is done. If it crashed, its lease expires in a few seconds.",
}

_OTHER_STORE = "or choose another store with --store or BARTACK_STORE."
_STORE_HINTS = {
    ErrorCode.NOT_FOUND: "'bartack sessions list' shows the stored sessions.",
    ErrorCode.CONFLICT: "The session is in use by another process. Try again when that is done.",
    ErrorCode.STORAGE_CORRUPT: "If this is the right store, run 'bartack sessions fsck' to see what is damaged.",
    ErrorCode.STORAGE_UNSUPPORTED: "Check --store and BARTACK_STORE, or upgrade Bartack.",
    ErrorCode.MISSING_DEPENDENCY: f"Install it, {_OTHER_STORE}",
    ErrorCode.INVALID_CONFIG: "Check --store, BARTACK_STORE and the configuration file.",
    ErrorCode.STORAGE_FAILED: f"Check permissions and free space, {_OTHER_STORE}",
}


def error_text(error: Exception) -> str:
    """What went wrong, on one line. Errors other than Bartack's and the system's are prefixed with their class."""
    if isinstance(error, BartackError) and error.code is ErrorCode.INVALID_CONFIG:
        text = error.message  # its path points into a value, which means nothing on a command line
    elif isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    else:
        text = str(error)
    text = " ".join(text.split())
    return text if isinstance(error, BartackError | OSError) and text else f"{type(error).__name__}: {text}"


def error_hint(error: BaseException) -> str | None:
    """What to do about the error: its last note."""
    notes: list[str] = getattr(error, "__notes__", [])
    return notes[-1] if notes else None


def with_hint(error: Error, hint: str | None) -> Error:
    """The error with this hint, unless it has one."""
    if hint is not None and error_hint(error) is None:
        error.add_note(hint)
    return error


def with_store_hint(error: StoreError, *, is_server: bool = False) -> StoreError:
    """The error with a hint, unless it has one; `is_server` if the store is on a database server."""
    hint = _STORE_HINTS.get(error.code)
    if is_server and error.code is ErrorCode.STORAGE_FAILED:
        hint = f"Check that the server is running and that you may use this database, {_OTHER_STORE}"
    return with_hint(error, hint)


def failure_hint(code: ErrorCode, model: "Model", retry_after_ms: int | None = None) -> str:
    """What to do about a failed run. It may name the variable that holds a key, never the key itself."""
    from bartack.models.provider import ProviderModel  # noqa: PLC0415 - slow to import

    vendor = model.vendor if isinstance(model, ProviderModel) else None
    match code:
        case ErrorCode.AUTHENTICATION | ErrorCode.MISSING_CREDENTIALS:
            names = () if vendor is None else vendor.key_names
            used = next((name for name in names if os.environ.get(name, "").strip()), None)
            if used is not None:
                return f"The provider rejected the API key in {used}."
            return f"Set {' or '.join(names)}." if names else "The provider rejected the credentials."
        case ErrorCode.MODEL_NOT_FOUND:
            if vendor is None:
                return "'bartack models list' shows the available models, and 'bartack models pull' downloads one."
            return f"{vendor.name} has no such model for your API key. Choose another with --model."
        case ErrorCode.RATE_LIMITED:
            when = "later" if retry_after_ms is None else f"in {max(1, round(retry_after_ms / 1000))} seconds"
            return f"Too many requests for this API key. Try again {when}."
        case _:
            return _HINTS.get(code, "'bartack show SESSION' prints everything stored so far.")
