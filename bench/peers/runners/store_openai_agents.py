"""openai-agents' `SQLiteSession`, one `add_items` per message."""

import asyncio
import json
from pathlib import Path

from agents import SQLiteSession  # type: ignore[import-not-found]

from bench.peers.runners.conversation import Record, measure


def item(record: Record) -> dict[str, object]:
    match record.role:
        case "user" | "assistant" as role:
            return {"role": role, "content": record.text}
        case "call":
            arguments = json.dumps({"city": record.text})
            return {"type": "function_call", "call_id": record.call_id, "name": "weather", "arguments": arguments}
        case "result":
            return {"type": "function_call_output", "call_id": record.call_id, "output": record.text}


def session(folder: Path) -> SQLiteSession:
    return SQLiteSession("conversation", folder / "sessions.db")


def write(folder: Path, conversation: list[Record]) -> None:
    async def add() -> None:
        store = session(folder)
        for record in conversation:
            await store.add_items([item(record)])
        store.close()

    asyncio.run(add())


def read(folder: Path) -> int:
    return len(asyncio.run(session(folder).get_items()))


if __name__ == "__main__":
    measure("SQLiteSession", write, read, durable=True)
