"""A stored session -> a model and tools that replay it, for tests.

    entries = await store.load("failed-session")
    agent = Agent(replayed_model(entries), tools=replayed_tools(entries))

The model returns the recorded answers in order, including failed attempts and summaries. The tools only return the
recorded results.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from bartack.environment import Environment
from bartack.models.scripted import ScriptedModel, ScriptedResponse
from bartack.nouns.deltas import Start
from bartack.nouns.entries import BranchSummary, CompactionSummary, Entry, StreamFailed
from bartack.nouns.errors import ToolError
from bartack.nouns.messages import Message, Meta, assistant
from bartack.nouns.parts import ToolResult
from bartack.tools import ToolContext, ToolDefinition, ToolOutput

__all__ = ["replayed_model", "replayed_tools"]


def replayed_model(entries: Iterable[Entry], *, environment: Environment | None = None) -> ScriptedModel:
    """A model that returns the session's answers."""
    return ScriptedModel(list(_answers(entries)), environment=environment)


def _answers(entries: Iterable[Entry]) -> Iterator[ScriptedResponse]:
    for entry in entries:
        match entry.fact:
            case Message(role="assistant") as message:
                yield message
            case StreamFailed() as failed:
                start = Start("replayed", failed.response_id or entry.id, provider="scripted")
                yield [start, failed.error] if failed.usage is None else [start, failed.usage, failed.error]
            case CompactionSummary() | BranchSummary() as fact if fact.model is not None:
                yield assistant(fact.summary, meta=Meta(usage=fact.usage))
            case _:
                pass


def replayed_tools(entries: Iterable[Entry]) -> tuple[ToolDefinition, ...]:
    """A tool for each name in the session, which returns the recorded result of each call."""
    results: dict[str, ToolResult] = {}
    names: set[str] = set()
    for entry in entries:
        if isinstance(entry.fact, Message):
            results.update((result.tool_call_id, result) for result in entry.fact.tool_results)
            names.update(call.tool_name for call in entry.fact.tool_calls if call.executed_by == "client")

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        result = results.get(context.tool_call_id)
        if result is None:
            raise ToolError(f"The session has no result for call {context.tool_call_id!r}.")
        return ToolOutput(result.content, title=result.title, metadata=result.metadata, is_error=result.is_error)

    return tuple(
        ToolDefinition(name=name, description="Replayed.", parameter_schema={"type": "object"}, execute=execute)
        for name in sorted(names)
    )
