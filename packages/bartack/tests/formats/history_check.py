"""An independent check of the history rules, which shares no code with `repair`: each one tests the other."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from bartack.formats.format import STRICTEST, HistoryRules
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, Thinking


def check_history(messages: Sequence[Message], rules: HistoryRules = STRICTEST) -> list[str]:
    """Why a provider with these rules would refuse this history; empty if it would accept it."""
    return [*_call_faults(messages, rules), *_content_faults(messages, rules), *_order_faults(messages, rules)]


def _call_faults(messages: Sequence[Message], rules: HistoryRules) -> Iterator[str]:
    call_ids: set[str] = set()
    due: list[str] = []  # calls whose results must come next
    for index, message in enumerate(messages):
        for result in message.tool_results:
            if result.tool_call_id in (due if rules.allows_any_result_order else due[:1]):
                due.remove(result.tool_call_id)
            else:
                yield f"messages[{index}]: misplaced result of {result.tool_call_id!r}"
        if message.role == "tool":
            continue
        if due:
            yield f"messages[{index}]: follows calls without results: {due}"
        due = [call.tool_call_id for call in message.tool_calls if call.executed_by == "client"]
        for call_id in due:
            if not rules.accepts_id(call_id):
                yield f"messages[{index}]: call id {call_id!r} is not accepted"
        for call in message.tool_calls:
            if call.executed_by == "client" and not rules.accepts_name(call.tool_name):
                yield f"messages[{index}]: tool name {call.tool_name!r} is not accepted"
            if call.tool_call_id in call_ids:
                yield f"messages[{index}]: repeated call id {call.tool_call_id!r}"
            if message.meta and call.tool_call_id in (message.meta.open_calls or ()):
                yield f"messages[{index}]: incomplete call {call.tool_call_id!r}"
            call_ids.add(call.tool_call_id)
    if due:
        yield f"the history ends with calls without results: {due}"


def _content_faults(messages: Sequence[Message], rules: HistoryRules) -> Iterator[str]:
    for index, message in enumerate(messages):
        parts = [part for part in message.parts if not getattr(part, "ignored", False)]
        blanks = [part for part in parts if isinstance(part, Text) and part.text.strip() == ""]
        if message.role == "assistant" and rules.allows_signed_empty_text:
            blanks = [part for part in blanks if part.continuation is None]
        contents = [result.content for result in message.tool_results if isinstance(result.content, tuple)]
        in_results = [
            piece for content in contents for piece in content if isinstance(piece, Text) and not piece.ignored
        ]
        if not rules.allows_empty_text and (blanks or any(piece.text.strip() == "" for piece in in_results)):
            yield f"messages[{index}]: blank text"
        if all(isinstance(part, Thinking) or part in blanks for part in parts):
            yield f"messages[{index}]: no content"
        elif message.role == "assistant" and isinstance(parts[-1], Thinking) and not rules.allows_trailing_reasoning:
            yield f"messages[{index}]: ends with reasoning"


def _order_faults(messages: Sequence[Message], rules: HistoryRules) -> Iterator[str]:
    for index, (before, following) in enumerate(pairwise(messages), start=1):
        if rules.merge_same_role and before.role == following.role != "system":
            yield f"messages[{index}]: consecutive messages of role {following.role}"
        if not rules.allows_user_after_tool and before.role == "tool" and following.role in ("user", "system"):
            yield f"messages[{index}]: {following.role} message directly after tool results"
    turns = [message for message in messages if message.role != "system"]
    if rules.starts_with_user and [message.role for message in turns[:1]] != ["user"]:
        yield "the history does not start with the user"
    elif not turns and not (messages and rules.allows_assistant_last):
        yield "the history has no user or assistant message"
    if turns and turns[-1].role == "assistant" and not rules.allows_assistant_last:
        meta, calls = turns[-1].meta, turns[-1].tool_calls
        paused = (
            meta is not None and meta.finish_reason == "pause" and "provider" in [call.executed_by for call in calls]
        )
        if not (paused and rules.allows_paused_last):
            yield "the history ends with the assistant"
