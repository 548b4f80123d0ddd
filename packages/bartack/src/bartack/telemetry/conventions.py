"""Every name that is emitted: attributes, span names and metrics.

Names that begin with ``gen_ai.``, ``server.`` or ``error.`` are those of the semantic conventions, version 1.41, the
last one of the common repository. The GenAI conventions have moved to a repository of their own since, where they keep
changing; what they rename is in `LATEST`, for ``OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental``. Source:
docs/gen-ai/non-normative/migration.md of open-telemetry/semantic-conventions-genai.

Names that begin with ``bartack.`` are our own: the conventions have none for these. Two more are what viewers read the
cost of a call from (`CALL_COSTS`).
"""

from dataclasses import dataclass
from types import MappingProxyType

from bartack.nouns.deltas import Usage

__all__ = ["CALL_COSTS", "LATEST", "OWN_ATTRIBUTES", "V1_41", "Conventions", "provider_name"]

# -- attributes of the conventions

AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
ERROR_TYPE = "error.type"
INPUT_MESSAGES = "gen_ai.input.messages"
OPERATION = "gen_ai.operation.name"
OUTPUT_MESSAGES = "gen_ai.output.messages"
OUTPUT_TYPE = "gen_ai.output.type"
PROVIDER = "gen_ai.provider.name"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_STOP_SEQUENCES = "gen_ai.request.stop_sequences"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
TOKEN_TYPE = "gen_ai.token.type"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_NAME = "gen_ai.tool.name"
TOOL_RESULT = "gen_ai.tool.call.result"
TOOL_TYPE = "gen_ai.tool.type"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"

# -- our own attributes, and what they mean

RUN_ID = "bartack.run.id"
RUN_RESUMED = "bartack.run.resumed"
RUN_STATUS = "bartack.run.status"
CALL_INDEX = "bartack.model_call.index"
CALL_ATTEMPT = "bartack.model_call.attempt"
COST = "bartack.usage.cost_usd"
RETRY_DELAY = "bartack.retry.delay_ms"
TOOL_ATTEMPTS = "bartack.tool.attempts"
APPROVAL_DECISION = "bartack.approval.decision"
COMPACTION_OVERFLOW = "bartack.compaction.overflow"
TOKENS_BEFORE = "bartack.compaction.tokens_before"
TOKENS_AFTER = "bartack.compaction.tokens_after"
APPEND_KINDS = "bartack.append.kinds"
LINK = "bartack.link"
QUEUE_NAME = "bartack.queue.name"
QUEUE_ENGINE = "bartack.queue.engine"
JOB_OUTCOME = "bartack.job.outcome"

OWN_ATTRIBUTES = MappingProxyType(
    {
        RUN_ID: "the id of the run, as stored in its session",
        RUN_RESUMED: "whether the run continues after a crash or a pause",
        RUN_STATUS: "how the run ended: completed, failed, aborted, or awaiting_human if it has paused",
        CALL_INDEX: "the number of the model call in its run, from 0; a summary has none",
        CALL_ATTEMPT: "the number of the attempt at this model call, from 1",
        COST: "the cost of a run with its sub-agents in US dollars, as far as prices are known",
        RETRY_DELAY: "how long a failed model call waits for its next attempt",
        TOOL_ATTEMPTS: "how often a tool was executed, if more than once",
        APPROVAL_DECISION: "the decision about a tool call, or pending if the run pauses without one",
        COMPACTION_OVERFLOW: "whether the provider has refused the context as too long",
        TOKENS_BEFORE: "the estimated size of the context before a compaction",
        TOKENS_AFTER: "the estimated size of the context after a compaction",
        APPEND_KINDS: "the kinds of the entries that are appended to the session",
        LINK: "what a link points to: resumed_run, the span of the same run before it was interrupted",
        QUEUE_NAME: "the name of the queue that a worker takes jobs from",
        QUEUE_ENGINE: "what the queue runs on: store or dbos",
        JOB_OUTCOME: "how a job ended: completed, failed, aborted, paused, or again if it will be continued later",
    }
)

# -- the cost of a model call, for which the conventions have no name, as viewers read it

CALL_COSTS = MappingProxyType({"gen_ai.usage.cost": "Langfuse", "operation.cost": "Logfire"})

# -- operations, and what other spans and events are called

