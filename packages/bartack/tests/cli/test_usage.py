"""Wrong command lines are one sentence and a hint, and help pages show no Python types."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import bartack
from bartack.cli.entry import COMMANDS, Command, run
from bartack.nouns.errors import PartValidationError


@pytest.mark.parametrize(
    ("line", "text", "hint"),
    [
        ("chta", "Unknown command 'chta'.", "Did you mean 'bartack chat'?"),
        ("--foo", "Unknown option '--foo'.", "'bartack --help' lists"),
        ("run a b", "Unexpected argument 'b'.", "Quote an argument with spaces."),
        ("run hi --modell x", "Unknown option '--modell'.", "Did you mean '--model'?"),
        ("doctor --nope", "Unknown option '--nope'.", "'bartack doctor --help' explains"),
        ("run hi --tools web", "Invalid value for '--tools': 'web' is not one of 'files'.", "'bartack run --help'"),
        ("run hi --max-turns 0", "Invalid value for '--max-turns': it must be at least 1.", "'bartack run --help'"),
        ("run hi --max-turns x", "Invalid value for '--max-turns': it must be an integer.", "'bartack run --help'"),
        ("run hi --at 18:30", "--at needs --detach.", "'bartack run --help'"),
        (
            "run hi --detach --at 25:00",
            "Invalid value for '--at': '25:00' is not a valid time.",
            "'bartack run --help'",
        ),
        ("run hi --detach -m x", "--model has no effect with --detach: the worker has", "'bartack run --help'"),
        ("run hi --session", "Option '--session' requires an argument.", "'bartack run --help'"),
        ("sessions lst", "Unknown command 'lst' of bartack sessions.", "Did you mean 'bartack sessions list'?"),
        ("sessions show", "Missing argument 'SESSION'.", "'bartack sessions show --help' explains"),
        ("sessions show --session x", "Unknown option '--session'.", "'bartack sessions show --help' explains"),
        ("worker --limit x", "Invalid limit 'x'", "'bartack worker --help' explains"),
        ("export x", "Missing option '--to'.", "'bartack export --help' explains"),
        ("completion tcsh", "Invalid value for 'SHELL': 'tcsh' is not one of 'bash', 'zsh', 'fish'.", "'bartack comp"),
        ("serve --port 99999", "Invalid value for '--port': it must be at most 65535.", "'bartack serve --help'"),
        ("schema Nope", "Unknown type 'Nope'.", "The types are AbortRequested, "),
        ("schema Mesage", "Unknown type 'Mesage'.", "Did you mean Message? The types are "),
        ("models pull nope", "Unknown local model 'nope'.", "'bartack models list'"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_a_hint(
    line: str, text: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith(f"bartack: {text}")
    assert second.startswith(f"hint: {hint}")


@pytest.mark.parametrize("line", ["sessions", "mcp", "models"])
def test_a_group_without_a_command_prints_its_help(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert capsys.readouterr().err.startswith(f"Usage: bartack {line} ")


@pytest.mark.parametrize(
    ("model", "likely"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("o3-mini", "openai:o3-mini"),
        ("claude-sonnet-4-6", "anthropic:claude-sonnet-4-6"),
        ("gemini-3-pro", "google:gemini-3-pro"),
        ("qwen2.5-coder-0.5b", "local:qwen2.5-coder-0.5b"),
        ("qwen3", "ollama:qwen3"),
        ("llama3:8b", "ollama:llama3:8b"),
        ("gpt-oss:20b", "ollama:gpt-oss:20b"),
        ("anthropic", "anthropic:claude-sonnet-4-6"),
        ("ollama:", "ollama:MODEL"),
        ("./weights.gguf", "local:./weights.gguf"),
        ("hf:owner/name/file.gguf", "local:hf:owner/name/file.gguf"),
    ],
)
def test_a_model_without_a_vendor_is_suggested_with_one(model: str, likely: str) -> None:
    with pytest.raises(PartValidationError, match=rf"Did you mean {re.escape(likely)}\?"):
        bartack.connect(model)


def test_an_alias_of_a_vendor_and_a_misspelled_one_are_not_taken_for_a_family_of_models() -> None:
    assert bartack.connect("gemini/gemini-3-pro", api_key="x").model_info().provider == "google"
    with pytest.raises(PartValidationError, match="Did you mean 'deepseek'"):
        bartack.connect("deepseekk:chat")


def pages(command: Any, path: str) -> list[tuple[str, str]]:
    context = command.make_context(path, [], resilient_parsing=True)
    below = getattr(command, "commands", {})
    return [
        (path, command.get_help(context)),
        *(page for name, subcommand in below.items() for page in pages(subcommand, name)),
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_no_python_types(name: str) -> None:
    for path, page in pages(get_command(import_module(COMMANDS[name].module).app), name):
        types = re.findall(r"<(?:str|int|float|bool|path|file|directory|list\[.*?\]|\w+ range)>", page)
        assert types == [], path


def test_a_question_that_is_not_answered_stops_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "asks_command.py").write_text(
        "import typer\nfrom bartack.cli.options import new_app\napp = new_app('Ask.')\n\n"
        "@app.command(no_args_is_help=False)\ndef ask() -> None:\n    raise typer.Abort\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run(["ask"], {"ask": Command("asks_command", "Ask.")}) == 1
    assert capsys.readouterr().err == "Stopped.\n"
