"""Every state of every table with every event: the edge of the table, or `InvalidStateTransition`."""

from enum import StrEnum
from typing import Any, get_args

import pytest

from bartack.nouns.deltas import Delta
from bartack.nouns.errors import InvalidStateTransition
from bartack.nouns.tables import (
    AGENT,
    ASSEMBLY,
    CALL,
    TOOL,
    AgentStatus,
    AssemblyStatus,
    CallStatus,
    Table,
    ToolStatus,
    advance,
)

TABLES: dict[str, tuple[Table[Any], type[StrEnum]]] = {
    "ASSEMBLY": (ASSEMBLY, AssemblyStatus),
    "CALL": (CALL, CallStatus),
    "TOOL": (TOOL, ToolStatus),
    "AGENT": (AGENT, AgentStatus),
}
EVENTS = [*sorted({event for table, _ in TABLES.values() for row in table.values() for event in row}), "", "nonsense"]
CASES = [
    pytest.param(table, state, event, id=f"{name}-{state}-{event}")
    for name, (table, states) in TABLES.items()
    for state in states
    for event in EVENTS
]

# The life cycles of 001, 003 and 004, written out a second time, as pairs of state and event.
ASSEMBLY_EDGES = {("idle", "start"): "started", ("started", "done"): "done", ("started", "error"): "error"} | {
    ("started", kind): "started"
    for kind in ("text", "thinking", "tool_call_start", "tool_call_args", "tool_call_end", "usage")
}
CALL_EDGES = {
    ("absent", "tool_call_start"): "open",
    ("open", "tool_call_args"): "open",
    ("open", "tool_call_end"): "closed",
}


def edges(table: Table[Any]) -> dict[tuple[str, str], str]:
    return {(state.value, event): target.value for state, row in table.items() for event, target in row.items()}


def test_there_are_four_tables_with_a_row_for_every_state() -> None:
    """D-4.1"""
    for table, states in TABLES.values():
        assert list(table) == list(states)
        assert all(type(target) is states for row in table.values() for target in row.values())


@pytest.mark.parametrize(("table", "state", "event"), CASES)
def test_every_event_in_every_state_is_an_edge_or_rejected(table: Table[Any], state: StrEnum, event: str) -> None:
    """D-4.2, D-4.3"""
    before = edges(table)
    if event in table[state]:
        assert advance(table, state, event) is table[state][event]
    else:
        with pytest.raises(InvalidStateTransition) as caught:
            advance(table, state, event)
        assert caught.value.current == state
        leads_to = [row[event] for row in table.values() if event in row]
        assert caught.value.event == event
        assert caught.value.attempted == (leads_to[0] if leads_to else event)
        assert list(caught.value.valid) == list(dict.fromkeys(table[state].values()))
    assert edges(table) == before


@pytest.mark.parametrize("name", TABLES)
def test_an_event_leads_to_the_same_state_wherever_it_is_allowed(name: str) -> None:
    """003-6.2.1: so a refused event has one status that it attempted."""
    table, _ = TABLES[name]
    for event in {event for row in table.values() for event in row}:
        assert len({row[event] for row in table.values() if event in row}) == 1


@pytest.mark.parametrize("name", TABLES)
def test_every_state_can_be_reached_from_the_first(name: str) -> None:
    table, states = TABLES[name]
    first = next(iter(states))
    reached, unvisited = {first}, [first]
    while unvisited:
        targets = set(table[unvisited.pop()].values()) - reached
        reached |= targets
        unvisited.extend(targets)
    assert reached == set(states)


@pytest.mark.parametrize("name", TABLES)
def test_an_edge_to_the_same_state_returns_the_same_object(name: str) -> None:
    """D-4.4"""
    table, _ = TABLES[name]
    loops = [(state, event) for state, row in table.items() for event, target in row.items() if target == state]
    assert all(advance(table, advance(table, state, event), event) is state for state, event in loops)


def test_a_stream_goes_from_idle_to_started_to_its_end() -> None:
    """001-5.2.1"""
    assert edges(ASSEMBLY) == ASSEMBLY_EDGES
    assert {event for _, event in ASSEMBLY_EDGES} == {delta.kind for delta in get_args(Delta)}


def test_a_call_is_opened_grows_and_is_closed() -> None:
    assert edges(CALL) == CALL_EDGES


def test_a_pending_call_can_only_start_be_rejected_or_aborted() -> None:
    """D-4.5"""
    from_pending = {event: target for (state, event), target in edges(TOOL).items() if state == "pending"}
    assert from_pending == {"start": "running", "reject": "error", "abort": "error"}


def test_a_timeout_moves_running_to_error() -> None:
    """D-4.6"""
    assert advance(TOOL, ToolStatus.RUNNING, "time_out") is ToolStatus.ERROR
    with pytest.raises(InvalidStateTransition):
        advance(TOOL, ToolStatus.PENDING, "time_out")


def test_a_final_tool_state_has_only_edges_to_itself() -> None:
    for end in (ToolStatus.COMPLETED, ToolStatus.ERROR):
        assert set(TOOL[end].values()) == {end}


def test_an_agent_has_eight_statuses_and_awaiting_human_can_end() -> None:
    """004-agent-state.1"""
    assert [status.value for status in AgentStatus] == [
        "idle",
        "preparing",
        "model_running",
        "tool_running",
        "awaiting_human",
        "completed",
        "failed",
        "aborted",
    ]
    assert advance(AGENT, AgentStatus.AWAITING_HUMAN, "fail") is AgentStatus.FAILED
    assert advance(AGENT, AgentStatus.AWAITING_HUMAN, "abort") is AgentStatus.ABORTED


def test_a_run_without_a_model_call_completes_from_preparing() -> None:
    assert advance(AGENT, AgentStatus.PREPARING, "complete") is AgentStatus.COMPLETED


def test_every_working_agent_can_fail_and_be_aborted() -> None:
    ends = {AgentStatus.COMPLETED, AgentStatus.FAILED, AgentStatus.ABORTED}
    for status in set(AgentStatus) - ends - {AgentStatus.IDLE}:
        assert {AgentStatus.FAILED, AgentStatus.ABORTED} <= set(AGENT[status].values())


def test_a_state_is_found_by_its_text_too() -> None:
    assert hash(AssemblyStatus.IDLE) == hash("idle")
    assert AssemblyStatus("idle") is AssemblyStatus.IDLE
