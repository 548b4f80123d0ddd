"""openai-agents: its `SQLiteSession`, one `add_items` a message."""

import asyncio
import json
from pathlib import Path

from agents import SQLiteSession  # type: ignore[import-not-found]

from bench.peers.runners.conversation import Said, measure


def item(said: Said) -> dict[str, object]:
    match said.role:
        case "user" | "assistant" as role:
            return {"role": role, "content": said.text}
        case "call":
            arguments = json.dumps({"city": said.text})
            return {"type": "function_call", "call_id": said.call_id, "name": "weather", "arguments": arguments}
        case "result":
            return {"type": "function_call_output", "call_id": said.call_id, "output": said.text}


def session(folder: Path) -> SQLiteSession:
    return SQLiteSession("conversation", folder / "sessions.db")


def write(folder: Path, conversation: list[Said]) -> None:
    async def add() -> None:
        store = session(folder)
        for said in conversation:
            await store.add_items([item(said)])
        store.close()

    asyncio.run(add())


def read(folder: Path) -> int:
    return len(asyncio.run(session(folder).get_items()))


if __name__ == "__main__":
    measure("SQLiteSession", write, read, durable=True)
