"""`Window`: the items that fit into a budget of tokens, found step by step.

**Counting.** The estimates of all items are summed up. An answer brings the provider's own count of everything before
it; the difference to the sum is kept for that model and added to the sum from then on. So the count is the last one
reported plus an estimate for what came after, and cutting something makes it smaller at once.

**Trimming** is done when an item takes the count over the budget, and then down to the low mark, so that many turns
pass before the next time: every trim changes what a provider has cached. It goes as far as it must:

1. tool outputs are cut, oldest first, except the recent ones and those that the model has not seen yet;
2. the recent ones too;
3. whole exchanges are left out, oldest first; system messages stay, and the first and the last thing the user said;
4. the first thing the user said is cut, if it is long and not the last: it may be a whole log;
5. the outputs that the model has not seen yet are cut.

Calls and their results are cut off or kept together. The result of a call that a model has gone on without, if it comes
at all, may find its call gone; `bartack.formats.repair` drops it.

If the first step is not enough, it is time for a compaction (`is_pressed`), and the others are for those who cannot or
will not have one.

Everything is decided from the items in their order and from nothing else: taking them one by one over a thousand turns
or all at once after a restart comes to the same messages.
"""

from typing import Literal, NamedTuple

from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Text
from bartack.session.context.item import Item
from bartack.session.context.spoken import briefly
from bartack.session.context.tokens import message_tokens

__all__ = ["Limits", "TrimNote", "Window"]


class TrimNote(Noun, frozen=True):
    """One thing that a model is not told in full, and about how many tokens that saves."""

    entry_id: str
    action: Literal["shortened", "dropped"]
    tokens: int


class Limits(NamedTuple):
    """How much there is room for. No budget means no limit."""

    budget: int | None
    keep_recent: int
    overhead: int = 0  # what stands before the items: system prompt, tools, summary
    is_summarised: bool = False  # the user's first intent is in the summary

    @property
    def low_mark(self) -> int:
        """Where trimming stops: a quarter of the budget is then free for what comes."""
        return (self.budget or 0) * 3 // 4


