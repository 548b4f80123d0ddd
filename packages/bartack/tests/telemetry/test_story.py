"""The trace of a run with a retry, a sub-agent, an approval, a kill -9 and a resume elsewhere, span by span."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bartack.nouns.entries import RunStarted, ToolStarted
from bartack.store import open_store
from tests.telemetry.collector import Collector, attributes_of, collector
from tests.telemetry.story import SESSION, run_story


async def stored(folder: Path) -> list[Any]:
    store = await open_store(f"sqlite:{folder / 'sessions.db'}")
    try:
        return [entry.fact for entry in await store.load(SESSION)]
    finally:
        await store.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Collector, list[Any]]:
    folder = tmp_path_factory.mktemp("story")
    with collector() as receiver:
        run_story(folder, receiver)
    return receiver, asyncio.run(stored(folder))


def below(spans: list[Span], parent: str) -> list[Any]:
    """The spans below one, in the order of their starts: (name, error.type, the spans below it)."""
    return [
        (span.name, attributes_of(span).get("error.type"), below(spans, span.span_id.hex()))
        for span in spans
        if span.parent_span_id.hex() == parent and span.name != "append"
    ]


@pytest.mark.xdist_group("story")
def test_the_first_process_leaves_every_span_that_had_ended(recorded: tuple[Collector, list[Any]]) -> None:
    receiver, facts = recorded
    started, resumed = (fact for fact in facts if isinstance(fact, RunStarted))
    assert started.span_id is not None
    assert resumed.span_id is not None
    first = [span for span in receiver.spans if span.trace_id.hex() == started.trace_id]
    assert started.span_id not in {span.span_id.hex() for span in first}  # it was killed before its end
    calls: list[Any] = [("chat test", None, []), ("execute_tool station", None, []), ("chat test", None, [])]
    forecaster = ("invoke_agent forecaster", None, calls)
    assert below(first, started.span_id) == [
        ("chat test", "overloaded", []),
        ("chat test", None, []),
        ("execute_tool forecast", None, [forecaster]),
        ("chat test", None, []),
        ("wait_for_approval book", None, []),
    ]


@pytest.mark.xdist_group("story")
def test_the_second_process_continues_the_run_with_a_link_to_the_first(recorded: tuple[Collector, list[Any]]) -> None:
    receiver, facts = recorded
    started, resumed = (fact for fact in facts if isinstance(fact, RunStarted))
    second = [span for span in receiver.spans if span.trace_id.hex() == resumed.trace_id]
    assert below(second, "") == [
        (
            "invoke_agent guide",
            None,
            [
                ("execute_tool book", "tool_interrupted", []),
                ("chat test", None, []),
                ("execute_tool bookings", None, []),
                ("chat test", None, []),
            ],
        )
    ]
    run = next(span for span in second if span.name == "invoke_agent guide")
    assert run.span_id.hex() == resumed.span_id
    (link,) = run.links
    assert (link.trace_id.hex(), link.span_id.hex()) == (started.trace_id, started.span_id)
    assert attributes_of(link) == {"bartack.link": "resumed_run"}
    run_attributes = attributes_of(run)
    assert (run_attributes["bartack.run.resumed"], run_attributes["bartack.run.status"]) == (True, "completed")
    assert resumed.trace_id != started.trace_id


@pytest.mark.xdist_group("story")
def test_each_span_has_what_happened(recorded: tuple[Collector, list[Any]]) -> None:
    receiver, facts = recorded
    spans = receiver.spans
    assert receiver.services == {"travel"}
    assert len({attributes_of(span)["bartack.run.id"] for span in spans}) == 2  # the guide's and the forecaster's

    chats = [span for span in spans if span.name == "chat test"]
    assert {span.kind for span in chats} == {Span.SPAN_KIND_CLIENT}
    numbers = [
        tuple(attributes_of(span)[f"bartack.model_call.{name}"] for name in ("index", "attempt")) for span in chats
    ]
    assert numbers == [(0, 1), (0, 2), (0, 1), (1, 1), (1, 1), (2, 1), (3, 1)]
    agents = [attributes_of(span)["gen_ai.agent.name"] for span in chats]
    assert agents == ["guide", "guide", "forecaster", "forecaster", "guide", "guide", "guide"]
    assert {attributes_of(span)["server.address"] for span in chats} == {"127.0.0.1"}
    assert [attributes_of(span).get("gen_ai.usage.input_tokens") for span in chats] == [None, *[10] * 6]
    assert [attributes_of(span).get("gen_ai.response.finish_reasons") for span in chats] == [
        None,
        ("tool_calls",),
        ("tool_calls",),
        ("stop",),
        ("tool_calls",),
        ("tool_calls",),
        ("stop",),
    ]
    assert all(0 < attributes_of(span)["gen_ai.response.time_to_first_chunk"] < 60 for span in chats[1:])
    assert [span.status.code for span in chats] == [Status.STATUS_CODE_ERROR, *[Status.STATUS_CODE_UNSET] * 6]

    (wait,) = [span for span in spans if span.name == "wait_for_approval book"]
    assert attributes_of(wait)["bartack.approval.decision"] == "approve"
    assert wait.end_time_unix_nano - wait.start_time_unix_nano > 50_000_000

    tools = {span.name: attributes_of(span) for span in spans if span.name.startswith("execute_tool")}
    assert tools["execute_tool book"]["gen_ai.tool.call.id"] == next(
        fact.tool_call_id for fact in facts if isinstance(fact, ToolStarted) and fact.tool_name == "book"
    )
    run = next(attributes_of(span) for span in spans if span.name == "invoke_agent guide")
    assert run["gen_ai.conversation.id"] == SESSION
    assert run["gen_ai.usage.input_tokens"] == 60  # both processes and the forecaster


@pytest.mark.xdist_group("story")
def test_every_fact_was_appended_in_a_span(recorded: tuple[Collector, list[Any]]) -> None:
    receiver, facts = recorded
    run_id = next(attributes_of(span)["bartack.run.id"] for span in receiver.spans if span.name == "invoke_agent guide")
    kinds = [
        kind
        for span in receiver.spans
        if span.name == "append" and attributes_of(span)["bartack.run.id"] == run_id
        for kind in attributes_of(span)["bartack.append.kinds"]
    ]
    assert kinds == [fact.kind for fact in facts]
