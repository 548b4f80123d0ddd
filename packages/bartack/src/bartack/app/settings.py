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
    mode = "edit"                # what runs without asking: "ask", "plan", "edit", "sandbox" or "yes"
    keys = "vi"                  # of the prompt of a chat; otherwise "emacs"
    status_line = "date +%H:%M"  # a program whose first line of output is shown below the prompt of a chat

    busy_retries = 12            # if a provider is overloaded or limits the rate: about four minutes
    fallback = ["openai:gpt-5"]  # models that answer, in this order, when the model has failed

    [approval]                   # per tool: "never" or "always" ask before running it
    read_file = "always"

    [commands]                   # of the tool run_command
    timeout_s = 120              # unless the model asks for more, up to max_timeout_s
    max_timeout_s = 3600
    variables = ["DATABASE_URL"] # of the environment that commands get beside harmless ones; * matches anything
    sandbox = "auto"             # "bubblewrap", "landlock", "seatbelt", "podman", "docker" or "off"
    image = "python:3.13"        # of the containers of podman or docker
    network = false              # inside the sandbox
    writable = ["~/.cache/go-build"]  # inside the sandbox, beside the working directory

    [web]                        # tools for the web, beside those for files
    fetch = true                 # read pages
    hosts = ["docs.example"]     # that may be read although their addresses are private
    search = false               # with the provider's own search, which it charges for

    [[hooks]]                    # programs around tools, with JSON on stdin
    event = "after_tool"         # or "before_tool", "end_of_turn"
    tools = ["edit_file"]        # all of them without this
    command = "ruff format ."

    [model_settings]             # fields of ModelConfig, and the provider's own settings
    max_tokens = 4000

    [gateway.models]             # of `bartack gateway`: names, and the models that answer for them in order
    sonnet = ["anthropic:claude-sonnet-4-6", "local"]

Each user interface reads its flags and the environment itself; `setting` adds the file.
"""

import os
import re
import tomllib
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from bartack.app.errors import with_hint
from bartack.nouns.errors import BartackError, ErrorCode

if TYPE_CHECKING:
    from bartack.models.by_name import DefaultModel

T = TypeVar("T")
KeptMode = Literal["ask", "plan", "edit", "sandbox"]  # the permission modes that a directory can keep
Mode = Literal[KeptMode, "yes"]


class CommandSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How commands of the model run."""

    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    max_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 3_600.0
    variables: tuple[str, ...] = ()
    sandbox: Literal["auto", "bubblewrap", "landlock", "seatbelt", "podman", "docker", "off"] = "auto"
    image: str | None = None
    network: bool = False
    writable: tuple[str, ...] = ()


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program to run before or after tools, or at the end of a turn."""

    event: Literal["before_tool", "after_tool", "end_of_turn"]
    command: str
    tools: tuple[str, ...] = ()  # names, in which * matches anything; all without one
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0


class WebSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools for the web."""

    fetch: bool = True
    hosts: tuple[str, ...] = ()
    search: bool = False


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``gateway``: the models of `bartack gateway`. Of several upstreams, the first that can answers."""

    to: str | tuple[str, ...] = ()  # for every name that `models` does not define
    models: dict[str, str | tuple[str, ...]] = {}


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
    mode: Mode = "ask"
    keys: Literal["emacs", "vi"] = "emacs"
    status_line: str = ""
    busy_retries: Annotated[int, msgspec.Meta(ge=0)] = 12
    fallback: tuple[str, ...] = ()
    commands: CommandSettings = CommandSettings()
    web: WebSettings = WebSettings()
    hooks: tuple[HookSettings, ...] = ()
    approval: dict[str, Literal["never", "always"]] = {}
    model_settings: dict[str, Any] = {}
    gateway: GatewaySettings = GatewaySettings()


class SettingsFile(msgspec.Struct, frozen=True):
    """The configuration file, or the defaults where there is none."""

    path: Path
    exists: bool
    settings: Settings


def config_path() -> Path:
    """The path of the configuration file, whether it exists or not."""
    path_text = os.environ.get("BARTACK_CONFIG", "").strip()
    if path_text:
        return Path(path_text).expanduser()
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
            raise _config_error(path, "does not exist, but BARTACK_CONFIG names it") from error
        return SettingsFile(path, False, Settings())
    except OSError as error:
        raise _config_error(path, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _config_error(path, f"is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise _config_error(path, *_explained(str(error))) from error


def _config_error(path: Path, problem: str, hint: str = "") -> BartackError:
    error = BartackError(f"The configuration file {path} {problem}.", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, f"{hint}Fix or delete it, or point BARTACK_CONFIG at another file.")


def _explained(error: str) -> tuple[str, str]:
    """What msgspec says about the file, for people who do not know its types, and a hint."""
    if match := re.fullmatch(r"Object contains unknown field `(.*?)`(?: - at `\$\.commands`)?", error, re.DOTALL):
        names = (*Settings.__struct_fields__, *CommandSettings.__struct_fields__)
        close = get_close_matches(match[1], names, n=1)
        return f"has an unknown setting '{match[1]}'", f"Did you mean {close[0]!r}? " if close else ""
    if match := re.fullmatch(r"Invalid enum value (.*) - at `\$\.(?:commands\.)?(\w+)`", error, re.DOTALL):
        hints = get_type_hints(Settings) | get_type_hints(CommandSettings)
        values = ", ".join(get_args(hints[match[2]]))
        return f"has an invalid value for {match[2]}, {match[1]}", f"Use one of {values}. "
    return f"is invalid: {error}", ""


def setting(name: str, flag: T | None) -> T | None:
    """The given value of a flag or variable, or else the file's. A blank value counts as not given, except for
    instructions, where it means none."""
    is_blank = isinstance(flag, str) and not flag.strip() and name != "instructions"
    value: T | None = getattr(settings_file().settings, name) if flag is None or is_blank else flag
    return value


_VARIABLE_VALUES = {
    "BARTACK_THINKING": frozenset("1 0 true false t f yes no y n on off".split()),  # noqa: SIM905 - a list of words
    "BARTACK_DISPLAY": frozenset(get_args(get_type_hints(Settings)["display"])),
}


def check_variables() -> None:
    """Raise `BartackError` for a variable with an invalid value, also where only other commands use it."""
    for name, values in _VARIABLE_VALUES.items():
        value = os.environ.get(name, "").strip()
        if value and value.lower() not in values:
            error = BartackError(f"{name} has an invalid value, {value!r}.", code=ErrorCode.INVALID_CONFIG)
            raise with_hint(error, f"Use one of {', '.join(sorted(values))}, or unset it.")


def choose_model(flag: str | None) -> "DefaultModel":
    """The configured model, or the default one together with the reason for it."""
    name = setting("model", flag)
    from bartack.models.by_name import DefaultModel, default_model  # noqa: PLC0415 - commands without a model skip it

    return default_model() if name is None else DefaultModel(name.strip(), "")
