"""Every name that is emitted is either in the published conventions or declared as our own."""

import json
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from opentelemetry.semconv._incubating import attributes as incubating
from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import (
    GenAiOperationNameValues,
    GenAiProviderNameValues,
)
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.schemas import Schemas

from bartack import Meta, Usage, assistant
from bartack.models.vendors import VENDORS
from bartack.telemetry import conventions as names
from bartack.telemetry.conventions import CALL_COSTS, LATEST, OWN_ATTRIBUTES, V1_41, provider_name
from bartack.tools import Decision
from tests.agent.kit import SESSION, call, make, transfer
from tests.agent.test_approvals import FixedApprover
from tests.agent.test_compaction import OVERFLOW, SMALL, story
from tests.telemetry.kit import Recorder
from tests.telemetry.test_spans import OVERLOADED

# What the GenAI conventions call differently since they have a repository of their own; the package still has the names
# of 1.41. Source: the migration guide that `bartack.telemetry.conventions` cites.
RENAMED = {
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.client.inference.duration",
    "gen_ai.client.inference.time_to_first_chunk",
    "gen_ai.client.inference.usage.input_tokens",
    "gen_ai.client.inference.usage.output_tokens",
    "gen_ai.client.inference.usage.cache_read.input_tokens",
    "gen_ai.client.inference.usage.cache_write.input_tokens",
    "gen_ai.client.inference.usage.reasoning.output_tokens",
    "gen_ai.invoke_agent.duration",
    "gen_ai.execute_tool.duration",
}
# Names that the conventions have replaced, which the package keeps for older instrumentations.
REPLACED = {"gen_ai.system", "gen_ai.prompt", "gen_ai.completion", "gen_ai.usage.prompt_tokens"}


def published() -> set[str]:
    """Every attribute in the package of the conventions."""
    names: set[str] = set()
    for module in iter_modules(incubating.__path__):
        values = vars(import_module(f"{incubating.__name__}.{module.name}"))
        names |= {value for name, value in values.items() if name.isupper() and isinstance(value, str)}
    return names


PUBLISHED = published()
DECLARED = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str) and "." in value}
METRICS = {value for name, value in vars(gen_ai_metrics).items() if name.isupper() and isinstance(value, str)}
OWN_METRICS = {names.COST_METRIC, names.RETRIES_METRIC, names.ACTIVE_RUNS_METRIC}
QUEUE_METRICS = {
    names.JOB_WAIT_METRIC,
    names.JOB_DURATION_METRIC,
    *(name for name, _, _ in names.QUEUE_METRICS.values()),
}


@pytest.mark.parametrize("name", sorted(DECLARED - OWN_METRICS - QUEUE_METRICS - {names.RETRY_EVENT}))
def test_every_attribute_is_published_or_explained_as_our_own(name: str) -> None:
    assert (name in PUBLISHED) != (name in OWN_ATTRIBUTES)
    assert name not in REPLACED
    if name in OWN_ATTRIBUTES:
        assert name.startswith("bartack.")
        assert OWN_ATTRIBUTES[name]


async def everything(recorder: Recorder, *, content: bool) -> None:
    """Runs that emit every attribute: tools, an approval, a retry, a compaction and a resume."""
    usage = Usage(20, 5, cache_read_tokens=8, cache_write_tokens=2, reasoning_tokens=1, cost=0.25)
    agent, _, _ = make(
        [OVERLOADED, assistant(call("c1"), call("c2", "transfer", amount=5), meta=Meta(usage=usage)), "Done."],
        telemetry=recorder.telemetry(content=content),
        name="guide",
    )
    await agent.run("Pay", session=SESSION)
    await agent.approve(SESSION, "c2")
    await agent.resume(SESSION)
    long, _, _ = make(
        [story(300), story(600), OVERFLOW, "Stories.", assistant(call("c1", "transfer", amount=5)), "Tuesday."],
        transfer,
        config=SMALL,
        approver=FixedApprover(Decision("approve")),
        telemetry=recorder.telemetry(content=content),
    )
    for prompt in ("Tell me a story", "Another", "Which day was it?"):
        await long.run(prompt, session=SESSION)


