"""The OpenAPI document of the API, from the same rows as its routes."""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from bartack.nouns.schema import json_schema
from bartack_server.web.body_rules import RULES
from bartack_server.web.endpoint import Endpoint, Query

__all__ = ["openapi_document"]

_REFERENCE = "#/components/schemas/{name}"
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "path": {"type": "string"}},
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}


def openapi_document(endpoints: Iterable[Endpoint], cookie_name: str | None, agents: Sequence[str]) -> dict[str, Any]:
    """The document, with the schemas of all bodies and of the canonical JSON.

    `cookie_name` is the cookie that replaces the token; None if users are authorized in another way. `agents` are the
    names that the API accepts.
    """
    rows = tuple(endpoints)
    bodies = [row.body for row in rows if row.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template=_REFERENCE)
    for name, component in components.items():
        if name in RULES:
            component["allOf"] = [RULES[name]]
        if "agent" in component.get("properties", ()):
            component["properties"]["agent"] = {"enum": [*agents, None], "default": None}
    by_row = dict(zip([row for row in rows if row.body is not None], schemas, strict=True))
    paths: dict[str, Any] = {}
    for row in rows:
        path = re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", row.path)
        paths.setdefault(path, {})[row.method.lower()] = _operation(row, by_row.get(row), agents)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Bartack", "version": version("bartack")},
        "paths": paths,
        "components": {"schemas": {**_canonical(), **components, "Error": _ERROR}},
    }
    if cookie_name is not None:
        document["security"] = [{"token": []}, {"cookie": []}]
        document["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": cookie_name},
        }
    return document


def _canonical() -> dict[str, Any]:
    """The schemas of the nouns, with references to where they are in this document."""
    text = msgspec.json.encode(json_schema()["$defs"]).replace(b'"#/$defs/', b'"#/components/schemas/')
    schemas: dict[str, Any] = msgspec.json.decode(text)
    return schemas


def _operation(row: Endpoint, body: dict[str, Any] | None, agents: Sequence[str]) -> dict[str, Any]:
    in_path = re.findall(r"\{(\w+)(?::\w+)?\}", row.path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path
    ]
    parameters += [_parameter(query, agents) for query in row.query]
    operation: dict[str, Any] = {"summary": row.summary}
    if row.is_public:
        operation["security"] = []
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    failed = {
        "description": "An error.",
        "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}},
    }
    succeeded: dict[str, Any] = {"description": row.summary}
    if row.media_type is not None:
        succeeded["content"] = {row.media_type: {"schema": _result(row)}}
    empty = {} if row.empty is None else {"204": {"description": row.empty}}
    operation["responses"] = {**empty, "2XX": succeeded, "4XX": failed, "5XX": failed}
    return operation


def _parameter(query: Query, agents: Sequence[str]) -> dict[str, Any]:
    limits: dict[str, Any] = {"minimum": query.minimum, "maximum": query.maximum, "pattern": query.pattern}
    if query.format is not None:  # an empty parameter is none
        limits["anyOf"] = [{"format": query.format}, {"maxLength": 0}]
    if query.name == "agent":
        limits["enum"] = agents
    schema = {"type": query.type, **{name: value for name, value in limits.items() if value is not None}}
    parameter = {"name": query.name, "in": "query", "description": query.description, "schema": schema}
    return {**parameter, "required": True} if query.is_required else parameter


def _result(row: Endpoint) -> dict[str, Any]:
    if row.media_type != "application/json":
        return {}
    if "cursor" not in {query.name for query in row.query}:
        return {"type": row.result}
    item = {"type": "object"} if row.items is None else {"$ref": _REFERENCE.format(name=row.items)}
    return {
        "type": "object",
        "properties": {"items": {"type": "array", "items": item}, "cursor": {"type": ["string", "null"]}},
        "required": ["items", "cursor"],
    }
