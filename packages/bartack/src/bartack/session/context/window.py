"""`Window`: the items that fit a token budget, determined incrementally.

**Counting.** The window sums up the estimates of all items. An answer brings the provider's own count of everything
before it; the difference to the sum is stored for that model and added from then on. The count is therefore the last
reported one plus an estimate of what followed, and it decreases as soon as something is trimmed.

**Estimates** are for what no provider has counted yet. Tokenizers differ between providers. An estimate must be cheap,
deterministic, and rarely much too low. Four bytes of UTF-8 per token is close for English and code and, unlike four
characters, not far off for other scripts. The next usage that the provider reports corrects the error.

**Trimming** happens when an item takes the count over the budget. It then goes down to a lower target, so that many
turns pass before the next trim, because every trim invalidates what a provider has cached. It goes only as far as
needed:

1. truncate tool outputs, oldest first, except recent ones and those that the model has not seen yet;
2. truncate recent outputs too;
3. drop whole exchanges, oldest first, but keep system messages and the user's first and last message;
4. truncate the user's first message, if it is not the last one: it may be a whole log file;
5. truncate outputs that the model has not seen yet.

Calls and their results are dropped or kept together. If a result arrives after the model has continued without it, its
call may be gone; `bartack.formats.repair` then drops the result.

If step 1 is not enough, `needs_compaction` is set. The other steps are for sessions that are not compacted.

Everything depends on the items and their order only: adding them one by one over a thousand turns gives the same
messages as adding them all at once after a restart.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, assert_never

import msgspec
from msgspec import Struct

from bartack.nouns.config import ToolSpec
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.noun import Noun
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.session.context.shortening import shorten_output, shorten_text

__all__ = [
    "FILE_TOKENS",
    "IMAGE_TOKENS",
    "ContextItem",
    "TrimNote",
    "Window",
    "WindowLimits",
    "branch_message",
    "message_tokens",
    "summary_message",
    "text_tokens",
    "tool_tokens",
]

# -- token estimates


IMAGE_TOKENS = 1_600  # what Anthropic counts for the largest image that it does not resize; other providers count less
FILE_TOKENS = 3_000  # about two pages of a document; the real number of pages is unknown
_BYTES_PER_TOKEN = 4
_FRAME_TOKENS = 4  # the role of a message, or the name and id of a call, with separators
_to_text = msgspec.json.Encoder().encode


def text_tokens(text: str) -> int:
    """The estimated tokens of a text: a quarter of its bytes, rounded up."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // _BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """The estimated tokens of a message, without continuation data, which only the reported usage includes."""
    tokens = _FRAME_TOKENS
    for part in message.parts:
        tokens += text_tokens(part.text) if type(part) is Text else _part_tokens(part)
    return tokens


def tool_tokens(tools: Iterable[ToolSpec]) -> int:
    """The estimated tokens of the tool declarations."""
    return sum(
        _FRAME_TOKENS + text_tokens(f"{tool.name}{tool.description or ''}{_object_text(tool.parameter_schema)}")
        for tool in tools
    )


def _part_tokens(part: Part) -> int:
    match part:
        case Text() | Thinking():
            return text_tokens(part.text)
        case ToolCall():
            arguments = part.raw_args_text or _object_text(part.arguments)
            result = 0 if part.result is None else _content_tokens(part.result.content)
            return _FRAME_TOKENS + text_tokens(part.tool_name + arguments) + result
        case ToolResult():
            return _FRAME_TOKENS + _content_tokens(part.content)
        case Image():
            return IMAGE_TOKENS
        case FileRef():
            return text_tokens(part.path) + _file_tokens(part)
        case _:
            assert_never(part)


def _object_text(value: dict[str, Any]) -> str:
    try:
        return _to_text(value).decode()  # takes a tenth of the time
    except (ValueError, TypeError):  # unpaired surrogates, or values that are not JSON
        return json_text(value)


def _file_tokens(file: FileRef) -> int:
    if file.data is not None and (file.mime_type or "").startswith("text/"):
        return -(-len(file.data) // _BYTES_PER_TOKEN)
    return 0 if file.data is None and file.url is None else FILE_TOKENS


def _content_tokens(content: ToolContent) -> int:
    if isinstance(content, str):
        return text_tokens(content)
    if isinstance(content, dict):
        return text_tokens(_object_text(content))
    return sum(map(_part_tokens, content))


# -- the window


_SUMMARY = "Summary of the conversation so far. The messages it covers are no longer included.\n\n"
_BRANCH = "Summary of another branch of this conversation, which was abandoned.\n\n"


class ContextItem(Struct, eq=False, gc=False):
    """One message at its position in the session. There are thousands, so they are small and not tracked as garbage."""

    entry_id: str
    seq: int
    message: Message
    model: ModelRef | None  # the session's model at this point
    reported: int | None = None  # the provider's token count of everything up to and including this message
    is_summary: bool = False
    tokens: int = 0  # the estimated size of the message

    def __post_init__(self) -> None:
        self.tokens = message_tokens(self.message)

    def shortened(self) -> tuple[Message, int] | None:
        """The message with truncated tool outputs, and its estimated size; None if that saves nothing."""
        message = shorten_output(self.message)
        tokens = 0 if message is None else message_tokens(message)
        return None if message is None or tokens >= self.tokens else (message, tokens)


def branch_message(summary: str) -> Message:
    """The summary of an abandoned branch, as a message to the model."""
    return Message("user", (Text(_BRANCH + summary, synthetic=True),))


def summary_message(summary: str) -> Message:
    """The summary of a compaction, as a message to the model."""
    return Message("user", (Text(_SUMMARY + summary, synthetic=True),))


class TrimNote(Noun, frozen=True):
    """A message that was trimmed, and about how many tokens that saved."""

    entry_id: str
    action: Literal["shortened", "dropped"]
    tokens: int


class WindowLimits(NamedTuple):
    """The size of a window. Without a budget, there is no limit."""

    budget: int | None
    keep_recent: int
    overhead: int = 0  # tokens before the items: system prompt, tools, summary
    is_summarised: bool = False  # the summary includes the user's first message

    @property
    def target(self) -> int:
        """Where trimming stops: three quarters of the budget."""
        return (self.budget or 0) * 3 // 4


class Window:
    """The items of a context, trimmed to a budget."""

    def __init__(self, limits: WindowLimits) -> None:
        self.limits = limits
        self.items: list[ContextItem] = []
        self.estimated = self.untrimmed = limits.overhead
        self.needs_compaction = False
        self.thread = object()  # another one whenever a message changes that was shown before
        self.notes: list[TrimNote] = []
        self._shown: list[Message] = []
        self._sizes: list[int] = []  # estimated, as shown
        self._corrections: dict[str, int] = {}  # each model's last reported count minus our estimate
        # The last item with a result for this item or an earlier one.
        self._reaches: list[int] = []
        self._calls_without_result: dict[str, list[int]] = {}
        self._last_answer = 0
        self._open_calls: set[str] = set()  # the open calls of the last answer
        self._shortened_end = 0  # items before it are already shortened
        self._dropped_end = 0  # items before it are dropped, except pinned ones
        self._pinned: list[int] = []
        self._omission: Message | None = None  # stands for the messages that were dropped
        self._first_request: int | None = None  # the user's first message
        self._last_request: int | None = None  # the user's last message

    def tokens(self, model: ModelRef | None) -> int:
        """The current token count for this model."""
        return max(0, self.estimated + self._corrections.get(_name(model), 0))

    def exceeds(self, model: ModelRef | None) -> bool:
        """Whether the count is over the budget, in spite of trimming."""
        return self.limits.budget is not None and self.tokens(model) > self.limits.budget

    def messages(self) -> list[Message]:
        """The messages of the items, as trimmed."""
        if self._omission is None:
            return self._shown
        pinned = [self._shown[index] for index in self._pinned]
        return [*pinned, self._omission, *self._shown[self._dropped_end :]]

    def add(self, item: ContextItem) -> None:
        """Add the next item, and trim if it exceeds the budget."""
        index, role = len(self.items), item.message.role
        self.items.append(item)
        self._shown.append(item.message)
        tokens = item.tokens
        self._sizes.append(tokens)
        self.estimated += tokens
        self.untrimmed += tokens
        if item.reported is not None:
            self._corrections[_name(item.model)] = item.reported - self.estimated
        self._reaches.append(index)
        if role == "assistant":
            self._link_calls(index, item.message)
        elif role == "tool":
            self._link_results(index, item.message)
        elif role == "user" and not item.is_summary:
            self._last_request = index
            self._first_request = index if self._first_request is None else self._first_request
        if self.limits.budget is not None and self.exceeds(item.model):
            self._trim(item.model)

    # -- calls and their results

    def _link_calls(self, index: int, message: Message) -> None:
        self._last_answer, self._open_calls = index, set()
        for part in message.parts:
            if isinstance(part, ToolCall) and part.executed_by == "client":
                self._open_calls.add(part.tool_call_id)
                self._calls_without_result.setdefault(part.tool_call_id, []).append(index)

    def _link_results(self, index: int, message: Message) -> None:
        """Record which items belong together. As in `bartack.formats.repair`, a result belongs to the nearest call."""
        for result in message.tool_results:
            callers = self._calls_without_result.get(result.tool_call_id)
            if callers:
                caller = callers.pop()
                self._reaches[caller:index] = [index] * (index - caller)
                if caller == self._last_answer:
                    self._open_calls.discard(result.tool_call_id)

    def _can_split_at(self, index: int) -> bool:
        """Whether no call before this item has its result after it, or is still waiting for it."""
        return self._reaches[index - 1] < index and (not self._open_calls or index <= self._last_answer)

    def first_kept(self, keep: int) -> int:
        """Where to split so that about `keep` tokens follow, but at least the last exchange; 0 if impossible."""
        first, size = 0, 0
        for index in range(len(self.items) - 1, 0, -1):
            size += self.items[index].tokens
            if first and size > keep:
                break
            if self._can_split_at(index):
                first = index
        return first

    # -- trimming

    def _trim(self, model: ModelRef | None) -> None:
        self._shorten(model, min(self._first_recent(), self._last_answer))
        if not self._is_at_target(model):
            self.needs_compaction = True
            self._shorten(model, self._last_answer)
        if not self._is_at_target(model):
            self._drop(model)
        if not self._is_at_target(model):
            self._shorten_first_request()
        if not self._is_at_target(model):
            self._shorten(model, len(self.items))

    def _is_at_target(self, model: ModelRef | None) -> bool:
        return self.tokens(model) <= self.limits.target

    def _first_recent(self) -> int:
        """The index of the first recent item."""
        index, size = len(self.items), 0
        while index and size + self._sizes[index - 1] <= self.limits.keep_recent:
            index -= 1
            size += self._sizes[index]
        return index

    def _shorten(self, model: ModelRef | None, end: int) -> None:
        while self._shortened_end < end and not self._is_at_target(model):
            item, index = self.items[self._shortened_end], self._shortened_end
            if (short := item.shortened()) is not None:
                self._shown[index], self._sizes[index] = short
                self.thread = object()
                saved = item.tokens - self._sizes[index]
                self.estimated -= saved
                self.notes.append(TrimNote(item.entry_id, "shortened", saved))
            self._shortened_end += 1

    def _shorten_first_request(self) -> None:
        index = self._first_request
        if index is None or index == self._last_request or not self._is_pinned(index):
            return
        message = shorten_text(self._shown[index])
        saved = self._sizes[index] - message_tokens(message)
        if saved > 0:
            self._shown[index], self._sizes[index] = message, self._sizes[index] - saved
            self.thread = object()
            self.estimated -= saved
            self.notes.append(TrimNote(self.items[index].entry_id, "shortened", saved))

    def _drop(self, model: ModelRef | None) -> None:
        """Drop whole exchanges until the target is reached or only the last one is left."""
        excess = self.tokens(model) - self.limits.target
        end, saved, passed = self._dropped_end, 0, 0
        for index in range(self._dropped_end + 1, len(self.items)):
            passed += 0 if self._is_pinned(index - 1) else self._sizes[index - 1]
            if self._can_split_at(index):
                end, saved = index, passed
                if saved >= excess:
                    break
        if not saved:
            return
        if not self._dropped_end:
            self.estimated += message_tokens(_omission_note(end))
        places = [*self._pinned, *range(self._dropped_end, end)]
        self._pinned = [index for index in places if self._is_pinned(index)]
        for index in places:
            if not self._is_pinned(index):
                self.estimated -= self._sizes[index]
                self.notes.append(TrimNote(self.items[index].entry_id, "dropped", self._sizes[index]))
        self._dropped_end = end
        self._omission = _omission_note(end - len(self._pinned))
        self.thread = object()
        self._shortened_end = max(self._shortened_end, end)

    def _is_pinned(self, index: int) -> bool:
        is_first = index == self._first_request and not self.limits.is_summarised
        return is_first or index == self._last_request or self.items[index].message.role == "system"


def _name(model: ModelRef | None) -> str:
    return "" if model is None else f"{model.provider}:{model.model}"


def _omission_note(count: int) -> Message:
    note = f"[{count:,} earlier messages of this conversation were omitted to save space.]"
    return Message("user", (Text(note, synthetic=True),))
