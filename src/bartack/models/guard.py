"""The guard around every model: whatever a model does, what comes out keeps the streaming contract (D-3.12).

- The first delta that breaks a rule becomes an `error` that names the rule, and nothing follows it.
- A stream that just stops becomes `stream_truncated`; an exception becomes `provider_error`, or its own code where it
  is a `BartackError`.
- Cancelling passes through. However it ends, the source is closed.

A guarded stream is marked as such and is not guarded twice.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

from bartack.environment import Environment
from bartack.models.secrecy import hide
from bartack.nouns.deltas import Delta, Done, Failed, MessageDelta, Start
from bartack.nouns.errors import BartackError, ErrorCode, StreamError
from bartack.stream.contract import Contract, StreamLimits

__all__ = ["Guard", "GuardedStream", "guarded"]

_ENDS = (Done, Failed)


class GuardedStream:
    """A stream that keeps the contract. Iterating it costs what iterating its source costs."""

    def __init__(self, source: AsyncIterator[MessageDelta], run_id: str) -> None:
        self.run_id = run_id
        self._source = source

    def __aiter__(self) -> AsyncIterator[MessageDelta]:
        return self._source

    async def __anext__(self) -> MessageDelta:
        return await anext(self._source)

    async def aclose(self) -> None:
        """Stop, and let go of the connection."""
        await _close(self._source)


class Guard:
    """Admits the deltas of one stream, and says how it ends when it ends badly."""

    def __init__(self, run_id: str, environment: Environment | None = None, limits: StreamLimits | None = None) -> None:
        self.run_id = run_id
        self._environment = environment or Environment()
        self._contract = Contract(run_id, limits)
        self.admit: Callable[[MessageDelta], None] = self._contract.admit

    def failure(self, failed: Failed) -> list[MessageDelta]:
        """The deltas that end the stream in this error: a `start` before it where there was none."""
        contract = self._contract
        deltas: list[Delta] = [failed]
        if contract.last_seq < 0:
            deltas.insert(0, Start("", self._environment.new_id()))
        now = self._environment.now()
        stamped = [MessageDelta(self.run_id, contract.last_seq + 1 + at, delta, now) for at, delta in enumerate(deltas)]
        for one in stamped:
            contract.admit(one)
        return stamped

    def failure_of(self, error: Exception) -> list[MessageDelta]:
        """The deltas that end the stream because of this exception."""
        if isinstance(error, BartackError):
            return self.failure(Failed(error.code, hide(str(error)), retryable=error.retryable))
        return self.failure(Failed(ErrorCode.PROVIDER_ERROR, hide(f"{type(error).__name__}: {error}")))


def guarded(
    stream: AsyncIterator[MessageDelta],
    run_id: str,
    *,
    environment: Environment | None = None,
    limits: StreamLimits | None = None,
) -> GuardedStream:
    """The stream of any model, kept to the contract; `run_id` is the run that its deltas must name."""
    if isinstance(stream, GuardedStream) and stream.run_id == run_id:
        return stream
    return GuardedStream(_guard(stream, Guard(run_id, environment, limits)), run_id)


async def _guard(stream: AsyncIterator[MessageDelta], guard: Guard) -> AsyncIterator[MessageDelta]:
    admit = guard.admit
    try:
        try:
            async for delta in stream:
                admit(delta)
                yield delta
                if type(delta.delta) in _ENDS:
                    return
            last = guard.failure(Failed(ErrorCode.STREAM_TRUNCATED, "the model stopped before done", retryable=True))
        except StreamError as error:
            last = guard.failure(Failed(error.code, str(error)))
        except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
            last = guard.failure_of(error)
        for delta in last:
            yield delta
    finally:
        await _close(stream)


async def _close(stream: Any) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
