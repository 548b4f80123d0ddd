"""The checks of `bartack doctor`, except those of models: installation, configuration, keys, store, terminal, MCP
servers and telemetry.

A probe looks at one thing and gives checks. `examine` runs it, turns any exception into a check as well, and removes
keys from what is shown.
"""

import asyncio
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from bartack.app.agent_setup import connect_model
from bartack.app.errors import error_hint, error_text
from bartack.app.extras import EXTRAS, LIBRARY_PACKAGES, install_command
from bartack.app.mcp_servers import servers_path, user_servers
from bartack.app.notices import plural
from bartack.app.safe_text import safe_line
from bartack.app.settings import Settings, check_variables, choose_model, config_path, setting, settings_file
from bartack.cli.store_access import with_store
from bartack.models.client import MASK, mask_secrets
from bartack.models.vendors import VENDORS
from bartack.nouns.errors import BartackError, StoreError, ToolError
from bartack.store import Finding, SessionStore
from bartack.store.address import StoreAddress
from bartack.store.maintenance import check as check_store
from bartack.store.session_store import all_sessions
from bartack.tools import file_tools
from bartack.tools.confinement import SandboxPolicy, available_sandboxes, new_sandbox
from bartack.tools.mcp import HttpServer, ServerConfig
from bartack.tools.mcp.config import expand_variables

if TYPE_CHECKING:
    from bartack.app.telemetry_export import Destination

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

    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, MASK)
        return safe_line(text)

    checks: list[Check] = []
    try:
        checks.extend(probe.look())
    except Exception as error:  # noqa: BLE001 - any error is a finding, and must not hide the other checks
        checks.append(error_check(probe.name, error, probe.hint))
    for check in checks:
        hint = None if check.hint is None else clean(check.hint)
        yield Check(clean(check.name), check.state, clean(check.text), hint, probe.section)


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


def install_hint(requirement: str) -> str:
    """How to install an extra or another package."""
    return f"Run: pip install '{requirement}'" if "[" in requirement else f"Run: pip install {requirement}"


def extra(name: str) -> Iterator[Check]:
    """The libraries of one extra."""
    absent = {"google", _NOT_ON_WINDOWS} if sys.platform == "win32" else {"google"}
    libraries = [library for library, owner in EXTRAS.items() if owner == name and library not in absent]
    yield _libraries(f"extra {name}", libraries, f"bartack[{name}]")


def package(name: str) -> Iterator[Check]:
    """Another package of ours and the libraries that come with it."""
    module = name.replace("-", "_")
    libraries = [library for library, owner in LIBRARY_PACKAGES.items() if owner == name]
    if module in libraries and find_spec(module) is None:  # some of its libraries may come with others
        libraries = [module]
    yield _libraries(name, libraries, name)


def _libraries(label: str, libraries: Sequence[str], requirement: str) -> Check:
    versions = {_package(library): _version_of(library) for library in libraries}
    installed = ", ".join(f"{package} {number}" for package, number in versions.items() if number is not None)
    missing = ", ".join(package for package, number in versions.items() if number is None)
    if not missing:
        return Check(label, "ok", installed)
    if not installed:
        return Check(label, "note", "not installed", install_hint(requirement))
    return Check(label, "error", f"{installed}; not installed: {missing}", install_hint(requirement))


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


# -- commands


def sandbox() -> Iterator[Check]:
    """What confines the commands of a model here."""
    try:
        commands = settings_file().settings.commands
    except BartackError:  # reported by another check
        yield Check("sandbox", "note", "unknown, because the configuration file is invalid")
        return
    working, chosen = available_sandboxes(), commands.sandbox
    if chosen in ("podman", "docker"):
        try:
            new_sandbox(SandboxPolicy(root=Path.cwd(), home=Path.home(), image=commands.image), chosen)
            yield Check("sandbox", "ok", f"{chosen}, with containers of {commands.image}")
        except ToolError as error:
            yield Check("sandbox", "error", f"{chosen} does not work here", error.message)
    elif chosen == "off":
        yield Check("sandbox", "note", "turned off in the configuration", 'Set sandbox = "auto" in [commands].')
    elif chosen != "auto" and chosen not in working:
        others = f"Working here: {', '.join(working)}." if working else "None works here."
        yield Check("sandbox", "error", f"{chosen} does not work here", f'{others} Set sandbox = "auto" in [commands].')
    elif working:
        yield Check("sandbox", "ok", f"{working[0] if chosen == 'auto' else chosen} (working: {', '.join(working)})")
    else:
        hint = "Install bubblewrap." if sys.platform == "linux" else "Run in a container where this matters."
        yield Check("sandbox", "note", "none works here; a chat asks about every command", hint)


