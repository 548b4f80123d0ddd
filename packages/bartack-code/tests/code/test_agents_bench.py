"""The comparison with other coding agents: what counts as cached, and a round of Bartack itself."""

from pathlib import Path
from typing import Any

import pytest

from bench.agents import STEPS, cached_share, rounds

TOOLS = [{"name": "read"}]


def body(*messages: str, cached: bool = True, tools: Any = None) -> dict[str, Any]:
    mark = {"cache_control": {"type": "ephemeral"}} if cached else {}
    parts = [{"type": "text", "text": text} for text in messages]
    contents = [{"role": "user", "content": [part]} for part in (*parts[:-1], {**parts[-1], **mark})]
    return {"tools": tools or TOOLS, "system": "Be brief.", "messages": contents}


def test_only_an_equal_beginning_counts_as_cached_and_only_where_it_is_marked() -> None:
    assert cached_share([body("a")]) == 0
    assert cached_share([body("a"), body("a")]) == pytest.approx(0.5)
    assert cached_share([body("a"), body("a", cached=False)]) == 0
    assert cached_share([body("a"), body("a", tools=[{"name": "other"}])]) == 0
    longer = cached_share([body("a"), body("a", "b" * 1_000)])
    assert 0 < longer < 0.2


def test_responses_of_openai_need_no_marks() -> None:
    request = {"instructions": "Be brief.", "tools": TOOLS, "input": [{"role": "user", "content": "a"}]}
    assert cached_share([request, request]) == pytest.approx(0.5)


def test_a_run_of_twenty_steps_caches_nine_tenths_of_what_it_sends(tmp_path: Path) -> None:
    (outcome,) = rounds(["bartack"], 1, tmp_path)
    assert outcome.requests == STEPS + 1
    assert outcome.cached_share > 0.9
    assert outcome.sent_bytes < 1_200_000
