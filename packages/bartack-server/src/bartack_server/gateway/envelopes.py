"""Envelopes: thinking that survives the way through a client of another format.

A provider expects its signatures and encrypted reasoning back, byte for byte, and refuses those of others. A client
keeps such data only in the field of its own format: `signature`, `encrypted_content` or `thoughtSignature`. So the
gateway writes an envelope there, with the data of the upstream and its name:

    bartack1.BASE64( MAC, {"u": upstream, "p": provider, "m": model, "d": data} )

When the client sends it back, the data is restored for the same upstream. For any other one the thinking is dropped,
and the encoder reports it. The envelope is authenticated with a key of the store, so that nothing a client has made up
or changed reaches an upstream as its own. Chat Completions and Ollama have no such field; there, thinking is lost.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from bartack.nouns.deltas import Delta, Start, TextDelta, ThinkingDelta, ToolCallArgs, ToolCallEnd, ToolCallStart, Usage
from bartack.nouns.entries import Custom
from bartack.nouns.errors import Conflict
from bartack.nouns.messages import Message
from bartack.nouns.parts import Continuation, Part, Thinking, ToolCall
from bartack.nouns.requests import ModelRequest
from bartack.store.session_store import RESERVED, SessionStore, next_entries
from bartack_server.gateway.client_requests import GEMINI, MESSAGES, RESPONSES
from bartack_server.gateway.upstreams import Upstream

__all__ = ["Envelopes", "SealedAnswer", "envelope_key", "has_envelope"]

_SESSION = f"{RESERVED}gateway:envelopes"
_FACT = "gateway_envelope_key"
_PREFIX = "bartack1."
_MAC_BYTES = 16
_MARKS = (_PREFIX.encode(), base64.b64encode(_PREFIX.encode()))  # Google's field is base64 once more


async def envelope_key(store: SessionStore) -> bytes:
    """The key of a store, which is created if there is none."""
    with suppress(Conflict):
        await store.create_session(_SESSION)
    while True:
        entries = await store.entries(_SESSION)
        for entry in entries:
            if isinstance(entry.fact, Custom) and entry.fact.name == _FACT:
                return bytes.fromhex(entry.fact.data["key"])
        tail = await store.tail_of(_SESSION)
        fact = Custom(name=_FACT, data={"key": secrets.token_hex(32)})
        with suppress(Conflict):  # another gateway was faster
            await store.append(_SESSION, next_entries(_SESSION, tail, [fact], store.environment), tail.entry_id)


def has_envelope(data: bytes) -> bool:
    """Whether a request may contain an envelope, which its upstream would refuse as it is."""
    return any(mark in data for mark in _MARKS)


class Envelopes:
    """Seals the data of upstreams for clients of one format, and opens it again."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, format: str, upstream: Upstream, model_id: str, data: dict[str, Any]) -> dict[str, Any]:
        """Continuation data of the client's format that contains the upstream's."""
        content = {"u": upstream.name, "p": upstream.model.provider, "m": model_id, "d": data}
        body = json.dumps(content, separators=(",", ":")).encode()
        text = _PREFIX + base64.urlsafe_b64encode(self._mac(body) + body).decode()
        if format == MESSAGES:
            return {"signature": text}
        if format == RESPONSES:
            return {"item": {"type": "reasoning", "encrypted_content": text}}
        return {"thoughtSignature": base64.b64encode(text.encode()).decode()}

    def opened(self, format: str, request: ModelRequest, upstream: Upstream) -> ModelRequest:
        """The request with the data of this upstream in place of envelopes."""
        if format not in SEALED:
            return request
        messages = tuple(
            replace(message, parts=tuple(self._opened(format, part, upstream) for part in message.parts))
            if message.role == "assistant"
            else message
            for message in request.messages
        )
        return replace(request, messages=messages)

    def _opened(self, format: str, part: Part, upstream: Upstream) -> Part:
        text = _envelope_in(format, part)
        if text is None:
            return part
        with suppress(ValueError, KeyError, TypeError, binascii.Error):  # not one of ours
            sealed = base64.urlsafe_b64decode(text.removeprefix(_PREFIX))
            body = sealed[_MAC_BYTES:]
            is_own = hmac.compare_digest(self._mac(body), sealed[:_MAC_BYTES])
            content: dict[str, Any] = json.loads(body) if is_own else {"u": None}
            if content["u"] == upstream.name:
                return replace(part, continuation=Continuation(content["p"], content["m"], content["d"]))
        return replace(part, continuation=None)

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, hashlib.sha256)[:_MAC_BYTES]


SEALED = frozenset((MESSAGES, RESPONSES, GEMINI))


def _envelope_in(format: str, part: Part) -> str | None:
    data = {} if part.continuation is None else part.continuation.data
    text: Any = None
    if format == MESSAGES:
        text = data.get("signature")
    elif format == RESPONSES:
        item = data.get("item")
        text = item.get("encrypted_content") if isinstance(item, dict) else None
    else:
        with suppress(ValueError, TypeError):  # the client's own
            text = base64.b64decode(data.get("thoughtSignature") or "").decode()
    return text if isinstance(text, str) and text.startswith(_PREFIX) else None


class SealedAnswer:
    """The deltas of one answer for a client of another format: all continuation data is removed, and that of thinking
    (for Google's clients, also that of calls) is put into envelopes at the end of each part."""

    def __init__(self, envelopes: Envelopes, format: str, upstream: Upstream) -> None:
        self._envelopes = envelopes
        self._format = format
        self._upstream = upstream
        self._thinking: dict[str, Any] | None = None  # the data of the part that is still growing

    def deltas(self, delta: Delta) -> Iterator[Delta]:
        """What a delta becomes."""
        if isinstance(delta, ThinkingDelta):
            if delta.new_part:
                yield from self._end_thinking()
            self._thinking = {**(self._thinking or {}), **(delta.continuation or {})}
            yield replace(delta, continuation=None)
            return
        if not isinstance(delta, ToolCallArgs | ToolCallEnd | Usage):  # these do not end a part
            yield from self._end_thinking()
        match delta:
            case Start():
                yield replace(delta, provider=self._format)
            case ToolCallStart() | ToolCallEnd() if self._format == GEMINI and delta.continuation:
                yield replace(delta, continuation=self._sealed(delta.continuation))
            case TextDelta() | ToolCallStart() | ToolCallEnd():
                yield replace(delta, continuation=None)
            case _:
                yield delta

    def message(self, message: Message) -> Message:
        """The same for a whole message."""
        return replace(message, parts=tuple(self._part(part) for part in message.parts))

    def _part(self, part: Part) -> Part:
        data = {} if part.continuation is None else part.continuation.data
        is_sealed = isinstance(part, Thinking) or (isinstance(part, ToolCall) and self._format == GEMINI and bool(data))
        if not is_sealed:
            return replace(part, continuation=None)
        return replace(part, continuation=Continuation(self._format, "", self._sealed(data)))

    def _end_thinking(self) -> Iterator[Delta]:
        data, self._thinking = self._thinking, None
        if data is not None:
            yield ThinkingDelta("", continuation=self._sealed(data))

    def _sealed(self, data: dict[str, Any]) -> dict[str, Any]:
        return self._envelopes.seal(self._format, self._upstream, self._upstream.model.get_config().model_id, data)
