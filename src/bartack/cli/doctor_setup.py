"""What `bartack doctor` says about the installation, the settings, the keys and the terminal: no network, no store."""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import msgspec

from bartack.cli import EXTRA_OF
from bartack.cli.agent_setup import connected
from bartack.cli.doctor_checks import Check, Probe, State, fault_of, keys_set
from bartack.cli.settings import Settings, config_path, settings_file
from bartack.cli.store_place import place_of_store
from bartack.models.by_name import DefaultModel, default_model
from bartack.models.vendors import VENDORS
from bartack.nouns.errors import BartackError, StoreError
from bartack.tools import file_tools

__all__ = ["configured_model", "settings_or_none", "setup_probes", "terminal_probe"]

VARIABLES = (
    "BARTACK_MODEL",
    "BARTACK_STORE",
    "BARTACK_CONFIG",
    "BARTACK_CACHE",
    "BARTACK_LOCAL_MODEL",
    "BARTACK_INSTRUCTIONS",
    "BARTACK_THINKING",
)


def setup_probes() -> list[Probe]:
    """The probes of what was installed and set."""
    again = "pip install --force-reinstall bartack"
    file = "BARTACK_CONFIG names another file"
    extras = sorted(set(EXTRA_OF.values()), key=list(EXTRA_OF.values()).index)
    return [
        Probe("installation", "bartack", _versions, again),
        *(Probe("installation", f"extra {name}", _extra(name), f"pip install 'bartack[{name}]'") for name in extras),
        Probe("configuration", "file", _file, file),
        Probe("configuration", "environment", _environment, file),
        Probe("configuration", "default model", _default_model, "--model names another"),
        Probe("keys", "keys", _keys, "set them anew"),
    ]


def terminal_probe() -> Probe:
    return Probe("terminal", "terminal", _terminal, "TERM and LANG say what the terminal can do")


# -- installation


