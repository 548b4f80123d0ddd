"""What Bedrock's Converse and InvokeModel reject, for `tests.formats.validity.checks`.

Sources: the API reference of Converse (Message, ContentBlock, ToolUseBlock, DocumentBlock, ToolConfiguration), and the
service's error messages where they are quoted. What the model itself refuses is included for Claude.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.formats.validity import claude
from tests.formats.validity.openai import chat_faults
from tests.formats.validity.rules import NAME, Json, is_blank, missing, not_base64, not_matching, twice

_BLOCKS = (
    *("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent", "cachePoint"),
    *("reasoningContent", "citationsContent", "searchResult"),
)
_IN_RESULTS = ("text", "json", "image", "document", "video", "searchResult")
_FORMATS = {
    "image": "png|jpeg|gif|webp",
    "document": "pdf|csv|doc|docx|xls|xlsx|html|txt|md",
    "video": "(video/)?(mkv|mov|mp4|webm|flv|mpeg|mpg|wmv|three_gp)",
    "audio": "mp3|opus|wav|aac|flac|mp4|ogg|mkv|mka|x-aac|m4a|mpeg|mpga|pcm|webm",
}
_DOCUMENT_NAME = r"[A-Za-z0-9()\[\]-]+( [A-Za-z0-9()\[\]-]+)*"  # no consecutive spaces
_MAX_POINTS = 4


def invoke_faults(body: Json, model: str) -> Iterator[str]:
    if "anthropic_version" in body:
        yield from claude.faults(body, model)
    elif "inputText" in body:
        if is_blank(body["inputText"]):
            yield "$.inputText is blank"
    elif "schemaVersion" in body or "nova" in model:
        yield from converse_faults(body, model)
    else:
        yield from chat_faults({"model": model, **body}, "bedrock")


def converse_faults(body: Json, model: str) -> Iterator[str]:
    for place, block in enumerate(body.get("system", [])):
        if "text" in block and is_blank(block["text"]):
            yield f"$.system[{place}].text is blank"
    messages = body.get("messages") or []
    if "titan" not in model:  # it accepts adjacent messages of one role
        yield from _order([message.get("role") for message in messages], model)
        yield from _prefill(messages)
    for place, message in enumerate(messages):
        yield from _message(message, f"$.messages[{place}]", model)
    yield from twice(_document_names(messages), "Duplicate document names")
    yield from _pairs(messages)
    yield from _tool_config(body, messages)
    yield from _thinking(body, messages)
    if _points(body) > _MAX_POINTS:
        yield "too many cache points"


def _order(roles: list[Any], model: str) -> Iterator[str]:
    if roles[:1] != ["user"]:
        yield "A conversation must start with a user message"
    if any(before == role for before, role in pairwise(roles)):
        yield "A conversation must alternate between user and assistant roles"
    if roles[-1:] == ["assistant"] and not claude.continues_answers(model):
        yield "A conversation must end with a user message"


def _prefill(messages: list[Json]) -> Iterator[str]:
    last = messages[-1] if messages else {}
    text = last.get("content", [{}])[-1].get("text", "") if last.get("role") == "assistant" else ""
    if text != text.rstrip():
        yield "final assistant content cannot end with trailing whitespace"


def _message(message: Json, path: str, model: str) -> Iterator[str]:
    blocks = message.get("content") or []
    if not isinstance(blocks, list) or not blocks:
        yield f"{path}: the content field is empty"
        return
    for place, block in enumerate(blocks):
        if "text" in block and block["text"] and place and "document" in blocks[place - 1]:
            continue  # recorded: after a document a newline is accepted
        yield from _block(block, message.get("role"), f"{path}.content[{place}]", model, _BLOCKS)
    kinds = [next(iter(block)) for block in blocks]
    if "document" in kinds and "text" not in kinds and "toolResult" not in kinds:
        yield f"{path}: a text block must be included when using documents"
    if kinds[0] == "cachePoint":
        yield f"{path}: a cache point must follow content"
    for before, kind_after in pairwise(kinds):
        if kind_after == "cachePoint" and before in ("document", "video", "cachePoint"):
            yield f"{path}: a cache point directly follows a {before}"
    if message.get("role") == "assistant" and kinds[-1] == "reasoningContent":
        yield f"{path}: the final block cannot be thinking"


def _block(block: Json, role: Any, path: str, model: str, allowed: tuple[str, ...]) -> Iterator[str]:
    if len(block) != 1 or next(iter(block)) not in allowed:
        yield f"{path}: exactly one of {allowed}, got {list(block)}"
        return
    [(kind, value)] = block.items()
    path = f"{path}.{kind}"
    match kind:
        case "text":
            if is_blank(value):
                yield f"{path}: the text field in the ContentBlock object is blank"
        case "json":
            yield from missing(value, (), path)
        case "image" | "document" | "video" | "audio":
            yield from _media(kind, value, path)
        case "toolUse":
            yield from missing(value, ("toolUseId", "name", "input"), path)
            yield from not_matching(r"[a-zA-Z0-9_.:-]{1,64}", value.get("toolUseId"), f"{path}.toolUseId")
            yield from not_matching(NAME, value.get("name"), f"{path}.name")
            yield from missing(value.get("input"), (), f"{path}.input")
        case "toolResult":
            yield from missing(value, ("toolUseId", "content"), path)
            if not value.get("content"):
                yield f"{path}.content is empty"
            for place, piece in enumerate(value.get("content") or []):
                yield from _block(piece, role, f"{path}.content[{place}]", model, _IN_RESULTS)
        case "reasoningContent":
            yield from _reasoning(value, path, model)
    if kind in ("toolUse", "reasoningContent") and role != "assistant":
        yield f"{path} is only permitted in assistant messages"
    if kind in ("image", "document", "video", "audio", "guardContent") and role != "user":
        yield f"{path} is only permitted in user messages"


def _media(kind: str, value: Json, path: str) -> Iterator[str]:
    yield from not_matching(
        _FORMATS[kind], value.get("format", "txt" if kind == "document" else None), f"{path}.format"
    )
    source = value.get("source") or {}
    if "bytes" in source:
        yield from not_base64(source["bytes"], f"{path}.source.bytes")
    elif "s3Location" in source:
        yield from not_matching(r"s3://.+", source["s3Location"].get("uri"), f"{path}.source")
    elif "text" not in source and "content" not in source:
        yield f"{path}.source is missing"
    if kind == "document":
        yield from not_matching(_DOCUMENT_NAME, value.get("name"), f"{path}.name")


def _reasoning(value: Json, path: str, model: str) -> Iterator[str]:
    if "redactedContent" in value:
        yield from not_base64(value["redactedContent"], path)
        return
    yield from missing(value.get("reasoningText"), ("text",), path)
    if "anthropic" in model and not (value.get("reasoningText") or {}).get("signature"):
        yield f"{path}: thinking has no signature"


def _ids(message: Json, kind: str) -> list[Any]:
    own = [block[kind] for block in message.get("content") or [] if kind in block]
    return [block.get("toolUseId") for block in own if block.get("type") != "server_tool_use"]


def _pairs(messages: list[Json]) -> Iterator[str]:
    own = {
        block["toolUse"].get("toolUseId")
        for message in messages
        for block in message.get("content") or []
        if block.get("toolUse", {}).get("type") == "server_tool_use"
    }
    yield from twice([call_id for message in messages for call_id in _ids(message, "toolUse")], "toolUseId")
    for before, following in zip([{}, *messages], [*messages, {}], strict=True):
        due = _ids(before, "toolUse")
        answered = [call_id for call_id in _ids(following, "toolResult") if call_id not in own]
        if sorted(map(str, due)) != sorted(map(str, answered)):
            yield f"toolUse {due} is answered by {answered}"


def _tool_config(body: Json, messages: list[Json]) -> Iterator[str]:
    config = body.get("toolConfig")
    kinds = {next(iter(block)) for message in messages for block in message.get("content") or []}
    if kinds & {"toolUse", "toolResult"} and not config:
        yield "The toolConfig field must be defined when using toolUse and toolResult content blocks"
    if config is not None and not config.get("tools"):
        yield "$.toolConfig.tools is empty"
    for place, tool in enumerate((config or {}).get("tools") or []):
        spec = tool.get("toolSpec")
        if spec is not None:
            yield from not_matching(NAME, spec.get("name"), f"$.toolConfig.tools[{place}].name")
            yield from missing(spec, ("inputSchema",), f"$.toolConfig.tools[{place}]")


def _thinking(body: Json, messages: list[Json]) -> Iterator[str]:
    """What Claude requires of an unfinished turn; see `claude.first_block_of_turn`."""
    if (body.get("additionalModelRequestFields", {}).get("thinking") or {}).get("type") != "enabled":
        return
    first: Json | None = None
    for message in reversed(messages):
        kinds = {next(iter(block)) for block in message["content"]}
        if message["role"] == "assistant":
            first = message["content"][0]
        elif "toolResult" not in kinds:
            break
    is_open = "toolResult" in {next(iter(block)) for block in messages[-1]["content"]}
    if is_open and first is not None and "reasoningContent" not in first:
        yield f"Expected thinking or redacted_thinking, but found {list(first)}"


def _document_names(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [name for inner in value for name in _document_names(inner)]
    if isinstance(value, dict):
        own = [value["document"].get("name")] if isinstance(value.get("document"), dict) else []
        return own + [name for key, inner in value.items() if key != "input" for name in _document_names(inner)]
    return []


def _points(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_points, value))
    if isinstance(value, dict):
        return int("cachePoint" in value) + sum(_points(inner) for key, inner in value.items() if key != "input")
    return 0
