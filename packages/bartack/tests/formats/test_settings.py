"""Settings that only some providers have: written as each provider takes them, or reported as losses."""

from typing import Any

import pytest

from bartack.formats import FORMATS, encode
from bartack.nouns.config import CacheConfig, ModelConfig
from bartack.nouns.messages import assistant, system, user
from bartack.nouns.parts import FileRef, Image
from bartack.nouns.requests import ModelRequest

PICTURE = b"\x89PNG\r\n\x1a\n"
# A format, a provider that uses it, and a model.
CASES = {
    "anthropic": ("anthropic-messages", "claude-sonnet-4-6"),
    "openai": ("openai-responses", "gpt-5"),
    "openai-chat": ("openai-chat", "gpt-5"),
    "groq": ("openai-chat", "openai/gpt-oss-120b"),
    "openrouter": ("openai-chat", "anthropic/claude-sonnet-4.6"),
    "mistral": ("openai-chat", "mistral-large"),
    "google": ("gemini-generate", "gemini-3.5-flash"),
    "gemini-interactions": ("gemini-interactions", "gemini-3.5-flash"),
    "bedrock": ("bedrock-converse", "anthropic.claude-sonnet-4-6-v1:0"),
    "bedrock-invoke": ("bedrock-invoke", "amazon.titan-text-premier-v1:0"),
    "cohere": ("cohere-v2", "command-a"),
    "ollama": ("ollama-chat", "qwen3"),
}


def test_every_format_has_a_case() -> None:
    assert {format for format, _ in CASES.values()} == set(FORMATS)


def encoded(provider: str, *content: Any, **settings: Any) -> tuple[dict[str, Any], list[str]]:
    format, model_id = CASES[provider]
    messages = (system("Be brief."), user("Hi"), assistant("Hello."), user("Look", *content))
    request = ModelRequest(messages, config=ModelConfig(model_id, **settings), provider=provider)
    result = encode(format, request)
    return result.body, [loss.where for loss in result.report.losses]


TIERS: dict[str, Any] = {
    **{name: {"service_tier": "flex"} for name in ("anthropic", "openai", "openai-chat", "groq", "openrouter")},
    "bedrock": {"serviceTier": {"type": "flex"}},
}


@pytest.mark.parametrize("provider", CASES)
def test_service_tier(provider: str) -> None:
    body, lost = encoded(provider, service_tier="flex")
    if provider in TIERS:
        assert body.items() >= TIERS[provider].items()
        assert lost == []
    else:
        assert lost == ["config.serviceTier"]
        assert "flex" not in str(body)


VERBOSITY: dict[str, Any] = {
    "openai": {"text": {"verbosity": "low"}},
    "openai-chat": {"verbosity": "low"},
    "openrouter": {"verbosity": "low"},
}


@pytest.mark.parametrize("provider", CASES)
def test_verbosity(provider: str) -> None:
    body, lost = encoded(provider, verbosity="low")
    if provider in VERBOSITY:
        assert body.items() >= VERBOSITY[provider].items()
        assert lost == []
    else:
        assert lost == ["config.verbosity"]


def test_verbosity_beside_a_schema_and_a_setting_of_the_users() -> None:
    body, _ = encoded(
        "openai", verbosity="low", output_schema={"type": "object"}, extra={"text": {"verbosity": "high"}}
    )
    assert body["text"]["verbosity"] == "high"
    assert "format" in body["text"]


@pytest.mark.parametrize(("ttl", "sent"), [(None, None), ("5m", "5m"), ("1h", "1h"), ("24h", "1h")])
@pytest.mark.parametrize("provider", ["anthropic", "openrouter", "bedrock"])
def test_the_breakpoints_of_a_cache_have_a_lifetime(provider: str, ttl: Any, sent: str | None) -> None:
    body, lost = encoded(provider, cache_config=CacheConfig(ttl=ttl))
    mark = {"type": "default" if provider == "bedrock" else "ephemeral", **({} if sent is None else {"ttl": sent})}
    assert f"{'cachePoint' if provider == 'bedrock' else 'cache_control'}': {mark}" in str(body)
    assert set(lost) == ({"config.cacheConfig.ttl"} if ttl == "24h" else set())


@pytest.mark.parametrize(("ttl", "is_lost"), [("5m", False), ("1h", True), ("24h", False)])
@pytest.mark.parametrize("provider", ["openai", "openai-chat"])
def test_openai_keeps_a_prompt_for_minutes_or_a_day(provider: str, ttl: Any, is_lost: bool) -> None:
    body, lost = encoded(provider, cache_config=CacheConfig(ttl=ttl))
    assert body.get("prompt_cache_retention") == ("24h" if ttl == "24h" else None)
    assert lost == (["config.cacheConfig.ttl"] if is_lost else [])


@pytest.mark.parametrize("provider", ["mistral", "google", "cohere"])
def test_others_report_the_lifetime_as_a_loss(provider: str) -> None:
    assert "config.cacheConfig.ttl" in encoded(provider, cache_config=CacheConfig(ttl="1h"))[1]
    assert "config.cacheConfig.ttl" not in encoded(provider, cache_config=CacheConfig())[1]


@pytest.mark.parametrize("provider", CASES)
def test_the_detail_of_an_image(provider: str) -> None:
    body, lost = encoded(provider, Image("image/png", data=PICTURE, detail="low"))
    if provider in ("openai", "openai-chat", "groq", "openrouter", "mistral"):
        assert "'detail': 'low'" in str(body)
        assert not any("detail" in where for where in lost)
    else:
        assert "messages[3].parts[1].detail" in lost


def test_an_image_file_has_the_default_detail() -> None:
    body, _ = encoded("openai", FileRef("a.png", mime_type="image/png", data=PICTURE))
    assert body["input"][-1]["content"][1]["detail"] == "auto"


@pytest.mark.parametrize(
    ("provider", "extra"),
    [
        ("google", {"safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]}),
        ("bedrock", {"guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"}}),
        ("openai", {"safety_identifier": "user-1"}),
        ("mistral", {"safe_prompt": True}),
        ("cohere", {"safety_mode": "STRICT"}),
    ],
)
def test_safety_settings_are_the_providers_own(provider: str, extra: dict[str, Any]) -> None:
    body, lost = encoded(provider, extra=extra)
    assert body.items() >= extra.items()
    assert lost == []