class Window:
    """Takes items and shows what fits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.items: list[Item] = []
        self.estimated = self.untrimmed = limits.overhead
        self.is_pressed = False
        self.notes: list[TrimNote] = []
        self._shown: list[Message] = []
        self._sizes: list[int] = []  # the estimates of what is shown
        self._corrections: dict[str, int] = {}  # what a model's last report differed by
        self._reaches: list[int] = []  # the last item with a result of a call in this item or in one before it
        self._unanswered: dict[str, list[int]] = {}
        self._asked = 0  # the last answer of the model, and its calls that have no result yet
        self._open: set[str] = set()
        self._cut_upto = 0  # items before it are as short as they get
        self._dropped = 0  # items before it are left out, but for those that stay
        self._staying: list[int] = []
        self._intent: int | None = None  # the first thing the user said,
        self._request: int | None = None  # and the last

    def tokens(self, model: ModelRef | None) -> int:
        """The best count of all that is shown, for this model."""
        return max(0, self.estimated + self._corrections.get(_name(model), 0))

    def exceeds(self, model: ModelRef | None) -> bool:
        """Whether it is over the budget in spite of all trimming."""
        return self.limits.budget is not None and self.tokens(model) > self.limits.budget

    def messages(self) -> list[Message]:
        """What is shown of the items."""
        if not self._dropped:
            return self._shown
        staying = [self._shown[index] for index in self._staying]
        return [*staying, _left_out(self._dropped - len(staying)), *self._shown[self._dropped :]]

    def add(self, item: Item) -> None:
        """Take the next item, and trim if it is one too many."""
        self.items.append(item)
        self._shown.append(item.message)
        self._sizes.append(item.tokens)
        self.estimated += item.tokens
        self.untrimmed += item.tokens
        if item.reported is not None:
            self._corrections[_name(item.model)] = item.reported - self.estimated
        self._tie(len(self.items) - 1, item.message)
        if item.message.role == "user" and not item.is_summary:
            self._request = len(self.items) - 1
            self._intent = self._request if self._intent is None else self._intent
        if self.exceeds(item.model):
            self._trim(item.model)

    # -- calls and their results

    def _tie(self, index: int, message: Message) -> None:
        """Note which items belong together, by the rule of `bartack.formats.repair`: a result goes to the nearest call."""
        self._reaches.append(index)
        if message.role == "assistant":
            calls = [call.tool_call_id for call in message.tool_calls if call.executed_by == "client"]
            self._asked, self._open = index, set(calls)
            for call_id in calls:
                self._unanswered.setdefault(call_id, []).append(index)
        for result in message.tool_results:
            callers = self._unanswered.get(result.tool_call_id)
            if callers:
                caller = callers.pop()
                self._reaches[caller:index] = [index] * (index - caller)
                if caller == self._asked:
                    self._open.discard(result.tool_call_id)

    def _may_part(self, index: int) -> bool:
        """Whether no call before this item has its result behind it, or may still get it."""
        return self._reaches[index - 1] < index and (not self._open or index <= self._asked)

    def first_kept(self, keep: int) -> int:
        """Where to part so that about `keep` tokens follow, and at least the last exchange; 0 if nowhere."""
        found, size = 0, 0
        for index in range(len(self.items) - 1, 0, -1):
            size += self.items[index].tokens
            if found and size > keep:
                break
            if self._may_part(index):
                found = index
        return found

    # -- trimming

    def _trim(self, model: ModelRef | None) -> None:
        self._shorten(model, min(self._recent(), self._asked))
        if not self._is_low(model):
            self.is_pressed = True
            self._shorten(model, self._asked)
        if not self._is_low(model):
            self._drop(model)
        if not self._is_low(model):
            self._cut_intent()
        if not self._is_low(model):
            self._shorten(model, len(self.items))

    def _is_low(self, model: ModelRef | None) -> bool:
        return self.tokens(model) <= self.limits.low_mark

    def _recent(self) -> int:
        """The first of the items that are recent."""
        index, size = len(self.items), 0
        while index and size + self._sizes[index - 1] <= self.limits.keep_recent:
            index -= 1
            size += self._sizes[index]
        return index

    def _shorten(self, model: ModelRef | None, end: int) -> None:
        while self._cut_upto < end and not self._is_low(model):
            item, index = self.items[self._cut_upto], self._cut_upto
            if item.short is not None:
                self._shown[index], self._sizes[index] = item.short
                saved = item.tokens - self._sizes[index]
                self.estimated -= saved
                self.notes.append(TrimNote(item.entry_id, "shortened", saved))
            self._cut_upto += 1

    def _cut_intent(self) -> None:
        index = self._intent
        if index is None or index == self._request or not self._stays(index):
            return
        message = briefly(self._shown[index])
        saved = self._sizes[index] - message_tokens(message)
        if saved > 0:
            self._shown[index], self._sizes[index] = message, self._sizes[index] - saved
            self.estimated -= saved
            self.notes.append(TrimNote(self.items[index].entry_id, "shortened", saved))

    def _drop(self, model: ModelRef | None) -> None:
        """Leave out whole exchanges until it is enough, or all but the last one."""
        excess = self.tokens(model) - self.limits.low_mark
        end, saved, passed = self._dropped, 0, 0
        for index in range(self._dropped + 1, len(self.items)):
            passed += 0 if self._stays(index - 1) else self._sizes[index - 1]
            if self._may_part(index):
                end, saved = index, passed
                if saved >= excess:
                    break
        if not saved:
            return
        if not self._dropped:
            self.estimated += message_tokens(_left_out(end))
        places = [*self._staying, *range(self._dropped, end)]
        self._staying = [index for index in places if self._stays(index)]
        for index in places:
            if not self._stays(index):
                self.estimated -= self._sizes[index]
                self.notes.append(TrimNote(self.items[index].entry_id, "dropped", self._sizes[index]))
        self._dropped = end
        self._cut_upto = max(self._cut_upto, end)

    def _stays(self, index: int) -> bool:
        is_intent = index == self._intent and not self.limits.is_summarised
        return is_intent or index == self._request or self.items[index].message.role == "system"


def _name(model: ModelRef | None) -> str:
    return "" if model is None else f"{model.provider}:{model.model}"


def _left_out(count: int) -> Message:
    note = f"[{count:,} earlier messages of this conversation were left out here to save room]"
    return Message("user", (Text(note, synthetic=True),))
