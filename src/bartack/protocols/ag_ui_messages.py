"""Messages of AG-UI in both directions: the input of a run, and a stored session for a client that opens it.

request = read_run(body)
request.prompt      # the user message to answer, or None
request.decisions   # the answers to interrupts
request.outputs     # of tools that the page executed
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from bartack.nouns.config import ToolSpec
from bartack.nouns.entries import Entry
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text, write_bytes
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import ContentPart, FileRef, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.protocols.content import content_text, media_type_of, read_media
from bartack.protocols.converting import converted
from bartack.protocols.run_reader import is_answer, is_written
from bartack.session.decisions import Decision
from bartack.session.redaction import visible
from bartack.stream.assembler import parse_arguments

__all__ = ["AgUiRequest", "Json", "RunInput", "ag_ui_messages", "message_json", "place_of", "read_run", "result_json"]

Json = dict[str, Any]
_KINDS = ("image", "audio", "video", "document")


class AgUiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks for."""

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    messages: list[Json]  # as the client has them
    prompt: Message | None = None
    history: tuple[Message, ...] = ()  # the messages before the prompt
    decisions: dict[str, Decision] = {}  # by the id of the call
    outputs: dict[str, ToolResult] = {}  # likewise, of the tool messages at the end
    tools: tuple[ToolSpec, ...] = ()  # those that the page executes
    context: tuple[tuple[str, str], ...] = ()  # descriptions and values
    state: Any = None


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Source(msgspec.Struct, rename="camel"):
    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    source: _Source | None = None


class _Message(msgspec.Struct, rename="camel"):
    id: str
    role: str
    content: Any = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    error: str | None = None


class _Tool(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.parameters or {"type": "object"}, description=self.description)


class _Context(msgspec.Struct):
    description: str
    value: str


class _Resume(msgspec.Struct, rename="camel"):
    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class _Answer(msgspec.Struct):
    approved: bool = True
    reason: str | None = None
    arguments: dict[str, Any] | None = None


class RunInput(msgspec.Struct, rename="camel"):
    """The body of a request: ``RunAgentInput``."""

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    messages: list[dict[str, Any]] = []
    state: Any = None
    tools: list[_Tool] | None = None
    context: list[_Context] | None = None
    resume: list[_Resume] | None = None


def read_run(body: Any) -> AgUiRequest:
    """Read the body of a request, as JSON or converted; raises `PartValidationError`."""
    run: RunInput = body if isinstance(body, RunInput) else converted(body, RunInput)
    read = [_read(one, f"$.messages[{at}]") for at, one in enumerate(run.messages)]
    outputs: dict[str, ToolResult] = {}
    for message in reversed(read):
        if message is None:
            continue
        if message.role != "tool":
            break
        outputs = {result.tool_call_id: result for result in message.tool_results} | outputs
    prompt = read[-1] if read and read[-1] is not None and read[-1].role == "user" else None
    return AgUiRequest(
        thread_id=run.thread_id,
        run_id=run.run_id,
        parent_run_id=run.parent_run_id,
        messages=run.messages,
        prompt=prompt,
        history=tuple(message for message in read[: -1 if prompt else None] if message is not None),
        decisions={one.interrupt_id: _decision(one, at) for at, one in enumerate(run.resume or ())},
        outputs=outputs,
        tools=tuple(one.spec for one in run.tools or ()),
        context=tuple((one.description, one.value) for one in run.context or ()),
        state=run.state,
    )


def _decision(resume: _Resume, at: int) -> Decision:
    if resume.status == "cancelled":
        return Decision("deny", reason="Cancelled.")
    payload = resume.payload
    if payload is None or isinstance(payload, bool):
        return Decision("deny" if payload is False else "approve")
    answer: _Answer = converted(payload, _Answer, f"$.resume[{at}].payload")
    if not answer.approved:
        return Decision("deny", reason=answer.reason)
    verdict: Literal["approve", "modify_args"] = "approve" if answer.arguments is None else "modify_args"
    return Decision(verdict, arguments=answer.arguments, reason=answer.reason)


def _read(value: Json, path: str) -> Message | None:
    """One message; None for reasoning and activities, which are for people."""
    message: _Message = converted(value, _Message, path)
    match message.role:
        case "user":
            return replace(user(*_read_content(message.content, path)), id=message.id or None)
        case "system" | "developer":
            return system(content_text(_read_content(message.content, path)))
        case "assistant":
            parts: list[Text | ToolCall] = [Text(message.content)] if isinstance(message.content, str) else []
            return assistant(*parts, *(_read_call(call) for call in message.tool_calls or ()))
        case "tool":
            if not message.tool_call_id:
                raise PartValidationError("toolCallId must not be empty", path=f"{path}.toolCallId")
            content = _read_content(message.content, path)
            is_text = all(isinstance(part, Text) for part in content)
            made: ToolContent = content_text(content) if is_text else content
            return tool_message(ToolResult(message.tool_call_id, made, is_error=message.error is not None))
        case "reasoning" | "activity":
            return None
        case _:
            raise PartValidationError(f"unknown role {message.role!r}", path=f"{path}.role")


