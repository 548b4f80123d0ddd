"""`bartack init`: the first set-up. A commented configuration file, which keys are set, and the local model.

Nothing that exists is overwritten, and no key is shown or stored. Without a terminal nothing is asked.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated

import typer

from bartack.app.errors import with_hint
from bartack.app.extras import install_command
from bartack.app.settings import choose_model, config_path, settings_file
from bartack.cli.models import description, download
from bartack.cli.options import UsageError, new_app, usage_errors
from bartack.models.by_name import default_model
from bartack.models.vendors import VENDORS
from bartack.models.weights import known_model, weights_named
from bartack.nouns.errors import ErrorCode

app = new_app("Set up Bartack: a configuration file, keys, and the local model.")

_INDENT = 10  # columns for the labels

# Every setting is commented out, with its default or an example.
TEMPLATE = """\
# Bartack settings. Command-line options and environment variables override them.
# API keys are not stored here: set ANTHROPIC_API_KEY, OPENAI_API_KEY and so on in the environment.

# The model, as vendor:model. Default: a model from the vendor whose key is set, else the local model.
# model = "anthropic:claude-sonnet-4-6"

# Where sessions are stored: a path, sqlite:FILE, jsonl:FOLDER or postgresql://USER@HOST/DATABASE.
# store = "sqlite:~/bartack-sessions.db"

# System instructions for the model.
# instructions = "Be brief."

# Show the model's thinking in full instead of a summary.
# thinking = true

# How a chat is shown: "full", "plain" (only appends text) or "screen-reader" (plain, with words instead of symbols).
# display = "plain"

# The colors of a chat: "auto", "light", "high-contrast" or "mono".
# theme = "light"

# How a chat calls you when it waits for you: "bell", "desktop" or "off".
# notify = "desktop"

# Send traces and metrics to an OpenTelemetry collector, as --otel does.
# otel = true

# What runs without asking: "ask" (nothing), "plan" (changes are refused), "edit", "sandbox" or "yes" (everything).
# mode = "edit"

# The keys of the prompt of a chat: "emacs" or "vi".
# keys = "vi"

# A program that gets the state of a chat as JSON on stdin; its first line of output is shown below the prompt.
# status_line = "jq -r .model"

# Models that answer, in this order, when the model has failed.
# fallback = ["openai:gpt-5"]

# How many times to ask an overloaded provider again, with a countdown, before the answer fails.
# busy_retries = 12

# How commands of the model run: time limits, variables of the environment that they get, and their sandbox.
# [commands]
# timeout_s = 120
# variables = ["DATABASE_URL"]
# sandbox = "auto"    # or "podman" or "docker", with an image
# image = "python:3.13"

# Tools for the web: reading pages, also of these hosts with private addresses, and the provider's own search.
# [web]
# fetch = true
# hosts = ["docs.example"]
# search = false

# Programs that run before or after tools, or at the end of a turn, with JSON on stdin.
# [[hooks]]
# event = "after_tool"
# tools = ["edit_file"]
# command = "ruff format ."

# Whether to ask before a tool runs: "always" or "never".
# [approval]
# read_file = "always"

# Model settings such as temperature, and provider-specific settings.
# [model_settings]
# max_tokens = 4000

# The models of the gateway: the first upstream that can answers.
# [gateway]
# to = ["anthropic:claude-sonnet-4-6", "local"]
"""


@app.command(no_args_is_help=False)
def init(
    yes: Annotated[
        bool, typer.Option("--yes", help="Download the local model without asking, if it is needed.")
    ] = False,
) -> None:
    """Write a commented configuration file, check which API keys are set, and offer to download the local model.

    Nothing that exists is overwritten. Run it again at any time.
    """
    with usage_errors():
        _write_config(config_path())
        settings_file()  # raises if the file is invalid
    has_key = _show_keys()
    with usage_errors():
        choice = choose_model(os.environ.get("BARTACK_MODEL"))
    if choice.name == "local" or choice.name.startswith("local:"):
        _fetch_local(choice.name, yes=yes)
    _print("model", f"{choice.name}{f' ({choice.reason})' if choice.reason else ''}")
    if not has_key and choice.name == "local":
        _print("", "A small demo model. For a real one, set a provider's key, or run Ollama and use ollama:NAME.")
    print("next      bartack            start a chat here\n          bartack doctor     check everything")


def _print(label: str, text: str) -> None:
    """Print text beside a label, wrapped between words on a terminal."""
    width = get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    text = fill(text, max(width - _INDENT, 20), break_long_words=False, break_on_hyphens=False)
    print(f"{label:{_INDENT}}{text.replace(chr(10), chr(10) + ' ' * _INDENT)}")


def _write_config(path: Path) -> None:
    if path.exists():
        _print("settings", f"{path} (exists, unchanged)")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except OSError as error:
        failed = UsageError(f"Cannot write {path}: {error.strerror}.", code=ErrorCode.STORAGE_FAILED)
        raise with_hint(failed, "Point BARTACK_CONFIG at a writable file.") from error
    settings_file.cache_clear()
    _print("settings", f"{path} (new, with every setting as a comment)")


def _show_keys() -> bool:
    """Print the key variables that are set; whether there is one."""
    names = dict.fromkeys(name for vendor in VENDORS.values() for name in vendor.key_names)
    key_names = [name for name in names if os.environ.get(name, "").strip()]
    broken = [name for name in key_names if not os.environ[name].strip().isascii() or " " in os.environ[name].strip()]
    _print("keys", f"{', '.join(key_names) if key_names else 'none is set in the environment'}")
    for name in broken:
        _print("", f"{name} contains invalid characters; copy it again")
    if key_names and default_model().name == "local":
        _print("", "none of them selects a model by default; choose one with --model or in the settings")
    return bool(key_names)


def _fetch_local(name: str, *, yes: bool) -> None:
    """Download the weights of the local model if they are missing and the user agrees."""
    if find_spec("xllamacpp") is None:
        _print("local", f"not installed; run: {install_command('xllamacpp', ['chat', '-m', 'local'])}")
        return
    weights = weights_named(name[len("local:") :] or None)
    if weights.known is None or weights.known.is_downloaded:
        _print("local", f"downloaded: {weights.path}")
        return
    local_model = known_model(weights.known.name)
    _print("local", description(local_model))
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if yes or (is_terminal and typer.confirm("          Download it now?", default=True)):
        _print("", f"downloaded: {download(local_model)}")
    else:
        _print("", f"not downloaded; run: bartack models pull {local_model.name}")
