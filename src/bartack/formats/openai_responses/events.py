"""The events of the Responses API, as far as they are read. Everything may be missing, null or of an odd type."""

from typing import Any, Literal

import msgspec

__all__ = ["ARGUMENTS", "ENTRY_KINDS", "TEXTS", "Event", "Key", "Response"]

Key = str | int | None


class Response(msgspec.Struct, gc=False):
    """The response as the events that begin and end it tell of it."""

    id: Any = None
    model: Any = None
    status: Any = None
    error: Any = None
    incomplete_details: Any = None
    usage: Any = None
    output: Any = None
    tools: Any = None


class Event(msgspec.Struct, gc=False):
    """Any event: one struct, since decoding a tagged union would fail on the types that are added every month."""

    type: str | None = None
    delta: Any = None
    item_id: Key = None
    output_index: Key = None
    content_index: Key = None
    summary_index: Key = None
    item: Any = None
    part: Any = None
    annotation: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    code: Any = None  # of code_interpreter_call_code.done; of an error
    response: Response | None = None
    error: Any = None
    message: Any = None


# The types of the entries that hold text, and the kind of part they become.
ENTRY_KINDS: dict[str, Literal["text", "thinking"]] = {
    "output_text": "text",
    "refusal": "text",
    "summary_text": "thinking",
    "reasoning_text": "thinking",
}
# Events with text: `response.<name>.delta` and `.done` -> the type of the entry that they tell.
TEXTS = {
    f"response.{name}.{step}": entry_type
    for name, entry_type in {
        "output_text": "output_text",
        "refusal": "refusal",
        "reasoning_summary_text": "summary_text",
        "reasoning_text": "reasoning_text",
        "reasoning_summary": "summary_text",  # the names of the two before them
        "reasoning": "reasoning_text",
    }.items()
    for step in ("delta", "done")
}
# Events with the input of a call.
ARGUMENTS = [
    f"response.{name}.{step}"
    for name in (
        "function_call_arguments",
        "custom_tool_call_input",
        "mcp_call_arguments",
        "mcp_call.arguments",
        "code_interpreter_call_code",
        "code_interpreter_call.code",
    )
    for step in ("delta", "done")
]
