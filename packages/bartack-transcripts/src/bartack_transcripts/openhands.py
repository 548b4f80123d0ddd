"""Conversations of OpenHands: a folder with `base_state.json` and a file for each event.

An event is a message, an action of the agent, which is a call, or an observation, which is its result. The state is
rewritten all the time, so it is the last record, and has the model.
"""

import re
from collections.abc import Sequence
from dataclasses import replace as replace_transcript
from functools import partial

from msgspec.structs import replace

from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.blocks import block_messages
from bartack_transcripts.message_list import ListReader, one_or_parts
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript, TranscriptStep
from bartack_transcripts.values import Json, object_in, objects_in, parse_object, text_in, time_from_text, value_in

__all__ = ["STATE", "looks_like_openhands", "read_openhands"]

STATE = "base_state.json"
_AGENT = "openhands"
_EVENT = re.compile(r"(?:.*/)?events/event-(\d+)-[^/]*\.json")


def looks_like_openhands(name: str, head: bytes) -> bool:
    """Never: a folder is one transcript, and has the state."""
    del name, head
    return False


def read_openhands(files: Files) -> list[Transcript]:
    """The session in a folder."""
    if not files:
        return []
    reader = ListReader(_AGENT, STATE)
    state = parse_object(files.get(STATE, b""))
    name = text_in(state, "agent", "llm", "model")
    model = None if name is None else ModelRef(name.partition("/")[0] if "/" in name else _AGENT, name)
    others: list[Record] = []
    for file in sorted(files, key=lambda file: (_number(file), file)):
        record = Record(file, 0, files[file])
        event = parse_object(record.data) if _EVENT.fullmatch(file) else {}
        if isinstance(event, str):
            reader.report.damaged(record, event)
        if not event or isinstance(event, str):
            others.append(record)
            continue
        reader.add(
            record, text_in(event, "kind") or "no kind", partial(_messages_of, event, model, record, reader.report)
        )
    reader.steps += [TranscriptStep((), tuple(others))] if others else []
    transcript = reader.transcript()
    directory = text_in(state, "workspace", "working_dir") or text_in(state, "workspace", "cwd")
    metadata = {"program": _AGENT} | ({} if directory is None else {"directory": directory})
    id = text_in(state, "id")
    header = replace(transcript.header, metadata=metadata)
    return [replace_transcript(transcript, id=id or transcript.id, header=header, has_own_id=id is not None)]


def _number(file: str) -> int:
    event = _EVENT.fullmatch(file)
    return 10**9 if event is None else int(event[1])


def _messages_of(event: Json, model: ModelRef | None, record: Record, report: ReadReport) -> Sequence[Message]:
    meta = None if model is None else Meta(model=model)
    time = time_from_text(event.get("timestamp"))
    messages: list[Message] = []
    match text_in(event, "kind"):
        case "MessageEvent":
            role = text_in(event, "llm_message", "role") or ""
            content = objects_in(event, "llm_message", "content")
            messages = block_messages(role, content, lambda block: None, record, report)
            thoughts = _thoughts(event) if role == "assistant" else []
            messages = [replace(message, parts=(*thoughts, *message.parts)) for message in messages]
        case "ActionEvent" if (name := text_in(event, "tool_name") or text_in(event, "tool_call", "name")) is not None:
            call = text_in(event, "tool_call_id") or text_in(event, "id") or record.file
            explanation = [Text(text) for block in objects_in(event, "thought") if (text := text_in(block, "text"))]
            messages = [
                Message("assistant", (*_thoughts(event), *explanation, ToolCall(call, name, _arguments(event))))
            ]
        case "ObservationEvent" | "AgentErrorEvent" if (call_id := text_in(event, "tool_call_id")) is not None:
            messages = [Message("tool", (_result(call_id, event),))]
    return [
        replace(message, timestamp=time, meta=meta if message.role == "assistant" else None) for message in messages
    ]


def _thoughts(event: Json) -> list[Part]:
    blocks = [text for block in objects_in(event, "thinking_blocks") if (text := text_in(block, "thinking"))]
    text = text_in(event, "reasoning_content")
    return [Thinking(thought) for thought in blocks or ([] if text is None else [text])]


def _arguments(event: Json) -> Json:
    text = text_in(event, "tool_call", "arguments")
    parsed = parse_object((text or "").encode("utf-8", "replace"))
    if not isinstance(parsed, str):
        return parsed
    return (
        {"input": text} if text else {key: value for key, value in object_in(event, "action").items() if key != "kind"}
    )


def _result(call: str, event: Json) -> ToolResult:
    observation = object_in(event, "observation")
    texts = [Text(text) for block in objects_in(observation, "content") if (text := text_in(block, "text"))]
    error = text_in(event, "error")
    if error is not None:
        return ToolResult(call, error, is_error=True)
    content = one_or_parts(texts) if texts else text_in(observation, "content") or text_in(observation, "output") or ""
    return ToolResult(call, content, is_error=value_in(observation, "is_error") is True)
