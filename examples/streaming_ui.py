"""Show a run as it happens: streamed text, tool states, status changes, and an answer that begins again."""

import asyncio

from bartack import Delta, ErrorCode, Failed, Start, TextDelta, ToolCall, assistant
from bartack.agent import Agent, DeltaReceived, Event, Retrying, RetryPolicy, RunFinished, StatusChanged, ToolChanged
from bartack.models import ScriptedModel
from bartack.tools import ToolContext, tool


@tool
async def build(target: str, context: ToolContext) -> str:
    """Build a target and report progress."""
    for percent in (30, 80):
        await context.progress(f"{percent} %", title=f"building {target}", percent=percent)
    return f"{target} is built"


def show(event: Event) -> None:
    """Print one event."""
    match event:
        case StatusChanged(status=status):
            print(f"\n[{status}] ", end="")
        case DeltaReceived(text=text):
            print(text, end="", flush=True)
        case Retrying(error=error):
            print(f"({error.message}; forget the last answer, it begins again) ", end="")
        case ToolChanged(tool_name=name, state=state):
            print(f"({name}: {state.status}{_progress(state)}) ", end="")
        case RunFinished(result=result):
            print(f"\n{result.usage or 'no usage reported'}")
        case _:
            pass


def _progress(state: object) -> str:
    metadata = getattr(state, "metadata", None) or {}
    return f" {metadata['percent']} %" if "percent" in metadata else ""


async def main() -> None:
    cut_off: list[Delta] = [
        Start("scripted", "1"),
        TextDelta("The docs are "),
        Failed(ErrorCode.STREAM_TRUNCATED, "connection lost", retryable=True),
    ]
    model = ScriptedModel(
        [assistant("Building now. ", ToolCall("1", "build", {"target": "docs"})), cut_off, "The docs are built."]
    )
    agent = Agent(model, tools=[build], retry=RetryPolicy(base_ms=10))
    async with agent.stream("Build the docs") as run:
        async for event in run:
            show(event)


if __name__ == "__main__":
    asyncio.run(main())
