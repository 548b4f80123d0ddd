"""Tasks of Cline, and of Roo Code and Kilo Code, which began as copies of it.

The folder of a task has `api_conversation_history.json`: a list of messages of Anthropic's API, in some versions each
with the time `ts`. A task has no id there, so it is named after its first message. Models, usage and what was shown to
the user are in other files, which are not read.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from bartack.nouns.messages import Message
from bartack_transcripts.message_list import read_list
from bartack_transcripts.transcript import Files, ReadReport, Record, Transcript
from bartack_transcripts.values import Json, read_messages, short_line, text_in, time_from_ms

__all__ = ["HISTORY", "looks_like_cline", "looks_like_kilo", "looks_like_roo", "read_cline", "read_kilo", "read_roo"]

HISTORY: Final = "api_conversation_history.json"
_PROVIDER = "anthropic"
_TASK = re.compile(r"<(task|user_message|feedback)>\s*(.*?)\s*</\1>", re.DOTALL)  # around what was typed


def looks_like_cline(name: str, head: bytes) -> bool:
    """Whether a file has the name of a history, and is a list."""
    return name.rpartition("/")[2] == HISTORY and head.lstrip().startswith(b"[")


def looks_like_roo(name: str, head: bytes) -> bool:
    """Never: only the folder tells the programs apart."""
    del name, head
    return False


looks_like_kilo = looks_like_roo


def _reader(agent: str) -> Callable[[Files], list[Transcript]]:
    def read(files: Files) -> list[Transcript]:
        transcripts = read_list(agent, files, lambda item: text_in(item, "role") or "no role", _messages_of)
        for transcript in transcripts:
            facts = (fact for step in transcript.steps for fact in step.facts)
            prompt = next((fact.text for fact in facts if isinstance(fact, Message) and fact.role == "user"), "")
            task = _TASK.search(prompt)
            title = short_line(task[2] if task else prompt)
            transcript.header = replace(transcript.header, title=title, metadata={"program": agent})
        return transcripts

    return read


read_cline, read_roo, read_kilo = map(_reader, ("cline", "roo", "kilo"))


def _messages_of(item: Json, record: Record, report: ReadReport) -> Sequence[Message]:
    if text_in(item, "role") not in ("user", "assistant"):  # reasoning of another API
        return []
    body = {"model": "unknown", "max_tokens": 1, "messages": [{"role": item["role"], "content": item.get("content")}]}
    stamp = partial(replace, timestamp=time_from_ms(item.get("ts")))
    return [stamp(message) for message in read_messages("anthropic-messages", body, _PROVIDER, record, report)]
