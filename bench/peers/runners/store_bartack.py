"""Bartack's `SqliteStore`, one durable append per message."""

import asyncio
from pathlib import Path

from bartack import Message, ToolCall, ToolResult, assistant, user
from bartack.environment import Environment
from bartack.nouns.messages import tool_message
from bartack.store import Tail, next_entries, open_store
from bench.peers.runners.conversation import Record, measure

SESSION = "conversation"


def message(record: Record) -> Message:
    match record.role:
        case "user":
            return user(record.text)
        case "call":
            return assistant(ToolCall(record.call_id, "weather", {"city": record.text}))
        case "result":
            return tool_message(ToolResult(record.call_id, record.text))
        case "assistant":
            return assistant(record.text)


def write(folder: Path, conversation: list[Record]) -> None:
    async def append() -> None:
        environment = Environment()
        store = await open_store(folder / "sessions.db")
        header = await store.create_session(SESSION)
        tail = Tail(header.id, header.seq)
        for record in conversation:
            entries = next_entries(SESSION, tail, [message(record)], environment)
            tail = await store.append(SESSION, entries, tail.entry_id)
        await store.close()

    asyncio.run(append())


def read(folder: Path) -> int:
    async def load() -> int:
        store = await open_store(folder / "sessions.db")
        facts = [entry.fact for entry in await store.load(SESSION)]  # entries are decoded on access: access them all
        await store.close()
        return sum(isinstance(fact, Message) for fact in facts)

    return asyncio.run(load())


if __name__ == "__main__":
    measure("SqliteStore", write, read, durable=True)
