"""`UIMessage` of the AI SDK in both directions: what a chat sends, and a stored session for a page that opens it.

    request = read_chat(body)
    request.prompt      # the user message to answer, or None
    request.decisions   # about calls that needed approval
    request.outputs     # the outputs of tools that the page executed

Only the last message of a chat is new; the stored session has all others. `history` has them for a chat that is not
stored: such messages are the client's claims, and calls in them are never executed.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from bartack.display.run_reader import is_answer, is_requested, is_written
from bartack.events import EntryAppended
from bartack.nouns.entries import Custom, Entry, RunEnded, StreamFailed
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import ContentPart, Text, Thinking, ToolCall, ToolResult
from bartack.protocols.ai_sdk import Chunk, UIMessageStream, Version, ui_parts
from bartack.protocols.ai_sdk_assembler import UIMessageAssembler
from bartack.protocols.content import converted, read_media, result_of
from bartack.session.decisions import Decision, read_approval_id
from bartack.session.redaction import visible

__all__ = ["ChatBody", "ChatRequest", "read_chat", "read_ui_messages", "ui_messages"]


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks for."""

    chat_id: str
    trigger: Literal["submit-message", "regenerate-message"]
    message_id: str | None = None  # names the message to replace
    prompt: Message | None = None
    history: tuple[Message, ...] = ()  # the messages before the prompt
    # Both are keyed by the id of the call. Every tool part in the last message that has an outcome is an output.
    decisions: dict[str, Decision] = {}
    outputs: dict[str, ToolResult] = {}
    call_ids: tuple[str, ...] = ()  # every tool part in the last message has one


class _Part(msgspec.Struct, rename="camel"):
    """A part of any type, with the fields that matter here."""

    type: str
    text: str | None = None
    url: str | None = None
    media_type: str | None = None
    filename: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    state: str | None = None
    input: Any = None
    output: Any = None
    error_text: str | None = None
    preliminary: bool | None = None
    provider_executed: bool | None = None
    approval: Any = None
    parts: "list[_Part]" = []
    data: Any = None


class _UIMessage(msgspec.Struct):
    id: str
    role: Literal["system", "user", "assistant"]
    parts: list[_Part]


class _Joined(msgspec.Struct):
    """The data of a ``data-user-message``."""

    parts: list[_Part]


class _Decided(msgspec.Struct):
    id: str
    approved: bool
    reason: str | None = None

    @property
    def decision(self) -> Decision:
        _, digest = read_approval_id(self.id)
        return Decision("approve" if self.approved else "deny", reason=self.reason, question_digest=digest)

    @property
    def call_id(self) -> str:
        return read_approval_id(self.id)[0]


class ChatBody(msgspec.Struct):
    """The body of a request of `useChat`."""

    id: str
    messages: list[_UIMessage]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: str | None = None  # noqa: N815 - the client's name for it
    approvals: list[_Decided] = []  # version 5 needs them: its messages have none


def read_chat(body: Any) -> ChatRequest:
    """Read the body of a request, as JSON or converted; raises `PartValidationError`."""
    request = body if isinstance(body, ChatBody) else converted(body, ChatBody)
    if not request.messages:
        raise PartValidationError("messages must not be empty", path="$.messages")
    messages = [list(_read(message, f"$.messages[{index}]")) for index, message in enumerate(request.messages)]
    last = request.messages[-1]
    is_prompt = last.role == "user"
    return ChatRequest(
        chat_id=request.id,
        trigger=request.trigger,
        message_id=request.messageId,
        prompt=messages[-1][-1] if is_prompt else None,
        history=tuple(chain.from_iterable(messages[: -1 if is_prompt else None])),
        decisions={approval.call_id: approval.decision for approval in (*_approvals(last), *request.approvals)},
        outputs={result.tool_call_id: result for message in messages[-1] for result in message.tool_results},
        call_ids=tuple(part.tool_call_id for part in last.parts if part.tool_call_id is not None),
    )


def read_ui_messages(messages: Any) -> tuple[Message, ...]:
    """Messages of a client as ours; raises `PartValidationError`. Parts that only pages use are left out."""
    read = converted(messages, list[_UIMessage])
    return tuple(chain.from_iterable(_read(message, f"$[{index}]") for index, message in enumerate(read)))


def _approvals(message: _UIMessage) -> list[_Decided]:
    where = "$.messages[-1].parts[{}].approval"
    return [
        converted(part.approval, _Decided, where.format(index))
        for index, part in enumerate(message.parts)
        if part.state == "approval-responded"
    ]


# -- from a client


def _read(message: _UIMessage, path: str) -> Iterator[Message]:
    if message.role == "user":
        yield replace(user(*_content(message.parts, path)), id=message.id or None)
    elif message.role == "system":
        yield system("".join(part.text for part in _content(message.parts, path) if isinstance(part, Text)))
    else:
        yield from _read_answer(message.parts, path)


def _read_answer(parts: list[_Part], path: str) -> Iterator[Message]:
    step: list[tuple[str, _Part]] = []  # the parts of one model call, with their places
    for index, part in enumerate(parts):
        part_path = f"{path}.parts[{index}]"
        match part.type:
            case "step-start":
                yield from _read_step(step)
                step = []
            case "data-retry":  # what was shown of a failed attempt
                step = []
            case "steering-message" | "data-user-message":
                yield from _read_step(step)
                step = []
                is_own = part.type == "steering-message"
                inner = part.parts if is_own else converted(part.data, _Joined, f"{part_path}.data").parts
                yield user(*_content(inner, part_path))
            case _:
                step.append((part_path, part))
    yield from _read_step(step)


