"""strands: its `FileSessionManager`, called as its hooks call it for each message that an agent gets.

It writes one file a message and does not fsync, so a message is not safe from a loss of power when the call returns.
"""

import json
from pathlib import Path
from typing import Any

from strands import Agent  # type: ignore[import-not-found]
from strands.models.openai import OpenAIModel  # type: ignore[import-not-found]
from strands.session.file_session_manager import FileSessionManager  # type: ignore[import-not-found]

from bench.peers.runners.conversation import Said, measure


def message(said: Said) -> dict[str, object]:
    match said.role:
        case "user" | "assistant" as role:
            return {"role": role, "content": [{"text": said.text}]}
        case "call":
            call = {"toolUseId": said.call_id, "name": "weather", "input": {"city": said.text}}
            return {"role": "assistant", "content": [{"toolUse": call}]}
        case "result":
            result = {"toolUseId": said.call_id, "status": "success", "content": [{"json": json.loads(said.text)}]}
            return {"role": "user", "content": [{"toolResult": result}]}


def agent(folder: Path) -> tuple[Any, Any]:
    manager = FileSessionManager("conversation", storage_dir=str(folder))
    model = OpenAIModel(client_args={"api_key": "none"}, model_id="gpt-4o")
    return Agent(model, agent_id="agent", session_manager=manager, callback_handler=None), manager


def write(folder: Path, conversation: list[Said]) -> None:
    owner, manager = agent(folder)
    for said in conversation:
        owner.messages.append(message(said))
        manager.append_message(owner.messages[-1], owner)
        manager.sync_agent(owner)


def read(folder: Path) -> int:
    owner, _ = agent(folder)
    return len(owner.messages)


if __name__ == "__main__":
    measure("FileSessionManager", write, read, durable=False)
