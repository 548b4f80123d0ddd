"""The tools of a server as an agent gets them, without a server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types

from bartack.tools.mcp import mcp
from bartack.tools.mcp.config import tool_prefix
from bartack.tools.mcp.definitions import offered_tools, tool_name


async def _call(*_: Any) -> Any:
    return None


def test_an_oversized_tool_does_not_hide_later_ones() -> None:
    def described(name: str, chars: int) -> types.Tool:
        schema = {"type": "object", "properties": {"x": {"type": "string", "description": "d" * chars}}}
        return types.Tool(name=name, input_schema=schema)

    tools = [described("first", 10), described("huge", 250_000), described("second", 10), described("third", 10)]
    offered = offered_tools(
        tools,
        _call,
        prefix="s_",
        keep=lambda _: True,
        known_digest=lambda _: None,
        trust_hints=False,
        max_output_chars=1000,
    )
    assert [definition.name for definition in offered.definitions] == ["s_first", "s_second", "s_third"]
    assert offered.left_out == (("huge", "the tools of this server exceed 200,000 characters"),)
    assert set(offered.digests) == {"first", "second", "third"}


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("a", "b_c", "a_b_c"),
        ("a_b", "c", "a_b__c"),
        ("my-notes", "read_note", "my-notes_read_note"),
        ("brave_search", "query", "brave_search__query"),
    ],
)
def test_the_name_of_a_tool_shows_where_its_server_ends(server: str, tool: str, name: str) -> None:
    assert tool_name(tool_prefix(server), tool) == name


_names = st.text("ab_-. ", min_size=1, max_size=6)


@given(_names, _names, _names, _names)
def test_tools_of_different_servers_have_different_names(server: str, tool: str, other: str, other_tool: str) -> None:
    if server != other:
        assert tool_name(tool_prefix(server), tool) != tool_name(tool_prefix(other), other_tool)


def test_a_missing_tool_is_explained_by_its_own_server() -> None:
    assert mcp("x", name="a").problem("a_b__c") is None
    assert "'a_b'" in (mcp("x", name="a_b").problem("a_b__c") or "")
