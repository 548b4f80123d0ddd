"""Generates files of Claude Code: conversations with parallel calls, branches, compactions, sidechains and notes."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.transcripts.json_strategies import scalars, values, words

Json = dict[str, Any]
_ids = st.sampled_from(["c1", "c2", "c3"])
_blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, words, words),
    st.builds(lambda id, args: {"type": "tool_use", "id": id, "name": "f", "input": args}, _ids, values),
    st.builds(lambda id, args: {"type": "tool_use", "id": id, "name": "f", "input": {"x": args}}, _ids, values),
    st.builds(lambda id, text: {"type": "tool_result", "tool_use_id": id, "content": text}, _ids, words),
    st.builds(lambda value: {"type": "image", "source": value}, values),
    st.builds(lambda kind, value: {"type": kind, "x": value}, words, values),
)
_usage = st.none() | st.fixed_dictionaries({"input_tokens": scalars, "output_tokens": st.integers(-1, 9)})


def _kept(anchor: int) -> Json:
    return {"preservedMessages": {"uuids": ["u0", "u1"], "anchorUuid": f"u{anchor}"}}


@st.composite
def _line(draw: st.DrawFn, number: int) -> Json:
    kind = draw(st.sampled_from(["user", "user", "assistant", "assistant", "system", "attachment", "note"]))
    if kind == "note":
        leaf: Json = {"leafUuid": draw(st.integers(0, 12).map("u{}".format) | values), "explicit": draw(st.booleans())}
        kinds = st.sampled_from(["summary", "custom-title", "mode", "last-prompt"]) | words
        return {"type": draw(kinds), "summary": draw(values)} | (leaf if draw(st.booleans()) else {})
    parent = draw(st.sampled_from(["last", "last", "last", "earlier", "none", "absent", "unknown"]))
    before = {"last": number - 1, "earlier": draw(st.integers(0, max(0, number - 1)))}.get(parent)
    line: Json = {"type": kind, "uuid": f"u{number}", "timestamp": draw(st.just("2026-01-01T00:00:00Z") | values)}
    if parent != "absent":
        line["parentUuid"] = None if parent == "none" else "?" if before is None else f"u{before}"
    line |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "isSidechain": st.booleans(),
                "isMeta": st.booleans(),
                "isCompactSummary": st.sampled_from([False, False, True]),
                "isApiErrorMessage": st.sampled_from([False, False, True]),
                "toolUseResult": values,
                "subtype": st.sampled_from(["compact_boundary", "other"]),
                "compactMetadata": values | st.builds(_kept, st.integers(0, 12)),
                "logicalParentUuid": st.integers(0, 12).map("u{}".format) | values,
                "attachment": st.just({"type": "queued_command", "prompt": "p"}) | values,
            },
        )
    )
    if kind in ("user", "assistant"):
        content = draw(words | st.lists(_blocks, max_size=3) | values)
        line["message"] = {"role": kind, "content": content}
        if kind == "assistant":
            line["message"] |= {"id": draw(st.sampled_from(["m1", "m2", "m3"])), "model": "claude-x"}
            line["message"]["usage"] = draw(_usage)
    return line


@st.composite
def _file(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(0, 12))
    lines = [json.dumps(draw(_line(number))) for number in range(count)]
    return "".join(line + "\n" for line in lines).encode()


files = _file()