CHAT = "chat"
INVOKE_AGENT = "invoke_agent"
EXECUTE_TOOL = "execute_tool"
WAIT_FOR_APPROVAL = "wait_for_approval"
COMPACT = "compact"
APPEND = "append"
RETRY_EVENT = "bartack.retry"

# -- metrics of our own; those of the conventions are below

COST_METRIC = "bartack.usage.cost"
RETRIES_METRIC = "bartack.retries"
ACTIVE_RUNS_METRIC = "bartack.active_runs"
JOB_WAIT_METRIC = "bartack.job.wait"
JOB_DURATION_METRIC = "bartack.job.duration"
QUEUE_METRICS = MappingProxyType(
    {
        "waiting": ("bartack.queue.waiting", "{job}", "Jobs that are due and wait for a worker."),
        "scheduled": ("bartack.queue.scheduled", "{job}", "Jobs that are not due yet."),
        "running": ("bartack.queue.running", "{job}", "Jobs that a worker has claimed."),
        "stuck": ("bartack.queue.stuck", "{job}", "Jobs that were set aside because too many workers died with them."),
        "workers": ("bartack.queue.workers", "{worker}", "Workers that are alive."),
        "oldest_wait": ("bartack.queue.oldest_wait", "s", "How long the oldest job that is due has been waiting."),
    }
)


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """The names that differ between the versions of the conventions."""

    schema_url: str | None
    cache_write_tokens: str
    duration: str  # the metric with the duration of a model call
    time_to_first_chunk: str
    token_usage: str | None  # a histogram of both kinds of tokens
    agent_duration: str | None  # None: in `duration`, as another operation
    tool_duration: str | None
    # One counter for each kind of tokens, by their names in `Usage`
    token_counters: MappingProxyType[str, str]
    agent_has_provider: bool  # whether the span of a run names the provider of its model, and its cached tokens
    message_has_finish_reason: bool

    def usage(self, usage: Usage | None) -> dict[str, int]:
        """The attributes for these counts."""
        if usage is None:
            return {}
        counts = {
            INPUT_TOKENS: usage.input_tokens,
            OUTPUT_TOKENS: usage.output_tokens,
            CACHE_READ_TOKENS: usage.cache_read_tokens,
            self.cache_write_tokens: usage.cache_write_tokens,
            REASONING_TOKENS: usage.reasoning_tokens,
        }
        return {name: count for name, count in counts.items() if count is not None}


V1_41 = Conventions(
    schema_url="https://opentelemetry.io/schemas/1.41.0",
    cache_write_tokens="gen_ai.usage.cache_creation.input_tokens",
    duration="gen_ai.client.operation.duration",
    time_to_first_chunk="gen_ai.client.operation.time_to_first_chunk",
    token_usage="gen_ai.client.token.usage",
    agent_duration=None,
    tool_duration=None,
    token_counters=MappingProxyType({}),
    agent_has_provider=True,
    message_has_finish_reason=True,
)

LATEST = Conventions(
    schema_url=None,  # the new repository has not published a schema
    cache_write_tokens="gen_ai.usage.cache_write.input_tokens",
    duration="gen_ai.client.inference.duration",
    time_to_first_chunk="gen_ai.client.inference.time_to_first_chunk",
    token_usage=None,
    agent_duration="gen_ai.invoke_agent.duration",
    tool_duration="gen_ai.execute_tool.duration",
    token_counters=MappingProxyType(
        {
            "input_tokens": "gen_ai.client.inference.usage.input_tokens",
            "output_tokens": "gen_ai.client.inference.usage.output_tokens",
            "cache_read_tokens": "gen_ai.client.inference.usage.cache_read.input_tokens",
            "cache_write_tokens": "gen_ai.client.inference.usage.cache_write.input_tokens",
            "reasoning_tokens": "gen_ai.client.inference.usage.reasoning.output_tokens",
        }
    ),
    agent_has_provider=False,
    message_has_finish_reason=False,
)

# The providers that the conventions list under another name than ours. Any other keeps its own.
_PROVIDERS = {
    "openai-chat": "openai",
    "azure": "azure.ai.openai",
    "azure-chat": "azure.ai.openai",
    "azure-openai": "azure.ai.openai",
    "google": "gcp.gemini",
    "gemini-interactions": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "vertex-anthropic": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "bedrock-invoke": "aws.bedrock",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "xai-responses": "x_ai",
}


def provider_name(provider: str) -> str:
    """The provider as the conventions call it."""
    return _PROVIDERS.get(provider, provider)