def _read_call(call: _Call) -> ToolCall:
    text = call.function.arguments
    try:
        return ToolCall(call.id, call.function.name, parse_arguments(text))
    except PartValidationError:  # as a model wrote them
        return ToolCall(call.id, call.function.name, {}, raw_args_text=text)


def _read_content(content: Any, path: str) -> tuple[ContentPart, ...]:
    if isinstance(content, str):
        return (Text(content),)
    parts: list[_Part] = converted(content, list[_Part], f"{path}.content")
    return tuple(_read_part(part, f"{path}.content[{at}]") for at, part in enumerate(parts))


def _read_part(part: _Part, path: str) -> ContentPart:
    if part.type == "text":
        return Text(part.text)
    source = part.source
    if part.type not in _KINDS or source is None or source.type == "file":
        raise PartValidationError(f"unsupported content {part.type!r}", path=path)
    kind = source.mime_type
    url = source.value if source.type == "url" else f"data:{kind or ''};base64,{source.value}"
    return read_media(url, media_type=kind, name=None, path=path)


# -- for a client


def ag_ui_messages(entries: Iterable[Entry]) -> list[Json]:
    """The messages of a session as its streams have shown them; pass the entries of one branch."""
    messages: list[Json] = []
    answers: dict[str | None, int] = {}
    for entry in visible(entries):
        fact = entry.fact
        if not isinstance(fact, Message) or (fact.role == "user" and not is_written(fact)):
            continue
        if fact.role == "assistant" and entry.run_id is not None and is_answer(entry, fact):
            number = answers[entry.run_id] = answers.get(entry.run_id, 0) + 1
            messages += message_json(f"{entry.run_id}-{number}", fact)
        elif fact.role == "tool":
            for result in fact.tool_results:
                messages.insert(place_of(messages, result.tool_call_id), result_json(result.tool_call_id, result))
        else:
            messages += message_json(fact.id or entry.id, fact)
    return messages


def place_of(messages: Sequence[Json], call_id: str) -> int:
    """Where a client puts a result: after the message with its call, and the results that are there."""
    for at in range(len(messages) - 1, -1, -1):  # it is usually near the end
        if any(call["id"] == call_id for call in messages[at].get("toolCalls", ())):
            while at + 1 < len(messages) and messages[at + 1]["role"] == "tool":
                at += 1
            return at + 1
    return len(messages)


def message_json(message_id: str, message: Message) -> list[Json]:
    """A message of ours, but not of results, as messages of the protocol, which has reasoning and each result apart.

    A client has them in the order in which they began, and results after the message with their calls.
    """
    if message.role != "assistant":
        return [{"id": message_id, "role": message.role, "content": content_json(_content_parts(message))}]
    own: Json = {"id": message_id, "role": "assistant"}
    if any(isinstance(part, Text) for part in message.parts):
        own["content"] = message.text
    if message.tool_calls:
        own["toolCalls"] = [_call_json(call) for call in message.tool_calls]
    thoughts = [part for part in message.parts if isinstance(part, Thinking)]
    made: list[Json] = [
        {"id": f"{message_id}-r{at}", "role": "reasoning", "content": part.text} for at, part in enumerate(thoughts, 1)
    ]
    if len(own) > 2:
        results = [result_json(call.tool_call_id, call.result) for call in message.tool_calls if call.result]
        before = next(at for at, part in enumerate(message.parts) if not isinstance(part, Thinking))
        made[before:before] = [own, *results]
    return made


def _call_json(call: ToolCall) -> Json:
    arguments = json_text(call.arguments) if call.raw_args_text is None else call.raw_args_text
    return {"id": call.tool_call_id, "type": "function", "function": {"name": call.tool_name, "arguments": arguments}}


def result_json(key: str, result: ToolResult) -> Json:
    """The result of a call as a message."""
    content = result.content
    shown = content_json(content) if isinstance(content, tuple) else content_text(content)
    return {"id": f"{key}-result", "role": "tool", "toolCallId": key, "content": shown}


def _content_parts(message: Message) -> tuple[ContentPart, ...]:
    return tuple(part for part in message.parts if isinstance(part, ContentPart))


def content_json(content: Sequence[ContentPart]) -> str | list[Json]:
    """Content as text, or as parts if there is more than text."""
    if all(isinstance(part, Text) for part in content):
        return "".join(part.text for part in content if isinstance(part, Text))
    return [_part_json(part) for part in content]


def _part_json(part: ContentPart) -> Json:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    mime_type = media_type_of(part)
    kind = mime_type.partition("/")[0]
    if part.data is not None:
        source = {"type": "data", "value": write_bytes(part.data), "mimeType": mime_type}
    elif part.url is not None:
        source = {"type": "url", "value": part.url, "mimeType": mime_type}
    else:
        assert isinstance(part, FileRef)
        return {"type": "text", "text": f"[file {part.path}]"}
    return {"type": kind if kind in _KINDS else "document", "source": source}
