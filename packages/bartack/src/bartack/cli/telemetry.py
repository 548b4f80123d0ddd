"""`--otel`: the spans and metrics of a command, from its start to its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bartack.app.settings import setting
from bartack.cli.output import note

if TYPE_CHECKING:
    from bartack.app.telemetry_export import TelemetryExport

__all__ = ["export_for", "exported"]


def export_for(flag: bool | None) -> "TelemetryExport | None":
    """The export that --otel or the settings ask for; None without. Errors carry a hint.

    Raises `BartackError` for wrong variables, and `ModuleNotFoundError` if an extra is missing.
    """
    if not setting("otel", flag):
        return None
    from bartack.app.telemetry_export import TelemetryExport  # noqa: PLC0415 - slow, and needs an extra

    return TelemetryExport()


@contextmanager
def exported(export: "TelemetryExport | None") -> Iterator[None]:
    """Deliver what is left when the block ends, and print a warning if that fails."""
    if export is None:
        yield
        return
    try:
        with export:
            yield
    finally:
        if export.problem is not None:
            note(f"warning: {export.problem}")