def _versions() -> Iterator[Check]:
    yield Check("installation", "bartack", "ok", version("bartack"))
    yield Check("installation", "python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield Check("installation", "platform", "ok", platform.platform())


def _extra(name: str) -> Callable[[], Iterator[Check]]:
    def look() -> Iterator[Check]:
        libraries = [library for library, extra in EXTRA_OF.items() if extra == name and library != "google"]
        found = {library: _version_of(library) for library in libraries}
        there = ", ".join(f"{_package(library)} {number}" for library, number in found.items() if number is not None)
        missing = ", ".join(_package(library) for library, number in found.items() if number is None)
        get = f"pip install 'bartack[{name}]'"
        if not missing:
            yield Check("installation", f"extra {name}", "ok", there)
        elif not there:
            yield Check("installation", f"extra {name}", "note", "not installed", get)
        else:
            yield Check("installation", f"extra {name}", "fault", f"{there}; not installed: {missing}", get)

    return look


def _package(library: str) -> str:
    return library.replace("_", "-").replace(".", "-")


def _version_of(library: str) -> str | None:
    """The version of a library by its import name; None if it is not there."""
    try:
        if find_spec(library) is None:
            return None
    except ModuleNotFoundError:  # the package around it is not there
        return None
    try:
        return version(_package(library))
    except PackageNotFoundError:  # there, and not by pip
        return "of unknown version"


# -- configuration


def settings_or_none() -> Settings | None:
    """What the configuration file says; None where it cannot be read, which is a check of its own."""
    try:
        return settings_file().settings
    except BartackError:
        return None


def _file() -> Iterator[Check]:
    file = settings_file()
    said = [name for name, value in msgspec.structs.asdict(file.settings).items() if value]
    what = f"says {', '.join(said)}" if said else "says nothing"
    yield Check("configuration", "file", "ok", f"{file.path}, {what if file.is_there else 'not there, and not needed'}")
    own = {tool.name for tool in file_tools()}
    others = [name for name in file.settings.approval if name not in own]
    if others:
        hint = f"Bartack's own are {', '.join(sorted(own))}; any other is a function that --tool names"
        yield Check("configuration", "approval", "note", f"says something of {', '.join(others)}", hint)


def _environment() -> Iterator[Check]:
    said = [name for name in VARIABLES if os.environ.get(name, "").strip()]
    if not said:
        yield Check("configuration", "environment", "ok", "none of Bartack's variables is set")
    for name in said:
        value = os.environ[name].strip()
        match name:
            case "BARTACK_INSTRUCTIONS":
                value = f"{len(value)} characters"
            case "BARTACK_STORE":
                value = _place_shown(value)
            case _:
                pass
        yield Check("configuration", name, "ok", value)


def _place_shown(said: str) -> str:
    """Without a password; that it is no place is told where the store is looked for."""
    try:
        return place_of_store(said).shown
    except StoreError:
        return "not the place of a store"


def _default_model() -> Iterator[Check]:
    settings = settings_or_none()
    if settings is None:
        yield Check("configuration", "default model", "note", "not known, because of the configuration file")
        return
    chosen, is_asked_for = _chosen(settings)
    text = f"{chosen.name}, because {chosen.reason}"
    try:
        connected(chosen.name)
    except (BartackError, ModuleNotFoundError) as error:
        # A library that is not there matters to nobody who has not asked for what it does.
        state: State = "note" if isinstance(error, ModuleNotFoundError) and not is_asked_for else "fault"
        fault = fault_of("configuration", "default model", error, "the name is vendor:model, or local", state=state)
        yield Check(fault.section, fault.name, fault.state, f"{text}, and that cannot be: {fault.text}", fault.hint)
    else:
        yield Check("configuration", "default model", "ok", text)


def configured_model() -> str | None:
    """The model that the environment or the file asks for; None where neither does."""
    settings = settings_or_none()
    chosen, is_asked_for = _chosen(Settings() if settings is None else settings)
    return chosen.name if is_asked_for else None


def _chosen(settings: Settings) -> tuple[DefaultModel, bool]:
    """The model that a command without --model talks to, and whether anyone asked for it."""
    said = os.environ.get("BARTACK_MODEL", "").strip()
    if said:
        return DefaultModel(said, "BARTACK_MODEL says so"), True
    if settings.model is not None:
        return DefaultModel(settings.model, f"{config_path()} says so"), True
    return default_model(), False


# -- keys


def _keys() -> Iterator[Check]:
    known = keys_set()
    for variable in known:
        yield _key(variable, os.environ[variable])
    blank = {name for vendor in VENDORS.values() for name in vendor.key_names if name in os.environ} - set(known)
    for variable in sorted(blank):
        yield Check("keys", variable, "note", "set, and empty", f"unset {variable}, or give it a key")
    wanting = {name: {*vendor.key_names} for name, vendor in VENDORS.items() if vendor.needs_key and vendor.key_names}
    without = [name for name, variables in wanting.items() if not known.keys() & variables]
    if without:
        yield Check("keys", "no key for", "ok" if known else "note", ", ".join(without))


def _key(variable: str, value: str) -> Check:
    vendors = ", ".join(name for name, vendor in VENDORS.items() if variable in vendor.key_names)
    key = value.strip()
    text = f"{vendors}: a key of {len(key)} characters"
    again = f"set {variable} anew, with the key alone"
    if not key.isascii() or not key.isprintable() or " " in key:
        return Check("keys", variable, "fault", f"{text}, among them some that no key has", again)
    if key != value:
        return Check("keys", variable, "note", f"{text}, with blanks around it, which Bartack leaves out", again)
    return Check("keys", variable, "ok", text)


# -- the terminal


def _terminal() -> Iterator[Check]:
    from rich.console import Console  # noqa: PLC0415 - slow

    console = Console()
    is_terminal = sys.stdout.isatty()
    what = f"{console.width} columns" if is_terminal else "the output goes elsewhere: plain lines, no colours"
    yield Check("terminal", "output", "ok", what)
    if is_terminal:
        off = " (NO_COLOR is set)" if "NO_COLOR" in os.environ else ""
        yield Check("terminal", "colours", "ok", f"{console.color_system or 'none'}{off}")
    encoding = (sys.stdout.encoding or "unknown").lower()
    is_utf8 = encoding.replace("-", "").startswith("utf8")
    more = None if is_utf8 else "LANG=C.UTF-8 or PYTHONUTF8=1 makes every letter printable"
    yield Check("terminal", "encoding", "ok" if is_utf8 else "note", encoding, more)
    term = os.environ.get("TERM", "")
    is_dumb = is_terminal and term in {"", "dumb", "unknown"}
    yield Check("terminal", "TERM", "note" if is_dumb else "ok", term or "not set", "set TERM" if is_dumb else None)
