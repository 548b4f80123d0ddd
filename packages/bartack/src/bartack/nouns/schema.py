"""The JSON Schema of every noun, generated from the same annotations as its JSON.

Everything that Bartack writes validates against it. Additional keys are allowed, because Bartack preserves them.
"""

from datetime import datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from bartack.nouns.config import AgentConfig, AgentState, CacheConfig, ModelConfig, ToolChoice, ToolSpec
from bartack.nouns.deltas import Delta, MessageDelta, Usage
from bartack.nouns.entries import Entry, Session
from bartack.nouns.messages import Message, Meta
from bartack.nouns.parts import Part
from bartack.nouns.wire import LEDGER

__all__ = ["NOUNS", "json_schema"]

NOUNS: dict[str, Any] = {
    "Part": Part,
    "Delta": Delta,
    "MessageDelta": MessageDelta,
    "Usage": Usage,
    "Message": Message,
    "Meta": Meta,
    "Entry": Entry,
    "Session": Session,
    "ToolSpec": ToolSpec,
    "ToolChoice": ToolChoice,
    "ModelConfig": ModelConfig,
    "CacheConfig": CacheConfig,
    "AgentConfig": AgentConfig,
    "AgentState": AgentState,
}

_SCALARS: dict[Any, dict[str, Any]] = {
    Any: {},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime: {"type": "string", "format": "date-time"},
}


def json_schema() -> dict[str, Any]:
    """One schema with all nouns in ``$defs``; refer to a noun as ``#/$defs/Message``."""
    defs: dict[str, Any] = {}
    for name, noun in NOUNS.items():
        schema = _schema(noun, defs)
        defs.setdefault(name, schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Bartack's canonical JSON",
        "$defs": dict(sorted(defs.items())),
    }


def _schema(tp: Any, defs: dict[str, Any]) -> dict[str, Any]:
    origin, args = get_origin(tp), get_args(tp)
    if tp in _SCALARS:
        return _SCALARS[tp]
    if origin in (Union, UnionType):
        return _union(args, defs)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": _schema(args[0], defs)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(args[1], defs)}
    if issubclass(tp, Enum):
        return {"enum": [member.value for member in tp]}
    if tp.__name__ not in defs:
        defs[tp.__name__] = {}  # so that a recursive noun becomes a reference
        defs[tp.__name__] = _struct(tp, defs)
    return {"$ref": f"#/$defs/{tp.__name__}"}


def _union(members: tuple[Any, ...], defs: dict[str, Any]) -> dict[str, Any]:
    if all(isinstance(getattr(member, "kind", None), str) for member in members):
        return {"oneOf": [_kind_and_payload(member, defs) for member in members]}
    if float in members:
        members = tuple(member for member in members if member is not int)  # JSON Schema's numbers include integers
    return {"anyOf": [_schema(member, defs) for member in members]}


def _kind_and_payload(member: type[Struct], defs: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"kind": {"const": getattr(member, "kind")}, "payload": _schema(member, defs)},  # noqa: B009
        "required": ["kind", "payload"],
    }


def _struct(cls: type[Struct], defs: dict[str, Any]) -> dict[str, Any]:
    spliced = getattr(cls, "spliced", None)
    properties: dict[str, Any] = {}
    required: list[str] = []
    schema: dict[str, Any] = {"type": "object", "description": (cls.__doc__ or "").partition("\n")[0]}
    for field in fields(cls):
        if field.name == spliced:
            schema |= _schema(field.type, defs)
        elif field.name != "extra":
            key = LEDGER.rename(field.name)
            properties[key] = _schema(field.type, defs)
            if field.required:
                required.append(key)
    return schema | {"properties": properties} | ({"required": required} if required else {})
