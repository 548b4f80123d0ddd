"""Pass-through: the bytes of a client to an upstream that speaks its format, and the bytes of the answer back.

Nothing is read and written again on the way, so a field that Bartack does not know arrives as it was sent. What
changes: the address, the credentials, and the name of the model where the client uses an alias. Of the headers, only
those in `_FORWARDED` are sent on; they select features of the provider. A decoder reads the answer beside its bytes,
for the record, for usage, and to find out whether it is complete.

Clients run a tool call once they have its end, even if the stream breaks afterwards. So the bytes from the end of a
call on are held back until the decoder has seen the end of the answer. They are still the same bytes, only later. If
the answer fails instead, they are dropped, and the client gets the error of its format: no call of an answer that broke
off ever ends. Bytes are sent in whole events, so that such an error never ends up inside another event. A response that
is not streamed is sent once it is complete.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bartack.formats import LossReport, Written
from bartack.models.provider import PreparedCall, ProviderModel
from bartack.nouns.deltas import Delta, Done, Failed, Start, Usage
from bartack.nouns.errors import PartValidationError
from bartack.nouns.requests import ModelRequest
from bartack_server.gateway.client_requests import CHAT, GEMINI, MESSAGES, OLLAMA, RESPONSES, ClientRequest
from bartack_server.gateway.outbox import Outbox

__all__ = ["PassThrough", "WholePassThrough", "can_pass_through", "forwarded_headers", "passed_call"]

_FORWARDED = ("anthropic-beta", "anthropic-version", "openai-beta")
_FORWARDED_QUERY = ("beta",)
_LINE, _EVENT = re.compile(rb"\n"), re.compile(rb"\r?\n\r?\n")
_MEMBER = re.compile(rb'\s*[,{]\s*("(?:[^"\\]|\\.)*")\s*:\s*')  # a member of a JSON object, up to its value


def can_pass_through(request: ClientRequest, model: object) -> bool:
    """Whether the model takes this request as it is."""
    if not isinstance(model, ProviderModel) or model.vendor.format != request.format:
        return False
    if request.as_array or model.vendor.body or model.vendor.body_without:
        return False
    # Chat Completions do not mark the end of free text, so its end could not be held back.
    return request.format != CHAT or not request.streams or b'"custom"' not in request.data


def passed_call(request: ClientRequest, model_request: ModelRequest, model: ProviderModel) -> PreparedCall:
    """The call that sends the client's bytes to the model that `model_request` names."""
    data = request.data
    if request.format != GEMINI and request.model != model_request.config.model_id:
        data = with_model(data, model_request.config.model_id)
    call = model.call_with(model_request, Written(data, LossReport(), ()), forwarded_headers(request))
    url = call.http_request.url
    if request.format == GEMINI and not request.streams:
        url = url.replace(":streamGenerateContent?alt=sse", ":generateContent")
    query = urlencode({name: request.query[name] for name in _FORWARDED_QUERY if name in request.query})
    if query:
        url = f"{url}{'&' if '?' in url else '?'}{query}"
    return replace(call, http_request=replace(call.http_request, url=url), is_streamed=request.streams)


def forwarded_headers(request: ClientRequest) -> dict[str, str]:
    """The headers of the client that an upstream of the same format gets."""
    return {name: request.headers[name] for name in _FORWARDED if name in request.headers}


def with_model(data: bytes, model_id: str) -> bytes:
    """A JSON object with another value of the member "model", all other bytes as they were."""
    position = 0
    for value in msgspec.json.decode(data, type=dict[str, msgspec.Raw]).values():
        member = _MEMBER.match(data, position)
        if member is None:  # a key came twice, and the object has fewer members than the bytes
            break
        position = member.end() + len(bytes(value))
        if msgspec.json.decode(member[1]) == "model":
            return data[: member.end()] + msgspec.json.encode(model_id) + data[position:]
    raise PartValidationError("The model is named twice, or not at all.", path="$.model")


