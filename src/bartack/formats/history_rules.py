"""`HistoryRules`: what providers require of a history. Each format's row has its own.

All providers require the following, so there is no rule for it:

- A call that the client executes has exactly one result, directly after the message with the call and in call order.
- Call ids are unique, and a result belongs to an earlier call.
- A call whose arguments are incomplete is not sent.
- A message has content. Reasoning alone is not enough: text or a call of the same message must follow it.
- There is at least one message and, where the assistant must not come last, one that is not a system message.

Where providers differ, `HistoryRules` has a field. Its defaults are the strictest of all providers, so a history that
meets them is accepted everywhere. Roles are ours: if a format sends tool results with the user role, or system messages
in another place, its encoder merges the messages that become adjacent.
"""

import re

from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.noun import Noun

__all__ = ["PLAIN_NAME", "STRICTEST", "HistoryRules"]


class HistoryRules(Noun, frozen=True, kw_only=True):
    """What one provider requires of a history beyond what all require. The defaults are the strictest."""

    merge_same_role: bool = True  # consecutive messages of one role are refused
    starts_with_user: bool = True  # the first message after system messages is from the user
    allows_assistant_last: bool = False  # the model may continue an answer
    allows_paused_last: bool = False  # the provider may continue an answer that it paused
    allows_user_after_tool: bool = False  # a user or system message may follow tool results
    allows_empty_text: bool = False  # blank text is accepted next to other content
    allows_signed_empty_text: bool = False  # in assistant messages, with continuation data
    call_id_pattern: str | None = r"[a-zA-Z0-9]{9}"  # for the whole id
    tool_name_pattern: str | None = r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"  # for the whole name

    def __post_init__(self) -> None:
        if not self.accepts_name("_a-0"):
            raise PartValidationError(
                f"tool_name_pattern {self.tool_name_pattern!r} does not match '_a-0', which `repair` may produce",
                code=ErrorCode.INVALID_CONFIG,
            )
        if not self.accepts_id("0a1b2c3d4"):
            raise PartValidationError(
                f"call_id_pattern {self.call_id_pattern!r} does not match nine hexadecimal digits, as `repair` makes",
                code=ErrorCode.INVALID_CONFIG,
            )

    def accepts_id(self, call_id: str) -> bool:
        """Whether a call may have this id."""
        return self.call_id_pattern is None or re.fullmatch(self.call_id_pattern, call_id) is not None

    def accepts_name(self, tool_name: str) -> bool:
        """Whether a client call may have this tool name."""
        return self.tool_name_pattern is None or re.fullmatch(self.tool_name_pattern, tool_name) is not None

    def fitting_name(self, tool_name: str) -> str:
        """The name if it is accepted, else one with the other characters replaced, which every provider accepts."""
        if self.accepts_name(tool_name):
            return tool_name
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", tool_name)[:60] or "unnamed"
        return name if self.accepts_name(name) else f"_{name}"


STRICTEST = HistoryRules()

# "Invalid 'messages[9].tool_calls[0].function.name': string does not match pattern": models invent names, and other
# providers allow more characters. Not recorded.
PLAIN_NAME = r"[a-zA-Z0-9_-]{1,64}"
