"""`ContextManager`: what a model is told next, and whether it is time to summarise (004, D-6).

Both answers depend on the entries, the configuration and the input alone. The work on the entries is done in
`bartack.session.context.fold` and `bartack.session.context.window`, once for each; asking again costs no more than the list of messages.
"""

from msgspec.structs import replace

from bartack.nouns.config import ContextConfig, ToolSpec
from bartack.nouns.deltas import Usage
from bartack.nouns.entries import CompactionSummary
from bartack.nouns.errors import AgentError, ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.noun import Noun
from bartack.nouns.parts import Text
from bartack.session.context.fold import ContextFold
from bartack.session.context.item import Item, summary_message
from bartack.session.context.spoken import briefly
from bartack.session.context.summary import summary_messages
from bartack.session.context.tokens import message_tokens, tool_tokens
from bartack.session.context.window import Limits, TrimNote, Window

__all__ = ["ContextBuildResult", "ContextInput", "ContextManager", "ContextUpdateResult", "summary_request"]

# Not measured; large enough for a long answer and for the work at hand, small beside the windows of today's models.
RESERVE_TOKENS = 16_384
KEEP_RECENT_TOKENS = 20_000
_WORTHWHILE = 8  # less than an eighth of the budget is not worth a model call


class _Surroundings(Noun, frozen=True, kw_only=True):
    # A clock in the system prompt or tools in another order make a provider's prompt cache useless.
    system_prompt: str | None = None  # the agent's own; an override in the session goes before it
    hints: tuple[str, ...] = ()  # what the runtime adds to it (001-7.2)
    tools: tuple[ToolSpec, ...] = ()
    context_window: int | None = None  # of the model that is going to answer
    overflow: bool = False  # its provider has just refused this context as too long


class ContextInput(_Surroundings, frozen=True):
    """The session so far, and what else goes into a request."""

    fold: ContextFold


class _BuildDetails(Noun, frozen=True, kw_only=True):
    over_budget: bool = False  # in spite of all trimming
    notes: tuple[TrimNote, ...] = ()
    model: ModelRef | None = None  # which model the session says is to answer
    thinking_level: str | None = None


class ContextBuildResult(_BuildDetails, frozen=True):
    """What a model is told: `messages`, with the system prompt first. `tokens` counts the tools too."""

    messages: tuple[Message, ...]
    tokens: int
    budget: int | None


class _UpdateDetails(Noun, frozen=True, kw_only=True):
    first_kept_entry_id: str | None = None
    to_summarise: tuple[Message, ...] = ()
    error: ErrorCode | None = None  # compaction_failed: it would be needed, and nothing can be summarised


class ContextUpdateResult(_UpdateDetails, frozen=True):
    """Whether to compact now, from where on entries stay, and the messages that the summary has to tell."""

    needs_compaction: bool
    tokens: int
    budget: int | None


def summary_request(update: ContextUpdateResult) -> tuple[Message, ...]:
    """The messages that ask a model for the summary; they need no tools."""
    return summary_messages(update.to_summarise)


