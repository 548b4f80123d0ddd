"""What all spans have in common: they are current while their block runs, and an error is given by its code."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, use_span

from bartack.nouns.errors import BartackError, ErrorCode
from bartack.telemetry import conventions as names
from bartack.telemetry.metrics import Attributes

__all__ = ["current", "current_span", "error_type", "set_error"]


@contextmanager
def current_span(
    tracer: Tracer,
    name: str,
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    context: Context | None = None,
) -> Iterator[Span]:
    """A new span that is current in this block and ends with it. An exception marks it as failed."""
    span = tracer.start_span(name, context, kind=kind, attributes=attributes)
    try:
        with current(span):
            yield span
    except BaseException as error:
        set_error(span, error_type(error))
        raise
    finally:
        span.end()


def current(span: Span) -> AbstractContextManager[Span]:
    """Make the span current in a block. The text of an exception may quote content, so it is not recorded."""
    return use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)


def set_error(span: Span, kind: str, description: str | None = None) -> None:
    """Mark the span as failed, with the code of the error."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(StatusCode.ERROR, description)


def error_type(error: BaseException) -> str:
    """The code of an error, or the name of its class if it is not one of ours."""
    if isinstance(error, BartackError):
        return str(error.code)
    if isinstance(error, asyncio.CancelledError):
        return str(ErrorCode.ABORTED)
    return type(error).__qualname__
