"""The checks of `bartack doctor`, except those of models: installation, configuration, keys, store and terminal.

A probe looks at one thing and gives checks. `examine` runs it, turns any exception into a check as well, and removes
keys from what is shown.
"""

import asyncio
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal, NamedTuple

import msgspec

from bartack.app.agent_setup import connect_model
from bartack.app.errors import error_hint, error_text
from bartack.app.extras import EXTRAS, install_command
from bartack.app.notices import plural
from bartack.app.safe_text import safe_line
from bartack.app.settings import Settings, choose_model, config_path, setting, settings_file
from bartack.cli.store_access import with_store
from bartack.models.client import MASK, mask_secrets
from bartack.models.vendors import VENDORS
from bartack.nouns.errors import BartackError, StoreError
from bartack.store import Finding, SessionStore
from bartack.store.address import StoreAddress
from bartack.store.maintenance import all_sessions
from bartack.store.maintenance import check as check_store
from bartack.tools import file_tools

State = Literal["ok", "note", "error"]

_SHORTEST_KEY = 8  # a shorter one is a word such as "none", which must not be removed from every text
_PACKAGES = {
    "acp": "agent-client-protocol",
    "markdown_it": "markdown-it-py",
    "opentelemetry": "opentelemetry-api",
}
_NOT_ON_WINDOWS = "uvloop"
_VARIABLES = [
    f"BARTACK_{name}"
    for name in ["MODEL", "STORE", "CONFIG", "CACHE", "LOCAL_MODEL", "INSTRUCTIONS", "THINKING", "OTEL"]
]


class Check(msgspec.Struct, frozen=True):
    """The result of one check. An error always has a hint."""

    name: str
    state: State
    text: str
    hint: str | None = None
    section: str = ""  # filled in by `examine`


class Probe(NamedTuple):
    """Something to look at; `hint` is for exceptions without one."""

    section: str
    name: str
    look: Callable[[], Iterable[Check]]
    hint: str


def examine(probe: Probe) -> Iterator[Check]:
    """The checks of a probe, each text on one line, without control characters and without keys."""
    # The longest first, as one may be part of another.
    secrets = sorted((value for value in keys_set().values() if len(value) >= _SHORTEST_KEY), key=len, reverse=True)

    def shown(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, MASK)
        return safe_line(text)

    checks: list[Check] = []
    try:
        checks.extend(probe.look())
    except Exception as error:  # noqa: BLE001 - any error is a finding, and must not hide the other checks
        checks.append(error_check(probe.name, error, probe.hint))
    for check in checks:
        hint = None if check.hint is None else shown(check.hint)
        yield Check(shown(check.name), check.state, shown(check.text), hint, probe.section)


def error_check(name: str, error: BaseException, hint: str) -> Check:
    """An exception as a check, with its own hint if it has one."""
    text = error_text(error) if isinstance(error, Exception) else type(error).__name__
    if isinstance(error, ModuleNotFoundError) and (command := install_command(error.name)):
        text, hint = f"{error.name} is not installed", f"Run: {command}"
    return Check(name, "error", mask_secrets(text), error_hint(error) or hint)


def keys_set() -> dict[str, str]:
    """The key variables of all vendors that are set, with their values, so that these can be hidden."""
    names = {name: None for vendor in VENDORS.values() for name in vendor.key_names}
    return {name: os.environ[name].strip() for name in names if os.environ.get(name, "").strip()}


# -- installation


