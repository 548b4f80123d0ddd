"""`Instruments`: the metrics of runs; and `QueueInstruments`: those of workers and their queues."""

from opentelemetry.metrics import Histogram, Meter
from opentelemetry.util.types import AttributeValue

from bartack.nouns.deltas import Usage
from bartack.nouns.errors import ErrorCode
from bartack.queues.run_queue import Job, Outcome, QueueStatus
from bartack.telemetry import conventions as names
from bartack.telemetry.conventions import Conventions

__all__ = ["Attributes", "Instruments", "QueueInstruments"]

Attributes = dict[str, AttributeValue]

# The bucket boundaries that the conventions recommend.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST_CHUNK = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKENS = tuple(4**power for power in range(14))


class Instruments:
    """The metrics, under the names of one version of the conventions."""

    def __init__(self, meter: Meter, conventions: Conventions) -> None:
        self._call_duration = _seconds(meter, conventions.duration, "Duration of GenAI operations.")
        self._durations = {
            names.CHAT: self._call_duration,
            names.INVOKE_AGENT: self._own_duration(meter, conventions.agent_duration, "Duration of runs."),
            names.EXECUTE_TOOL: self._own_duration(meter, conventions.tool_duration, "Duration of tool calls."),
        }
        self._first_chunk = _seconds(
            meter, conventions.time_to_first_chunk, "Time until the first chunk of an answer.", _FIRST_CHUNK
        )
        self._token_usage: Histogram | None = None
        if conventions.token_usage is not None:
            self._token_usage = meter.create_histogram(
                conventions.token_usage,
                "{token}",
                "Number of input and output tokens used.",
                explicit_bucket_boundaries_advisory=_TOKENS,
            )
        self._token_counters = {
            field: meter.create_counter(name, "{token}", "Number of tokens used.")
            for field, name in conventions.token_counters.items()
        }
        self._cost = meter.create_counter(names.COST_METRIC, "{USD}", "Cost of model calls, where prices are known.")
        self._retries = meter.create_counter(names.RETRIES_METRIC, "{retry}", "Repeated model calls and tools.")
        self._active = meter.create_up_down_counter(names.ACTIVE_RUNS_METRIC, "{run}", "Runs in progress.")

    def _own_duration(self, meter: Meter, name: str | None, description: str) -> Histogram:
        return self._call_duration if name is None else _seconds(meter, name, description)

    def ended(self, operation: str, seconds: float, attributes: Attributes) -> None:
        """An operation has ended after this time."""
        self._durations[operation].record(seconds, attributes)

    def first_chunk(self, seconds: float, attributes: Attributes) -> None:
        """The first chunk of an answer has arrived after this time."""
        self._first_chunk.record(seconds, attributes)

    def used(self, usage: Usage | None, cost_usd: float | None, attributes: Attributes) -> None:
        """A model call has used this, as far as the provider reported it."""
        if usage is not None and self._token_usage is not None:
            self._token_usage.record(usage.input_tokens, {**attributes, names.TOKEN_TYPE: "input"})
            self._token_usage.record(usage.output_tokens, {**attributes, names.TOKEN_TYPE: "output"})
        for field, counter in self._token_counters.items():
            count = None if usage is None else getattr(usage, field)
            if count is not None:
                counter.add(count, attributes)
        if cost_usd is not None:
            self._cost.add(cost_usd, attributes)

    def retried(self, attributes: Attributes) -> None:
        """A model call or a tool is attempted again."""
        self._retries.add(1, attributes)

    def active(self, change: int, attributes: Attributes) -> None:
        """A run has begun to work (1) or has stopped (-1)."""
        self._active.add(change, attributes)


class QueueInstruments:
    """The metrics of workers. Every worker reports the state of the queue, which is the same for all of them."""

    def __init__(self, meter: Meter) -> None:
        wait = "Time from when a job was enqueued or due until a worker began with it."
        self._wait = _seconds(meter, names.JOB_WAIT_METRIC, wait)
        self._duration = _seconds(meter, names.JOB_DURATION_METRIC, "Time that a worker spent on a job.")
        self._gauges = {measure: meter.create_gauge(*options) for measure, options in names.QUEUE_METRICS.items()}

    def claimed(self, job: Job, waited_s: float) -> None:
        """A worker begins with a job."""
        self._wait.record(waited_s, _job_attributes(job))

    def ended(self, job: Job, outcome: Outcome, seconds: float, code: ErrorCode | None) -> None:
        """A worker has completed a job."""
        error: Attributes = {} if code is None else {names.ERROR_TYPE: str(code)}
        self._duration.record(seconds, {**_job_attributes(job), names.JOB_OUTCOME: outcome, **error})

    def observed(self, status: QueueStatus, engine: str) -> None:
        """What the queue is doing."""
        values = {
            "waiting": status.waiting - status.scheduled,
            "scheduled": status.scheduled,
            "running": len(status.running),
            "stuck": len(status.stuck),
            "workers": len(status.workers),
            "oldest_wait": 0.0 if status.oldest is None else max(0.0, (status.at - status.oldest).total_seconds()),
        }
        for measure, value in values.items():
            self._gauges[measure].set(value, {names.QUEUE_NAME: status.queue, names.QUEUE_ENGINE: engine})


def _job_attributes(job: Job) -> Attributes:
    return {names.AGENT_NAME: job.agent, names.QUEUE_NAME: job.queue, names.QUEUE_ENGINE: job.engine}


def _seconds(meter: Meter, name: str, description: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=buckets)
