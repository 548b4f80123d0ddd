"""Enforces the streaming contract on every model: whatever a model does, its stream obeys the rules (D-3.12).

- The first delta that breaks a rule is replaced by an `error` that names the rule, and nothing follows it.
- A stream that ends early becomes `stream_truncated`. An exception becomes `provider_error`, or its own code if it is a
  `BartackError`.
- Cancellation and `KeyboardInterrupt` pass through. The source is closed in every case.

A `GuardedStream` is not guarded a second time.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from bartack.environment import Environment
from bartack.models.client import mask_secrets
from bartack.nouns.deltas import Delta, Failed, MessageDelta, Start
from bartack.nouns.errors import BartackError, ErrorCode, StreamError, exception_text
from bartack.nouns.requests import RequestMetadata
from bartack.nouns.tables import AssemblyStatus
from bartack.stream.contract import Contract, DeltaStamper, StreamLimits

__all__ = ["GuardedStream", "guarded", "guarded_batches"]

T = TypeVar("T")
_Admission = tuple[Sequence[MessageDelta], StreamError | None]  # what may pass, and the violation after it


class GuardedStream:
    """A stream that obeys the contract. Iterating it costs no more than iterating its source."""

    def __init__(self, source: AsyncIterator[MessageDelta], run_id: str) -> None:
        self.run_id = run_id
        self._source = source

    def __aiter__(self) -> AsyncIterator[MessageDelta]:
        return self._source

    async def __anext__(self) -> MessageDelta:
        return await anext(self._source)

    async def aclose(self) -> None:
        """Stop the stream and release its connection."""
        await _close(self._source)


def guarded(
    stream: AsyncIterator[MessageDelta],
    run_id: str,
    *,
    environment: Environment | None = None,
    limits: StreamLimits | None = None,
) -> GuardedStream:
    """The stream of any model, held to the contract; all its deltas must belong to `run_id`."""
    if isinstance(stream, GuardedStream) and stream.run_id == run_id:
        return stream
    contract = Contract(run_id, limits)

    def admit_one(delta: MessageDelta, _: datetime, __: float) -> _Admission:
        contract.admit(delta)
        return (delta,), None

    def stamper() -> DeltaStamper:
        return DeltaStamper(run_id, first_seq=contract.last_seq + 1)

    return GuardedStream(_guard(stream, contract, admit_one, stamper, environment or Environment()), run_id)


def guarded_batches(
    batches: AsyncIterator[Sequence[Delta]],
    metadata: RequestMetadata,
    environment: Environment,
    *,
    take_raw: Callable[[], dict[str, Any] | None] | None = None,
) -> GuardedStream:
    """The bare deltas of a model, stamped and held to the contract; `take_raw` returns the raw data of each batch.

    The first batch is requested when the stream is first read; that is the time of the request, and of `start`.
    """
    run_id = metadata.run_id or environment.new_id()
    contract, stamper = Contract(run_id), DeltaStamper(run_id, metadata)
    admit, stamp = contract.admit_bare, stamper.stamp

    def admit_one(deltas: Sequence[Delta], requested_at: datetime, mark_s: float) -> _Admission:
        allowed, error = admit(deltas)
        raw = None if take_raw is None else take_raw()
        received_at = environment.later(requested_at, mark_s)
        return stamp(allowed, received_at, requested_at=requested_at, provider_raw=raw), error

    return GuardedStream(_guard(batches, contract, admit_one, lambda: stamper, environment), run_id)


async def _guard(
    source: AsyncIterator[T],
    contract: Contract,
    admit_one: Callable[[T, datetime, float], _Admission],
    stamper: Callable[[], DeltaStamper],
    environment: Environment,
) -> AsyncIterator[MessageDelta]:
    requested_at, mark_s = environment.now(), time.monotonic()
    try:
        try:
            async for item in source:
                deltas, violation = admit_one(item, requested_at, mark_s)
                for delta in deltas:
                    yield delta
                if violation is not None:
                    raise violation
                if contract.ended:
                    return
            message = "The model's stream ended before it was complete."
            failed = Failed(ErrorCode.STREAM_TRUNCATED, message, retryable=True)
        except StreamError as error:
            failed = Failed(error.code, str(error), rule=error.rule)
        except BartackError as error:
            failed = Failed(error.code, mask_secrets(str(error)), retryable=error.retryable)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - a third-party model may raise anything, also a panic
            failed = Failed(ErrorCode.PROVIDER_ERROR, mask_secrets(exception_text(error)))
        starts = [Start("", environment.new_id())] if contract.status is AssemblyStatus.IDLE else []
        ending, violation = contract.admit_bare([*starts, failed])
        for delta in stamper().stamp(ending, environment.later(requested_at, mark_s), requested_at=requested_at):
            yield delta
        if violation is not None:
            raise violation
    finally:
        await _close(source)


async def _close(stream: Any) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
