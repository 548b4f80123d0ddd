"""The typed API as a type checker sees it. Checked by mypy and pyright, never run."""

from datetime import datetime
from typing import Any, assert_never, assert_type

import bartack
from bartack.nouns import wire
from bartack.nouns.deltas import FinishReason
from bartack.nouns.entries import (
    AbortRequested,
    ApprovalDecided,
    BranchSummary,
    Fact,
    MessageDeltaBatch,
    MessageQueued,
    ModelChange,
    ResultPosted,
    RunEnded,
    RunStarted,
    RuntimeInit,
    SessionHeader,
    StreamFailed,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import InvalidStateTransition
from bartack.nouns.messages import Role
from bartack.nouns.parts import Part, ToolContent
from bartack.nouns.tables import TOOL, AssemblyStatus, ToolStatus, advance


def every_part_is_one_of_six(part: Part) -> str:
    match part:
        case bartack.Text() | bartack.Thinking():
            return assert_type(part.text, str)
        case bartack.ToolCall():
            assert_type(part.arguments, dict[str, Any])
            return assert_type(part.tool_name, str)
        case bartack.ToolResult():
            assert_type(part.content, ToolContent)
            return part.tool_call_id
        case bartack.Image():
            return assert_type(part.mime_type, str)
        case bartack.FileRef():
            return assert_type(part.path, str)
        case _:
            assert_never(part)


def every_delta_is_one_of_nine(delta: bartack.Delta) -> str:
    match delta:
        case bartack.Start():
            return delta.model_id
        case bartack.TextDelta() | bartack.ThinkingDelta():
            return assert_type(delta.text_delta, str)
        case bartack.ToolCallStart() | bartack.ToolCallArgs() | bartack.ToolCallEnd():
            return assert_type(delta.tool_call_id, str)
        case bartack.Usage():
            return str(assert_type(delta.total_tokens, int))
        case bartack.Done():
            return assert_type(delta.finish_reason, FinishReason)
        case bartack.Failed():
            return assert_type(delta.error_code, bartack.ErrorCode)
        case _:
            assert_never(delta)


def every_fact_has_its_class(fact: Fact) -> str | None:
    match fact:
        case bartack.Message():
            return assert_type(fact.role, Role)
        case ToolStarted() | ToolProgress() | bartack.ApprovalRequired() | ApprovalDecided():
            return assert_type(fact.tool_call_id, str)
        case StreamFailed():
            assert_type(fact.parts, tuple[Part, ...])
            return fact.error.message
        case bartack.CompactionSummary() | BranchSummary():
            return assert_type(fact.summary, str)
        case SystemPromptOverride():
            return assert_type(fact.text, str | None)
        case SessionHeader() | RunStarted() | ModelChange() | ThinkingLevelChange():
            return fact.kind
        case (
            RuntimeInit()
            | bartack.Redaction()
            | MessageDeltaBatch()
            | MessageQueued()
            | ResultPosted()
            | AbortRequested()
            | RunEnded()
            | bartack.Custom()
        ):
            return fact.kind
        case _:
            assert_never(fact)


def messages_are_short_to_write() -> None:
    assert_type(bartack.user("hi"), bartack.Message)
    assert_type(bartack.user("look", bartack.Image("image/png", data=b"...")), bartack.Message)
    assert_type(bartack.assistant(bartack.Thinking("hm"), "hello").tool_calls, tuple[bartack.ToolCall, ...])
    assert_type(bartack.tool_message(bartack.ToolResult("c1", "ok")).tool_results, tuple[bartack.ToolResult, ...])
    assert_type(bartack.system("be kind").text, str)


def what_may_not_be_written_is_an_error() -> None:
    bartack.user(bartack.ToolCall("c1", "read", {}))  # type: ignore[arg-type]
    bartack.Message("robot", ())  # type: ignore[arg-type]
    bartack.Message("user", [bartack.Text("a list")])  # type: ignore[arg-type]
    bartack.Done("bored")  # type: ignore[arg-type]
    bartack.Text("a", "b")  # type: ignore[call-arg, arg-type]
    bartack.Text("a").text = "b"  # type: ignore[misc]
    bartack.Failed("timeout")  # type: ignore[arg-type]
    bartack.nonsense  # type: ignore[attr-defined]


def loading_gives_the_noun_that_was_asked_for(data: object, text: bytes) -> None:
    assert_type(wire.load(bartack.Message, data), bartack.Message)
    assert_type(wire.decode(bartack.Entry, text), bartack.Entry)
    assert_type(wire.decode(bartack.MessageDelta, text).delta, bartack.Delta)
    assert_type(wire.encode(bartack.user("hi")), bytes)


def the_assembler_takes_deltas_and_gives_messages(delta: bartack.MessageDelta) -> None:
    assembler = bartack.MessageAssembler("r1", message_id="m1")
    assembler.consume(delta)
    assembler.consume(delta.delta)  # type: ignore[arg-type]
    assert_type(assembler.snapshot(), bartack.Message)
    assert_type(assembler.build_final_message(), bartack.Message)
    assert_type(assembler.get_error(), bartack.Failed | None)
    assert_type(assembler.status, AssemblyStatus)
    assert_type(assembler.parts, tuple[Part, ...])


def an_entry_stamps_a_fact(now: datetime) -> bartack.Entry:
    message = bartack.stamped(bartack.user("hi"), id="m1", timestamp=now)
    entry = bartack.Entry(id="e1", session_id="s1", seq=1, timestamp=now, fact=message)
    assert_type(entry.fact, Fact)
    assert_type(bartack.Session.of([entry]).messages, tuple[bartack.Message, ...])
    return entry


def a_table_keeps_its_states_apart() -> None:
    assert_type(advance(TOOL, ToolStatus.PENDING, "start"), ToolStatus)


def an_error_has_attributes(error: bartack.BartackError) -> bartack.ErrorCode:
    match error:
        case InvalidStateTransition():
            assert_type(error.valid, tuple[str, ...])
        case bartack.PartValidationError():
            assert_type(error.path, str)
            assert_type(error.rule, str | None)
        case _:
            pass
    return error.code


class Database: ...


class City: ...


class Town: ...


@bartack.tool
async def population(city: str, context: bartack.ToolContext[Database]) -> int:
    assert_type(context.deps, Database)
    return 0


def about(context: bartack.PromptContext[Database]) -> str:
    assert_type(context.deps, Database)
    return ""


async def an_agent_knows_its_output(model: bartack.models.Model) -> None:
    assert_type((await bartack.Agent(model).run("?")).output, str)
    assert_type(bartack.Agent(model, output_type=City).run_sync("?").output, City)
    assert_type(bartack.Agent(model, output_type=list[City]).run_sync("?").output, list[City])
    assert_type(bartack.Agent(model, output_type=City | Town).run_sync("?").output, City | Town)
    assert_type(bartack.Agent(model, output_type=int | None).run_sync("?").output, int | None)
    assert_type((await bartack.Agent(model, output_type=City).resume("s")).output, City)
    async with bartack.Agent(model, output_type=City).stream("?") as run:
        assert_type(run.result.output, City)


async def an_agent_knows_its_dependencies(model: bartack.models.Model) -> None:
    agent = bartack.Agent(model, deps_type=Database, tools=[population], instructions=about, output_type=City)
    assert_type(agent, bartack.Agent[Database, City])
    await agent.run("?", deps=Database())
    await agent.run("?", deps=City())  # type: ignore[arg-type]
    await agent.run("?", warmth=1)  # type: ignore[call-arg]
    agent.stream("?", deps=Database(), instructions=about, model_settings={"temperature": 0})
