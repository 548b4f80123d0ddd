"""`bartack init`: the first set-up. A commented configuration file, which keys are set, and the local model.

Nothing that exists is overwritten, and no key is shown or stored. Without a terminal nothing is asked.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
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

# Every setting is commented out, with its default or an example.
TEMPLATE = """\
# Settings of Bartack. Options of a command and environment variables override them.
# Keys are not stored here: set ANTHROPIC_API_KEY, OPENAI_API_KEY and so on in the environment.

# The model, as vendor:model. Without it: the vendor whose key is set, or else the local model.
# model = "anthropic:claude-sonnet-4-6"

# Where sessions are stored: a path, sqlite:FILE, jsonl:FOLDER or postgresql://USER@HOST/DATABASE.
# store = "sqlite:~/bartack-sessions.db"

# System instructions for the model.
# instructions = "Be brief."

# Show the model's thinking in full, not as a summary.
# thinking = true

# Send traces and metrics to an OpenTelemetry collector, as --otel does.
# otel = true

# Whether a tool asks before it runs: "always" or "never".
# [approval]
# read_file = "always"

# Settings of the model, such as temperature, and those of its provider.
# [model_settings]
# max_tokens = 4000
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
    print(f"model     {choice.name}{f' ({choice.reason})' if choice.reason else ''}")
    if not has_key and choice.name == "local":
        print("          A small demo model. For a real one, set a provider's key, or run Ollama and use ollama:NAME.")
    print("next      bartack            start a chat here\n          bartack doctor     check everything")


def _write_config(path: Path) -> None:
    if path.exists():
        print(f"settings  {path} (exists, unchanged)")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except OSError as error:
        failed = UsageError(f"Cannot write {path}: {error.strerror}.", code=ErrorCode.STORAGE_FAILED)
        raise with_hint(failed, "Point BARTACK_CONFIG at a file that can be written.") from error
    settings_file.cache_clear()
    print(f"settings  {path} (new, with every setting as a comment)")


def _show_keys() -> bool:
    """Print the key variables that are set; whether there is one."""
    names = dict.fromkeys(name for vendor in VENDORS.values() for name in vendor.key_names)
    found = [name for name in names if os.environ.get(name, "").strip()]
    broken = [name for name in found if not os.environ[name].strip().isascii() or " " in os.environ[name].strip()]
    print(f"keys      {', '.join(found) if found else 'none is set in the environment'}")
    for name in broken:
        print(f"          {name} contains characters that no key has; copy it again")
    if found and default_model().name == "local":
        print("          none of them selects a model by default; choose one with --model or in the settings")
    return bool(found)


def _fetch_local(name: str, *, yes: bool) -> None:
    """Download the weights of the local model if they are missing and the user agrees."""
    if find_spec("xllamacpp") is None:
        print(f"local     not installed; run: {install_command('xllamacpp', ['chat', '-m', 'local'])}")
        return
    weights = weights_named(name[len("local:") :] or None)
    if weights.known is None or weights.known.is_downloaded:
        print(f"local     {weights.path}")
        return
    known = known_model(weights.known.name)
    print(f"local     {description(known)}")
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if yes or (is_terminal and typer.confirm("          Download it now?", default=True)):
        print(f"          {download(known)}")
    else:
        print(f"          not downloaded; run: bartack models pull {known.name}")
