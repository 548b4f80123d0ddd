"""What is said in a session, in a form in which the exports of all programs can be compared."""

from collections.abc import Sequence
from typing import Any

from bartack.nouns.entries import CompactionSummary, Entry, branch
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, ToolCall, ToolResult


def said(entries: Sequence[Entry]) -> list[Any]:
    """The messages, calls and results of the newest branch, without thinking and content that is not sent."""
    spoken: list[Any] = []
    results: dict[str, Any] = {}  # ordered by call: some programs keep each result with its call
    for entry in branch(entries, entries[-1].id):
        if not (isinstance(entry.fact, Message) and entry.fact.role == "tool") and entry.fact.kind != "custom":
            spoken += [content for content in results.values() if content is not None]
            results = {}
        if isinstance(entry.fact, CompactionSummary):
            spoken.append(entry.fact.summary)
        if isinstance(entry.fact, Message) and entry.fact.role == "system":
            continue  # programs have their own instructions
        for part in entry.fact.parts if isinstance(entry.fact, Message) else ():
            match part:
                case Text() if not part.ignored:
                    spoken.append(part.text.removeprefix("\u200b"))  # Gemini CLI gets one before "/"
                case ToolCall() if part.executed_by == "client":
                    is_valid = "invalid_arguments" not in part.arguments  # how the Responses API gets them
                    spoken.append((part.tool_name, part.arguments if is_valid else {}))
                    results[part.tool_call_id] = None
                case ToolResult():
                    results[part.tool_call_id] = content_of(part)
                case _:
                    pass
    spoken += [content for content in results.values() if content is not None]
    return [item for item in spoken if not isinstance(item, str) or item.strip()]  # APIs refuse blank texts


def content_of(result: ToolResult) -> Any:
    """The content, in the same way whether a program keeps a list of texts or joins them."""
    if isinstance(result.content, tuple):
        texts = "\n".join(part.text for part in result.content if isinstance(part, Text))
        kinds = [part.kind for part in result.content if not isinstance(part, Text)]
        return [texts, *kinds] if kinds else texts
    return result.content
