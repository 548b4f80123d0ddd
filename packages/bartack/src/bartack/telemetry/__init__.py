"""Runs as OpenTelemetry spans and metrics (extra ``otel``).

    agent = Agent("anthropic:claude-sonnet-4-6", telemetry=Telemetry())

Only the API of OpenTelemetry is used: the application chooses the SDK and where the data goes. Nothing else in Bartack
imports this package.
"""

try:
    import opentelemetry.trace  # noqa: F401 - the package exists without it if only the SDK's parts were removed
except ModuleNotFoundError as missing:  # the plain message would not name the extra
    raise ModuleNotFoundError(
        f"{missing}. Telemetry requires an extra. Run: pip install 'bartack[otel]'", name=missing.name
    ) from None

from bartack.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