class PassThrough:
    """The bytes of one answer, on their way to the outbox of its client."""

    def __init__(self, format: str, outbox: Outbox) -> None:
        self._holds = _HOLDS[format]()
        self._boundary = _LINE if format == OLLAMA else _EVENT
        self._outbox = outbox
        self._partial = b""  # the beginning of an event
        self._held: list[bytes] = []  # whole events
        self._has_content = False  # until then, another upstream may take over
        self._may_end_call = False
        self._has_failed = False  # the bytes themselves contained an error

    def observe(self, chunk: bytes, deltas: Sequence[Delta]) -> None:
        """Take a chunk, with the deltas that it completes."""
        self._has_content |= any(not isinstance(delta, Start | Usage) for delta in deltas)
        is_last = bool(deltas) and isinstance(deltas[-1], Done | Failed)
        self._has_failed |= is_last and isinstance(deltas[-1], Failed)
        body, start = self._partial + chunk, 0
        for boundary in self._boundary.finditer(body):
            event = body[start : boundary.end()]
            start = boundary.end()
            self._may_end_call = self._holds(event)
            self._held.append(event)
        self._partial = body[start:]
        if self._has_content and not self._may_end_call and not is_last:  # `finish` decides about the last chunk
            self._release()

    def finish(self, failed: Failed | None, error: bytes) -> None:
        """Send what was held back, or after a failure the error of the format instead."""
        if failed is None or (self._has_failed and not self._may_end_call):
            self._held.append(self._partial)
            self._release()
        else:
            self._outbox.put(error)

    def _release(self) -> None:
        self._outbox.put(b"".join(self._held))
        self._held.clear()


class WholePassThrough:
    """The bytes of an answer that is not streamed."""

    def __init__(self) -> None:
        self.body = b""

    def observe(self, chunk: bytes, deltas: Sequence[Delta]) -> None:
        """Take the response, which comes as one chunk."""
        self.body = chunk

    def finish(self, failed: Failed | None, error: bytes) -> None:
        """Nothing is left to send: the response has a status for a failure."""


class _HoldFrom:
    """Whether a client that has all events so far might run a call: from the event on that matches `end`, once one has
    matched `call`."""

    def __init__(self, call: re.Pattern[bytes], end: re.Pattern[bytes]) -> None:
        self._call = call
        self._end = end
        self._has_call = False
        self._has_ended = False

    def __call__(self, event: bytes) -> bool:
        self._has_call = self._has_call or self._call.search(event) is not None
        self._has_ended = self._has_ended or (self._has_call and self._end.search(event) is not None)
        return self._has_ended


class _HoldChat:
    """The same for Chat Completions, which have no end of a call: clients run it once its arguments are complete JSON.
    Whatever may complete them is held back, and sent on if more of them follows."""

    def __init__(self) -> None:
        self._complete: dict[int, bool] = {}  # the calls in progress, by their index
        self._has_ended = False

    def __call__(self, event: bytes) -> bool:
        if b'"tool_calls"' in event and not self._has_ended:
            try:
                chunk = msgspec.json.decode(event.strip().removeprefix(b"data:"), type=_Chunk)
            except msgspec.DecodeError:  # the decoder beside will report it
                self._has_ended = True
                return True
            for piece in (piece for choice in chunk.choices for piece in choice.delta.tool_calls or ()):
                self._note(piece)
        return self._has_ended or any(self._complete.values())

    def _note(self, piece: "_Piece") -> None:
        # Some servers repeat the index: another call then begins where one may have ended.
        self._has_ended |= bool(piece.id) and self._complete.get(piece.index, False)
        text = (piece.function.arguments or "").rstrip()
        if text or piece.index not in self._complete:
            self._complete[piece.index] = not text or text.endswith("}")


class _Function(Struct, frozen=True):
    arguments: str | None = None


class _Piece(Struct, frozen=True):
    index: int = 0
    id: str | None = None
    function: _Function = _Function()


class _Content(Struct, frozen=True):
    tool_calls: list[_Piece] | None = None


class _Choice(Struct, frozen=True):
    delta: _Content = _Content()


class _Chunk(Struct, frozen=True):
    choices: list[_Choice] = []


# Calls of the client only: those of the provider are over when they arrive, and text follows them. Inside of a string,
# the quotation marks would be escaped.
_CALL_ITEM = re.compile(
    rb'"(?:function|custom_tool|local_shell|shell|apply_patch|computer|tool_search)_call"|_call_(?:arguments|input)\.done'
)
_HOLDS: dict[str, Callable[[], Callable[[bytes], bool]]] = {
    MESSAGES: partial(_HoldFrom, re.compile(rb'"type"\s*:\s*"tool_use"'), re.compile(rb"content_block_stop")),
    RESPONSES: partial(_HoldFrom, _CALL_ITEM, re.compile(rb"\.done")),
    CHAT: _HoldChat,
    GEMINI: partial(_HoldFrom, re.compile(rb'"functionCall"'), re.compile(rb'"functionCall"')),
    OLLAMA: partial(_HoldFrom, re.compile(rb'"tool_calls"'), re.compile(rb'"tool_calls"')),
}
