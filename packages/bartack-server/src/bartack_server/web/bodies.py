"""The JSON bodies that the API accepts. Unknown keys are refused, so that a typing error has no silent effect."""

import base64
import binascii
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from bartack.app.settings import Mode
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, user
from bartack.nouns.parts import ContentPart, FileRef, Image, Text, type_of_data
from bartack.store.requests import ThinkingLevel
from bartack_server.web.session_rules import Scope

__all__ = [
    "Attachment",
    "DecideRequest",
    "Login",
    "ModeChoice",
    "NewSession",
    "PostedRequest",
    "RunRequest",
    "message_of",
]


class _Body(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


_BASE64 = Meta(
    extra_json_schema={
        "contentEncoding": "base64",
        "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)$",
    }
)
_CallId = Annotated[str, Meta(min_length=1)]


class Login(_Body, frozen=True):
    """The one-time code of a link."""

    code: str


class Attachment(_Body, frozen=True):
    """A file that belongs to a message. Its type is read from its content."""

    name: str
    data: Annotated[str, _BASE64]


class NewSession(_Body, frozen=True):
    """A session without messages."""

    id: str | None = None
    title: str | None = None
    agent: str | None = None


class _MessageBody(_Body, frozen=True):
    text: str = ""
    attachments: tuple[Attachment, ...] = ()


class RunRequest(_MessageBody, frozen=True):
    """A message, and the run that answers it. `head` is the entry to continue from, which starts a branch.

    `mode` is the permission mode of the session from now on. `adopt` adopts an imported session, with the model and the
    instructions that it names.
    """

    agent: str | None = None
    model: str | None = None
    mode: Mode | None = None
    head: str | None = None
    adopt: bool = False


class ModeChoice(_Body, frozen=True):
    """A permission mode."""

    mode: Mode


class QueueRequest(_MessageBody, frozen=True, tag_field="type", tag="queue"):
    """A message for when the live run would end; without one it starts a run."""


class SteerRequest(_MessageBody, frozen=True, tag_field="type", tag="steer"):
    """A message before the next model call of the live run; without one it starts a run."""


class DecideRequest(_Body, frozen=True, tag_field="type", tag="decide"):
    """A decision about a tool call. `arguments` are for ``modify_args``. `questionDigest` names the question that was
    shown, and is required unless the call is denied.

    With `always`, calls that the rule of this scope covers are approved from now on, in this session and by this
    process; the rules are listed with the question.
    """

    tool_call_id: _CallId
    decision: Literal["approve", "deny", "modify_args"]
    arguments: dict[str, Any] | None = None
    question_digest: str | None = None
    always: Scope | None = None
    reason: str | None = None


class ResultRequest(_Body, frozen=True, tag_field="type", tag="result"):
    """The result of a deferred tool call."""

    tool_call_id: _CallId
    content: str | dict[str, Any]
    is_error: bool = False


class AbortRequest(_Body, frozen=True, tag_field="type", tag="abort"):
    """End the open run. The answer so far is kept."""

    reason: str | None = None


class SwitchRequest(_Body, frozen=True, tag_field="type", tag="switch"):
    """Let another model answer, from the next model call on."""

    model: str


class ThinkingRequest(_Body, frozen=True, tag_field="type", tag="thinking"):
    """Let the model think this much from the next run on."""

    level: ThinkingLevel


class RenameRequest(_Body, frozen=True, tag_field="type", tag="rename"):
    """Give the session another title."""

    title: Annotated[str, Meta(min_length=1, max_length=1000)]


class RedactRequest(_Body, frozen=True, tag_field="type", tag="redact"):
    """Hide the content of an entry. Redacting a queued message withdraws it."""

    entry_id: str
    reason: str | None = None


PostedRequest = (
    QueueRequest
    | SteerRequest
    | DecideRequest
    | ResultRequest
    | AbortRequest
    | SwitchRequest
    | ThinkingRequest
    | RenameRequest
    | RedactRequest
)


def message_of(body: _MessageBody) -> Message:
    """The user message; `PartValidationError` if it is empty or an attachment cannot be used."""
    parts: list[ContentPart] = [_part(index, attachment) for index, attachment in enumerate(body.attachments)]
    if body.text.strip():
        parts.append(Text(body.text))
    if not parts:
        raise PartValidationError("The message is empty.", path="$.text")
    return user(*parts)


def _part(index: int, attachment: Attachment) -> Image | FileRef:
    path = f"$.attachments[{index}]"
    try:
        data = base64.b64decode(attachment.data, validate=True)
    except (binascii.Error, ValueError):
        raise PartValidationError("The data is not base64.", path=f"{path}.data") from None
    name = PurePosixPath(attachment.name.replace("\\", "/")).name or "file"  # never a path of the browser's machine
    if not data:
        raise PartValidationError(f"The file {name!r} is empty.", path=f"{path}.data")
    kind = type_of_data(data)
    if kind is not None and kind.startswith("image/"):
        return Image.from_bytes(data, mime_type=kind, name=name)
    if kind is not None:
        return FileRef.from_bytes(data, name, mime_type=kind)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        text = f"The file {name!r} is neither an image (PNG, JPEG, GIF, WebP), a PDF nor UTF-8 text."
        raise PartValidationError(text, path=f"{path}.data") from None
    return FileRef(name, mime_type="text/plain", data=data, size=len(data))
