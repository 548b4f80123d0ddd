"""langgraph's `SqliteSaver`, one checkpoint per message, as a graph with this checkpointer writes one per step.

Only the saver is measured. A graph would also read the last checkpoint on every call and store each step's writes.
"""

from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # type: ignore[import-not-found]
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint  # type: ignore[import-not-found]
from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]

from bench.peers.runners.conversation import Record, measure

THREAD = {"configurable": {"thread_id": "conversation", "checkpoint_ns": ""}}


def message(record: Record, number: int) -> Any:
    message_id = f"message_{number:06}"
    match record.role:
        case "user":
            return HumanMessage(record.text, id=message_id)
        case "call":
            call = {"name": "weather", "args": {"city": record.text}, "id": record.call_id}
            return AIMessage("", tool_calls=[call], id=message_id)
        case "result":
            return ToolMessage(record.text, tool_call_id=record.call_id, id=message_id)
        case "assistant":
            return AIMessage(record.text, id=message_id)


def write(folder: Path, conversation: list[Record]) -> None:
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        config: Any = THREAD
        checkpoint = empty_checkpoint()
        messages: list[Any] = []
        for step, record in enumerate(conversation):
            messages.append(message(record, step))
            checkpoint = create_checkpoint(checkpoint, None, step)
            checkpoint["channel_values"] = {"messages": messages}
            checkpoint["channel_versions"] = {"messages": str(step + 1)}
            config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {"messages": str(step + 1)})


def read(folder: Path) -> int:
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        return len(saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"])


if __name__ == "__main__":
    measure("SqliteSaver", write, read, durable=True)
