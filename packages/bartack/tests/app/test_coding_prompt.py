"""The system prompt for coding, and who gets which variant."""

from typing import Any

import pytest

from bartack.app.agent_setup import resolve_setup
from bartack.app.coding_prompt import coding_prompt, is_small
from tests.app.config_file import write_config

pytestmark = pytest.mark.usefixtures("folder")


def test_small_models_get_a_short_prompt() -> None:
    assert len(coding_prompt("ollama")) < len(coding_prompt("anthropic")) / 3
    assert is_small("groq", 8_192)
    assert not is_small("groq", 131_072)
    assert coding_prompt("anthropic") == coding_prompt("anthropic", 200_000)


def test_it_is_used_with_tools_for_files_unless_there_are_own_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    options: Any = {"model": "anthropic:claude-sonnet-4-6", "tools": (), "store": "memory:"}
    assert resolve_setup(files=True, instructions=None, **options).instructions == coding_prompt("anthropic")
    assert resolve_setup(files=True, instructions="Mine.", **options).instructions == "Mine."
    assert resolve_setup(files=False, instructions=None, **options).instructions != coding_prompt("anthropic")


def test_tools_for_the_web_are_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    write_config("[web]\nhosts = ['docs.example']\nsearch = true\n")
    options: Any = {"model": "anthropic:claude-sonnet-4-6", "tools": (), "store": "memory:", "instructions": None}
    assert [tool.name for tool in resolve_setup(files=True, **options).tools] == ["fetch", "web_search"]
    assert resolve_setup(files=False, **options).tools == ()
