"""`Telemetry`: reports the runs of an agent as spans and metrics, and the jobs of a worker as metrics."""

import os
from collections.abc import Mapping

from opentelemetry import metrics, trace

from bartack.agent.tracing import RunStart
from bartack.nouns.errors import ErrorCode
from bartack.queues.job import Job, Outcome, QueueStatus
from bartack.telemetry.conventions import LATEST, V1_41
from bartack.telemetry.metrics import Instruments, QueueInstruments
from bartack.telemetry.run_spans import RunSpans

__all__ = ["CONTENT_VARIABLE", "STABILITY_VARIABLE", "Telemetry", "captures_content"]

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
STABILITY_VARIABLE = "OTEL_SEMCONV_STABILITY_OPT_IN"
_LATEST = "gen_ai_latest_experimental"
# The values of the variable that put content into spans: a boolean, or a mode of newer instrumentations.
_CONTENT = frozenset(("true", "1", "span_only", "span_and_event"))


class Telemetry:
    """Spans and metrics of runs, by the OpenTelemetry conventions for generative AI.

    One object can serve any number of agents. A sub-agent without one uses that of the agent that calls it.
    """

    def __init__(
        self,
        *,
        content: bool | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        """Without providers, OpenTelemetry's global ones are used, even if they are set later.

        With `content`, spans contain prompts, answers, arguments and results, except those already redacted. The
        default is ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``; without it, spans contain no content.
        """
        opted = {value.strip() for value in os.environ.get(STABILITY_VARIABLE, "").split(",")}
        self._conventions = LATEST if _LATEST in opted else V1_41
        self._content = captures_content(os.environ) if content is None else content
        url = self._conventions.schema_url
        self._tracer = trace.get_tracer("bartack", tracer_provider=tracer_provider, schema_url=url)
        meter = metrics.get_meter("bartack", meter_provider=meter_provider, schema_url=url)
        self._instruments = Instruments(meter, self._conventions)
        self._queue_instruments = QueueInstruments(meter)

    def start_run(self, start: RunStart) -> RunSpans:
        """The tracer of a new run."""
        return RunSpans(start, self._tracer, self._instruments, self._conventions, content=self._content)

    def job_claimed(self, job: Job, waited_s: float) -> None:
        """A worker starts a job, this long after it was enqueued or due."""
        self._queue_instruments.claimed(job, waited_s)

    def job_ended(self, job: Job, outcome: Outcome, seconds: float, code: ErrorCode | None) -> None:
        """The worker has completed the job, this long after it started."""
        self._queue_instruments.ended(job, outcome, seconds, code)

    def queue_observed(self, status: QueueStatus, engine: str) -> None:
        """What the queue is doing at the moment."""
        self._queue_instruments.observed(status, engine)


def captures_content(variables: Mapping[str, str]) -> bool:
    """Whether these environment variables ask for content in spans."""
    return variables.get(CONTENT_VARIABLE, "").strip().lower() in _CONTENT
