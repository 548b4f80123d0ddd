"""A stored session -> the model and the tools that were in it, for tests: what happened once happens again.

    entries = await store.load("the-one-that-went-wrong")
    agent = Agent(replayed_model(entries), tools=replayed_tools(entries))

The model gives the recorded answers in their order, failed attempts and summaries included. The tools give the recorded
results and touch nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from bartack.environment import Environment
from bartack.models.scripted import ScriptedModel, ScriptedResponse
from bartack.nouns.deltas import Delta, Start
from bartack.nouns.entries import CompactionSummary, Entry, StreamFailed
from bartack.nouns.errors import ToolError
from bartack.nouns.messages import Message, Meta, assistant
from bartack.nouns.parts import ToolResult
from bartack.tools import ToolContext, ToolDefinition, ToolOutput

__all__ = ["replayed_model", "replayed_tools"]


def replayed_model(entries: Iterable[Entry], *, environment: Environment | None = None) -> ScriptedModel:
    """A model that says what the session's models said."""
    return ScriptedModel(list(_answers(entries)), environment=environment)


def _answers(entries: Iterable[Entry]) -> Iterator[ScriptedResponse]:
    for entry in entries:
        match entry.fact:
            case Message(role="assistant") as message:
                yield message
            case StreamFailed() as failed:
                told: list[Delta] = [Start("replayed", failed.response_id or entry.id, provider="scripted")]
                yield told + ([] if failed.usage is None else [failed.usage]) + [failed.error]
            case CompactionSummary() as compaction if compaction.model is not None:
                yield assistant(compaction.summary, meta=Meta(usage=compaction.usage))
            case _:
                pass


def replayed_tools(entries: Iterable[Entry]) -> tuple[ToolDefinition, ...]:
    """A tool for each name that was called, which gives each call the result it had."""
    results: dict[str, ToolResult] = {}
    names: set[str] = set()
    for entry in entries:
        if isinstance(entry.fact, Message):
            results.update((result.tool_call_id, result) for result in entry.fact.tool_results)
            names.update(call.tool_name for call in entry.fact.tool_calls if call.executed_by == "client")

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        result = results.get(context.tool_call_id)
        if result is None:
            raise ToolError(f"the session has no result of call {context.tool_call_id!r}")
        return ToolOutput(result.content, title=result.title, metadata=result.metadata, is_error=result.is_error)

    return tuple(
        ToolDefinition(name=name, description="Replayed.", parameter_schema={"type": "object"}, execute=execute)
        for name in sorted(names)
    )
