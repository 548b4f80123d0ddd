"""The checks of `bartack doctor` for telemetry: whether it is on, where it goes, and what it contains."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bartack.app.settings import config_path, setting
from bartack.cli.doctor_checks import Check, error_check
from bartack.nouns.errors import BartackError

if TYPE_CHECKING:
    from bartack.app.telemetry_export import Destination

__all__ = ["telemetry_checks"]

_CONNECT_S = 1.0
_YES = ("1", "true", "t", "yes", "y", "on")  # as the command line reads a variable


def telemetry_checks() -> Iterator[Check]:
    """Whether telemetry is on, where it goes, and what it contains. Keys in headers are not shown."""
    given = os.environ.get("BARTACK_OTEL", "").strip().lower()
    try:
        is_on = bool(setting("otel", given in _YES if given else None))
    except BartackError:  # reported by another check
        yield Check("otel", "note", "unknown, because the configuration file is invalid")
        return
    source = "BARTACK_OTEL" if given else config_path()
    yield Check("otel", "ok", f"on (from {source})" if is_on else "off; --otel turns it on")
    try:
        yield from _destinations(is_on=is_on)
    except ModuleNotFoundError as error:  # listed among the extras as well
        missing = error_check("traces", error, "Run: pip install 'bartack[otlp]'")
        yield Check(missing.name, "error" if is_on else "note", missing.text, missing.hint)


def _destinations(*, is_on: bool) -> Iterator[Check]:
    from bartack.app.telemetry_export import destinations  # noqa: PLC0415 - needs an extra
    from bartack.telemetry.telemetry import CONTENT_VARIABLE, captures_content  # noqa: PLC0415

    found = destinations(os.environ)
    for signal in ("traces", "metrics"):
        own = [one for one in found if one.signal == signal]
        if not own:
            variables = f"OTEL_{signal.upper()}_EXPORTER and OTEL_SDK_DISABLED"
            yield Check(signal, "note", "not exported", f"Unset {variables} to export them.")
        for one in own:
            yield _destination(one, is_checked=is_on)
    content = f"recorded, because {CONTENT_VARIABLE} is set" if captures_content(os.environ) else "not recorded"
    yield Check("content", "ok", content)


def _destination(one: "Destination", *, is_checked: bool) -> Check:
    if one.address is None:
        return Check(one.signal, "ok", f"exporter {one.exporter}")
    url = urlsplit(one.address)
    host, port = url.hostname or "localhost", url.port or (443 if url.scheme == "https" else 80)
    if is_checked and not _is_listening(host, port):
        hint = "Start a collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT."
        return Check(one.signal, "note", f"{one.address}: no connection to {host}:{port}", hint)
    return Check(one.signal, "ok", one.address)


def _is_listening(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=_CONNECT_S):
        return True
    return False
