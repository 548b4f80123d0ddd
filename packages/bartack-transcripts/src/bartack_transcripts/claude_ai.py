"""`conversations.json` of a data export of Claude.ai, and single conversations in the same form.

A conversation has a list of messages, which name their parents where it was edited. A message of the assistant contains
its calls and their results. There are no models, no usage and no signatures.
"""

from collections.abc import Sequence

from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Part, Text, Thinking, ToolCall, ToolResult
from bartack_transcripts.conversations import ChatMessage, ChatTree, Convert, Raw, raw_members, read_conversations
from bartack_transcripts.transcript import START, Files, Transcript
from bartack_transcripts.values import Json, object_in, objects_in, text_in, time_from_text

__all__ = ["looks_like_claude_ai", "read_claude_ai"]

_AGENT = "claude-ai"
_NO_PARENT = "00000000-0000-4000-8000-000000000000"


def looks_like_claude_ai(name: str, head: bytes) -> bool:
    """Whether a file begins with a conversation that has messages of Claude.ai."""
    is_json = name.endswith(".json") and head.lstrip()[:1] in (b"[", b"{")
    return is_json and b'"chat_messages"' in head and b'"uuid"' in head


def read_claude_ai(files: Files) -> list[Transcript]:
    """The sessions of an export."""
    return read_conversations(_AGENT, files, _conversation, _converter)


def _conversation(json: Json, raw: Raw) -> ChatTree | None:
    listed = raw_members(raw, "chat_messages")
    messages = json.get("chat_messages")
    if not isinstance(messages, list) or not isinstance(listed, list):
        return None
    chat_messages = []
    for message, data in zip(messages, listed, strict=True):
        id = text_in(message, "uuid")
        if id is not None:
            parent = text_in(message, "parent_message_uuid")
            place = START if parent == _NO_PARENT else parent
            chat_messages.append(ChatMessage(id, bytes(data), time_from_text(message.get("created_at")), place))
    return ChatTree(text_in(json, "uuid"), text_in(json, "name"), time_from_text(json.get("created_at")), chat_messages)


def _converter() -> Convert:
    return _messages_of


def _messages_of(id: str, message: Json) -> tuple[str, Sequence[Message]]:
    sender = text_in(message, "sender") or "no sender"
    match sender:
        case "human":
            parts = _prompt(message)
            return sender, [Message("user", tuple(parts))] if parts else []
        case "assistant":
            return sender, _answer(id, message)
    return sender, []


def _prompt(message: Json) -> list[Part]:
    """What was typed, what was pasted, and the names of files."""
    texts = [text_in(block, "text") for block in objects_in(message, "content")] or [text_in(message, "text")]
    texts += [text_in(attachment, "extracted_content") for attachment in objects_in(message, "attachments")]
    names = [text_in(file, "file_name") for file in objects_in(message, "files")]
    return [*(Text(text) for text in texts if text), *(FileRef(name) for name in names if name)]


def _answer(id: str, message: Json) -> list[Message]:
    """The messages in an answer: after each result, the model was called again."""
    messages: list[Message] = []
    parts: list[Part] = []
    calls: list[str] = []
    for place, block in enumerate(objects_in(message, "content")):
        match block.get("type"):
            case "tool_use":
                calls.append(text_in(block, "id") or f"{id}-{place}")
                parts.append(ToolCall(calls[-1], text_in(block, "name") or "tool", object_in(block, "input")))
            case "tool_result" if calls:
                named = text_in(block, "tool_use_id")
                call = named if named in calls else calls[0]
                calls.remove(call)
                if parts:
                    messages.append(Message("assistant", tuple(parts)))
                    parts = []
                messages.append(Message("tool", (_result(call, block),)))
            case "thinking":
                text = text_in(block, "thinking")
                parts += [] if text is None else [Thinking(text)]
            case _:
                text = text_in(block, "text")
                parts += [] if text is None else [Text(text)]
    text = text_in(message, "text")
    if not messages and not parts and text is not None:
        parts.append(Text(text))
    return [*messages, Message("assistant", tuple(parts))] if parts else messages


def _result(call: str, block: Json) -> ToolResult:
    texts = [text_in(item, "text") for item in objects_in(block, "content")]
    content = text_in(block, "content") or tuple(Text(text) for text in texts if text)
    return ToolResult(call, content, is_error=block.get("is_error") is True)
