"""Items that only their provider understands go back to it, in any place of any conversation."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bartack.formats import ModelRequest, encode, read_request
from bartack.nouns.wire import dump, load

Json = dict[str, Any]

words = st.text("abcxyz", min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
unknown = st.builds(lambda kind, fields: {**fields, "type": f"new_{kind}"}, words, st.dictionaries(words, values))
texts = words.map(lambda text: {"type": "text", "text": text})


def again(format: str, body: Json) -> tuple[Json, list[str]]:
    """The body after reading, storing, loading and encoding it, and what was lost of its messages."""
    request = load(ModelRequest, json.loads(json.dumps(dump(read_request(format, body)))))
    encoded = encode(format, request)
    return encoded.body, [loss.where for loss in encoded.report.losses]


@st.composite
def claude_turns(draw: st.DrawFn) -> list[Json]:
    """User and assistant turns of texts and unknown blocks, and calls whose results contain both."""
    turns: list[Json] = []
    blocks = st.lists(texts | unknown, min_size=1, max_size=3)
    for number in range(draw(st.integers(1, 3))):
        turns.append({"role": "user", "content": draw(blocks)})
        answer: Json = {"role": "assistant", "content": draw(blocks)}
        turns.append(answer)
        if draw(st.booleans()):
            answer["content"].append({"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}})
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": draw(blocks)}
            turns += [{"role": "user", "content": [result]}, {"role": "assistant", "content": draw(blocks)}]
    return [*turns, {"role": "user", "content": draw(blocks)}]


@given(claude_turns())
def test_blocks_go_back_to_anthropic(turns: list[Json]) -> None:
    body, lost = again("anthropic-messages", {"model": "claude-opus-4-8", "max_tokens": 9, "messages": turns})
    assert (body["messages"], lost) == (turns, [])


ITEMS = ("compaction", "compaction_summary", "item_reference", "additional_tools", "new_call", "new_response")
items = st.builds(
    lambda kind, number, fields: {**fields, "type": kind, "id": f"i{number}"},
    st.sampled_from(ITEMS),
    st.integers(0, 999),
    st.dictionaries(words, values),
)


@given(st.lists(items | words.map(lambda text: {"role": "user", "content": text}), min_size=1, max_size=6))
def test_items_go_back_to_openai(history: list[Json]) -> None:
    named = [
        {**item, **({"id": f"{item['id']}-{place}"} if "id" in item else {})} for place, item in enumerate(history)
    ]
    body, lost = again("openai-responses", {"model": "gpt-5", "input": named, "store": True})
    assert (body["input"], lost) == (named, [])
