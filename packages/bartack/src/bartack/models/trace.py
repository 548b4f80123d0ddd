"""The header that identifies the trace of a request to the provider and to proxies on the way.

A W3C trace id (32 hexadecimal digits) or a whole ``traceparent`` is sent as ``traceparent``, which collectors
understand. Any other id is sent as ``x-bartack-trace-id``.
"""

import re

from bartack.environment import Environment

__all__ = ["trace_headers"]

_ZERO = "0" * 32
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")  # version ff is forbidden


def trace_headers(trace_id: str | None, environment: Environment) -> dict[str, str]:
    """The header for this trace; none if there is no id. A new span id represents the request itself."""
    if trace_id is None:
        return {}
    if _TRACE_ID.fullmatch(trace_id) and trace_id != _ZERO:
        span_id = environment.new_id().replace("-", "")[-16:]
        return {"traceparent": f"00-{trace_id}-{span_id}-01"}
    parts = _TRACEPARENT.fullmatch(trace_id)
    if parts is not None and parts[1] != _ZERO and parts[2] != _ZERO[:16]:
        return {"traceparent": trace_id}
    return {"x-bartack-trace-id": trace_id}
