"""Settings: a flag overrides the environment, which overrides the configuration file.

The file is TOML: ``config.toml`` in the platform's configuration folder (``bartack doctor`` prints the path), or the
file that ``BARTACK_CONFIG`` names:

    model = "anthropic:claude-sonnet-4-6"
    store = "sqlite:~/sessions.db"
    instructions = "Be brief."
    thinking = true              # show thinking in full
    display = "plain"            # of a chat: "full", "plain" or "screen-reader"
    theme = "light"              # of a chat: "auto", "light", "high-contrast" or "mono"
    notify = "desktop"           # when a chat waits for you: "bell", "desktop" or "off"
    otel = true                  # send spans and metrics, as with --otel

    [approval]                   # per tool: "never" or "always" ask before running it
    read_file = "always"

    [model_settings]             # fields of ModelConfig, and the provider's own settings
    max_tokens = 4000

Each user interface reads its flags and the environment itself; `setting` adds the file.
"""

import os
import re
import tomllib
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from bartack.app.errors import with_hint
from bartack.models.by_name import DefaultModel, default_model
from bartack.nouns.errors import BartackError, ErrorCode

T = TypeVar("T")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the configuration file."""

    model: str | None = None
    store: str | None = None
    instructions: str | None = None
    thinking: bool = False
    display: Literal["full", "plain", "screen-reader"] = "full"
    theme: Literal["auto", "light", "high-contrast", "mono"] = "auto"
    notify: Literal["bell", "desktop", "off"] = "bell"
    otel: bool = False
    approval: dict[str, Literal["never", "always"]] = {}
    model_settings: dict[str, Any] = {}


class SettingsFile(msgspec.Struct, frozen=True):
    """The configuration file, or the defaults where there is none."""

    path: Path
    exists: bool
    settings: Settings


def config_path() -> Path:
    """The path of the configuration file, whether it exists or not."""
    given = os.environ.get("BARTACK_CONFIG", "").strip()
    if given:
        return Path(given).expanduser()
    import platformdirs  # noqa: PLC0415 - not needed if the variable is set

    return Path(platformdirs.user_config_dir("bartack", appauthor=False)) / "config.toml"


@cache
def settings_file() -> SettingsFile:
    """The configuration file, read once. A missing file is an error only if BARTACK_CONFIG names it.

    Raises `BartackError` if the file cannot be read or is invalid.
    """
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
        return SettingsFile(path, True, msgspec.convert(tomllib.loads(text), Settings))
    except FileNotFoundError as error:
        if os.environ.get("BARTACK_CONFIG", "").strip():
            raise _invalid(path, "does not exist, but BARTACK_CONFIG names it") from error
        return SettingsFile(path, False, Settings())
    except OSError as error:
        raise _invalid(path, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _invalid(path, f"is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise _invalid(path, *_explained(str(error))) from error


def _invalid(path: Path, problem: str, hint: str = "") -> BartackError:
    error = BartackError(f"The configuration file {path} {problem}.", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, f"{hint}Fix or delete it, or point BARTACK_CONFIG at another file.")


def _explained(error: str) -> tuple[str, str]:
    """What msgspec says about the file, for people who do not know its types, and a hint."""
    if found := re.fullmatch(r"Object contains unknown field `(.*)`", error, re.DOTALL):
        close = get_close_matches(found[1], Settings.__struct_fields__, n=1)
        return f"has an unknown setting '{found[1]}'", f"Did you mean {close[0]!r}? " if close else ""
    if found := re.fullmatch(r"Invalid enum value (.*) - at `\$\.(\w+)`", error, re.DOTALL):
        values = ", ".join(get_args(get_type_hints(Settings)[found[2]]))
        return f"has an invalid value for {found[2]}, {found[1]}", f"Use one of {values}. "
    return f"is invalid: {error}", ""


def setting(name: str, given: T | None) -> T | None:
    """The given value of a flag or variable, or else the file's. A blank value counts as not given, except for
    instructions, where it means none."""
    is_blank = isinstance(given, str) and not given.strip() and name != "instructions"
    found: T | None = getattr(settings_file().settings, name) if given is None or is_blank else given
    return found


def choose_model(given: str | None) -> DefaultModel:
    """The configured model, or the default one together with the reason for it."""
    name = setting("model", given)
    return default_model() if name is None else DefaultModel(name.strip(), "")
