"""`RequestSetup`: everything in a model request that is not in the session, kept to show the request as it was sent.

The messages of a request follow from the entries before its answer. Its instructions, tools and settings follow from
the agent as it was then, from the run's own settings and from hooks. With `LoopConfig.keep_requests`, a run stores
these as a `Custom` fact before its first model call, and again whenever they change.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from bartack.agent.run_context import RunContext
from bartack.models.client import MASK
from bartack.nouns.config import ContextConfig, ModelConfig, ToolSpec
from bartack.nouns.entries import Custom, Entry, RunStarted
from bartack.nouns.messages import Message
from bartack.nouns.noun import Noun
from bartack.nouns.requests import ModelRequest
from bartack.nouns.wire import dump, load
from bartack.session.context import ContextFold, ContextInput, ContextManager, TrimNote
from bartack.session.outline import REQUEST

__all__ = ["RequestSetup", "SentRequest", "kept_setup"]


class SentRequest(Struct, frozen=True, kw_only=True):
    """The request of a model call, for inspection."""

    request: ModelRequest
    # True if this is the request as it was sent; otherwise it is the one that the agent would send now.
    is_exact: bool
    notes: tuple[TrimNote, ...] = ()  # what was shortened or dropped to fit the context window


class RequestSetup(Noun, frozen=True, kw_only=True):
    """Everything in a request that is not in the session."""

    provider: str
    config: ModelConfig
    tools: tuple[ToolSpec, ...] = ()
    system_prompt: str | None = None
    hints: tuple[str, ...] = ()
    context_window: int | None = None
    context: ContextConfig = ContextConfig()
    messages: tuple[Message, ...] | None = None  # the messages of a hook, instead of the session's

    @classmethod
    def of(cls, context: RunContext, built: ModelRequest, final: ModelRequest) -> "RequestSetup":
        """The setup of the request that was built in this run, and sent as a hook may have changed it."""
        context_input = context.context_input
        return cls(
            provider=final.provider,
            config=final.config,
            tools=tuple(map(_without_secrets, final.tools)),
            system_prompt=context_input.system_prompt,
            hints=context_input.hints,
            context_window=context_input.context_window,
            context=context.settings.context.config,
            messages=None if final.messages is built.messages else tuple(final.messages),
        )

    def fact(self) -> Custom:
        """The fact that keeps it."""
        return Custom(name=REQUEST, data=dump(self))

    def request_after(self, entries: Sequence[Entry]) -> SentRequest:
        """The request with this setup after these entries of one branch."""
        context_input = ContextInput(
            fold=ContextFold.of(entries),
            system_prompt=self.system_prompt,
            hints=self.hints,
            tools=self.tools,
            context_window=self.context_window,
        )
        built = ContextManager(self.context).build_context(context_input)
        messages = built.messages if self.messages is None else self.messages
        request = ModelRequest(messages, config=self.config, tools=self.tools, provider=self.provider)
        return SentRequest(request=request, is_exact=True, notes=built.notes if self.messages is None else ())


def _without_secrets(spec: ToolSpec) -> ToolSpec:
    """The tool without the authorization of an MCP server, which is not stored."""
    options = {} if spec.hosted is None else spec.hosted.options or {}
    if spec.hosted is None or "authorization" not in options:
        return spec
    return replace(spec, hosted=replace(spec.hosted, options={**options, "authorization": MASK}))


def kept_setup(entries: Sequence[Entry]) -> RequestSetup | None:
    """The setup of the next request after these entries of one branch, if their last run kept it and it was not
    redacted."""
    for entry in reversed(entries):
        match entry.fact:
            case Custom(name=name, data=data) if name == REQUEST:
                return load(RequestSetup, data) if data else None
            case RunStarted():
                return None
            case _:
                pass
    return None