def versions() -> Iterator[Check]:
    """Bartack, Python and the platform."""
    yield Check("bartack", "ok", version("bartack"))
    yield Check("python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield Check("platform", "ok", platform.platform())


def install_hint(extra: str) -> str:
    """How to install an extra."""
    return f"Run: pip install 'bartack[{extra}]'"


def extra(name: str) -> Iterator[Check]:
    """The libraries of one extra."""
    absent = {"google", _NOT_ON_WINDOWS} if sys.platform == "win32" else {"google"}
    libraries = [library for library, owner in EXTRAS.items() if owner == name and library not in absent]
    versions = {_package(library): _version_of(library) for library in libraries}
    installed = ", ".join(f"{package} {number}" for package, number in versions.items() if number is not None)
    missing = ", ".join(package for package, number in versions.items() if number is None)
    if not missing:
        yield Check(f"extra {name}", "ok", installed)
    elif not installed:
        yield Check(f"extra {name}", "note", "not installed", install_hint(name))
    else:
        yield Check(f"extra {name}", "error", f"{installed}; not installed: {missing}", install_hint(name))


def _package(library: str) -> str:
    return _PACKAGES.get(library, library.replace("_", "-").replace(".", "-"))


def _version_of(library: str) -> str | None:
    """The version of a library by its import name; None if it is not installed."""
    try:
        if find_spec(library) is None:
            return None
    except ModuleNotFoundError:  # the package that contains it is missing
        return None
    try:
        return version(_package(library))
    except PackageNotFoundError:  # installed, but not by pip
        return "(unknown version)"


# -- configuration


def config_file() -> Iterator[Check]:
    """The configuration file, and tool names in it."""
    file = settings_file()
    defaults = Settings()
    names = [name for name, value in msgspec.structs.asdict(file.settings).items() if value != getattr(defaults, name)]
    contents = (f"sets {', '.join(names)}" if names else "empty") if file.exists else "does not exist (optional)"
    yield Check("file", "ok", f"{file.path}: {contents}")
    own = {tool.name for tool in file_tools()}
    others = [name for name in file.settings.approval if name not in own]
    if others:
        hint = f"The built-in tools are {', '.join(sorted(own))}. Others are functions added with --tool."
        yield Check("approval", "note", f"[approval] names unknown tools: {', '.join(others)}", hint)


def environment() -> Iterator[Check]:
    """The variables that are set."""
    names = [name for name in _VARIABLES if os.environ.get(name, "").strip()]
    if not names:
        yield Check("environment", "ok", "no BARTACK_ variables are set")
    for name in names:
        value = os.environ[name].strip()
        if name == "BARTACK_INSTRUCTIONS":
            value = f"{len(value)} characters"
        elif name == "BARTACK_STORE":
            value = _shown_address(value)
        yield Check(name, "ok", value)


def _shown_address(address: str) -> str:
    """Without a password. An invalid one is reported by the probe of the store."""
    try:
        return StoreAddress.parse(address).display
    except StoreError:
        return "not a valid store address"


def default_model() -> Iterator[Check]:
    """The model of a command without --model."""
    try:
        name, reason, is_configured = _chosen_model()
    except BartackError:  # reported by another check
        yield Check("default model", "note", "unknown, because the configuration file is invalid")
        return
    try:
        connect_model(name)
    except (BartackError, ModuleNotFoundError) as error:
        # A missing library is an error only if the model was configured.
        state: State = "note" if isinstance(error, ModuleNotFoundError) and not is_configured else "error"
        problem = error_check("default model", error, "Name it as vendor:model, or use local.")
        yield Check("default model", state, f"{name} ({reason}): {problem.text}", problem.hint)
    else:
        yield Check("default model", "ok", f"{name} ({reason})")


def configured_model() -> str | None:
    """The model named by the environment or the configuration file, if any."""
    try:
        name, _, is_configured = _chosen_model()
    except BartackError:
        return None
    return name if is_configured else None


def _chosen_model() -> tuple[str, str, bool]:
    """The model of a command without --model, the reason for it, and whether it is configured."""
    given = os.environ.get("BARTACK_MODEL", "").strip()
    name, reason = choose_model(given)
    return name, reason or ("from BARTACK_MODEL" if given else f"from {config_path()}"), not reason


# -- keys


def keys() -> Iterator[Check]:
    """The key variables of all vendors. Values are never shown."""
    keys = keys_set()
    for variable in keys:
        yield _key(variable, os.environ[variable])
    blank = {name for vendor in VENDORS.values() for name in vendor.key_names if name in os.environ} - set(keys)
    for variable in sorted(blank):
        yield Check(variable, "note", "set but empty", f"Unset {variable}, or set it to a key.")
    needed = {name: {*vendor.key_names} for name, vendor in VENDORS.items() if vendor.needs_key and vendor.key_names}
    without = [name for name, variables in needed.items() if not keys.keys() & variables]
    if without:
        yield Check("no key for", "ok" if keys else "note", ", ".join(without))


def _key(variable: str, value: str) -> Check:
    vendors = ", ".join(name for name, vendor in VENDORS.items() if variable in vendor.key_names)
    key = value.strip()
    text = f"{vendors}: {len(key)} characters"
    hint = f"Set {variable} again, to the key alone."
    if not key.isascii() or not key.isprintable() or " " in key:
        return Check(variable, "error", f"{text}, including invalid ones", hint)
    if key != value:
        return Check(variable, "note", f"{text} and surrounding whitespace, which is ignored", hint)
    return Check(variable, "ok", text)


# -- the store


def store(given: str | None) -> Iterator[Check]:
    """The store that --store, BARTACK_STORE or the configuration file names. It is not created."""
    try:
        text = setting("store", given)
    except BartackError:  # reported by another check
        yield Check("store", "note", "not checked, because the configuration file is invalid")
        return
    address = StoreAddress.parse(text)
    yield Check("location", "ok", address.display)
    if address.kind == "memory":
        yield Check("sessions", "ok", "not kept")
    elif not asyncio.run(address.exists()):
        yield Check("sessions", "ok", "none yet; the first session creates the store")
    else:
        count, findings = with_store(address.text, _inspect)
        yield Check("sessions", "ok", str(count))
        yield _health(findings)


async def _inspect(store: SessionStore) -> tuple[int, list[Finding]]:
    return len([info async for info in all_sessions(store)]), await check_store(store)


def _health(findings: list[Finding]) -> Check:
    if not findings:
        return Check("health", "ok", "no damage found")
    text = f"{plural(len(findings), 'finding')}, the first: {findings[0].message}"
    if all(finding.repairable for finding in findings):  # left by a crash, or by a run in progress
        return Check("health", "note", text, "Run 'bartack sessions fsck' to list them, with --repair to fix them.")
    return Check("health", "error", text, "Run 'bartack sessions fsck' to list the damage.")


# -- the terminal


def terminal() -> Iterator[Check]:
    """What the terminal can show."""
    from rich.console import Console  # noqa: PLC0415 - slow

    console = Console()
    is_terminal = sys.stdout.isatty()
    yield Check("output", "ok", f"{console.width} columns" if is_terminal else "not a terminal: no colors, no tables")
    if is_terminal:
        off = " (NO_COLOR is set)" if "NO_COLOR" in os.environ else ""
        yield Check("colors", "ok", f"{console.color_system or 'none'}{off}")
    encoding = (sys.stdout.encoding or "unknown").lower()
    is_utf8 = encoding.replace("-", "").startswith("utf8")
    hint = None if is_utf8 else "Set LANG=C.UTF-8 or PYTHONUTF8=1 to print every character."
    yield Check("encoding", "ok" if is_utf8 else "note", encoding, hint)
    term = os.environ.get("TERM", "")
    is_dumb = is_terminal and term in {"", "dumb", "unknown"}
    yield Check("TERM", "note" if is_dumb else "ok", term or "not set", "Set TERM." if is_dumb else None)
