"""Messages of AG-UI in both directions: the input of a run, and a stored session for a client that opens it.

request = read_run(body)
request.prompt      # the user message to answer, or None
request.decisions   # the answers to interrupts
request.outputs     # the outputs of tools that the page executed
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from bartack.display.run_reader import is_answer, is_written
from bartack.nouns.config import ToolSpec
from bartack.nouns.entries import Entry
from bartack.nouns.errors import PartValidationError
from bartack.nouns.json_values import json_text, write_bytes
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import ContentPart, FileRef, Image, Text, Thinking, ToolCall, ToolContent, ToolResult
from bartack.protocols.content import content_text, converted, media_type_of, read_media
from bartack.session.decisions import Decision, Verdict, read_approval_id
from bartack.session.redaction import visible
from bartack.stream.assembler import parse_arguments

__all__ = ["AgUiRequest", "Json", "RunInput", "ag_ui_messages", "message_json", "place_of", "read_run", "result_json"]

Json = dict[str, Any]
_KINDS = ("image", "audio", "video", "document")
# Metadata of a result that a client sent: the fields of its message that a result does not have.
_CLIENT_FIELDS = "agUiMessage"


class AgUiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks for."""

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    protocol_version: str | None = None  # clients before 1.0 name none
    messages: list[Json]  # all that the client has
    prompt: Message | None = None
    history: tuple[Message, ...] = ()  # the messages before the prompt
    decisions: dict[str, Decision] = {}  # the id of a call -> the decision about it
    outputs: dict[str, ToolResult] = {}  # the id of a call -> its result, from the tool messages at the end
    tools: tuple[ToolSpec, ...] = ()  # the page executes them itself
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
    metadata: Any = None


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
    protocol_version: str | None = None
    messages: list[dict[str, Any]] = []
    state: Any = None
    tools: list[_Tool] | None = None
    context: list[_Context] | None = None
    resume: list[_Resume] | None = None


def read_run(body: Any) -> AgUiRequest:
    """Read the body of a request, as JSON or converted; raises `PartValidationError`."""
    run: RunInput = body if isinstance(body, RunInput) else converted(body, RunInput)
    read = [_read(message, f"$.messages[{index}]") for index, message in enumerate(run.messages)]
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
        protocol_version=run.protocol_version,
        messages=run.messages,
        prompt=prompt,
        history=tuple(message for message in read[: -1 if prompt else None] if message is not None),
        decisions=dict(_decision(resume, index) for index, resume in enumerate(run.resume or ())),
        outputs=outputs,
        tools=tuple(tool.spec for tool in run.tools or ()),
        context=tuple((item.description, item.value) for item in run.context or ()),
        state=run.state,
    )


def _decision(resume: _Resume, index: int) -> tuple[str, Decision]:
    """The id of the call, and the decision about what the interrupt has shown of it."""
    call_id, digest = read_approval_id(resume.interrupt_id)
    answer = _answer(resume, f"$.resume[{index}].payload")
    arguments = answer.arguments if answer.approved else None
    verdict: Verdict = "deny" if not answer.approved else "approve" if arguments is None else "modify_args"
    return call_id, Decision(verdict, arguments=arguments, reason=answer.reason, question_digest=digest)


def _answer(resume: _Resume, path: str) -> _Answer:
    match resume:
        case _Resume(status="cancelled"):
            return _Answer(approved=False, reason="Cancelled.")
        case _Resume(payload=None | bool() as payload):
            return _Answer(approved=payload is not False)
        case _:
            answer: _Answer = converted(resume.payload, _Answer, path)
            return answer


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
            output: ToolContent = content_text(content) if is_text else content
            own = {"id": message.id} if message.error is None else {"id": message.id, "error": message.error}
            is_error = message.error is not None
            return tool_message(
                ToolResult(message.tool_call_id, output, is_error=is_error, metadata={_CLIENT_FIELDS: own})
            )
        case "reasoning" | "activity":
            return None
        case _:
            raise PartValidationError(f"unknown role {message.role!r}", path=f"{path}.role")


def _read_call(call: _Call) -> ToolCall:
    text = call.function.arguments
    try:
        return ToolCall(call.id, call.function.name, parse_arguments(text))
    except PartValidationError:  # a model wrote them, and they are kept as they are
        return ToolCall(call.id, call.function.name, {}, raw_args_text=text)


def _read_content(content: Any, path: str) -> tuple[ContentPart, ...]:
    if isinstance(content, str):
        return (Text(content),)
    parts: list[_Part] = converted(content, list[_Part], f"{path}.content")
    return tuple(_read_part(part, f"{path}.content[{index}]") for index, part in enumerate(parts))


def _read_part(part: _Part, path: str) -> ContentPart:
    if part.type == "text":
        return Text(part.text)
    source = part.source
    if part.type not in _KINDS or source is None or source.type == "file":
        raise PartValidationError(f"unsupported content {part.type!r}", path=path)
    kind = source.mime_type
    url = source.value if source.type == "url" else f"data:{kind or ''};base64,{source.value}"
    name = part.metadata.get("filename") if isinstance(part.metadata, dict) else None
    return read_media(url, media_type=kind, name=name if isinstance(name, str) else None, path=path)


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
    for index in range(len(messages) - 1, -1, -1):  # it is usually near the end
        if any(call["id"] == call_id for call in messages[index].get("toolCalls", ())):
            place = index + 1
            while place < len(messages) and messages[place]["role"] == "tool":
                place += 1
            return place
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
    messages: list[Json] = [
        {"id": f"{message_id}-r{number}", "role": "reasoning", "content": part.text}
        for number, part in enumerate(thoughts, 1)
    ]
    if len(own) > 2:
        results = [result_json(call.tool_call_id, call.result) for call in message.tool_calls if call.result]
        before = next(index for index, part in enumerate(message.parts) if not isinstance(part, Thinking))
        messages[before:before] = [own, *results]
    return messages


def _call_json(call: ToolCall) -> Json:
    arguments = json_text(call.arguments) if call.raw_args_text is None else call.raw_args_text
    return {"id": call.tool_call_id, "type": "function", "function": {"name": call.tool_name, "arguments": arguments}}


def result_json(key: str, result: ToolResult) -> Json:
    """The result of a call as a message."""
    content = result.content
    text_or_parts = content_json(content) if isinstance(content, tuple) else content_text(content)
    own = {"id": f"{key}-result", "role": "tool", "toolCallId": key, "content": text_or_parts}
    sent = (result.metadata or {}).get(_CLIENT_FIELDS)
    return {**own, **sent} if isinstance(sent, dict) else own


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
    content = {"type": kind if kind in _KINDS else "document", "source": source}
    name = part.name if isinstance(part, Image) else None
    return content if name is None else {**content, "metadata": {"filename": name}}
