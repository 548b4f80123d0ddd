"""Histories as left by crashes, imports and provider switches: every message is valid, the whole may not be.

Parts come from small sets, so that ids collide, and each costs one draw, so that long histories are cheap.
"""

from typing import Any, get_args

from hypothesis import strategies as st

from bartack.nouns.messages import Message, Meta, Role
from bartack.nouns.parts import Continuation, FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from tests.properties.answers import LEFT

# Accepted everywhere, refused by some, and the first two ids that "a" is renamed to.
CALL_IDS = ["a", "b", "abcdefghi", "functions.read:0", "x" * 70, "é \n", "cf6d9263c", "2735d0823"]
_few_ids = st.sampled_from(CALL_IDS[:3])
call_ids = _few_ids | _few_ids | st.sampled_from(CALL_IDS)

_signed = Continuation("gemini-generate", "m", {"signature": "c2ln", "thoughtSignature": "c2ln"})
_item = Continuation("elsewhere", "m", {"id": "item_1"})
_image = Image("image/png", data=b"\x89PNG")
_texts = [
    *(Text(words) for words in ("", " \n", "yes", "no", " maybe ", "ünï \N{GRINNING FACE}")),
    Text("", continuation=_signed),
    Text("aside", ignored=True),
    Text("", ignored=True),
    Text("cited", continuation=_item),
]
_thoughts = [
    Thinking("hm"),
    Thinking("", continuation=_signed),
    Thinking("so", continuation=_item),
    Thinking("-", ignored=True),
]
_media = [_image, Image("image/png", url="https://example.com/x.png"), FileRef("a.txt"), FileRef("b.pdf", data=b"%PDF")]
_contents: list[Any] = ["", "done", {"value": 1}, (), (Text("ok"), Text("")), (Text(" "),), (_image, Text("ok"))]


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    call_id = draw(call_ids)
    match draw(st.integers(0, 7)):
        case 0:
            return ToolCall(call_id, "web_search", {}, executed_by="provider", result=ToolResult(call_id, "found"))
        case 1:
            return ToolCall(call_id, "web_search", {}, executed_by="provider", continuation=_item)
        case 2:
            return ToolCall(call_id, "read", {}, raw_args_text='{"path": ')
        case number:
            return ToolCall(call_id, "read", {"number": number})


results = st.builds(ToolResult, call_ids, st.sampled_from(_contents), is_error=st.booleans())
metas = st.builds(
    Meta,
    open_calls=st.none() | st.none() | st.lists(call_ids, max_size=2).map(tuple),
    bad_args=st.none() | st.dictionaries(call_ids, st.just("not JSON"), max_size=2),
    aborted=st.booleans(),
    finish_reason=st.sampled_from([None, "stop", "pause"]),
)
_parts: dict[Role, st.SearchStrategy[Any]] = {
    "system": st.sampled_from([*_texts, *_thoughts]),
    "user": st.sampled_from([*_texts, *_texts, *_media]),
    "assistant": calls() | st.sampled_from(_texts) | st.sampled_from(_thoughts),
    "tool": results,
}


def _once_each(parts: list[Part]) -> tuple[Part, ...]:
    """Without repeated calls or results of one id, which a message may not contain."""
    by_id = {part.tool_call_id: part for part in reversed(parts) if isinstance(part, ToolCall | ToolResult)}
    return tuple(
        part for part in parts if not isinstance(part, ToolCall | ToolResult) or by_id[part.tool_call_id] is part
    )


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from([*get_args(Role), "assistant", "assistant", "tool", "tool"]))
    parts = _once_each(draw(st.lists(_parts[role], max_size=4)))
    return Message(role, parts, meta=draw(st.none() | metas) if role == "assistant" else None)


@st.composite
def exchanges(draw: st.DrawFn, number: int) -> list[Message]:
    """A question, one to three calls, their results in one message or one each, an answer: as providers require it."""
    ids = [f"call0{number}00{place}" for place in range(draw(st.integers(1, 3)))]
    answers = [ToolResult(call_id, f"result of {call_id}") for call_id in ids]
    together = draw(st.booleans())
    return [
        Message("user", (Text("what?"),)),
        Message("assistant", (Thinking("hm"), *(ToolCall(call_id, "read", {}) for call_id in ids))),
        *([Message("tool", tuple(answers))] if together else [Message("tool", (answer,)) for answer in answers]),
        Message("assistant", (Text("that."),), meta=Meta(finish_reason=draw(st.sampled_from(["stop", "pause"])))),
    ]


