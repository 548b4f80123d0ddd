"""`RequestFacts`: what a client's request body says beside the conversation and the settings that `read_request` reads.

A model does not need these facts, but whoever answers in its place does: how the answer is sent, and which conversation
it belongs to. The names of their fields differ between formats, and no name has two meanings, so that one reader serves
all formats.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import field

from bartack.formats.body_values import object_of, parsed_object, text_at, text_of
from bartack.nouns.errors import PartValidationError
from bartack.nouns.noun import Noun

__all__ = ["FIELDS", "RequestFacts", "facts_of"]

_PREVIOUS = ("previous_response_id", "previous_interaction_id")
# What is read; the rest of a body is large.
FIELDS = (
    "stream",
    "stream_options",
    *_PREVIOUS,
    "conversation",
    "metadata",
    "prompt_cache_key",
    "session_id",
    "client_metadata",
)


class RequestFacts(Noun, frozen=True, kw_only=True):
    """How the client wants to be answered, and which conversation it continues.

    `session_keys` are the names that the client gives its conversation or itself, by the path of their field, the most
    specific first: ``prompt_cache_key`` (Codex, opencode, pi), ``session_id``, ``metadata.user_id`` (of Claude Code
    also ``metadata.user_id.session_id``, since its value is JSON), and the values of ``client_metadata``.
    """

    stream: bool | None  # None if the URL says it, not the body
    include_usage: bool = True  # whether a stream ends with usage, which clients of OpenAI's chat API have to request
    previous_response_id: str | None = None
    conversation: str | None = None
    session_keys: dict[str, str] = field(default_factory=dict)


def facts_of(body: dict[str, Any], *, stream: bool | None, usage_on_request: bool) -> RequestFacts:
    """The facts in a body; `stream` is the format's default.

    Raises `PartValidationError` for a value of another type.
    """
    if stream is not None and body.get("stream") is not None:
        stream = _flag_at(body["stream"], "$.stream")
    previous = next((name for name in _PREVIOUS if body.get(name) is not None), None)
    requested = object_of(body, "stream_options").get("include_usage")
    return RequestFacts(
        stream=stream,
        include_usage=not usage_on_request or _flag_at(requested or False, "$.stream_options.include_usage"),
        previous_response_id=None if previous is None else text_at(body[previous], f"$.{previous}"),
        conversation=_conversation(body.get("conversation")),
        session_keys=dict(_session_keys(body)),
    )


def _flag_at(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise PartValidationError(f"expected true or false, got {type(value).__name__}", path=path)
    return value


def _conversation(value: Any) -> str | None:
    """A conversation is named by its id, or by an object with it."""
    if value is None:
        return None
    if isinstance(value, dict):
        return text_at(value.get("id"), "$.conversation.id")
    return text_at(value, "$.conversation")


def _session_keys(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    user_id = text_of(object_of(body, "metadata"), "user_id")
    values = {
        "prompt_cache_key": text_of(body, "prompt_cache_key"),
        "session_id": text_of(body, "session_id"),
        "metadata.user_id.session_id": text_of(parsed_object(user_id) or {}, "session_id"),
        "metadata.user_id": user_id,
        **{f"client_metadata.{name}": value for name, value in object_of(body, "client_metadata").items()},
    }
    return ((path, value) for path, value in values.items() if isinstance(value, str) and value)
