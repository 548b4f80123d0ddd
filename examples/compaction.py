"""Compaction: when a session outgrows the context window, older turns are sent as a summary. Nothing is deleted."""

import asyncio

from bartack import AgentConfig, CompactionSummary, ContextConfig, Meta, Usage, assistant
from bartack.agent import Agent, Compacted
from bartack.models import ScriptedModel
from bartack.store import MemoryStore

STORY = "It was a long day in a long year, and much was said and done. " * 12


async def main() -> None:
    model = ScriptedModel(
        [
            assistant(STORY, meta=Meta(usage=Usage(300, 200))),
            assistant(STORY, meta=Meta(usage=Usage(650, 200))),
            "They told each other long stories.",  # the summary
            "It was Tuesday.",
        ]
    )
    store = MemoryStore()
    limits = ContextConfig(max_tokens=1000, reserve_tokens=200, keep_recent_tokens=50)
    agent = Agent(model, store=store, config=AgentConfig(context=limits))
    await agent.run("Tell me a story", session="stories")
    await agent.run("Another one", session="stories")
    async with agent.stream("Which day was it?", session="stories") as run:
        async for event in run:
            if isinstance(event, Compacted):
                print(f"compacted: {event.tokens_before} -> {event.tokens_after} tokens")
    print(run.result.output)
    entries = await store.load("stories")
    summary = next(entry.fact for entry in entries if isinstance(entry.fact, CompactionSummary))
    print(f"summary sent to the model: {summary.summary}")
    print(f"messages in the session: {sum(entry.fact.kind == 'message' for entry in entries)}")


if __name__ == "__main__":
    asyncio.run(main())