@st.composite
def damaged(draw: st.DrawFn) -> list[Message]:
    """A valid history with up to three messages lost, repeated, moved, reversed or replaced."""
    history = [message for number in range(draw(st.integers(1, 2))) for message in draw(exchanges(number))]
    history = history[: len(history) - draw(st.integers(0, 1))]
    for damage in draw(st.lists(st.sampled_from(["lose", "repeat", "move", "turn", "add"]), max_size=3)):
        place, target = draw(st.tuples(*[st.integers(0, len(history) - 1)] * 2))
        message = history[place]
        match damage:
            case "lose" if len(history) > 1:
                del history[place]
            case "repeat":
                history.insert(target, message)
            case "move":
                history.insert(target, history.pop(place))
            case "turn":
                history[place] = Message(message.role, message.parts[::-1], meta=message.meta)
            case _:
                history.insert(place, draw(messages()))
    return history


histories = damaged() | st.lists(messages(), max_size=8)

# -- for encoders: media of every kind, names of tools, answers of every provider

_odd_media = [
    *_media,
    Image("image/bmp", data=b"BM"),
    Image("image/png", data=b""),
    Image("image/*", url="http://example.com/y"),
    Image("image/jpeg", url="file:///tmp/z.jpg"),
    Image("image/png", url="data:image/png;base64,iVBORw0KGgo="),
    Image("image/png", url="data:image/png;base64,?"),
    Image("image/png", url="data:image/png;base64,é"),
    FileRef("c.pdf", mime_type="application/pdf", data=b"%PDF"),
    FileRef("c.pdf", mime_type="application/pdf", url="https://example.com/c.pdf"),
    FileRef("d.txt", mime_type="text/plain", data=b"words"),
    FileRef("d.txt", mime_type="text/plain", data=b""),
    FileRef("", mime_type="application/x-thing", data=b"\0"),
    FileRef("e.wav", mime_type="audio/wav", data=b"RIFF"),
    FileRef("f.mp4", mime_type="video/mp4", data=b"...."),
    FileRef("f.mp4", mime_type="video/mp4", url="s3://bucket/f.mp4"),
    FileRef("g.svg", mime_type="image/svg+xml", data=b"<svg/>"),
]
_odd_names = ["", "read file", "mcp.read", "1st", "n" * 200, "läs"]
_odd_arguments: list[dict[str, Any]] = [{}, {"n": 2**70}, {"": None}, {"s": "ü \x00"}]


@st.composite
def _odd_calls(draw: st.DrawFn) -> ToolCall:
    arguments, raw = draw(st.sampled_from(_odd_arguments)), draw(st.sampled_from([None, None, "", "[1]", '{"a']))
    return ToolCall(
        draw(call_ids), draw(st.sampled_from(_odd_names)), {} if raw is not None else arguments, raw_args_text=raw
    )


@st.composite
def _left_parts(draw: st.DrawFn) -> Part:
    make = draw(st.sampled_from(LEFT[draw(st.sampled_from(sorted(LEFT)))]))
    return make(draw(call_ids))


_media_content = st.lists(st.sampled_from([*_odd_media, Text("ok"), Text(" ")]), max_size=3).map(tuple)
_odd_results = st.builds(
    ToolResult, call_ids, st.sampled_from([*_contents, " ", {}]) | _media_content, is_error=st.booleans()
)
_odd_parts: dict[Role, st.SearchStrategy[Any]] = {
    "system": _parts["system"],
    "user": st.sampled_from([*_texts, *_odd_media]),
    "assistant": _left_parts() | _left_parts() | _odd_calls() | _parts["assistant"],
    "tool": _odd_results,
}


@st.composite
def odd_messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from([*get_args(Role), "user", "assistant", "assistant", "tool"]))
    parts = _once_each(draw(st.lists(_odd_parts[role], max_size=4)))
    return Message(role, parts, meta=draw(st.none() | metas) if role == "assistant" else None)


encodable_histories = st.lists(odd_messages() | odd_messages() | messages(), max_size=8) | damaged()