class ContextManager:
    """Builds contexts by one configuration, for any number of sessions."""

    def __init__(self, config: ContextConfig | None = None) -> None:
        self.config = config or ContextConfig()
        self._tools: tuple[tuple[ToolSpec, ...], int] = ((), 0)  # the last ones asked for, and their tokens

    def build_context(self, input: ContextInput) -> ContextBuildResult:
        """What the model is told, within the budget if that is possible at all."""
        fold = input.fold
        window = self._window(input)
        return ContextBuildResult(
            (*_head(input, fold.summary), *window.messages()),
            window.tokens(fold.model),
            window.limits.budget,
            over_budget=window.exceeds(fold.model),
            notes=tuple(window.notes),
            model=fold.model,
            thinking_level=fold.thinking_level,
        )

    def compute_context_updates(self, input: ContextInput) -> ContextUpdateResult:
        """Whether it is time for a compaction, and of what."""
        fold, window = input.fold, self._window(input)
        budget, tokens = window.limits.budget, window.tokens(input.fold.model)
        no_need = ContextUpdateResult(False, tokens, budget)
        if not self.config.compaction or not (input.overflow or window.is_pressed):
            return no_need
        # The provider counts more than we do when it refuses what we thought would fit: keep less.
        keep = window.limits.keep_recent if budget is not None else min(window.limits.keep_recent, tokens // 2)
        first = window.first_kept(keep // 2 if input.overflow else keep)
        gone = [item for item in window.items[:first] if item.message.role != "system"]
        needed = 1 if input.overflow or budget is None else budget // _WORTHWHILE
        if sum(item.tokens for item in gone) < needed:
            must = input.overflow or window.exceeds(fold.model)
            return replace(no_need, error=ErrorCode.COMPACTION_FAILED) if must else no_need
        return ContextUpdateResult(
            True,
            tokens,
            budget,
            first_kept_entry_id=window.items[first].entry_id,
            to_summarise=_to_summarise(gone, fold.summary, window.limits),
        )

    def compaction(
        self,
        input: ContextInput,
        update: ContextUpdateResult,
        summary: str,
        *,
        model: ModelRef | None = None,
        usage: Usage | None = None,
    ) -> CompactionSummary:
        """The fact to append, made from the summary that was written; `model` and `usage` are those of its writing.

        Raises `AgentError` with the code ``compaction_failed`` if the context would not become smaller: a session
        that is compacted again and again would otherwise never come to rest (D-6.6).
        """
        fold, window = input.fold, self._window(input)
        places = [place for place, item in enumerate(window.items) if item.entry_id == update.first_kept_entry_id]
        if not summary.strip() or not places:
            why = "there is no summary" if places else "its first kept entry is not in the context"
            raise AgentError(f"the compaction failed: {why}", code=ErrorCode.COMPACTION_FAILED)
        gone, kept = window.items[: places[0]], window.items[places[0] :]
        instructions = sum(item.tokens for item in gone if item.message.role == "system")
        after = Window(self._limits(input, summary_message(summary), instructions))
        for item in kept:
            after.add(Item(item.entry_id, item.seq, item.message, None, is_summary=item.is_summary))
        # The whole sessions are compared, so that every compaction brings nearer a session that needs none. After an
        # overflow it is what was refused that must become smaller too.
        excess = after.untrimmed - window.untrimmed
        if input.overflow:
            excess = max(excess, after.estimated - window.estimated)
        if excess >= 0:
            why = "there is too little to leave out: the summary is no shorter"
            raise AgentError(f"the compaction failed: {why}", code=ErrorCode.COMPACTION_FAILED)
        before = window.tokens(fold.model) + window.untrimmed - window.estimated
        return CompactionSummary(
            summary,
            kept[0].entry_id,
            model=model,
            usage=usage,
            tokens_before=before,
            tokens_after=max(0, before - window.untrimmed + after.estimated),
        )

    def _window(self, input: ContextInput) -> Window:
        return input.fold.window(self._limits(input, input.fold.summary))

    def _limits(self, input: ContextInput, summary: Message | None, instructions: int = 0) -> Limits:
        if input.tools is not self._tools[0]:
            self._tools = (input.tools, tool_tokens(input.tools))
        overhead = sum(map(message_tokens, _head(input, summary))) + self._tools[1] + instructions
        keep_recent = self.config.keep_recent_tokens
        sizes = [size for size in (self.config.max_tokens, input.context_window) if size is not None]
        if not sizes:
            keep_recent = KEEP_RECENT_TOKENS if keep_recent is None else keep_recent
            return Limits(None, keep_recent, overhead, summary is not None)
        size, reserve = min(sizes), self.config.reserve_tokens
        budget = max(1, size - (min(RESERVE_TOKENS, size // 4) if reserve is None else reserve))
        keep_recent = min(KEEP_RECENT_TOKENS, budget // 4) if keep_recent is None else min(keep_recent, budget // 2)
        return Limits(budget, keep_recent, overhead, summary is not None)


def _head(input: ContextInput, summary: Message | None) -> list[Message]:
    """What stands before the conversation."""
    own = input.system_prompt if input.fold.system_prompt is None else input.fold.system_prompt
    prompt = tuple(Text(text) for text in (own, *input.hints) if text)
    head = [Message("system", prompt)] if prompt else []
    head += input.fold.instructions
    return head if summary is None else [*head, summary]


def _to_summarise(gone: list[Item], summary: Message | None, limits: Limits) -> tuple[Message, ...]:
    """What a summary has to tell, the earlier summary first, with outputs cut, and words too where one message takes a
    quarter of the budget: a model has to read it in one piece."""
    earlier = () if summary is None else (summary,)
    window = Window(Limits(limits.budget, 0, sum(map(message_tokens, earlier)), summary is not None))
    for item in gone:
        message = item.message if item.short is None else item.short[0]
        if limits.budget is not None and message_tokens(message) > limits.budget // 4:
            message = briefly(message)
        window.add(Item(item.entry_id, item.seq, message, None, is_summary=item.is_summary))
    return (*earlier, *window.messages())
