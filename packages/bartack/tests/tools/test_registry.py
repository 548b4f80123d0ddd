"""`ToolRegistry`: unique names, and the order of the specs for a model."""

import dataclasses

import pytest

from bartack import BartackError, ErrorCode, ToolError
from bartack.tools import Tool, ToolDefinition, ToolRegistry, tool


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
    assert [tool.name for tool in registry] == ["b", "a", "plain"]


def test_tool_names_are_unique() -> None:
    registry = ToolRegistry([a])
    with pytest.raises(BartackError, match="Duplicate tool name 'a'") as caught:
        registry.add(tool(name="a")(plain))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert registry.get("a") is a


def test_the_order_of_adding_does_not_affect_the_specs() -> None:
    """D-6.1"""
    specs = ToolRegistry([b, a, plain]).build_model_tool_specs()
    assert specs == ToolRegistry([plain, a, b]).build_model_tool_specs()
    assert [spec.name for spec in specs] == ["a", "b", "plain"]


def test_sets_are_filtered_renamed_and_combined() -> None:
    tools = ToolRegistry([b, a, plain])
    assert tools.filtered(lambda tool: tool.name != "a").names == ("b", "plain")
    assert tools.prefixed("my_").names == ("my_b", "my_a", "my_plain")
    assert ToolRegistry([tools.filtered(lambda tool: tool is a), tools.prefixed("my_"), b]).names == (
        "a", "my_b", "my_a", "my_plain", "b",
    )  # fmt: skip
    assert tools.names == ("b", "a", "plain")
    with pytest.raises(BartackError, match="Duplicate tool name 'a'"):
        ToolRegistry([tools, a])


def test_a_renamed_tool_differs_in_its_name_only() -> None:
    strict = ToolDefinition(name="x", description="X.", parameter_schema={"required": ["n"]}, execute=lambda v, c: v)
    renamed = ToolRegistry([strict, plain]).prefixed("my_")
    assert renamed.get("my_x") == dataclasses.replace(strict, name="my_x")
    tool = renamed.get("my_plain")
    assert isinstance(tool, Tool)
    assert tool(3) == 3
    with pytest.raises(ToolError, match="missing required field `n`"):
        next(iter(renamed)).read_arguments({})


def test_something_that_cannot_be_called_is_not_a_tool() -> None:
    with pytest.raises(BartackError, match="must be a function or a ToolDefinition, not int") as caught:
        ToolRegistry([7])  # type: ignore[list-item]
    assert caught.value.code is ErrorCode.INVALID_CONFIG
