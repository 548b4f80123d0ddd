"""Histories as they come out of crashes, imports and provider switches: every message is valid, the whole is not."""

from typing import Any

from hypothesis import strategies as st

from weft.errors import ErrorCode
from weft.messages import Message, Meta
from weft.parts import Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

# Few, so that they repeat; allowed everywhere, refused here and there, and the ids that "a" is renamed to.
call_ids = st.sampled_from(["a", "b", "abcdefghi", "functions.read:0", "x" * 70, "cf6d9263c", "2735d0823", "é \n"])
words = st.sampled_from(["", " ", "\n\t", "yes", "no", " maybe "]) | st.text(max_size=5)
continuations = st.none() | st.builds(
    Continuation,
    st.sampled_from(["anthropic-messages", "gemini-generate", "elsewhere"]),
    st.just("m"),
    st.sampled_from([{"signature": "c2ln"}, {"id": "item_1"}, {}]),
)
texts = st.builds(Text, words, ignored=st.booleans(), continuation=continuations)
thoughts = st.builds(Thinking, words, ignored=st.booleans(), continuation=continuations)
images = st.builds(Image, st.just("image/png"), data=st.binary(max_size=3)) | st.just(Image("image/png", url="u:x"))
files = st.builds(FileRef, st.just("notes.txt"), mime_type=st.just("text/plain"), data=st.none() | st.just(b"hi"))
contents: st.SearchStrategy[Any] = (
    words | st.fixed_dictionaries({"value": words}) | st.lists(texts | images, max_size=3).map(tuple)
)
results = st.builds(ToolResult, call_ids, contents, is_error=st.booleans())


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    call_id = draw(call_ids)
    if draw(st.integers(0, 5)) == 0:
        result = ToolResult(call_id, "found") if draw(st.booleans()) else None
        return ToolCall(call_id, "web_search", {}, executed_by="provider", result=result)
    raw_args_text = draw(st.none() | st.just('{"path": '))
    return ToolCall(call_id, "read", {"path": "x"}, raw_args_text=raw_args_text)


def _once_each(parts: list[Part]) -> tuple[Part, ...]:
    """Without a second call or result of one id, which no message may hold."""
    by_id = {part.tool_call_id: part for part in reversed(parts) if isinstance(part, ToolCall | ToolResult)}
    return tuple(
        part
        for part in parts
        if not isinstance(part, ToolCall | ToolResult) or by_id[part.tool_call_id] is part
    )


@st.composite
def metas(draw: st.DrawFn) -> Meta | None:
    if draw(st.booleans()):
        return None
    return Meta(
        open_calls=draw(st.none() | st.lists(call_ids, max_size=2).map(tuple)),
        bad_args=draw(st.none() | st.dictionaries(call_ids, st.just(ErrorCode.TOOL_BAD_ARGUMENTS.value), max_size=2)),
        aborted=draw(st.booleans()),
        finish_reason=draw(st.sampled_from([None, "stop", "pause"])),
    )


_parts: dict[Any, st.SearchStrategy[Any]] = {
    "system": texts | thoughts,
    "user": texts | images | files,
    "assistant": texts | thoughts | calls(),
    "tool": results,
}


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(["assistant", "tool", "user", "system"]))
    parts = _once_each(draw(st.lists(_parts[role], max_size=4)))
    return Message(role, parts, meta=draw(metas()) if role == "assistant" else None)  # type: ignore[arg-type]


histories = st.lists(messages(), max_size=8)
