"""The document view (003): messages with parts that have ids, and each tool call in its current state.

One assistant message is one step: `StepStartPart`, its content, `StepFinishPart`. A tool result is part of its call's
`ToolPart`, not a separate message. Ids are UUIDs; other ids are mapped to stable UUIDs. What a document cannot
represent (system messages, failed model calls, approvals, ...) is counted in ``omitted``.

Fields that 003 requires and a message lacks are derived from other facts: agent, model and tools of a user message from
the run that received it, its variant and system prompt from the settings of the session, the path of an answer from
the runtime. A step ends with the snapshot that the next one begins with, because tools run in between.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from bartack.nouns.deltas import Usage
from bartack.nouns.entries import (
    CompactionSummary,
    Entry,
    Fact,
    ModelChange,
    RunStarted,
    RuntimeInit,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import PartValidationError
from bartack.nouns.ids import as_uuid, derived_id
from bartack.nouns.messages import Message, Meta, ModelRef, Step, Summary, Workspace
from bartack.nouns.parts import FileRef, Image, Part, Span, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.tool_states import Completed, FilePartSource, ToolState
from bartack.session.tool_state import ToolFold
from bartack.views.document_load import DOCUMENT, data_url, load, try_load
from bartack.views.document_parts import (
    TEXT_FIELDS,
    AssistantInfo,
    CacheTokens,
    DocumentModel,
    DocumentPart,
    FilePart,
    MessageTime,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    TokenStats,
    ToolPart,
    UserInfo,
    WithParts,
)
from bartack.views.fold import Fold

__all__ = ["DOCUMENT", "Document", "dump", "load", "try_load"]

P = TypeVar("P", bound=DocumentPart)

_TITLE = 80  # characters of the title of a summary, which is its first line

# Fields of `Meta` that a document cannot represent.
_OMITTED_META = ("response_id", "duration_ms", "bad_args", "koding", "trace", "approvals")


class _Setting(NamedTuple):
    """The settings that apply to a message."""

    agent: str | None = None
    model: ModelRef | None = None
    tools: tuple[str, ...] = ()
    system: str | None = None
    variant: str | None = None
    path: Workspace | None = None


class _Placed(NamedTuple):
    """A message with its entry and settings."""

    entry: Entry
    message: Message
    setting: _Setting


class Document(Fold):
    """The document of a session, built entry by entry."""

    def _clear(self) -> None:
        self._messages: list[_Placed] = []  # messages of users and assistants
        self._setting = _Setting()
        self._tools = ToolFold()
        self._results: dict[str, ToolResult] = {}
        self._summaries: dict[str, CompactionSummary] = {}  # keys: the entry id of a user message
        self._compacted: dict[str, datetime] = {}  # call id -> when its output was removed by a compaction

    def _add(self, entry: Entry) -> None:
        self._tools.push(entry)
        match entry.fact:
            case Message(role="user" | "assistant") as message:
                self._messages.append(_Placed(entry, message, self._setting))
                self._omit_from(message)
            case Message(role="tool") as message:
                for result in message.tool_results:
                    if result.tool_call_id in self._tools.states:
                        self._results.setdefault(result.tool_call_id, result)
                        for part in result.content if isinstance(result.content, tuple) else ():
                            self._omit_source(part)
                    else:
                        self._omit("orphan tool_result")
            case Message():
                self._omit("system message")
            case ToolStarted() | ToolProgress():
                pass  # part of the state of the call
            case CompactionSummary() as summary:
                self._compact(summary, entry)
            case fact:  # every other kind, also a new one, is counted among the omitted ones
                self._setting = _changed_setting(self._setting, fact)
                self._omit(fact.kind)

    def _compact(self, summary: CompactionSummary, entry: Entry) -> None:
        for earlier in self._messages:
            if earlier.entry.id == summary.first_kept_entry_id:
                break
            for call in earlier.message.tool_calls:
                self._compacted.setdefault(call.tool_call_id, entry.timestamp)
        for earlier in reversed(self._messages):
            if earlier.message.role == "user":
                self._summaries[earlier.entry.id] = summary
                return
        self._omit(summary.kind)

    def messages(self) -> list[WithParts]:
        """The messages as `WithParts`."""
        messages: list[WithParts] = []
        next_snapshot: str | None = None
        for placed in reversed(self._messages):
            messages.append(self._with_parts(placed, next_snapshot))
            if placed.message.role == "assistant":
                next_snapshot = _step(placed.message).start_snapshot
        return messages[::-1]

    def dump(self) -> dict[str, Any]:
        """``{"view": "document", "sessionID", "omitted": {...}, "messages": [...]}``."""
        return {
            "view": "document",
            "sessionID": as_uuid(self.session_id) if self._entries else "",
            "omitted": self.omitted,
            "messages": [DOCUMENT.dump(message) for message in self.messages()],
        }

    def _omit_from(self, message: Message) -> None:
        for name in _OMITTED_META:
            if getattr(message.meta, name, None) is not None:
                self._omit(f"meta.{name}")
        for part in message.parts:
            if part.continuation is not None:
                self._omit("continuation")
            self._omit_source(part)

    def _omit_source(self, part: Part) -> None:
        if "source" in (part.metadata or {}) and isinstance(part, Image | FileRef) and _source(part) is None:
            self._omit("file source")

    def _with_parts(self, placed: _Placed, next_snapshot: str | None) -> WithParts:
        entry, message, setting = placed
        meta = message.meta or Meta()
        identity = _Identity(
            as_uuid(entry.session_id), as_uuid(message.id or entry.id), message.timestamp or entry.timestamp
        )
        if message.role == "user":
            info: UserInfo | AssistantInfo = _user(meta, identity, setting, self._summaries.get(entry.id))
        else:
            info = _assistant(meta, identity, setting)
        return WithParts(info, tuple(self._parts(message, meta, identity, next_snapshot)))

    def _parts(
        self, message: Message, meta: Meta, identity: "_Identity", next_snapshot: str | None
    ) -> Iterator[DocumentPart]:
        is_step = message.role == "assistant"
        step = _step(message)
        if is_step:
            yield identity.part(StepStartPart, "step-start", id=step.start_id, snapshot=step.start_snapshot)
        part_ids: set[str | None] = set()
        for index, part in enumerate(message.parts):
            yield self._part(replace(part, id=None) if part.id in part_ids else part, index, identity)
            part_ids.add(part.id)
        if is_step and meta.finish_reason is not None:
            reason = meta.finish_reason
            yield identity.part(
                StepFinishPart,
                "step-finish",
                id=step.finish_id,
                reason=meta.raw_finish_reason or reason if reason == "other" else reason,
                snapshot=step.finish_snapshot or _snapshot_after(message, step, next_snapshot),
                cost=meta.cost_usd,
                tokens=_tokens(meta.usage),
            )

    def _part(self, part: Part, index: int, identity: "_Identity") -> DocumentPart:
        assert not isinstance(part, ToolResult)  # only in tool messages: 000-3.2.12
        match part:
            case Text():
                return identity.part(TextPart, index, **{name: getattr(part, name) for name in TEXT_FIELDS})
            case Thinking():
                time = (
                    part.time if part.time is not None and part.time.start is not None else Span(start=identity.created)
                )
                return identity.part(
                    ReasoningPart, index, id=part.id, text=part.text, time=time, metadata=part.metadata
                )
            case ToolCall():
                return identity.part(
                    ToolPart,
                    index,
                    id=part.id,
                    call_id=part.tool_call_id,
                    tool=part.tool_name,
                    state=self._state(part, identity),
                    metadata=part.metadata,
                )
            case media:
                return _file(media, index, identity)

    def _state(self, call: ToolCall, identity: "_Identity") -> ToolState:
        state = self._tools.states[call.tool_call_id]
        if not isinstance(state, Completed):
            return state
        result = call.result or self._results[call.tool_call_id]
        content = result.content if isinstance(result.content, tuple) else ()
        media = [part for part in content if not isinstance(part, Text)]
        return replace(
            state,
            title=state.title or call.tool_name,
            time=replace(state.time, compacted=self._compacted.get(call.tool_call_id, result.compacted_at)),
            attachments=tuple(_file(part, f"{call.tool_call_id}/{n}", identity) for n, part in enumerate(media))
            or None,
        )


class _Identity:
    """What the parts of one message have in common."""

    def __init__(self, session_id: str, message_id: str, created: datetime) -> None:
        self.session_id, self.message_id, self.created = session_id, message_id, created

    def part(self, make: type[P], place: str | int, *, id: str | None = None, **fields: Any) -> P:
        """Create a part of this message; without an id, it gets one derived from its place."""
        return make(
            id=id or derived_id(self.message_id, place),
            session_id=self.session_id,
            message_id=self.message_id,
            **fields,
        )


def _changed_setting(setting: _Setting, fact: Fact) -> _Setting:
    match fact:
        case RunStarted():
            return setting._replace(agent=fact.agent, model=fact.model or setting.model, tools=fact.tools)
        case ModelChange():
            return setting._replace(model=fact.model)
        case SystemPromptOverride():
            return setting._replace(system=fact.text)
        case ThinkingLevelChange():
            return setting._replace(variant=None if fact.level == "default" else fact.level)
        case RuntimeInit():
            root = fact.data.get("root")
            return setting._replace(path=Workspace(root, root) if isinstance(root, str) else None)
        case _:  # whether it is a setting or not, the document counts it among the omitted facts
            return setting


def _step(message: Message) -> Step:
    return (message.meta and message.meta.step) or Step()


def _snapshot_after(message: Message, step: Step, next_snapshot: str | None) -> str | None:
    """The workspace when the tools of a step have run: as the next step found it, or as it was if there were none."""
    has_tools = any(call.executed_by == "client" for call in message.tool_calls)
    return next_snapshot if has_tools and step.start_snapshot is not None else step.start_snapshot


def _user(meta: Meta, identity: _Identity, setting: _Setting, compaction: CompactionSummary | None) -> UserInfo:
    return UserInfo(
        id=identity.message_id,
        time=MessageTime(created=identity.created, completed=meta.completed_at),
        agent=meta.agent or setting.agent,
        model=_model(meta.model or setting.model),
        summary=meta.summary if compaction is None else _summary(compaction),
        system=meta.system or setting.system,
        tools=meta.tools or dict.fromkeys(setting.tools, True) or None,
        variant=meta.variant or setting.variant,
    )


def _summary(compaction: CompactionSummary) -> Summary:
    first = next((line for line in compaction.summary.splitlines() if line.strip("#*-_ ")), "")
    return Summary(title=first.strip("#*-_ ")[:_TITLE] or None, body=compaction.summary, diffs=compaction.diffs)


def _assistant(meta: Meta, identity: _Identity, setting: _Setting) -> AssistantInfo:
    return AssistantInfo(
        id=identity.message_id,
        time=MessageTime(created=identity.created, completed=meta.completed_at),
        agent=meta.agent or setting.agent,
        model=_model(meta.model),
        cost=meta.cost_usd,
        tokens=_tokens(meta.usage),
        path=meta.path or setting.path,
    )


def _model(model: ModelRef | None) -> DocumentModel | None:
    return None if model is None else DocumentModel(model.provider, model.model)


def _tokens(usage: Usage | None) -> TokenStats | None:
    if usage is None:
        return None
    return TokenStats(
        input=usage.input_tokens,
        output=usage.output_tokens,
        reasoning=usage.reasoning_tokens or 0,
        cache=CacheTokens(usage.cache_read_tokens or 0, usage.cache_write_tokens or 0),
    )


def _file(part: Image | FileRef, place: str | int, identity: _Identity) -> FilePart:
    mime = part.mime_type or "application/octet-stream"
    path = part.path if isinstance(part, FileRef) else part.name
    url = part.url
    if url is None:
        url = f"file://{path}" if part.data is None else data_url(mime, part.data)
    return identity.part(
        FilePart,
        place,
        id=part.id,
        mime=mime,
        url=url,
        filename=None if path == url else path,
        source=_source(part),
    )


def _source(part: Image | FileRef) -> FilePartSource | None:
    """Where the content comes from, as 003 describes it; None if it is not described, or not in this way."""
    try:
        source: FilePartSource | None = DOCUMENT.load(FilePartSource | None, (part.metadata or {}).get("source"))
    except PartValidationError:
        return None
    return source


def dump(entries: Iterable[Entry]) -> dict[str, Any]:
    """The document of these entries, as JSON in Python values."""
    return Document.of(entries).dump()
