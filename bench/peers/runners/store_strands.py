"""strands' `FileSessionManager`, called as its hooks call it for each message of an agent.

It writes one file per message without fsync, so a power loss can lose a message that was already reported as stored.
"""

import json
from pathlib import Path
from typing import Any

from strands import Agent  # type: ignore[import-not-found]
from strands.models.openai import OpenAIModel  # type: ignore[import-not-found]
from strands.session.file_session_manager import FileSessionManager  # type: ignore[import-not-found]

from bench.peers.runners.conversation import Record, measure


def message(record: Record) -> dict[str, object]:
    match record.role:
        case "user" | "assistant" as role:
            return {"role": role, "content": [{"text": record.text}]}
        case "call":
            call = {"toolUseId": record.call_id, "name": "weather", "input": {"city": record.text}}
            return {"role": "assistant", "content": [{"toolUse": call}]}
        case "result":
            result = {"toolUseId": record.call_id, "status": "success", "content": [{"json": json.loads(record.text)}]}
            return {"role": "user", "content": [{"toolResult": result}]}


def agent(folder: Path) -> tuple[Any, Any]:
    manager = FileSessionManager("conversation", storage_dir=str(folder))
    model = OpenAIModel(client_args={"api_key": "none"}, model_id="gpt-4o")
    return Agent(model, agent_id="agent", session_manager=manager, callback_handler=None), manager


def write(folder: Path, conversation: list[Record]) -> None:
    owner, manager = agent(folder)
    for record in conversation:
        owner.messages.append(message(record))
        manager.append_message(owner.messages[-1], owner)
        manager.sync_agent(owner)


def read(folder: Path) -> int:
    owner, _ = agent(folder)
    return len(owner.messages)


if __name__ == "__main__":
    measure("FileSessionManager", write, read, durable=False)
