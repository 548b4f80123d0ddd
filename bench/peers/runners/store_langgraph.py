"""langgraph: its `SqliteSaver`, one checkpoint a message, as a graph with such a checkpointer makes one a step.

Only the saver is measured. A graph would also read the last checkpoint at every call and store each step's writes.
"""

from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # type: ignore[import-not-found]
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint  # type: ignore[import-not-found]
from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]

from bench.peers.runners.conversation import Said, measure

THREAD = {"configurable": {"thread_id": "conversation", "checkpoint_ns": ""}}


def message(said: Said, number: int) -> Any:
    known = f"message_{number:06}"
    match said.role:
        case "user":
            return HumanMessage(said.text, id=known)
        case "call":
            call = {"name": "weather", "args": {"city": said.text}, "id": said.call_id}
            return AIMessage("", tool_calls=[call], id=known)
        case "result":
            return ToolMessage(said.text, tool_call_id=said.call_id, id=known)
        case "assistant":
            return AIMessage(said.text, id=known)


def write(folder: Path, conversation: list[Said]) -> None:
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        config: Any = THREAD
        checkpoint = empty_checkpoint()
        messages: list[Any] = []
        for step, said in enumerate(conversation):
            messages.append(message(said, step))
            checkpoint = create_checkpoint(checkpoint, None, step)
            checkpoint["channel_values"] = {"messages": messages}
            checkpoint["channel_versions"] = {"messages": str(step + 1)}
            config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {"messages": str(step + 1)})


def read(folder: Path) -> int:
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        return len(saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"])


if __name__ == "__main__":
    measure("SqliteSaver", write, read, durable=True)
