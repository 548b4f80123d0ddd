"""Settings of the command line: flags come before the environment, and that before the configuration file.

The file is TOML: ``config.toml`` in the platform's folder for configuration (``bartack doctor`` says where), or what
``BARTACK_CONFIG`` names:

    model = "anthropic:claude-sonnet-4-6"
    store = "sqlite:~/sessions.db"
    instructions = "Be brief."
    thinking = true              # show it unfolded

    [approval]                   # of tools: "never" asks nobody, "always" asks every time
    read_file = "always"

    [model_settings]             # fields of ModelConfig, and a provider's own settings
    max_tokens = 4000

Flags and the environment are read by typer; `first_said` gives what the file says where both are silent.
"""

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import typer

from bartack.cli import suggestions
from bartack.models.by_name import DefaultModel, default_model
from bartack.nouns.errors import BartackError, ErrorCode

__all__ = ["ModelOption", "Settings", "SettingsFile", "chosen_model", "config_path", "first_said", "settings_file"]

T = TypeVar("T")

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="BARTACK_MODEL",
        metavar="VENDOR:MODEL",
        autocompletion=suggestions.models,
        help="Which model answers; 'local' or 'local:NAME' runs in this process. "
        "Without one, that of the vendor whose API key is set, else the local one.",
    ),
]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file may say."""

    model: str | None = None
    store: str | None = None
    instructions: str | None = None
    thinking: bool = False
    approval: dict[str, Literal["never", "always"]] = {}
    model_settings: dict[str, Any] = {}


class SettingsFile(msgspec.Struct, frozen=True):
    """Where the file is, or would be, and what it says."""

    path: Path
    is_there: bool
    settings: Settings


def config_path() -> Path:
    """Where the configuration file is looked for."""
    said = os.environ.get("BARTACK_CONFIG", "").strip()
    if said:
        return Path(said).expanduser()
    import platformdirs  # noqa: PLC0415 - not needed where the environment says the place

    return Path(platformdirs.user_config_dir("bartack", appauthor=False)) / "config.toml"


@cache
def settings_file() -> SettingsFile:
    """The file, read once. A file that cannot be read is a `BartackError` that names it and what is wrong.

    That the file is not there is no error, unless BARTACK_CONFIG names it.
    """
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
        return SettingsFile(path, True, msgspec.convert(tomllib.loads(text), Settings))
    except FileNotFoundError as error:
        if os.environ.get("BARTACK_CONFIG", "").strip():
            raise _wrong(path, "is named by BARTACK_CONFIG and is not there") from error
        return SettingsFile(path, False, Settings())
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _wrong(path, f"is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise _wrong(path, f"is not right: {error}") from error


def _wrong(path: Path, what: str) -> BartackError:
    error = BartackError(f"the configuration file {path} {what}", code=ErrorCode.INVALID_CONFIG)
    error.add_note("mend or remove it; BARTACK_CONFIG names another one")
    return error


def first_said(said: T | None, name: str) -> T | None:
    """What a flag or the environment said; without that, what the file says. Blank words say nothing, except that
    there shall be no instructions."""
    is_blank = isinstance(said, str) and not said.strip() and name != "instructions"
    found: T | None = getattr(settings_file().settings, name) if said is None or is_blank else said
    return found


def chosen_model(said: str | None) -> DefaultModel:
    """The model that was asked for, or the default one with the reason why it is that."""
    name = first_said(said, "model")
    return default_model() if name is None else DefaultModel(name.strip(), "")
