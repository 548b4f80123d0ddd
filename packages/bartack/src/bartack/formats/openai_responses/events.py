"""The events of the Responses API as typed structs. Any field may be missing, null or of an unexpected type."""

from typing import Any, Literal

import msgspec

__all__ = ["ARGUMENTS", "ENTRY_KINDS", "TEXTS", "Key", "Response", "ResponsesEvent"]

Key = str | int | None


class Response(msgspec.Struct, gc=False):
    """The response object in the events that begin and end a stream, or by itself if it was not streamed."""

    object: Any = None
    id: Any = None
    model: Any = None
    status: Any = None
    error: Any = None
    incomplete_details: Any = None
    usage: Any = None
    output: Any = None
    tools: Any = None


class ResponsesEvent(msgspec.Struct, gc=False):
    """Any event. One struct, because a tagged union would fail on event types that are added later."""

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
    code: Any = None  # set in code_interpreter_call_code.done and in errors
    response: Response | None = None
    error: Any = None
    message: Any = None


# The types of content entries with text, and the kind of part they become.
ENTRY_KINDS: dict[str, Literal["text", "thinking"]] = {
    "output_text": "text",
    "refusal": "text",
    "summary_text": "thinking",
    "reasoning_text": "thinking",
}
# Events with text, `response.<name>.delta` and `.done`, and the type of the entry that the text belongs to.
TEXTS = {
    f"response.{name}.{step}": entry_type
    for name, entry_type in {
        "output_text": "output_text",
        "refusal": "refusal",
        "reasoning_summary_text": "summary_text",
        "reasoning_text": "reasoning_text",
        "reasoning_summary": "summary_text",  # former names of the two above; not recorded
        "reasoning": "reasoning_text",
    }.items()
    for step in ("delta", "done")
}
# Events with the input of a call. The two names with a second dot are former ones; not recorded.
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
