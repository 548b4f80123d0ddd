"""What providers demand of a history: `HistoryRules` in rows of data, and `check_history`, which asks for all of it.

These demands are every provider's, so they are no matter of rules:

- a call that the client executes has exactly one result, directly behind the call's message, in the order of the calls;
- ids of calls are unique, and a result belongs to a call before it;
- a call whose arguments never arrived whole is not sent: a model must not be told that it asked for half of it;
- a message says something; reasoning is not enough, it must lead to text or a call of the same message;
- there is a message; where the assistant may not have the last word, one that is not a system message.

What providers disagree on is a field of `HistoryRules`. Its defaults are the strictest demand of each kind, so that a
history which satisfies them is fit for all. Roles are ours: where a format sends tool results as the user's, or system
messages elsewhere, its encoder joins what then meets.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Text, Thinking

__all__ = ["PLAIN_NAME", "STRICTEST", "HistoryRules", "check_history"]


class HistoryRules(Noun, frozen=True, kw_only=True):
    """What one format demands of a history beyond what all demand; the defaults are the strictest."""

    merge_same_role: bool = True  # neighbours of one role are refused
    starts_with_user: bool = True  # the first message that is not a system message is the user's, and there is one
    allows_assistant_last: bool = False  # an answer may be begun for the model to continue
    allows_paused_last: bool = False  # an answer in which the provider paused its own tools is its to go on with
    allows_user_after_tool: bool = False  # user or system may speak before the model has seen the results
    allows_empty_text: bool = False  # text may be empty or whitespace, beside something that is not
    allows_signed_empty_text: bool = False  # empty text of the assistant may stand to carry continuation data
    call_id_pattern: str | None = r"[a-zA-Z0-9]{9}"  # a call's id matches it from end to end
    tool_name_pattern: str | None = r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"  # and so does the name of the tool

    def __post_init__(self) -> None:
        if not self.accepts_name("_a-0"):
            raise PartValidationError(
                f"tool_name_pattern {self.tool_name_pattern!r} refuses '_a-0', a name such as `repair` makes",
                code=ErrorCode.INVALID_CONFIG,
            )
        if not self.accepts_id("0a1b2c3d4"):
            raise PartValidationError(
                f"call_id_pattern {self.call_id_pattern!r} refuses nine hexadecimal digits, such as `repair` makes",
                code=ErrorCode.INVALID_CONFIG,
            )

    def accepts_id(self, call_id: str) -> bool:
        """Whether a call may have this id."""
        return self.call_id_pattern is None or re.fullmatch(self.call_id_pattern, call_id) is not None

    def accepts_name(self, tool_name: str) -> bool:
        """Whether a call of the client may name its tool so."""
        return self.tool_name_pattern is None or re.fullmatch(self.tool_name_pattern, tool_name) is not None

    def fitting_name(self, tool_name: str) -> str:
        """The name itself, or one of its letters and digits, which is what every provider takes."""
        if self.accepts_name(tool_name):
            return tool_name
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", tool_name)[:60] or "unnamed"
        return name if self.accepts_name(name) else f"_{name}"


STRICTEST = HistoryRules()

# "Invalid 'messages[9].tool_calls[0].function.name': string does not match pattern": models make names up, and other
# providers allow more.
PLAIN_NAME = r"[a-zA-Z0-9_-]{1,64}"


def check_history(messages: Sequence[Message], rules: HistoryRules = STRICTEST) -> list[str]:
    """Why a provider with these rules would refuse this history; empty if it would not."""
    return [*_wrong_calls(messages, rules), *_wrong_contents(messages, rules), *_wrong_order(messages, rules)]


def _wrong_calls(messages: Sequence[Message], rules: HistoryRules) -> Iterator[str]:
    seen: set[str] = set()
    due: list[str] = []  # the calls whose results have to come next
    for index, message in enumerate(messages):
        for result in message.tool_results:
            if result.tool_call_id in due[:1]:
                del due[0]
            else:
                yield f"messages[{index}]: the result of {result.tool_call_id!r} does not belong here"
        if message.role == "tool":
            continue
        if due:
            yield f"messages[{index}]: calls without a result come before it: {due}"
        due = [call.tool_call_id for call in message.tool_calls if call.executed_by == "client"]
        for call_id in due:
            if not rules.accepts_id(call_id):
                yield f"messages[{index}]: {call_id!r} is not allowed as the id of a call"
        for call in message.tool_calls:
            if call.executed_by == "client" and not rules.accepts_name(call.tool_name):
                yield f"messages[{index}]: {call.tool_name!r} is not allowed as the name of a tool"
            if call.tool_call_id in seen:
                yield f"messages[{index}]: an earlier call has the id {call.tool_call_id!r} too"
            if message.meta and call.tool_call_id in (message.meta.open_calls or ()):
                yield f"messages[{index}]: call {call.tool_call_id!r} is not complete"
            seen.add(call.tool_call_id)
    if due:
        yield f"the history ends with calls without a result: {due}"


def _wrong_contents(messages: Sequence[Message], rules: HistoryRules) -> Iterator[str]:
    for index, message in enumerate(messages):
        heard = [part for part in message.parts if not getattr(part, "ignored", False)]
        blanks = [part for part in heard if isinstance(part, Text) and part.text.strip() == ""]
        if message.role == "assistant" and rules.allows_signed_empty_text:
            blanks = [part for part in blanks if part.continuation is None]
        contents = [result.content for result in message.tool_results if isinstance(result.content, tuple)]
        in_results = [
            piece for content in contents for piece in content if isinstance(piece, Text) and not piece.ignored
        ]
        if not rules.allows_empty_text and (blanks or any(piece.text.strip() == "" for piece in in_results)):
            yield f"messages[{index}]: blank text"
        if all(isinstance(part, Thinking) or part in blanks for part in heard):
            yield f"messages[{index}]: nothing is said"
        elif message.role == "assistant" and isinstance(heard[-1], Thinking):
            yield f"messages[{index}]: it ends with reasoning"


def _wrong_order(messages: Sequence[Message], rules: HistoryRules) -> Iterator[str]:
    for index, (before, after) in enumerate(pairwise(messages), start=1):
        if rules.merge_same_role and before.role == after.role != "system":
            yield f"messages[{index}]: a second message of role {after.role} in a row"
        if not rules.allows_user_after_tool and before.role == "tool" and after.role in ("user", "system"):
            yield f"messages[{index}]: the {after.role} speaks before the assistant has seen the results"
    spoken = [message for message in messages if message.role != "system"]
    if rules.starts_with_user and [message.role for message in spoken[:1]] != ["user"]:
        yield "the history does not start with the user"
    elif not spoken and not (messages and rules.allows_assistant_last):
        yield "nobody has spoken"
    if spoken and spoken[-1].role == "assistant" and not rules.allows_assistant_last:
        meta, calls = spoken[-1].meta, spoken[-1].tool_calls
        paused = meta is not None and meta.finish_reason == "pause" and "provider" in [one.executed_by for one in calls]
        if not (paused and rules.allows_paused_last):
            yield "the history ends with the assistant"
