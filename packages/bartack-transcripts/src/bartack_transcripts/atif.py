"""Writes trajectories in the Agent Trajectory Interchange Format (ATIF 1.5), for evaluation and training.

A step is a message of the user or the system, or an answer with its calls and their results. The format has no
signatures, no branches, and no way to continue; it is only written.
"""

import json
from collections import Counter
from typing import Any

from bartack.formats.losses import Losses
from bartack.formats.media import placeholder
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import Entry
from bartack.nouns.messages import Message, Meta
from bartack.nouns.parts import FileRef, Image, Text, ToolCall, ToolResult
from bartack.session.tool_state import output_text
from bartack_transcripts.message_list import no_folder, outgoing_messages
from bartack_transcripts.transcript import Files, Transcript
from bartack_transcripts.values import Json
from bartack_transcripts.writing import Outgoing, TranscriptWriter, WrittenTranscript, time_text, written_anew

__all__ = ["ATIF_WRITER", "looks_like_atif", "read_atif"]

_VERSION = "ATIF-v1.5"
_SOURCES = {"system": "system", "user": "user"}


def looks_like_atif(name: str, head: bytes) -> bool:
    """No file is read in this format."""
    return False


def read_atif(files: Files) -> list[Transcript]:
    """No file is read in this format."""
    return []


def write(outgoing: Outgoing) -> WrittenTranscript:
    """The trajectory of a conversation."""
    writer = _Writer()
    for entry, message in outgoing_messages(outgoing, writer.losses):
        writer.add(entry, message)
    agent: Json = {"name": "bartack", "version": "1"}
    if writer.models:
        agent["model_name"] = writer.models.most_common(1)[0][0]
    trajectory: Json = {
        "schema_version": _VERSION,
        "session_id": outgoing.id,
        "agent": agent,
        "steps": writer.steps,
        "final_metrics": {**writer.total, "total_steps": len(writer.steps)},
    }
    data = json.dumps(trajectory, ensure_ascii=False, indent=1).encode()
    return WrittenTranscript(f"{outgoing.id}.json", data, tuple(writer.losses.found))


class _Writer:
    def __init__(self) -> None:
        self.steps: list[Json] = []
        self.losses = Losses("")
        self.models: Counter[str] = Counter()
        self.total: Json = {"total_prompt_tokens": 0, "total_completion_tokens": 0, "total_cached_tokens": 0}
        self._step_of: dict[str, Json] = {}  # call id -> step

    def add(self, entry: Entry, message: Message) -> None:
        """Add a step, or results to the step of their calls."""
        where = f"entry {entry.seq}"
        if message.role == "tool":
            for result in message.tool_results:
                self._result(result, where)
            return
        step: Json = {
            "step_id": len(self.steps) + 1,
            "timestamp": time_text(entry.timestamp),
            "source": _SOURCES.get(message.role, "agent"),
            "message": self._text(message, where),
        }
        self.steps.append(step)
        if message.role == "assistant":
            self._answer(step, message, where)

    def _text(self, message: Message, where: str) -> str:
        texts: list[str] = []
        for part in message.parts:
            if isinstance(part, Text) and not part.ignored:
                texts.append(part.text)
            elif isinstance(part, Image | FileRef):
                texts.append(placeholder(part, where, "steps have text only", self.losses))
        return "\n".join(texts) if message.role == "user" else "".join(texts)

    def _answer(self, step: Json, message: Message, where: str) -> None:
        meta = message.meta or Meta()
        if meta.model is not None:
            step["model_name"] = meta.model.model
            self.models[meta.model.model] += 1
        if message.thinking:
            step["reasoning_content"] = message.thinking
        calls = [self._call(call, step, where) for call in message.tool_calls]
        if calls:
            step["tool_calls"] = calls
        for call in message.tool_calls:
            if call.result is not None:
                self._result(call.result, where)
        if meta.usage is not None:
            step["metrics"] = self._metrics(meta.usage, meta.cost_usd)

    def _call(self, call: ToolCall, step: Json, where: str) -> Json:
        self._step_of[call.tool_call_id] = step
        if call.raw_args_text is not None:
            self.losses.add(where, "invalid arguments", "arguments must be a JSON object; an empty one is written")
        return {"tool_call_id": call.tool_call_id, "function_name": call.tool_name, "arguments": call.arguments}

    def _result(self, result: ToolResult, where: str) -> None:
        step = self._step_of.get(result.tool_call_id)
        if step is None:
            self.losses.add(where, "tool result", "its call is not part of the trajectory")
            return
        if isinstance(result.content, tuple) and any(not isinstance(part, Text) for part in result.content):
            self.losses.add(where, "media of a tool result", "observations have text only")
        results: list[Any] = step.setdefault("observation", {"results": []})["results"]
        results.append({"source_call_id": result.tool_call_id, "content": output_text(result)})

    def _metrics(self, usage: Usage, cost: float | None) -> Json:
        cached = usage.cache_read_tokens or 0
        self.total["total_prompt_tokens"] += usage.input_tokens
        self.total["total_completion_tokens"] += usage.output_tokens
        self.total["total_cached_tokens"] += cached
        metrics: Json = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "cached_tokens": cached,
        }
        if cost is not None:
            metrics["cost_usd"] = cost
            self.total["total_cost_usd"] = self.total.get("total_cost_usd", 0) + cost
        return metrics


ATIF_WRITER = TranscriptWriter(write, no_folder, "", is_tree=False, joined=written_anew)
