"""Thinking settings between formats: the meaning goes to every format, the exact form only back to its own."""

from typing import Any

import pytest
from msgspec.structs import replace

from bartack.formats import encode, read_request
from bartack.formats.settings import BUDGETS, budget_of, effort_of
from bartack.nouns.config import ThinkingConfig


@pytest.mark.parametrize(
    ("budget", "effort"),
    [(0, "none"), (1, "low"), (4096, "low"), (4097, "medium"), (12_288, "medium"), (12_289, "high"), (64_000, "high")],
)
def test_a_budget_has_a_nearest_effort(budget: int, effort: str) -> None:
    assert effort_of(ThinkingConfig(budget_tokens=budget)) == effort


def test_an_effort_has_a_budget_and_is_preferred_to_one() -> None:
    assert effort_of(ThinkingConfig(effort="max", budget_tokens=1)) == "max"
    assert effort_of(ThinkingConfig()) is None
    assert budget_of(ThinkingConfig(effort="medium")) == 8192
    assert budget_of(ThinkingConfig(effort="medium", budget_tokens=5)) == 5
    assert budget_of(ThinkingConfig()) is None


def test_every_budget_of_an_effort_means_that_effort_again() -> None:
    for effort in ("low", "medium", "high"):
        assert effort_of(ThinkingConfig(budget_tokens=BUDGETS[effort])) == effort


MESSAGES = {"max_tokens": 32_000, "messages": [{"role": "user", "content": "Hi"}]}
ADAPTIVE = {"type": "adaptive", "display": "omitted"}


@pytest.mark.parametrize("model", ["claude-opus-4-8", "sonnet", "claude-3-5-haiku-latest"])
@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"thinking": ADAPTIVE, "output_config": {"effort": "medium"}}, "medium"),
        ({"thinking": ADAPTIVE}, "high"),
        ({"output_config": {"effort": "xhigh"}}, "xhigh"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, "medium"),
        ({"thinking": {"type": "disabled"}}, "none"),
    ],
)
def test_thinking_of_claude_code_reaches_other_formats_and_comes_back_unchanged(
    model: str, fields: dict[str, Any], effort: str
) -> None:
    request = read_request("anthropic-messages", {"model": model, **MESSAGES, **fields})
    again = encode("anthropic-messages", request)
    assert {key: again.body[key] for key in again.body.keys() & {"thinking", "output_config"}} == fields
    assert again.report.losses == ()
    chat = encode("openai-chat", replace(request, provider="openai"))
    assert chat.body["reasoning_effort"] == effort
    assert [loss.where for loss in chat.report.losses if "thinking" not in loss.where] == []
    responses = encode("openai-responses", replace(request, provider="openai"))
    assert responses.body["reasoning"]["effort"] == effort


@pytest.mark.parametrize(
    ("setting", "effort"),
    [
        ({"thinkingBudget": 8192}, "medium"),
        ({"thinkingBudget": 0}, "none"),
        ({"thinkingLevel": "HIGH"}, "high"),
        ({"thinkingBudget": -1, "includeThoughts": True}, None),
        ({"includeThoughts": True}, None),
    ],
)
def test_thinking_of_gemini_cli_is_understood_whatever_the_model(setting: dict[str, Any], effort: str | None) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {"thinkingConfig": setting}}
    for model in ("gemini-2.5-pro", "gemini-3-pro", "alias"):
        request = read_request("gemini-generate", body, model_id=model)
        again = encode("gemini-generate", request).body["generationConfig"]["thinkingConfig"]
        assert {**again, **{key: str(again[key]).upper() for key in again.keys() & {"thinkingLevel"}}} == setting
        assert encode("openai-responses", replace(request, provider="")).body["reasoning"].get("effort") == effort
    odd = {**body, "generationConfig": {"thinkingConfig": {"thinkingLevel": "VAST"}}}
    assert read_request("gemini-generate", odd, model_id="m").config.thinking is None


def test_the_fields_of_a_turn_go_back_with_it() -> None:
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "Hurry.", "output_config": {"effort": "low"}},
        {"role": "assistant", "content": "So"},
        {"role": "user", "content": [{"type": "text", "text": "Go"}], "odd": 1},
    ]
    body = {"model": "claude-opus-4-8", "max_tokens": 9, "messages": turns}
    again = encode("anthropic-messages", read_request("anthropic-messages", body))
    assert [{key: turn[key] for key in turn.keys() - {"role", "content"}} for turn in again.body["messages"]] == [
        {},
        {"output_config": {"effort": "low"}},
        {},
        {"odd": 1},
    ]
    other = encode("openai-chat", replace(read_request("anthropic-messages", body), provider=""))
    assert [loss.where for loss in other.report.losses] == ["messages[1].parts[0]", "messages[3].parts[0]"]
    merged = [{"role": "user", "content": "a"}, {"role": "user", "content": "b", "odd": 1}]
    request = read_request("anthropic-messages", {**body, "messages": [*merged, {"role": "assistant", "content": []}]})
    assert encode("anthropic-messages", request).body["messages"][0]["odd"] == 1
