"""Sessions of Cursor's agent: `agent-transcripts/*/*.jsonl` in the folder of a project.

A line is a message with the blocks of Anthropic's API. There are no ids of sessions, times, models or usage, and often
no ids and results of calls.
"""

import re
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, ToolResult
from bartack_transcripts.blocks import block_messages
from bartack_transcripts.message_list import ListReader, one_or_parts
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript, TranscriptStep
from bartack_transcripts.values import Json, first_objects, objects_in, parse_lines, short_line, text_in, value_in

__all__ = ["looks_like_cursor", "read_cursor"]

_AGENT = "cursor"
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)  # around what was typed


def looks_like_cursor(name: str, head: bytes) -> bool:
    """Whether a file begins with a message that has a role, its content, and nothing that other programs add."""
    first = next(iter(first_objects(head)), {}) if name.endswith(".jsonl") else {}
    has_content = isinstance(value_in(first, "message", "content"), list)
    return has_content and text_in(first, "role") in ("user", "assistant") and "type" not in first


def read_cursor(files: Files) -> list[Transcript]:
    """The session in a file."""
    name = next(iter(files), None)
    if name is None:
        return []
    reader = ListReader(_AGENT, name)
    for record, json in parse_lines(name, files[name], reader.report):
        if json:
            reader.add(record, text_in(json, "role") or "no role", partial(_read, json, record, reader.report))
        else:
            reader.steps.append(TranscriptStep((), (record,)))
    transcript = reader.transcript()
    facts = (fact for step in transcript.steps for fact in step.facts)
    prompt = next((fact.text for fact in facts if isinstance(fact, Message) and fact.role == "user"), "")
    query = _QUERY.search(prompt)
    title = short_line(query[1] if query else prompt)
    transcript.header = replace(transcript.header, title=title, metadata={"program": _AGENT})
    return [transcript]


def _read(json: Json, record: Record, report: ReadReport) -> Sequence[Message]:
    return block_messages(text_in(json, "role") or "", objects_in(json, "message", "content"), _result, record, report)


def _result(block: Json) -> ToolResult | None:
    call = text_in(block, "tool_use_id")
    if block.get("type") != "tool_result" or call is None:
        return None
    texts = [text_in(part, "text") for part in objects_in(block, "content")]
    content = text_in(block, "content") or one_or_parts([Text(text) for text in texts if text is not None])
    return ToolResult(call, content, is_error=block.get("is_error") is True)