def _content(parts: list[_Part], path: str) -> list[ContentPart]:
    content: list[ContentPart] = []
    for index, part in enumerate(parts):
        part_path = f"{path}.parts[{index}]"
        if part.type == "text":
            content.append(Text(_required(part.text, f"{part_path}.text")))
        elif part.type == "file":
            url = _required(part.url, f"{part_path}.url")
            content.append(read_media(url, media_type=part.media_type, name=part.filename, path=part_path))
    if not content:
        raise PartValidationError("a message needs text or a file", path=f"{path}.parts")
    return content


def _required(value: str | None, path: str) -> str:
    if value is None:
        raise PartValidationError("Expected `str`, got `null`", path=path)
    return value


def _read_step(parts: list[tuple[str, _Part]]) -> Iterator[Message]:
    """The answer of a step, and the results of its calls."""
    answer: list[Text | Thinking | ToolCall] = []
    results: list[ToolResult] = []
    for path, part in parts:
        if part.type == "text":
            answer.append(Text(_required(part.text, f"{path}.text")))
        elif part.type == "reasoning":
            answer.append(Thinking(_required(part.text, f"{path}.text")))
        elif part.type == "dynamic-tool" or part.type.startswith("tool-"):
            call = _read_call(part, path)
            if call is not None:
                answer.append(call)
                results += _read_result(part, call)
    if answer:
        yield assistant(*answer)
    if results:
        yield tool_message(*results)


def _read_call(part: _Part, path: str) -> ToolCall | None:
    """The call; None if its arguments never arrived, or the provider executed it."""
    if not isinstance(part.input, dict) or part.state == "input-streaming" or part.provider_executed:
        return None
    is_dynamic = part.type == "dynamic-tool"
    name = _required(part.tool_name, f"{path}.toolName") if is_dynamic else part.type.removeprefix("tool-")
    return ToolCall(_required(part.tool_call_id, f"{path}.toolCallId"), name, part.input)


def _read_result(part: _Part, call: ToolCall) -> list[ToolResult]:
    call_id = call.tool_call_id
    match part.state:
        case "output-available" if not part.preliminary:
            return [result_of(call_id, part.output)]
        case "output-error":
            return [ToolResult(call_id, part.error_text or "", is_error=True)]
        case "output-denied":
            return [ToolResult(call_id, "Denied.", is_error=True, error_code=ErrorCode.TOOL_DENIED)]
        case _:
            return []


# -- for a page


def ui_messages(entries: Iterable[Entry], version: Version = 6, *, include_open: bool = True) -> list[Chunk]:
    """The messages of a session as a client would have assembled them; pass the entries of one branch.

    A page that resumes the stream of a live run gets that run's message from the stream: without `include_open`, it is
    left out here.
    """
    messages: list[Chunk] = []
    group: _Group | None = None
    early: list[Entry] = []  # notes and messages that joined the run before its first answer
    for entry in visible(entries):
        fact = entry.fact
        joins = group is not None and group.run_id == entry.run_id and entry.run_id is not None
        if isinstance(fact, Message) and fact.role == "user" and not joins:
            messages += [] if group is None else group.message(include_open)
            group = None
            if is_requested(fact) and entry.run_id is not None:
                early.append(entry)
            elif is_written(fact):
                messages.append({"id": fact.id, "role": "user", "parts": ui_parts(fact)})
            continue
        if isinstance(fact, Message) and not joins and not is_answer(entry, fact):
            entry = replace(entry, run_id=None)  # history that a run began with
        opens = isinstance(fact, Message | StreamFailed | RunEnded)
        if opens and (group is None or (entry.run_id is not None and not joins)):
            messages += [] if group is None else group.message(include_open)
            group = _Group(entry, version)
            for early_entry in early:
                group.add(early_entry)
            early = []
        if group is not None:
            group.add(entry)
        elif isinstance(fact, Custom):
            early.append(entry)
    if group is None and any(isinstance(entry.fact, Message) for entry in early):  # the run has only begun
        group = _Group(early[0], version)
        for early_entry in early:
            group.add(early_entry)
    return messages + ([] if group is None else group.message(include_open))


class _Group:
    """The entries that make up one message of an assistant."""

    def __init__(self, first: Entry, version: Version) -> None:
        self.run_id = first.run_id
        self._first = first
        self._stream = UIMessageStream(version)
        self._assembler = UIMessageAssembler(version)
        self._has_ended = first.run_id is None

    def add(self, entry: Entry) -> None:
        self._has_ended = self._has_ended or isinstance(entry.fact, RunEnded)
        for chunk in self._stream.chunks(EntryAppended(entry)):
            self._assembler.add(chunk)
            if chunk["type"] == "data-approval" and self._stream.version == 6 and "approved" in chunk["data"]:
                self._assembler.respond({"approvalId": chunk["id"], **chunk["data"]})

    def message(self, include_open: bool) -> list[Chunk]:
        message = self._assembler.message
        if not message["parts"] or not (self._has_ended or include_open):
            return []
        return [{**message, "id": self.run_id or self._first.id, "parts": list(map(_valid_part, message["parts"]))}]


def _valid_part(part: Chunk) -> Chunk:
    """The part as a client accepts it in a message that it loads; its own message is less strict.

    An approval that was never given is left out if the call has an outcome nevertheless. A call whose arguments were
    changed by its approval is answered, not only complete.
    """
    state, approval = part.get("state"), part.get("approval")
    if approval is None:
        return part
    if state == "input-available":
        return {**part, "state": "approval-responded"}
    if state in ("output-available", "output-error") and not approval.get("approved"):
        return {name: value for name, value in part.items() if name != "approval"}
    return part
