"""Trajectories of SWE-agent and mini-SWE-agent: a file for each run, with the messages of the Chat Completions API.

SWE-agent has them as its `history`, in which a result names its call in a list; mini-SWE-agent as its `messages`. The
model, what it cost and the steps of the environment are kept and not read.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from bartack.nouns.messages import Message
from bartack_transcripts.message_list import read_list_in
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript
from bartack_transcripts.values import Json, read_messages, text_in, texts_in

__all__ = ["looks_like_swe_agent", "read_swe_agent"]

_AGENT = "swe-agent"
_HISTORY = re.compile(rb'(?<!\\)"history"\s*:\s*\[')
_FIELDS = ("role", "content", "tool_calls", "tool_call_id")  # the fields that the API takes


def looks_like_swe_agent(name: str, head: bytes) -> bool:
    """Whether a file has the name of a trajectory, and is an object."""
    return name.endswith((".traj", ".traj.json")) and head.lstrip().startswith(b"{")


def read_swe_agent(files: Files) -> list[Transcript]:
    """The session in a file."""
    key = "history" if any(map(_HISTORY.search, files.values())) else "messages"
    transcripts = read_list_in(_AGENT, files, key, lambda item: text_in(item, "role") or "no role", _messages_of)
    for transcript, _ in transcripts:
        transcript.header = replace(transcript.header, metadata={"program": _AGENT})
    return [transcript for transcript, _ in transcripts]


def _messages_of(item: Json, record: Record, report: ReadReport) -> Sequence[Message]:
    message = {key: item[key] for key in _FIELDS if item.get(key) is not None}
    calls = texts_in(item, "tool_call_ids")
    if text_in(item, "role") == "tool" and calls:
        message["tool_call_id"] = calls[0]
    return read_messages("openai-chat", {"model": "unknown", "messages": [message]}, "openai", record, report)
