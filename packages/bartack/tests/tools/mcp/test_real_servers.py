"""Servers of other authors, from npm (`tests/clients/mcp`, installed by `.ci/run`)."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack import Image, Text
from bartack.nouns.entries import ToolProgress
from bartack.store import MemoryStore
from bartack.tools.mcp import McpServer, mcp
from tests.tools.mcp.kit import NODE, PACKAGES, results_of
from tests.tools.mcp.test_tools import Answering

SERVERS = PACKAGES / "@modelcontextprotocol"

pytestmark = pytest.mark.skipif(
    NODE is None or not (SERVERS / "server-everything").exists(),
    reason="the servers from npm are not installed; .ci/run does that",
)


def npm_server(package: str, tmp_path: Path, *arguments: str, **options: Any) -> McpServer:
    command = [str(NODE), str(SERVERS / package / "dist" / "index.js"), *arguments]
    return mcp(command, known_tools=tmp_path / "known.json", **{"name": "n", **options})


async def test_the_server_everything(tmp_path: Path) -> None:
    store = MemoryStore()
    server = npm_server("server-everything", tmp_path, resources=True, prompts=True)
    adults = {"name": "Ada", "check": True}
    approver = Answering("modify_args", arguments=adults)
    echo, total, image, link, data, long, _ask, listed = await results_of(
        server,
        ("n_echo", {"message": "hi"}),
        ("n_get-sum", {"a": 2, "b": 3}),
        "n_get-tiny-image",
        ("n_get-resource-links", {"count": 1}),
        ("n_get-structured-content", {"location": "New York"}),
        ("n_trigger-long-running-operation", {"duration": 1, "steps": 2}),
        "n_trigger-elicitation-request",
        "n_list_resources",
        approver=approver,
        store=store,
    )
    assert echo.content == "Echo: hi"
    assert "5" in str(total.content)
    assert isinstance(image.content, tuple)
    assert [part.mime_type for part in image.content if isinstance(part, Image)] == ["image/png"]
    assert isinstance(link.content, tuple)
    assert any(isinstance(part, Text) and part.text.startswith("[Resource ") for part in link.content)
    assert data.metadata is not None
    assert "temperature" in data.metadata["structured"]
    assert not long.is_error
    assert [request.tool_name for request in approver.asked] == ["n_trigger-elicitation-request/ask for input"]
    assert "demo://" in json.dumps(listed.content)
    [info] = (await store.sessions(1)).items
    assert any(isinstance(entry.fact, ToolProgress) for entry in await store.load(info.id))


async def test_the_server_filesystem_stays_in_its_directory(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("content of a")
    server = npm_server("server-filesystem", tmp_path, str(folder), trust_hints=True)
    await server.open()
    needs = {tool.name: tool.requires_approval for tool in server.tools}
    assert needs["n_read_text_file"] is False
    assert needs["n_write_file"] is True
    read, write, outside = await results_of(
        server,
        ("n_read_text_file", {"path": str(folder / "a.txt")}),
        ("n_write_file", {"path": str(folder / "b.txt"), "content": "b"}),
        ("n_read_text_file", {"path": "/etc/hostname"}),
    )
    assert "content of a" in str(read.content)
    assert not write.is_error
    assert (folder / "b.txt").read_text() == "b"
    assert outside.is_error
