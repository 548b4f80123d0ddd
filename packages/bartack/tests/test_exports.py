"""`__all__` lists what is public, and all of it exists."""

import importlib
import inspect
import json
import pkgutil
import textwrap
from datetime import UTC, datetime
from typing import Any, get_args, get_origin

import pytest

import bartack
from bartack.agent import Event
from bartack.session import tool_state
from bartack.views import part_factory, part_validator
from lab.repository import ROOT

PURE = ("bartack.nouns", "bartack.stream", "bartack.formats", "bartack.session", "bartack.views")
MODULES = [
    module.name
    for package in PURE
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    if not module.ispkg
]
PACKAGES = ("agent", "formats", "models", "session", "store", "tools", "views")


def in_order(names: list[str]) -> list[str]:
    """Constants, then classes, then functions; each by their letters."""
    return sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))


def test_the_package_exports_what_all_lists_and_nothing_else() -> None:
    here = {name for name, value in vars(bartack).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert here <= set(bartack.__all__)
    assert bartack.__all__ == in_order(bartack.__all__)
    assert len(set(bartack.__all__)) == len(bartack.__all__)
    assert [name for name in bartack.__all__ if not hasattr(bartack, name)] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_are_imported_on_first_use(name: str) -> None:
    vars(bartack).pop(name, None)
    assert getattr(bartack, name) is importlib.import_module(f"bartack.{name}")


def test_names_imported_on_first_use_are_those_of_their_packages() -> None:
    here = vars(bartack)
    packages = [importlib.import_module(f"bartack.{name}") for name in (*PACKAGES, "tools.mcp")]
    for name in set(bartack.__all__) - here.keys():
        homes = [package for package in packages if name in package.__all__]
        assert [getattr(home, name) for home in homes] == [getattr(bartack, name)], name


def test_every_event_of_a_run_is_exported() -> None:
    assert {(get_origin(event) or event).__name__ for event in get_args(Event)} < set(bartack.agent.__all__)


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'bartack' has no attribute 'nonsense'"):
        bartack.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", MODULES)
def test_every_name_of_a_module_exists(name: str) -> None:
    module = importlib.import_module(name)
    names: list[str] = module.__all__
    assert [one for one in names if not hasattr(module, one)] == []
    assert len(set(names)) == len(names)
    assert module.__doc__


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith("bartack.formats.")])
def test_a_name_of_the_package_has_one_meaning(name: str) -> None:
    module = importlib.import_module(name)
    for public in set(module.__all__) & set(bartack.__all__):
        assert getattr(bartack, public) is getattr(module, public)


def test_the_namespaces_of_003_are_found_by_their_names() -> None:
    """D-1.8, 003-4.1.1, 003-4.2.1, 003-4.3.1"""
    assert bartack.views.PartFactory.create_text_part is part_factory.create_text_part
    assert bartack.views.PartValidator.validate_part is part_validator.validate_part
    assert bartack.session.ToolStateTransition.pending_to_running is tool_state.pending_to_running


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
    code = textwrap.dedent((bartack.__doc__ or "").partition("::\n\n")[2].partition("\n\n")[0])
    assert len(code.strip().splitlines()) == 10
    names: dict[str, Any] = {
        "bartack": bartack,
        "data": ANSWER,
        "now": datetime(2026, 1, 1, tzinfo=UTC),
        **{name: name for name in ("run_id", "message_id", "entry_id", "session_id")},
    }
    exec(code, names)
    assert names["message"].text == "Hello"
    assert names["entry"].fact is names["message"]


def test_the_version_matches_the_project() -> None:
    text = (ROOT / "packages" / "bartack" / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{bartack.__version__}"' in text
