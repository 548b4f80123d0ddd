"""Tools that providers execute: what a request declares of them, and which options are refused."""

from typing import Any

import pytest

from bartack.nouns.config import HostedTool, ToolSpec
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.hosted_tools import (
    HOSTED_TOOLS,
    CodeExecution,
    FileSearch,
    McpConnector,
    PortableTool,
    ProviderTool,
    RawTool,
    UserLocation,
    WebSearch,
    hosted_tool,
)
from bartack.nouns.wire import dump, load


def test_a_tool_declares_the_options_that_are_set() -> None:
    spec = WebSearch(max_uses=2, user_location=UserLocation(city="Paris"), allowed_domains=("a.fr",)).spec
    assert (spec.name, spec.required, spec.is_function) == ("web_search", True, False)
    assert spec.hosted == HostedTool(
        tool="web_search",
        options={
            "allowed_domains": ("a.fr",),
            "max_uses": 2,
            "user_location": {"city": "Paris", "region": None, "country": None, "timezone": None},
        },
    )
    assert CodeExecution(optional=True).spec == ToolSpec(
        "code_execution", {}, hosted=HostedTool(tool="code_execution"), required=False
    )


@pytest.mark.parametrize("cls", HOSTED_TOOLS.values())
def test_a_declaration_is_read_back_from_json(cls: type[PortableTool]) -> None:
    required: dict[str, dict[str, Any]] = {
        "file_search": {"stores": ("s",)},
        "mcp": {"label": "wiki", "url": "https://wiki.example/mcp"},
    }
    tool = cls(**required.get(cls.tool, {}))
    spec = load(ToolSpec, dump(tool.spec))
    assert spec.hosted is not None
    assert hosted_tool(spec.hosted) == tool
    assert tool.name == spec.name


def test_an_mcp_server_has_the_name_of_its_label() -> None:
    assert McpConnector(label="wiki", url="https://wiki.example/mcp").name == "wiki"


def test_a_raw_tool_is_declared_as_it_is() -> None:
    spec = RawTool(label="advisor", provider="anthropic", declaration={"type": "advisor"}, optional=True).spec
    assert spec.native is not None
    assert (spec.native.provider, spec.native.data, spec.required) == ("anthropic", {"type": "advisor"}, False)


def test_a_tool_without_a_declaration_has_none() -> None:
    with pytest.raises(NotImplementedError):
        _ = ProviderTool().name


def test_an_option_of_another_type_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(PartValidationError, match=r"WebSearch: .*max_uses") as refused:
        WebSearch(max_uses="three")  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("hosted", "path"),
    [
        (HostedTool(tool="levitation"), "$.hosted.tool"),
        (HostedTool(tool="file_search"), "$.hosted.options"),
        (HostedTool(tool="web_search", options={"max_uses": "three"}), "$.hosted.options"),
    ],
)
def test_a_declaration_that_no_tool_has_is_refused(hosted: HostedTool, path: str) -> None:
    with pytest.raises(PartValidationError) as refused:
        hosted_tool(hosted)
    assert refused.value.path == path


def test_the_options_of_a_file_search_include_its_stores() -> None:
    assert FileSearch(stores=("s",)).set_options == {"stores"}
