"""What is public is what `__all__` says, and all of it is there."""

import importlib
import inspect
import json
import pkgutil
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bartack

CORE = """
    noun errors parts deltas messages config tables entries json_values wire document_parts ids contract assembler
    partial_json tool_state redaction repair history_rules schema edge
"""
MODULES = [f"bartack.{name}" for name in CORE.split()] + [
    module.name
    for package in ("bartack.formats", "bartack.formats", "bartack.views")
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
]


LATE_MODULES = ("agent", "decode", "encode", "models", "store", "tools", "views")
LATE_NAMES = {"Agent": "agent", "ToolContext": "tools", "model": "models", "open_store": "store", "tool": "tools"}


def in_order(names: list[str]) -> list[str]:
    """Constants, then classes, then functions; each by their letters."""
    return sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))


def test_the_package_shows_what_it_says_and_nothing_else() -> None:
    here = {name for name, value in vars(bartack).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert set(bartack.__all__) == here | {"__version__", *LATE_NAMES}
    assert bartack.__all__ == in_order(bartack.__all__)
    assert len(set(bartack.__all__)) == len(bartack.__all__)
    assert [name for name in bartack.__all__ if not hasattr(bartack, name)] == []


@pytest.mark.parametrize("name", LATE_MODULES)
def test_what_is_large_is_there_when_it_is_asked_for(name: str) -> None:
    vars(bartack).pop(name, None)
    assert getattr(bartack, name) is importlib.import_module(f"bartack.{name}")


@pytest.mark.parametrize(("name", "home"), LATE_NAMES.items())
def test_what_talks_to_the_world_is_there_when_it_is_asked_for(name: str, home: str) -> None:
    assert getattr(bartack, name) is getattr(importlib.import_module(f"bartack.{home}"), name)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'bartack' has no attribute 'nonsense'"):
        bartack.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", MODULES)
def test_every_name_of_a_module_exists(name: str) -> None:
    module = importlib.import_module(name)
    names: list[str] = module.__all__
    assert [one for one in names if not hasattr(module, one)] == []
    assert len(set(names)) == len(names)
    assert module.__doc__


def test_a_name_means_one_thing() -> None:
    homes: dict[str, ModuleType] = {}
    for unit in CORE.split():
        module = importlib.import_module(f"bartack.{unit}")
        for public in module.__all__:
            if public in bartack.__all__:
                assert getattr(bartack, public) is getattr(module, public)
                assert public not in homes, f"{public} is in {homes[public]} and in {module}"
                homes[public] = module


EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]
ANSWER = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS).encode()


def test_the_ten_lines_of_the_docstring_run() -> None:
    code = textwrap.dedent((bartack.__doc__ or "").partition("::\n")[2])
    assert len(code.strip().splitlines()) == 10
    names: dict[str, Any] = {
        "bartack": bartack,
        "data": ANSWER,
        "now": datetime(2026, 1, 1, tzinfo=UTC),
        **{name: name for name in ("run_id", "new_id", "entry_id", "session_id")},
    }
    exec(code, names)
    assert names["message"].text == "Hello"
    assert names["entry"].fact is names["message"]


def test_the_version_is_that_of_the_project() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{bartack.__version__}"' in text