# -- configuration


def config_file() -> Iterator[Check]:
    """The configuration file, and tool names in it."""
    file = settings_file()
    defaults = Settings()
    names = [name for name, value in msgspec.structs.asdict(file.settings).items() if value != getattr(defaults, name)]
    contents = (f"sets {', '.join(names)}" if names else "empty") if file.exists else "does not exist (optional)"
    yield Check("file", "ok", f"{file.path}: {contents}")
    own = {tool.name for tool in file_tools()}
    tool_names = [name for name in file.settings.approval if name not in own]
    if tool_names:
        hint = f"The built-in tools are {', '.join(sorted(own))}. Others are functions added with --tool."
        yield Check("approval", "note", f"[approval] names unknown tools: {', '.join(tool_names)}", hint)


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
    check_variables()


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
    model_name = os.environ.get("BARTACK_MODEL", "").strip()
    name, reason = choose_model(model_name)
    return name, reason or ("from BARTACK_MODEL" if model_name else f"from {config_path()}"), not reason


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


def store(address_text: str | None) -> Iterator[Check]:
    """The store that --store, BARTACK_STORE or the configuration file names. It is not created."""
    try:
        text = setting("store", address_text)
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


# -- MCP servers


def mcp_servers() -> Iterator[Check]:
    """Each server of the user's file. None is started or contacted, and no value of a variable is shown."""
    servers = user_servers()
    if not servers:
        yield Check("servers", "ok", f"none in {servers_path()}")
    for name, config in servers.items():
        yield _server(name, config)


def _server(name: str, config: ServerConfig) -> Check:
    try:
        if isinstance(config, HttpServer):
            texts = (config.url, *config.headers.values())
        else:
            texts = (config.command, *config.args, *config.env.values())
        values = [expand_variables(text) for text in texts]
    except BartackError as error:
        return Check(name, "error", f"{config.address}: {error.message}", "Set the variable before you start Bartack.")
    if not isinstance(config, HttpServer) and shutil.which(values[0]) is None:
        hint = f"Install it, or run: bartack mcp remove {name}"
        return Check(name, "error", f"{config.address}: there is no program {config.command!r}", hint)
    return Check(name, "ok", f"{config.address}; 'bartack mcp test {name}' connects to it")


# -- telemetry

_CONNECT_S = 1.0
_YES = ("1", "true", "t", "yes", "y", "on")  # the values that typer reads as true


def telemetry() -> Iterator[Check]:
    """Whether telemetry is on, where it goes, and what it contains. Keys in headers are not shown."""
    value = os.environ.get("BARTACK_OTEL", "").strip().lower()
    try:
        is_on = bool(setting("otel", value in _YES if value else None))
    except BartackError:  # reported by another check
        yield Check("otel", "note", "unknown, because the configuration file is invalid")
        return
    source = "BARTACK_OTEL" if value else config_path()
    yield Check("otel", "ok", f"on (from {source})" if is_on else "off; --otel turns it on")
    try:
        yield from _destinations(is_on=is_on)
    except ModuleNotFoundError as error:  # listed among the extras as well
        missing = error_check("traces", error, "Run: pip install 'bartack[otlp]'")
        yield Check(missing.name, "error" if is_on else "note", missing.text, missing.hint)


def _destinations(*, is_on: bool) -> Iterator[Check]:
    from bartack.app.telemetry_export import destinations  # noqa: PLC0415 - needs an extra
    from bartack.telemetry.telemetry import CONTENT_VARIABLE, captures_content  # noqa: PLC0415

    configured = destinations(os.environ)
    for signal in ("traces", "metrics"):
        own = [destination for destination in configured if destination.signal == signal]
        if not own:
            variables = f"OTEL_{signal.upper()}_EXPORTER and OTEL_SDK_DISABLED"
            yield Check(signal, "note", "not exported", f"Unset {variables} to export them.")
        for destination in own:
            yield _destination(destination, is_checked=is_on)
    content = f"recorded, because {CONTENT_VARIABLE} is set" if captures_content(os.environ) else "not recorded"
    yield Check("content", "ok", content)


def _destination(destination: "Destination", *, is_checked: bool) -> Check:
    if destination.address is None:
        return Check(destination.signal, "ok", f"exporter {destination.exporter}")
    url = urlsplit(destination.address)
    host, port = url.hostname or "localhost", url.port or (443 if url.scheme == "https" else 80)
    if is_checked and not _is_listening(host, port):
        hint = "Start a collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT."
        return Check(destination.signal, "note", f"{destination.address}: no connection to {host}:{port}", hint)
    return Check(destination.signal, "ok", destination.address)


def _is_listening(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=_CONNECT_S):
        return True
    return False
