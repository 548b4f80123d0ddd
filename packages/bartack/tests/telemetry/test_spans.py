"""Runs as spans: which there are, how they nest, and what they contain."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler, SamplingResult
from opentelemetry.sdk.trace.sampling import Decision as Sampling
from opentelemetry.trace import Link, SpanKind, StatusCode, TraceFlags, TraceState
from opentelemetry.util.types import Attributes

from bartack import ErrorCode, Failed, Meta, SessionInUse, ToolCall, Usage, assistant, tool
from bartack.agent import Agent, RunResult, handoff
from bartack.agent.tracing import in_trace
from bartack.models import ScriptedModel, connect
from bartack.nouns.entries import RunStarted
from bartack.tools import Decision, ToolDefinition
from tests.agent.kit import SESSION, PausingModel, call, facts, fail, make, weather, within
from tests.agent.test_approvals import FixedApprover
from tests.agent.test_compaction import OVERFLOW, SMALL, story
from tests.cli.provider_server import provider
from tests.telemetry.kit import Recorder, attributes, ids

OVERLOADED = Failed(ErrorCode.OVERLOADED, "try later", retryable=True)


async def traced(answers: Sequence[Any], *tools: ToolDefinition, **options: Any) -> tuple[Recorder, RunResult]:
    """One run of a scripted model, and its spans."""
    recorder = Recorder()
    agent, _, _ = make(answers, *tools, telemetry=recorder.telemetry(), name="guide", **options)
    return recorder, await agent.run("Will it rain?", session=SESSION)


async def test_a_run_is_a_span_with_its_model_calls_tools_and_appends_below() -> None:
    recorder, result = await traced([assistant(call("c1")), "Rain."])
    tool_call = ("execute_tool weather", ["append", "append"])
    calls = ["append", "chat scripted", "append", tool_call, "chat scripted", "append", "append"]
    assert recorder.tree(appends=True) == [("invoke_agent guide", calls)]
    spans = [attributes(span) for span in recorder.spans if span.name != "append"]
    assert {span_attributes["gen_ai.conversation.id"] for span_attributes in spans} == {SESSION}
    assert {span.attributes["bartack.run.id"] for span in recorder.spans if span.attributes} == {result.run_id}


async def test_the_attributes_of_each_span_follow_the_conventions() -> None:
    used = assistant(call("c1"), meta=Meta(usage=Usage(20, 5, cache_read_tokens=8, cache_write_tokens=2)))
    recorder, result = await traced([used, "Rain."])
    place = {"gen_ai.conversation.id": SESSION, "bartack.run.id": result.run_id}
    model = {"gen_ai.provider.name": "scripted", "gen_ai.request.model": "scripted"}
    usage = {
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.usage.cache_creation.input_tokens": 2,
    }
    run = recorder.one("invoke_agent guide")
    assert run.kind is SpanKind.INTERNAL
    assert run.status.status_code is StatusCode.UNSET
    assert attributes(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "guide",
        **model,
        **place,
        "bartack.run.resumed": False,
        "bartack.run.status": "completed",
        **usage,
    }
    chat = recorder.named("chat scripted")[0]
    assert chat.kind is SpanKind.CLIENT
    chat_attributes = attributes(chat)
    assert 0 < chat_attributes.pop("gen_ai.response.time_to_first_chunk") < 60
    assert chat_attributes.pop("gen_ai.response.id")
    assert chat_attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "guide",
        **model,
        **place,
        "gen_ai.request.stream": True,
        "bartack.model_call.index": 0,
        "bartack.model_call.attempt": 1,
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        **usage,
    }
    assert attributes(recorder.one("execute_tool weather")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Weather forecast for a city.",
        **place,
    }
    assert {name for span in recorder.named("append") for name in attributes(span)} == {
        "bartack.append.kinds",
        "bartack.run.id",
    }
    assert [attributes(span)["bartack.append.kinds"] for span in recorder.named("append")] == [
        ("session_header", "run_started", "message"),
        ("message",),
        ("tool_started",),
        ("message",),
        ("message",),
        ("run_ended",),
    ]


async def test_the_settings_of_a_call_and_the_server_are_attributes() -> None:
    recorder = Recorder()
    with provider([["Rain."]]) as server:
        model = connect("openai-compatible:test", base_url=server.base_url, temperature=0.5, max_tokens=64, seed=7)
        async with Agent(model, store="memory:", telemetry=recorder.telemetry()) as agent:
            await agent.run("Will it rain?")
        await model.aclose()
    chat_attributes = attributes(recorder.one("chat test"))
    expected = {
        "gen_ai.provider.name": "openai-compatible",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.seed": 7,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "127.0.0.1",
        "server.port": server.port,
    }
    assert {name: chat_attributes.get(name) for name in expected} == expected


async def test_every_attempt_at_a_model_call_is_a_span() -> None:
    recorder, _ = await traced([OVERLOADED, OVERLOADED, "Rain."])
    assert recorder.tree() == [("invoke_agent guide", ["chat scripted"] * 3)]
    numbers = [
        (
            span_attributes["bartack.model_call.index"],
            span_attributes["bartack.model_call.attempt"],
            span_attributes.get("error.type"),
        )
        for span_attributes in map(attributes, recorder.named("chat scripted"))
    ]
    assert numbers == [(0, 1, "overloaded"), (0, 2, "overloaded"), (0, 3, None)]
    assert [span.status.status_code for span in recorder.named("chat scripted")] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    events = recorder.one("invoke_agent guide").events
    assert [event.name for event in events] == ["bartack.retry"] * 2
    assert [dict(event.attributes or {})["bartack.model_call.attempt"] for event in events] == [2, 3]


async def test_a_failed_run_has_the_code_of_its_error() -> None:
    recorder, result = await traced([Failed(ErrorCode.AUTHENTICATION, "no such key: sk-1")])
    assert result.error is not None
    for span in recorder.spans:
        if span.name != "append":
            assert attributes(span)["error.type"] == "authentication"
            assert span.status.status_code is StatusCode.ERROR
            assert span.status.description is None  # the message may quote anything
    assert attributes(recorder.one("invoke_agent guide"))["bartack.run.status"] == "failed"


async def test_an_exception_of_user_code_marks_the_run_without_its_text() -> None:
    async def broken(_: object) -> str:
        raise KeyError("secret")

    recorder = Recorder()
    agent, _, _ = make(
        [story(300), story(600), OVERFLOW], config=SMALL, summarise=broken, telemetry=recorder.telemetry()
    )
    await agent.run("One", session=SESSION)
    await agent.run("Two", session=SESSION)
    with pytest.raises(KeyError):
        await agent.run("Three", session=SESSION)
    run = recorder.named("invoke_agent")[-1]
    assert (attributes(run)["error.type"], attributes(run)["bartack.run.status"]) == ("internal_error", "failed")
    assert attributes(recorder.one("compact"))["error.type"] == "KeyError"
    assert not any(span.events for span in recorder.spans if span.name == "compact")


@pytest.mark.parametrize(
    ("tool_call", "tools", "code"),
    [
        (call("c1", "missing"), (weather,), "tool_not_found"),
        (call("c1", "weather", town="Paris"), (weather,), "tool_bad_arguments"),
        (call("c1", "fail", why="no"), (fail,), "tool_failed"),
    ],
)
async def test_a_tool_call_that_fails_is_a_span_with_its_code(tool_call: Any, tools: Any, code: str) -> None:
    recorder, _ = await traced([assistant(tool_call), "Sorry."], *tools)
    (span,) = [span for span in recorder.spans if span.name.startswith("execute_tool")]
    assert attributes(span)["error.type"] == code
    assert attributes(span)["gen_ai.tool.name"] == tool_call.tool_name
    assert span.name == ("execute_tool" if code == "tool_not_found" else f"execute_tool {tool_call.tool_name}")


async def test_a_retried_tool_is_one_span_with_the_number_of_its_attempts() -> None:
    runs = []

    @tool(retries=2)
    async def flaky() -> str:
        """Fails twice."""
        runs.append(f"{trace.get_current_span().get_span_context().span_id:016x}")
        if len(runs) < 3:
            raise OSError("not yet")
        return "done"

    recorder, _ = await traced([assistant(ToolCall("c1", "flaky", {})), "Done."], flaky)
    span = recorder.one("execute_tool flaky")
    assert attributes(span)["bartack.tool.attempts"] == 3
    assert runs == [ids(span).span_id] * 3


async def test_the_span_of_a_call_is_current_while_its_tool_runs() -> None:
    recorder = Recorder()
    tracer = recorder.tracer_provider.get_tracer("user")

    @tool
    async def in_task() -> str:
        """Works in a task."""
        await asyncio.sleep(0)
        with tracer.start_as_current_span("inside a task"):
            return "done"

    @tool
    def in_thread() -> str:
        """Works in a thread."""
        with tracer.start_as_current_span("inside a thread"):
            return "done"

    tool_turn = assistant(ToolCall("c1", "in_task", {}), ToolCall("c2", "in_thread", {}))
    agent, _, _ = make([tool_turn, "Done."], in_task, in_thread, telemetry=recorder.telemetry())
    await agent.run("Go", session=SESSION)
    ((_, spans),) = recorder.tree()
    assert sorted(spans[1:3]) == [
        ("execute_tool in_task", ["inside a task"]),
        ("execute_tool in_thread", ["inside a thread"]),
    ]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_the_run_of_a_sub_agent_is_below_the_tool_call_that_started_it() -> None:
    recorder = Recorder()
    innermost = Agent(ScriptedModel(["Rain."]), name="station", store="memory:")
    inner = Agent(
        ScriptedModel([assistant(call("c1", "ask", prompt="Paris?")), "Rain."]),
        tools=[innermost.as_tool("ask", "Ask a station.")],
        name="forecaster",
        store="memory:",
    )
    agent, _, _ = make(
        [assistant(call("c1", "forecast", prompt="Paris?")), "Rain."],
        inner.as_tool("forecast", "Forecast."),
        telemetry=recorder.telemetry(),
        name="guide",
    )
    await agent.run("Will it rain?", session=SESSION)
    station = ("invoke_agent station", ["chat scripted"])
    forecaster = ("invoke_agent forecaster", ["chat scripted", ("execute_tool ask", [station]), "chat scripted"])
    assert recorder.tree() == [
        ("invoke_agent guide", ["chat scripted", ("execute_tool forecast", [forecaster]), "chat scripted"])
    ]


async def test_after_a_handoff_the_calls_have_the_name_of_the_agent_that_answers() -> None:
    recorder = Recorder()
    billing = Agent(ScriptedModel(["Refunded."]), name="billing", store="memory:")
    passed = assistant(ToolCall("c1", "transfer_to_billing", {}))
    agent, _, _ = make([passed], handoff(billing, "Handles refunds."), name="reception", telemetry=recorder.telemetry())
    await agent.run("I want a refund", session=SESSION)
    chat = ["chat scripted", "execute_tool transfer_to_billing", "chat scripted"]
    assert recorder.tree() == [("invoke_agent reception", chat)]
    agents = [attributes(span)["gen_ai.agent.name"] for span in recorder.named("chat scripted")]
    assert agents == ["reception", "billing"]


async def test_a_deferred_call_is_a_span_without_a_result_that_ends_when_the_tool_returns() -> None:
    @tool(deferred=True)
    async def ticket() -> None:
        """Opens a ticket that people work on."""

    recorder, result = await traced([assistant(ToolCall("c1", "ticket", {})), "Done."], ticket)
    assert [call.tool_call_id for call in result.deferred] == ["c1"]
    assert "error.type" not in attributes(recorder.one("execute_tool ticket"))
    assert attributes(recorder.one("invoke_agent guide"))["bartack.run.status"] == str(result.status)


@pytest.mark.parametrize(("decision", "code"), [("approve", None), ("deny", "tool_denied")])
async def test_a_wait_for_approval_is_a_span_with_the_decision(decision: Any, code: str | None) -> None:
    approver = FixedApprover(Decision(decision, reason="a private reason"))
    recorder, _ = await traced([assistant(call("c1", "transfer", amount=5)), "Done."], approver=approver)
    assert recorder.tree() == [
        (
            "invoke_agent guide",
            ["chat scripted", "wait_for_approval transfer", "execute_tool transfer", "chat scripted"],
        )
    ]
    wait = attributes(recorder.one("wait_for_approval transfer"))
    assert wait["bartack.approval.decision"] == decision
    assert wait["gen_ai.tool.call.id"] == "c1"
    assert attributes(recorder.one("execute_tool transfer")).get("error.type") == code
    assert "private" not in repr([attributes(span) for span in recorder.spans])


async def test_a_paused_run_ends_its_span_and_is_linked_from_the_run_that_resumes_it() -> None:
    recorder = Recorder()
    agent, store, _ = make([assistant(call("c1", "transfer", amount=5)), "Done."], telemetry=recorder.telemetry())
    await agent.run("Pay", session=SESSION)
    paused = recorder.one("invoke_agent")
    assert attributes(paused)["bartack.run.status"] == "awaiting_human"
    assert attributes(recorder.one("wait_for_approval transfer"))["bartack.approval.decision"] == "pending"
    await agent.approve(SESSION, "c1")
    await agent.resume(SESSION)
    _, resumed = recorder.named("invoke_agent")
    assert attributes(resumed)["bartack.run.resumed"] is True
    assert attributes(resumed)["bartack.run.id"] == attributes(paused)["bartack.run.id"]
    (link,) = resumed.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == ids(paused)
    assert dict(link.attributes or {}) == {"bartack.link": "resumed_run"}
    assert ids(resumed).trace_id != ids(paused).trace_id
    started = [fact for fact in await facts(store) if isinstance(fact, RunStarted)]
    assert [(fact.trace_id, fact.span_id) for fact in started] == [ids(paused), ids(resumed)]


async def test_a_compaction_is_a_span_around_the_call_that_writes_the_summary() -> None:
    recorder = Recorder()
    agent, _, _ = make(
        [story(300), story(600), OVERFLOW, "They told stories.", "Tuesday."],
        config=SMALL,
        telemetry=recorder.telemetry(),
    )
    for prompt in ("Tell me a story", "Another", "Which day was it?"):
        await agent.run(prompt, session=SESSION)
    assert recorder.tree()[-1] == (
        "invoke_agent",
        ["chat scripted", ("compact", ["chat scripted"]), "chat scripted"],
    )
    span_attributes = attributes(recorder.one("compact"))
    assert span_attributes["bartack.compaction.overflow"] is True
    assert span_attributes["bartack.compaction.tokens_after"] < span_attributes["bartack.compaction.tokens_before"]


async def test_a_run_that_is_stopped_ends_every_span() -> None:
    recorder = Recorder()
    model = PausingModel(["Once upon a time"])
    agent, _, _ = make(model, telemetry=recorder.telemetry())
    async with agent.stream("Tell me a story", session=SESSION) as run:
        await within(model.reached.wait())
        run.abort()
    chat = attributes(recorder.one("chat scripted"))
    assert chat["error.type"] == "aborted"
    run_span = recorder.one("invoke_agent")
    assert attributes(run_span)["bartack.run.status"] == "aborted"
    assert run_span.status.status_code is StatusCode.UNSET  # the user wanted it
    assert {point.value for point in recorder.metrics()["bartack.active_runs"]} == {0}


async def test_a_run_that_cannot_start_is_a_span_with_the_conflict() -> None:
    recorder = Recorder()
    model = PausingModel(["Once upon a time"])
    agent, _, _ = make(model, telemetry=recorder.telemetry())
    async with agent.stream("Tell me a story", session=SESSION) as run:
        await within(model.reached.wait())
        with pytest.raises(SessionInUse):
            await agent.run("Another", session=SESSION)
        run.abort()
    refused = next(span for span in recorder.named("invoke_agent") if "error.type" in attributes(span))
    assert attributes(refused)["error.type"] == "conflict"
    assert "bartack.run.status" not in attributes(refused)


# -- where traces come from and go to


async def test_the_run_is_part_of_the_current_trace() -> None:
    recorder = Recorder()
    agent, store, model = make(["Rain."], telemetry=recorder.telemetry())
    with recorder.tracer_provider.get_tracer("app").start_as_current_span("request") as request:
        await agent.run("Will it rain?", session=SESSION)
    assert recorder.tree() == [("request", [("invoke_agent", ["chat scripted"])])]
    trace_id = f"{request.get_span_context().trace_id:032x}"
    started = next(fact for fact in await facts(store) if isinstance(fact, RunStarted))
    assert started.trace_id == trace_id
    assert model.calls[0].metadata.trace_id == trace_id


async def test_a_traceparent_from_elsewhere_is_the_parent_of_a_run_outside_of_any_span() -> None:
    recorder = Recorder()
    agent, _, _ = make(["Rain."], telemetry=recorder.telemetry())
    with in_trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"):
        await agent.run("Will it rain?", session=SESSION)
    run = recorder.one("invoke_agent")
    assert run.parent is not None
    assert (f"{run.parent.trace_id:032x}", f"{run.parent.span_id:016x}") == (
        "0af7651916cd43dd8448eb211c80319c",
        "b7ad6b7169203331",
    )


@pytest.mark.parametrize("is_sampled", [True, False])
async def test_a_model_over_http_gets_the_span_of_the_call_as_traceparent(is_sampled: bool) -> None:
    recorder = Recorder(None if is_sampled else ALWAYS_OFF)
    with provider([["Rain."]]) as server:
        model = connect("openai-compatible:test", base_url=server.base_url)
        async with Agent(model, store="memory:", telemetry=recorder.telemetry()) as agent:
            await agent.run("Will it rain?")
        await model.aclose()
    traceparent = server.headers[0]["traceparent"]
    assert int(traceparent[-2:], 16) & TraceFlags.SAMPLED == is_sampled
    if is_sampled:
        trace_id, span_id = ids(recorder.one("chat test"))
        assert traceparent.startswith(f"00-{trace_id}-{span_id}-")
    else:
        assert recorder.spans == []


class SeeingSampler(Sampler):
    """Keeps everything, and what it was shown of each span."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, Any]] = {}

    def should_sample(  # noqa: PLR0917 - the SDK's
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        self.seen[name] = dict(attributes or {})
        return SamplingResult(Sampling.RECORD_AND_SAMPLE, attributes)

    def get_description(self) -> str:
        return "SeeingSampler"


async def test_a_sampler_sees_operation_names_model_and_server() -> None:
    sampler = SeeingSampler()
    recorder = Recorder(sampler)
    with provider([[{"call": "weather", "arguments": {"city": "Paris"}}], ["Rain."]]) as server:
        model = connect("openai-compatible:test", base_url=server.base_url)
        agent = Agent(model, tools=[weather], name="guide", store="memory:", telemetry=recorder.telemetry())
        await agent.run("Will it rain?")
        await model.aclose()
    place = {"gen_ai.provider.name", "gen_ai.request.model", "server.address", "server.port", "gen_ai.agent.name"}
    assert {"gen_ai.operation.name", *place} <= sampler.seen["invoke_agent guide"].keys()
    assert {"gen_ai.operation.name", *place} <= sampler.seen["chat test"].keys()
    assert {"gen_ai.operation.name", "gen_ai.tool.name"} <= sampler.seen["execute_tool weather"].keys()


async def test_without_an_sdk_nothing_changes() -> None:
    from bartack.telemetry import Telemetry

    agent, store, model = make(["Rain."], telemetry=Telemetry())
    assert (await agent.run("Will it rain?", session=SESSION)).output == "Rain."
    assert "trace" not in repr(await facts(store))
    assert model.calls[0].metadata.traceparent is None
