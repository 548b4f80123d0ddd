"""What the types of bodies cannot say, as JSON schemas for the OpenAPI document: which fields a message must have
depends on its role, those of a part on its type, and a message has a text or a file."""

from collections.abc import Mapping
from typing import Any

__all__ = ["RULES"]

_Schema = dict[str, Any]
_STRING: _Schema = {"type": "string"}
_TEXT: _Schema = {"type": "string", "pattern": r"\S"}
_NAME: _Schema = {"type": "string", "minLength": 1}
_URL: _Schema = {"type": "string", "pattern": "^(https?://|data:)"}


def _object(**required: _Schema) -> _Schema:
    return {"type": "object", "properties": required, "required": list(required)}


def _some(items: _Schema) -> _Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _messages(*kinds: _Schema, at_least: int = 0) -> _Schema:
    return {"properties": {"messages": {"type": "array", "items": {"anyOf": kinds}, "minItems": at_least}}}


_SOURCE: _Schema = {
    "anyOf": [
        _object(type={"const": "url"}, value={"type": "string", "pattern": "^https?://[a-z]"}),
        _object(
            type={"const": "data"},
            value={"type": "string", "pattern": "^([A-Za-z0-9+/]{4})+$"},
            mimeType={"type": "string", "pattern": "^[a-z]+/[a-z0-9.+-]+$"},
        ),
    ]
}
_MEDIA = _object(type={"enum": ["image", "audio", "video", "document"]}, source=_SOURCE)
_CALL = _object(id=_NAME, function=_object(name=_NAME))

_AG_UI_INPUT = _messages(
    _object(
        id=_STRING,
        role={"enum": ["user", "system", "developer"]},
        content={"anyOf": [_TEXT, _some({"anyOf": [_object(type={"const": "text"}, text=_TEXT), _MEDIA]})]},
    ),
    {
        **_object(id=_STRING, role={"const": "assistant"}),
        "anyOf": [_object(content=_STRING), _object(toolCalls={**_some(_CALL), "uniqueItems": True})],
    },
    _object(id=_STRING, role={"const": "tool"}, content=_STRING, toolCallId=_TEXT),
    _object(id=_STRING, role={"enum": ["reasoning", "activity"]}),
)

_NAMED: _Schema = {"anyOf": [{"type": "null"}, {"type": "array", "items": _object(name=_NAME)}]}

_CHAT = _messages(
    _object(
        id=_STRING,
        role={"enum": ["user", "system"]},
        parts=_some(
            {"anyOf": [_object(type={"const": "text"}, text=_TEXT), _object(type={"const": "file"}, url=_URL)]}
        ),
    ),
    _object(id=_STRING, role={"const": "assistant"}, parts={"type": "array", "items": _object(type=_STRING)}),
    at_least=1,
)

_SOMETHING: _Schema = {
    "anyOf": [
        {"required": ["text"], "properties": {"text": _TEXT}},
        {"required": ["attachments"], "properties": {"attachments": {"minItems": 1}}},
    ]
}
_DECISION: _Schema = {
    "allOf": [
        {"anyOf": [{"properties": {"decision": {"const": "approve"}}}, {"properties": {"always": {"type": "null"}}}]},
        {"anyOf": [{"properties": {"decision": {"const": "deny"}}}, _object(questionDigest=_STRING)]},
    ]
}

RULES: Mapping[str, _Schema] = {
    "RunRequest": _SOMETHING,
    "QueueRequest": _SOMETHING,
    "SteerRequest": _SOMETHING,
    "DecideRequest": _DECISION,
    "RunInput": {"allOf": [_AG_UI_INPUT, {"properties": {"tools": _NAMED}}]},
    "ChatBody": _CHAT,
}
