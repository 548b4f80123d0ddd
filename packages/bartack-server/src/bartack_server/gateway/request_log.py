"""The log of requests: one line of JSON for each, in a file that only its owner can read.

It contains no content of conversations and no keys. When the file has grown to `_MAX_BYTES`, it is renamed, and a new
one begins; one old file is kept.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from bartack_server.gateway.answer import RequestOutcome
from bartack_server.gateway.client_requests import ClientRequest
from bartack_server.gateway.keys import GatewayKey

__all__ = ["RequestLog", "log_lines"]

_MAX_BYTES = 10 * 1024 * 1024
_POLL_S = 0.3


class RequestLog:
    """Writes the log."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, now: datetime, key: GatewayKey, request: ClientRequest, outcome: RequestOutcome) -> None:
        """Add a request. Raises `OSError`."""
        usage, error = outcome.usage, outcome.error
        line: dict[str, Any] = {
            "time": now.isoformat(timespec="milliseconds"),
            "key": key.name,
            "client": request.format,
            "model": request.model[:200],
            "upstream": outcome.upstream_name,
            "attempts": outcome.attempts,
            "status": "abandoned" if outcome.is_abandoned else "done" if error is None else str(error.error_code),
            "message": None if error is None else error.message[:500],
            "inputTokens": None if usage is None else usage.input_tokens,
            "outputTokens": None if usage is None else usage.output_tokens,
            "costUsd": None if usage is None else usage.cost,
            "changes": [f"{loss.action} {loss.what} ({loss.where}): {loss.why}" for loss in outcome.report.losses[:20]],
            "firstTokenMs": None if outcome.first_byte_s is None else round(outcome.first_byte_s * 1000),
            "durationMs": round(outcome.duration_s * 1000),
            "session": outcome.session_id or None,
        }
        data = json.dumps({name: value for name, value in line.items() if value not in (None, [])}).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, data)  # one call, so that the lines of several processes do not mix
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if status.st_size > _MAX_BYTES:
            with suppress(FileNotFoundError):  # another process has renamed it, and its successor must stay
                if os.path.samestat(status, self._path.stat()):
                    self._path.replace(_old_file(self._path))


def _old_file(path: Path) -> Path:
    """Where a full log is kept."""
    return path.with_suffix(".old.jsonl")


def log_lines(path: Path, *, follow: bool) -> Iterator[dict[str, Any]]:
    """The requests in a log; with `follow`, also those to come."""
    reading: os.stat_result | None = None  # the file that is being read, whatever its name is by now
    position = 0
    partial = b""
    while True:
        for name in (_old_file(path), path):
            data = b""
            with suppress(FileNotFoundError), name.open("rb") as file:
                status = os.fstat(file.fileno())
                if reading is None or not os.path.samestat(status, reading) or status.st_size < position:
                    if name != path:
                        continue  # what the file before contains, or what was not asked for
                    position, partial = 0, b""  # a new file has begun
                    reading = status
                file.seek(position)
                data = file.read()
                position += len(data)
            *lines, partial = (partial + data).split(b"\n")
            yield from (json.loads(line) for line in lines if line)
        if not follow:
            return
        time.sleep(_POLL_S)
