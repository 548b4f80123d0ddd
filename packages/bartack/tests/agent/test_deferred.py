"""Deferred tools: the run pauses, and the result is posted later, by any process (D-5.12.5)."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from bartack import (
    AgentError,
    BartackError,
    Conflict,
    ErrorCode,
    NotFound,
    Redaction,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    tool,
)
from bartack.agent import Agent, Hooks, LiveApprover, RunPaused, StatusChanged
from bartack.models import ScriptedModel
from bartack.nouns.entries import ResultPosted, ToolStarted
from bartack.nouns.tables import AgentStatus
from bartack.store import open_store
from bartack.store.requests import deferred_calls, post_result, redact
from bartack.tools import ToolContext, ToolDefinition, ToolOutput
from tests.agent.kit import (
    SESSION,
    Waiting,
    call,
    check_session,
    collected,
    facts,
    kinds,
    make,
    messages,
    results,
    weather,
    within,
)

SCHEMA = {"type": "object", "properties": {"page": {"type": "integer"}}, "additionalProperties": False}
PRINT = assistant("Printing.", call("c1", "print_page", page=1))


class Printer:
    """A deferred tool whose jobs are recorded."""

    def __init__(self, *, answer: Any = None, **options: Any) -> None:
        self.jobs: list[tuple[str, int]] = []
        self.answer = answer

        async def print_page(page: int, context: ToolContext) -> Any:
            """Print a page."""
            self.jobs.append((context.tool_call_id, page))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        self.tool: ToolDefinition = tool(deferred=True, **options)(print_page)


async def test_a_run_pauses_for_a_deferred_call_and_continues_with_its_result() -> None:
    """D-5.12.5"""
    printer = Printer()
    agent, store, model = make([PRINT, "Printed."], printer.tool)
    events = await collected(agent.stream("Print page 1", session=SESSION))
    (paused,) = [event for event in events if isinstance(event, RunPaused)]
    result = events[-1].result
    assert result.status is AgentStatus.AWAITING_HUMAN
    assert [event.status for event in events if isinstance(event, StatusChanged)][-1] is AgentStatus.AWAITING_HUMAN
    started = ToolStarted(tool_call_id="c1", tool_name="print_page", arguments={"page": 1}, deferred=True)
    assert (paused.deferred, paused.approvals, result.deferred) == ((started,), (), (started,))
    with pytest.raises(AgentError, match="post the results of its deferred calls, then resume it"):
        _ = result.output

    again = await agent.resume(SESSION)
    assert again.deferred == (started,)
    await agent.post_result(SESSION, "c1", {"pages": 1}, posted_by="printer")
    assert (await agent.resume(SESSION)).output == "Printed."
    assert printer.jobs == [("c1", 1)]
    (answered,) = [message for message in model.calls[-1].messages if message.role == "tool"]
    assert answered.tool_results[0].content == {"pages": 1}
    (posted,) = [entry for entry in await store.load(SESSION) if isinstance(entry.fact, ResultPosted)]
    assert answered.meta is not None
    assert answered.meta.request_id == posted.id
    await check_session(store)


async def test_a_result_that_arrives_while_other_tools_run_needs_no_pause() -> None:
    waiting, printer = Waiting(), Printer()
    answer = assistant(call("c1", "print_page", page=1), ToolCall("c2", "wait", {}))
    agent, store, _ = make([answer, "Done."], printer.tool, waiting.tool)
    run = asyncio.create_task(agent.run("Go", session=SESSION))
    await within(waiting.started.wait())
    await post_result(store, SESSION, "c1", "printed")
    waiting.proceed.set()
    assert (await within(run)).output == "Done."
    assert "run_ended" in await kinds(store)
    assert (await results(store))["c1"].content == "printed"


async def test_a_result_may_arrive_before_the_tool_has_returned() -> None:
    @tool(deferred=True)
    async def ask(context: ToolContext) -> None:
        """Ask somewhere else."""
        await post_result(store, context.session_id, context.tool_call_id, "quick")

    agent, store, _ = make([assistant(ToolCall("c1", "ask", {})), "Done."], ask)
    assert (await within(agent.run("Go", session=SESSION))).output == "Done."
    assert (await results(store))["c1"].content == "quick"


async def test_a_tool_that_returns_a_value_is_not_deferred_after_all() -> None:
    agent, store, _ = make([PRINT, "Done."], Printer(answer="cached").tool)
    assert (await agent.run("Go", session=SESSION)).output == "Done."
    assert (await results(store))["c1"].content == "cached"


async def test_a_deferred_tool_that_fails_to_start_its_work_has_an_error_result() -> None:
    agent, store, _ = make([PRINT, "Sorry."], Printer(answer=RuntimeError("no paper")).tool)
    assert (await agent.run("Go", session=SESSION)).output == "Sorry."
    assert (await results(store))["c1"].error_code is ErrorCode.TOOL_FAILED


async def test_only_the_first_result_of_an_open_deferred_call_is_accepted() -> None:
    """D-5.12.5"""
    waiting, printer = Waiting(), Printer()
    answer = assistant(call("c1", "print_page", page=1), ToolCall("c2", "wait", {}))
    agent, store, _ = make([answer, "Done."], printer.tool, waiting.tool)
    async with agent.stream("Go", session=SESSION) as run:
        await within(waiting.started.wait())
        for unknown in ("c2", "c3"):  # not deferred, and not a call
            with pytest.raises(NotFound, match="not waiting for a result"):
                await post_result(store, SESSION, unknown, "no")
        posted = await post_result(store, SESSION, "c1", "yes")
        assert (
            await post_result(store, SESSION, "c1", "yes") == posted
        )  # a client repeats an attempt that seemed to fail
        with pytest.raises(Conflict, match="already has a result"):
            await post_result(store, SESSION, "c1", "again")
        waiting.proceed.set()
        await within(run.wait())
    with pytest.raises(Conflict, match="already has a result"):
        await post_result(store, SESSION, "c1", "late")
    assert (await results(store))["c1"].content == "yes"


@pytest.mark.parametrize("is_posted", [True, False])
async def test_a_new_prompt_closes_a_deferred_call_with_what_was_posted(is_posted: bool) -> None:
    agent, store, _ = make([PRINT, "Fine."], Printer().tool)
    await agent.run("Print", session=SESSION)
    if is_posted:
        await post_result(store, SESSION, "c1", "printed")
    assert (await agent.run("Never mind", session=SESSION)).output == "Fine."
    result = (await results(store))["c1"]
    assert result.error_code is (None if is_posted else ErrorCode.TOOL_INTERRUPTED)
    with pytest.raises(Conflict):
        await post_result(store, SESSION, "c1", "late")
    await check_session(store)


@pytest.mark.parametrize("is_posted", [True, False])
async def test_an_abort_keeps_a_result_that_was_posted(is_posted: bool) -> None:
    agent, store, _ = make([PRINT], Printer().tool)
    await agent.run("Print", session=SESSION)
    if is_posted:
        await post_result(store, SESSION, "c1", "printed")
    assert (await agent.abort(SESSION)).status is AgentStatus.ABORTED
    assert (await results(store))["c1"].is_error is not is_posted
    await check_session(store)


async def test_a_deferred_call_survives_a_crash_without_being_started_again() -> None:
    """D-5.8.1"""
    printer, waiting = Printer(), Waiting()
    answer = assistant(call("c1", "print_page", page=1), ToolCall("c2", "wait", {}))
    agent, store, _ = make([answer, "Done."], printer.tool, waiting.tool)
    async with asyncio.timeout(60):
        crashed = asyncio.create_task(agent.run("Go", session=SESSION))
        await waiting.started.wait()
    copy, environment = await open_store("memory:", environment=store.environment), store.environment
    tail = None
    for entry in await store.load(SESSION):  # what a process that died now would leave behind
        tail = await copy.append(SESSION, [entry], None if tail is None else tail.entry_id)
    waiting.proceed.set()
    await within(crashed)
    later, _, _ = make(["Done."], printer.tool, waiting.tool, store=copy, environment=environment)
    paused = await later.resume(SESSION)
    assert [call.tool_call_id for call in paused.deferred] == ["c1"]
    assert (await results(copy))["c2"].error_code is ErrorCode.TOOL_INTERRUPTED
    await post_result(copy, SESSION, "c1", "printed")
    assert (await later.resume(SESSION)).output == "Done."
    assert printer.jobs == [("c1", 1)]


async def test_an_idempotent_deferred_tool_is_called_again_on_resume_until_there_is_a_result() -> None:
    printer = Printer(idempotent=True)
    agent, store, _ = make([PRINT, "Printed."], printer.tool)
    assert (await agent.run("Go", session=SESSION)).deferred
    assert (await agent.resume(SESSION)).deferred
    printer.answer = "printed by now"
    assert (await agent.resume(SESSION)).output == "Printed."
    assert len(printer.jobs) == 3
    assert (await results(store))["c1"].content == "printed by now"


async def test_a_posted_result_of_an_idempotent_tool_is_used_instead_of_calling_it_again() -> None:
    printer = Printer(idempotent=True)
    agent, store, _ = make([PRINT, "Printed."], printer.tool)
    await agent.run("Go", session=SESSION)
    await post_result(store, SESSION, "c1", "posted")
    assert (await agent.resume(SESSION)).output == "Printed."
    assert len(printer.jobs) == 1


async def test_the_result_is_accepted_by_an_agent_that_no_longer_has_the_tool() -> None:
    agent, store, _ = make([PRINT], Printer().tool)
    await agent.run("Go", session=SESSION)
    later, _, _ = make(["Done."], weather, store=store)
    assert (await later.resume(SESSION)).deferred
    await post_result(store, SESSION, "c1", "printed")
    assert (await later.resume(SESSION)).output == "Done."


async def test_arguments_changed_by_the_approver_stay_known_when_the_result_arrives() -> None:
    approver, printer = LiveApprover(), Printer(requires_approval=True)
    agent, store, _ = make([PRINT, "Printed."], printer.tool, approver=approver)
    async with agent.stream("Go", session=SESSION) as run:
        async for event in run:
            if type(event).__name__ == "ApprovalRequested":
                run.approve("c1", arguments={"page": 2})
    assert run.result.deferred[0].arguments == {"page": 2}
    await post_result(store, SESSION, "c1", "printed")
    assert (await agent.resume(SESSION)).output == "Printed."
    assert printer.jobs == [("c1", 2)]
    result = (await results(store))["c1"]
    assert '{"page":2}' in str(result.content).replace(" ", "")
    message = next(message for message in await messages(store) if message.role == "tool")
    assert message.meta is not None
    assert message.meta.approvals is not None


async def test_hooks_and_size_limits_apply_to_a_posted_result() -> None:
    lengths: list[int] = []

    async def shout(call: ToolCall, result: ToolResult) -> ToolResult:
        assert isinstance(result.content, tuple)
        text = result.content[0]
        assert isinstance(text, Text)
        lengths.append(len(text.text))
        return ToolResult(call.tool_call_id, text.text[:3].upper())

    printer = Printer(max_output_chars=200)
    agent, store, _ = make([PRINT, "Done."], printer.tool, hooks=Hooks(after_tool=shout))
    await agent.run("Go", session=SESSION)
    await agent.post_result(SESSION, "c1", "x" * 5_000)
    await agent.resume(SESSION)
    assert (await results(store))["c1"].content == "XXX"
    assert lengths[0] < 300


async def test_a_redacted_result_is_withdrawn_before_its_delivery_and_hidden_after_it() -> None:
    agent, store, _ = make([PRINT, "Done."], Printer().tool)
    await agent.run("Go", session=SESSION)
    first = await post_result(store, SESSION, "c1", "a secret")
    await redact(store, SESSION, first.id)
    assert (await agent.resume(SESSION)).deferred
    second = await post_result(store, SESSION, "c1", "another secret")
    assert (await agent.resume(SESSION)).output == "Done."
    delivered = next(entry.id for entry in await store.load(SESSION) if getattr(entry.fact, "role", "") == "tool")
    await redact(store, SESSION, delivered)
    hidden = {fact.entry_id for fact in await facts(store) if isinstance(fact, Redaction)}
    assert hidden == {first.id, second.id, delivered}


async def test_an_error_can_be_posted() -> None:
    agent, store, _ = make([PRINT, "Sorry."], Printer().tool)
    await agent.run("Go", session=SESSION)
    await agent.post_result(SESSION, "c1", ToolOutput("no paper", is_error=True))
    assert (await agent.resume(SESSION)).output == "Sorry."
    result = (await results(store))["c1"]
    assert (result.is_error, result.error_code) == (True, ErrorCode.TOOL_FAILED)


async def test_a_tool_without_a_function_must_be_deferred() -> None:
    page = ToolDefinition(name="print_page", description="Print.", parameter_schema=SCHEMA, deferred=True)
    agent, store, _ = make([PRINT, "Done."], page)
    assert (await agent.run("Go", session=SESSION)).deferred
    assert [call.tool_call_id for call in await deferred_calls(store, SESSION)] == ["c1"]
    with pytest.raises(BartackError, match="needs a function to execute, unless it is deferred"):
        ToolDefinition(name="print_page", description="Print.", parameter_schema=SCHEMA)


async def test_a_result_can_be_posted_by_another_process(tmp_path: Path) -> None:
    """D-5.12.5"""
    address = f"sqlite:{tmp_path}/sessions.db"
    async with Agent(ScriptedModel([PRINT, "Printed."]), tools=[Printer().tool], store=address) as agent:
        assert (await agent.run("Go", session=SESSION)).deferred
        command = [sys.executable, "-m", "bartack.cli", "sessions", "result", SESSION, "printed", "--store", address]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await within(process.communicate())
        assert (process.returncode, out.startswith(b"result posted: entry ")) == (0, True)
        assert (await agent.resume(SESSION)).output == "Printed."
