"""Reads a document back into the facts that produce it.

A message with several steps becomes one assistant message per step. The state of a tool call becomes the facts that
lead to it: the call, its start, its progress, its result.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, assert_never, get_args

import msgspec

from bartack.nouns.deltas import FinishReason, Usage
from bartack.nouns.entries import Entry, SessionHeader, ToolProgress, ToolStarted
from bartack.nouns.errors import PartValidationError
from bartack.nouns.ids import derived_id
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message, Meta, ModelRef, Step
from bartack.nouns.noun import Noun
from bartack.nouns.parts import ContentPart, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.tool_states import Completed, Errored, Pending, Running
from bartack.nouns.wire import Dialect, camel, none_if_invalid
from bartack.session.tool_state import NO_OUTPUT
from bartack.views.document_parts import (
    TEXT_FIELDS,
    AssistantInfo,
    DocumentPart,
    FilePart,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    TokenStats,
    ToolPart,
    UserInfo,
    WithParts,
)
from bartack.views.fold import Chain
from bartack.views.part_validator import WithPartsBuilder

__all__ = ["DOCUMENT", "load", "try_load"]


def _document_name(name: str) -> str:
    """``session_id`` -> ``sessionID``, as in 003."""
    return camel(name.removesuffix("_id")) + "ID" if name.endswith("_id") else camel(name)


DOCUMENT = Dialect(rename=_document_name, time="ms")


class _DocumentJson(Noun, frozen=True, kw_only=True):
    view: str
    session_id: str
    omitted: dict[str, int] | None = None
    messages: tuple[WithParts, ...]


def try_load(data: Any) -> tuple[Entry, ...] | None:
    """As `load`, but if a field is missing or invalid, log it and return None (D-7.5)."""
    return none_if_invalid("A document", lambda: load(data))


def load(data: Any) -> tuple[Entry, ...]:
    """Read the entries of a session from its document; raises `PartValidationError`. Entry ids are derived."""
    document = DOCUMENT.load(_DocumentJson, data)
    if document.view != "document":
        raise PartValidationError(f"expected a document, got the view {document.view!r}", path="$.view")
    chain = Chain(document.session_id)
    for index, message in enumerate(document.messages):
        try:
            _load_message(message, chain)
        except PartValidationError as error:
            raise error.under(f".messages[{index}]") from None
    return tuple(chain.entries)


def _load_message(message: WithParts, chain: Chain) -> None:
    builder = WithPartsBuilder(message.info)
    for part in message.parts:
        builder.add(part)
    if not chain.entries:
        chain.add(SessionHeader(origin="document"), message.info.time.created)
    match message.info:
        case UserInfo() as info:
            chain.add(_user_message(info, message.parts), info.time.created)
        case info:
            steps = list(_steps(message.parts))
            for number, step in enumerate(steps):
                is_last = number == len(steps) - 1
                chain.add(_step_message(info, step, number, is_last), info.time.created)
                _load_tools(step, info, chain)


def _user_message(info: UserInfo, parts: tuple[DocumentPart, ...]) -> Message:
    meta = Meta(
        model=None if info.model is None else ModelRef(info.model.provider_id, info.model.model_id),
        completed_at=info.time.completed,
        agent=info.agent,
        summary=info.summary,
        system=info.system,
        tools=info.tools,
        variant=info.variant,
    )
    content = tuple(_content(parts))
    return Message("user", content, id=info.id, timestamp=info.time.created, meta=None if meta == Meta() else meta)


def _steps(parts: tuple[DocumentPart, ...]) -> Iterator[list[DocumentPart]]:
    """The parts of each step; a step ends with its `StepFinishPart`, or where the next one starts."""
    step: list[DocumentPart] = []
    for part in parts:
        if step and (isinstance(part, StepStartPart) or isinstance(step[-1], StepFinishPart)):
            yield step
            step = []
        step.append(part)
    yield step


def _step_message(info: AssistantInfo, step: list[DocumentPart], number: int, is_last: bool) -> Message:
    start = next((part for part in step if isinstance(part, StepStartPart)), None)
    finish = next((part for part in step if isinstance(part, StepFinishPart)), None)
    ends = Step(
        start_id=None if start is None else start.id,
        start_snapshot=None if start is None else start.snapshot,
        finish_id=None if finish is None else finish.id,
        finish_snapshot=None if finish is None else finish.snapshot,
    )
    tokens = finish.tokens if finish is not None else info.tokens
    reason = None if finish is None else finish.reason
    is_ours = reason in get_args(FinishReason)
    meta = Meta(
        model=None if info.model is None else ModelRef(info.model.provider_id, info.model.model_id),
        usage=None if tokens is None else _usage(tokens),
        cost_usd=finish.cost if finish is not None else info.cost,
        completed_at=info.time.completed if is_last else None,
        finish_reason=None if reason is None else msgspec.convert(reason if is_ours else "other", FinishReason),
        raw_finish_reason=None if is_ours else reason,
        agent=info.agent,
        path=info.path,
        step=None if ends == Step() else ends,
    )
    return Message(
        "assistant",
        tuple(_content(step)),
        id=info.id if number == 0 else derived_id(info.id, f"step-{number}"),
        timestamp=info.time.created,
        meta=None if meta == Meta() else meta,
    )


def _usage(tokens: TokenStats) -> Usage:
    return Usage(
        tokens.input,
        tokens.output,
        cache_read_tokens=tokens.cache.read or None,
        cache_write_tokens=tokens.cache.write or None,
        reasoning_tokens=tokens.reasoning or None,
    )


def _content(parts: tuple[DocumentPart, ...] | list[DocumentPart]) -> Iterator[Part]:
    for part in parts:
        match part:
            case TextPart():
                yield Text(**{name: getattr(part, name) for name in TEXT_FIELDS})
            case ReasoningPart():
                yield Thinking(part.text, id=part.id, time=part.time, metadata=part.metadata)
            case ToolPart():
                raw = part.state.raw if isinstance(part.state, Pending) else None
                yield ToolCall(
                    part.call_id,
                    part.tool,
                    part.state.input,
                    id=part.id,
                    metadata=part.metadata,
                    raw_args_text=None if raw == json_text(part.state.input) else raw,
                )
            case FilePart():
                yield _media(part)
            case StepStartPart() | StepFinishPart():
                pass  # they are in the metadata of the message
            case _:
                assert_never(part)


def _load_tools(step: list[DocumentPart], info: AssistantInfo, chain: Chain) -> None:
    for part in step:
        if not isinstance(part, ToolPart) or isinstance(part.state, Pending):
            continue
        state, call_id = part.state, part.call_id
        title = state.title if isinstance(state, Running) else None
        chain.add(
            ToolStarted(tool_call_id=call_id, tool_name=part.tool, arguments=state.input, title=title), state.time.start
        )
        if isinstance(state, Running):
            if state.metadata is not None:
                chain.add(ToolProgress(tool_call_id=call_id, content="", metadata=state.metadata), state.time.start)
            continue
        ended = state.time.end or state.time.start
        result = _result(call_id, state)
        message = Message("tool", (result,), id=derived_id(info.id, f"result-{call_id}"), timestamp=ended)
        chain.add(message, ended)


def _result(call_id: str, state: Completed | Errored) -> ToolResult:
    if isinstance(state, Errored):
        return ToolResult(call_id, state.error, is_error=True, metadata=state.metadata)
    output = "" if state.output == NO_OUTPUT else state.output
    media = tuple(map(_media, state.attachments or ()))
    content: str | tuple[ContentPart, ...] = (Text(output), *media) if media else output
    return ToolResult(
        call_id, content, title=state.title, metadata=state.metadata or None, compacted_at=state.time.compacted
    )


def _media(part: FilePart) -> Image | FileRef:
    data = _data_of(part)
    url = None if data is not None or part.url == f"file://{part.filename}" else part.url
    metadata = None if part.source is None else {"source": DOCUMENT.dump(part.source)}
    if part.mime.startswith("image/") and (data is not None or url is not None):
        name = {} if part.filename is None else {"name": part.filename}
        return Image(part.mime, id=part.id, data=data, url=url, metadata={**(metadata or {}), **name} or None)
    path = part.url if part.filename is None else part.filename
    return FileRef(path, id=part.id, mime_type=part.mime, data=data, url=url, metadata=metadata)


def data_url(mime: str, data: bytes) -> str:
    """The content as a ``data:`` URL."""
    return f"data:{mime};base64,{b64encode(data).decode()}"


def _data_of(part: FilePart) -> bytes | None:
    """The content of a ``data:`` URL; None for any other URL."""
    try:
        data = b64decode(part.url.partition(",")[2], validate=True)
    except ValueError:
        return None
    return data if part.url == data_url(part.mime, data) else None