def emitted(recorder: Recorder) -> set[str]:
    """The attributes of all spans, events and links."""
    names: set[str] = set()
    for span in recorder.spans:
        names |= set(span.attributes or {})
        for attributes in (*(event.attributes for event in span.events), *(link.attributes for link in span.links)):
            names |= set(attributes or {})
    return names


@pytest.mark.parametrize("content", [True, False])
async def test_what_is_emitted_is_declared(content: bool) -> None:
    recorder = Recorder()
    await everything(recorder, content=content)
    names = emitted(recorder)
    assert names <= DECLARED | {V1_41.cache_write_tokens, *CALL_COSTS}
    assert names - PUBLISHED - set(OWN_ATTRIBUTES) == set(CALL_COSTS)
    assert len(names) > 25
    metrics = recorder.metrics()
    assert metrics.keys() == METRICS & metrics.keys() | OWN_METRICS
    assert {name for points in metrics.values() for point in points for name in point.attributes} <= PUBLISHED


async def test_the_latest_names_are_used_when_opted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http, gen_ai_latest_experimental")
    recorder = Recorder()
    await everything(recorder, content=True)
    names, metrics = emitted(recorder), recorder.metrics().keys()
    assert names - PUBLISHED - set(OWN_ATTRIBUTES) == {"gen_ai.usage.cache_write.input_tokens", *CALL_COSTS}
    assert V1_41.cache_write_tokens not in names
    assert metrics - OWN_METRICS == RENAMED - {"gen_ai.usage.cache_write.input_tokens"}
    run = dict(recorder.named("invoke_agent guide")[0].attributes or {})
    assert "gen_ai.provider.name" not in run
    assert "gen_ai.usage.cache_read.input_tokens" not in run
    (answer,) = json.loads(str((recorder.named("chat scripted")[1].attributes or {})["gen_ai.output.messages"]))
    assert "finish_reason" not in answer


def test_metrics_have_the_names_units_and_kinds_of_the_package() -> None:
    created: dict[str, tuple[str, str]] = {}

    class Meter:
        def __getattr__(self, kind: str) -> Any:
            def create(name: str, unit: str = "", description: str = "", **_: Any) -> Any:
                created[name] = (kind, unit)

            return create

    meter: Any = Meter()
    from bartack.telemetry.metrics import Instruments

    Instruments(meter, V1_41)
    ours = dict(created)
    created.clear()
    for name, make_instrument in vars(gen_ai_metrics).items():
        if name.startswith("create_"):
            make_instrument(meter)
    assert {name: ours[name] for name in ours.keys() - OWN_METRICS} == {
        name: created[name] for name in ours.keys() - OWN_METRICS
    }
    assert V1_41.schema_url == Schemas.V1_41_0.value
    assert {LATEST.duration, LATEST.time_to_first_chunk, LATEST.agent_duration, LATEST.tool_duration} <= RENAMED
    assert set(LATEST.token_counters.values()) <= RENAMED


def test_providers_and_operations_have_the_values_of_the_package() -> None:
    operations = {value.value for value in GenAiOperationNameValues}
    assert {names.CHAT, names.INVOKE_AGENT, names.EXECUTE_TOOL} <= operations
    published_names = {value.value for value in GenAiProviderNameValues}
    used: Mapping[str, str] = {name: provider_name(name) for name in VENDORS}
    own = {name for name, value in used.items() if value not in published_names}
    assert own == {  # the conventions have no value for these
        "cerebras",
        "fireworks",
        "huggingface",
        "llama.cpp",
        "lmstudio",
        "ollama",
        "openai-compatible",
        "openrouter",
        "together",
        "vercel",
        "vllm",
        "zai",
    }
    assert all(used[name] == name for name in own)
