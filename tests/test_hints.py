"""Every command that a message, hint or help text names exists, and every extra that one names is in pyproject.toml."""

import ast
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from typer.main import get_command

from bartack.app.errors import error_hint
from bartack.app.extras import EXTRAS, install_command
from bartack.cli.entry import installed_commands
from bartack.models.vendors import VENDORS
from bartack.nouns.errors import BartackError
from bartack.tools.mcp import mcp
from lab.repository import ROOT, source_files

COMMANDS = installed_commands()
EXTRAS_OF_PROJECT = tomllib.loads((ROOT / "packages" / "bartack" / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]["optional-dependencies"]


def texts(node: ast.AST) -> Iterator[str]:
    """Every string in the source except docstrings of functions; NAME replaces the expressions of an f-string."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "NAME" for part in child.values)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        else:
            yield from texts(child)


ALL = [
    (str(path.relative_to(ROOT)), text)
    for path in source_files()
    if re.search(r"\bbartack[ \[]", source := path.read_text(encoding="utf-8"))
    for text in texts(ast.parse(source))
]
COMMAND_LINES = sorted(
    {
        (where, line)
        for where, text in ALL
        for quoted in re.findall(r"'(bartack [^']*[^' ])'", text)  # a lock name in SQL ends with a space
        for line in re.split(r" && ", quoted)
    }
)
INSTALLS = sorted({(where, extra) for where, text in ALL for extra in re.findall(r"bartack\[(\w+)\]", text)})


def test_the_search_finds_commands_and_extras() -> None:
    lines = {line for _, line in COMMAND_LINES}
    assert {"bartack sessions list", "bartack doctor", "bartack models pull NAME", "bartack chat -c"} <= lines
    assert {"local", "http"} <= {extra for _, extra in INSTALLS}


@pytest.mark.parametrize(("where", "line"), COMMAND_LINES)
def test_a_command_that_a_text_names_exists(where: str, line: str) -> None:
    _, *words = shlex.split(line)
    words = [word for word in words if word != "--debug"]
    if words in (["--help"], ["--version"]) or words[0] == "NAME":
        return
    name, *arguments = ["chat", *words] if words[0].startswith("-") else words
    command: Any = get_command(import_module(COMMANDS[name].module).app)
    while hasattr(command, "commands"):
        assert arguments, f"{where}: {line!r} is a group of commands"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    is_mentioned = not arguments or "--help" in arguments  # without its arguments
    command.make_context(name, arguments, resilient_parsing=is_mentioned)


@pytest.mark.parametrize(("where", "extra"), INSTALLS)
def test_an_extra_that_a_text_names_exists(where: str, extra: str) -> None:
    assert extra in {*EXTRAS_OF_PROJECT, "NAME"}, where


def test_the_install_command_of_each_library_names_an_extra_that_contains_it() -> None:
    for library, extra in EXTRAS.items():
        assert install_command(library) == f"pip install 'bartack[{extra}]'"
        names = {re.split(r"[<>=]", requirement)[0] for requirement in EXTRAS_OF_PROJECT[extra]}
        package = library.split(".")[0].replace("_", "-")
        assert any(name.startswith(package) for name in names), library
    assert install_command("numpy") is None


@pytest.mark.parametrize(
    ("library", "line", "requirements"),
    [
        ("typer", "models list", "'bartack[cli]'"),
        ("aiohttp", "run hi -m openai:gpt-5", "bartack-code"),
        ("typer", "", "bartack-code 'bartack[local]'"),
        ("typer", "run hi", "bartack-code 'bartack[local]'"),
        ("typer", "worker", "bartack-server 'bartack[local]'"),
        ("starlette", "serve --store postgresql://h/d -m openai:gpt-5", "bartack-server 'bartack[postgres]'"),
        (
            "typer",
            "run hi --store=postgresql://h/d --model=bedrock:x --otel",
            "bartack-code 'bartack[cloud,otlp,postgres]'",
        ),
        ("typer", "chat --mcp files -m vertex:x", "bartack-code 'bartack[cloud,mcp]'"),
        ("acp", "acp -m openai:gpt-5", "'bartack-code[acp]'"),
        ("apsw", "sessions list", "'bartack[cli]'"),
        ("opentelemetry", "run hi -m openai:gpt-5 --otel", "bartack-code 'bartack[otlp]'"),
    ],
)
def test_one_command_installs_all_that_a_command_line_needs(
    library: str, line: str, requirements: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for vendor in VENDORS.values():
        for name in vendor.key_names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("BARTACK_MODEL", raising=False)
    monkeypatch.delenv("BARTACK_STORE", raising=False)
    assert install_command(library, line.split()) == f"pip install {requirements}"


def test_mcp_servers_without_their_package_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(BartackError, match="need the package mcp") as caught:
        mcp("ls")
    assert error_hint(caught.value) == "Run: pip install 'bartack[mcp]'"


def test_the_extra_of_the_command_line_contains_providers_and_the_default_store() -> None:
    assert {*EXTRAS_OF_PROJECT["http"], *EXTRAS_OF_PROJECT["sqlite"]} <= set(EXTRAS_OF_PROJECT["cli"])


def test_tracing_needs_the_api_only_and_the_exporter_contains_it() -> None:
    assert [requirement.partition(">")[0] for requirement in EXTRAS_OF_PROJECT["otel"]] == ["opentelemetry-api"]
    assert set(EXTRAS_OF_PROJECT["otel"]) <= set(EXTRAS_OF_PROJECT["otlp"])
