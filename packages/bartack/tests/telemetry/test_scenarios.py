"""Whatever happens in a run, its spans are complete: the golden scenarios of the agent, with telemetry."""

from typing import Any

import pytest

from bartack import Message
from bartack.agent import Agent
from bartack.nouns.entries import RunStarted, StreamFailed, ToolStarted
from tests.agent import scenarios
from tests.agent.kit import SESSION
from tests.agent.scenarios import SCENARIOS, Setting
from tests.telemetry.kit import Recorder, attributes, ids, parent_of


@pytest.mark.parametrize("name", sorted(SCENARIOS))
async def test_every_span_ends_inside_its_parent_and_every_step_has_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    setting = Setting()

    def traced(*words: Any, **options: Any) -> Any:
        return Agent(*words, **options, telemetry=recorder.telemetry(content=True))

    monkeypatch.setattr(scenarios, "Agent", traced)
    await SCENARIOS[name](setting)
    facts = [entry.fact for entry in await setting.store.load(SESSION)]
    by_id = {ids(span).span_id: span for span in recorder.spans}
    for span in recorder.spans:
        above = parent_of(span)
        if above is not None:
            assert (by_id[above].start_time or 0) <= (span.start_time or 0)
            assert (span.end_time or 0) <= (by_id[above].end_time or 0)
    runs = [span for span in recorder.spans if parent_of(span) is None]
    started = [fact for fact in facts if isinstance(fact, RunStarted)]
    assert [ids(span) for span in runs] == [(fact.trace_id, fact.span_id) for fact in started]
    chats = [span for span in recorder.spans if span.name.startswith("chat ")]
    answers = [fact for fact in facts if isinstance(fact, Message) and fact.role == "assistant"]
    failures = [fact for fact in facts if isinstance(fact, StreamFailed)]
    assert len(chats) >= len(answers) + len(failures)
    executed = {attributes(span)["gen_ai.tool.call.id"] for span in recorder.spans if "execute_tool" in span.name}
    assert {fact.tool_call_id for fact in facts if isinstance(fact, ToolStarted)} <= executed
