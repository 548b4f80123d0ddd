"""Writes the folders of strands-agents, for its `FileSessionManager`.

Results of the calls of one answer are in one message, and messages alternate between the user and the model, as the
Converse API demands. The state of the conversation manager names its class, which has to be the one that the agent
uses: the summarizing one if the session was compacted, and otherwise the sliding window, which is the default.
"""

import re
from typing import Any

from bartack.formats.bedrock_converse.blocks import BlockWriter
from bartack.formats.bedrock_converse.events import Kept
from bartack.formats.losses import Losses
from bartack.interop.values import Json, parse_object, text_in
from bartack.interop.writing import Outgoing, TranscriptWriter, Written, json_document, with_call_ids, written_anew
from bartack.nouns.entries import CompactionSummary, Entry
from bartack.nouns.messages import Message

__all__ = ["STRANDS_WRITER"]

_CALL_ID = r"[a-zA-Z0-9_-]{1,64}"  # the pattern of Converse


def write(outgoing: Outgoing) -> Written:
    """The files of a session with one agent."""
    losses = Losses("bedrock")
    losses.expect(Kept)
    turns, removed, summary = _turns(outgoing, losses)
    time = outgoing.started.isoformat()
    times = {"created_at": time, "updated_at": time}
    manager: Json = {"__name__": "SlidingWindowConversationManager", "removed_message_count": 0, "model_call_count": 0}
    if summary is not None:
        content = {"role": "user", "content": [{"text": summary}]}
        manager = {"__name__": "SummarizingConversationManager", "removed_message_count": removed}
        manager["summary_message"] = content
    agent = {"agent_id": "default", "state": {}, "conversation_manager_state": manager, "_internal_state": {}, **times}
    folder = f"session_{outgoing.id}"
    files = {f"{folder}/agents/agent_default/agent.json": json_document(agent)}
    for number, (message, entry) in enumerate(turns):
        at = entry.timestamp.isoformat()
        body = {"message": message, "message_id": number, "redact_message": None, "created_at": at, "updated_at": at}
        files[f"{folder}/agents/agent_default/messages/message_{number}.json"] = json_document(body)
    session = {"session_id": outgoing.id, "session_type": "AGENT", **times}
    return Written(f"{folder}/session.json", json_document(session), tuple(losses.found), more=files)


def _turns(outgoing: Outgoing, losses: Losses) -> tuple[list[tuple[Json, Entry]], int, str | None]:
    """The messages, how many of them are no longer sent, and the summary in their place."""
    messages = with_call_ids(outgoing.messages, _CALL_ID)
    writer = BlockWriter("unknown", losses)
    turns: list[tuple[Json, Entry]] = []
    places: dict[str, int] = {}  # of entries in `turns`
    summary: str | None = None
    removed = index = 0
    for entry in outgoing.entries:
        if isinstance(entry.fact, CompactionSummary):
            summary = entry.fact.summary
            removed = next((places[id] for id in outgoing.kept_by(entry) if id in places), len(turns))
        if not isinstance(entry.fact, Message):
            continue
        message, where, index = messages[index], f"messages[{index}]", index + 1
        if message.role == "system":
            losses.add(where, "system message", "the program has its own instructions")
            continue
        numbered = enumerate(message.parts)
        blocks = [block for number, part in numbered for block in writer.blocks(part, f"{where}.parts[{number}]")]
        blocks = [_with_status(block) for block in (*blocks, *writer.take_after_results())]
        role = "assistant" if message.role == "assistant" else "user"
        places[entry.id] = len(turns)
        if blocks and len(turns) > removed and turns[-1][0]["role"] == role:
            turns[-1][0]["content"] += _encoded(blocks)
            places[entry.id] -= 1
        elif blocks:
            turns.append(({"role": role, "content": _encoded(blocks)}, entry))
    return turns, removed, summary


def _with_status(block: Json) -> Json:
    """A result with its status, which Converse does not require, but strands does."""
    result = block.get("toolResult")
    return block if result is None else {"toolResult": {"status": "success", **result}}


def _encoded(value: Any) -> Any:
    """The blocks with bytes as strands stores them."""
    if isinstance(value, dict):
        return {
            key: {"__bytes_encoded__": True, "data": item} if key == "bytes" else _encoded(item)
            for key, item in value.items()
        }
    return [_encoded(item) for item in value] if isinstance(value, list) else value


def _in_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a session that was read, in the folder where its program looks for them."""
    about = next((parse_object(data) for name, data in files.items() if name.endswith("session.json")), "")
    id = text_in(about, "session_id")
    if id is None or any(name.startswith("session_") for name in files):
        return files
    folder = re.sub(r"[^\w.-]", "_", f"session_{id}")
    return {f"{folder}/{name}": data for name, data in files.items()}


def _folder(outgoing: Outgoing) -> str:
    return "."  # sessions may be anywhere


STRANDS_WRITER = TranscriptWriter(
    write, _folder, 'FileSessionManager(session_id="{id}")', is_tree=False, joined=written_anew, assembled=_in_folder
)
