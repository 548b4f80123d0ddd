"""`ToolRegistry`: unique names, and the order of the specs for a model."""

import pytest

from bartack import BartackError, ErrorCode
from bartack.tools import ToolRegistry, tool


@tool
def b() -> str:
    """B."""
    return "b"


@tool
def a() -> str:
    """A."""
    return "a"


def plain(x: int) -> int:
    """A plain function."""
    return x


def test_tools_are_found_by_name_and_functions_become_tools() -> None:
    registry = ToolRegistry([b, a, plain])
    assert registry.names == ("b", "a", "plain")
    assert registry.get("a") is a
    assert registry.get("nothing") is None
    assert "plain" in registry
    assert len(registry) == 3
    assert [one.name for one in registry] == ["b", "a", "plain"]


def test_tool_names_are_unique() -> None:
    registry = ToolRegistry([a])
    with pytest.raises(BartackError, match="Duplicate tool name 'a'") as caught:
        registry.add(tool(name="a")(plain))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert registry.get("a") is a


def test_the_order_of_adding_does_not_affect_the_specs() -> None:
    specs = ToolRegistry([b, a, plain]).build_model_tool_specs()
    assert specs == ToolRegistry([plain, a, b]).build_model_tool_specs()
    assert [spec.name for spec in specs] == ["a", "b", "plain"]
