"""What to install: which extra or package brings a library, and the one command for all that a command line needs.

The command line imports this before anything that an extra installs.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

# What installs each import name: an extra of bartack, or another package. A test compares it with the projects.
EXTRAS: Mapping[str, str] = {
    "typer": "cli",
    "rich": "cli",
    "markdown_it": "cli",
    "platformdirs": "cli",
    "uvloop": "cli",
    "aiohttp": "http",
    "yarl": "http",
    "genai_prices": "http",
    "jsonschema_rs": "http",
    "botocore": "cloud",
    "google": "cloud",  # a namespace package: missing altogether, or present without google.auth
    "google.auth": "cloud",
    "apsw": "sqlite",
    "asyncpg": "postgres",
    "xllamacpp": "local",
    "huggingface_hub": "local",
    "tqdm": "local",
    "mcp": "mcp",
    "httpx2": "mcp",
    "anyio": "mcp",
    "pydantic": "mcp",
    "opentelemetry": "otel",
    "opentelemetry.sdk": "otlp",
    "opentelemetry.exporter.otlp.proto.http": "otlp",
    "dbos": "distributed",
    "sqlalchemy": "distributed",
}
LIBRARY_PACKAGES: Mapping[str, str] = {
    "bartack_server": "bartack-server",
    "starlette": "bartack-server",
    "uvicorn": "bartack-server",
    "httptools": "bartack-server",
    "nh3": "bartack-server",
    "latex2mathml": "bartack-server",
    "mdit_py_plugins": "bartack-server",
    "pygments": "bartack-server",
    "bartack_code": "bartack-code",
    "prompt_toolkit": "bartack-code",
    "acp": "bartack-code[acp]",
    "bartack_transcripts": "bartack-transcripts",
    "zstandard": "bartack-transcripts",
}

# The package that each command comes with, so that a missing one can be named.
COMMAND_PACKAGES: Mapping[str, str] = {
    "acp": "bartack-code",
    "chat": "bartack-code",
    "doctor": "bartack-code",
    "init": "bartack-code",
    "run": "bartack-code",
    "gateway": "bartack-server",
    "serve": "bartack-server",
    "worker": "bartack-server",
    "workers": "bartack-server",
    "export": "bartack-transcripts",
    "import": "bartack-transcripts",
    "show": "bartack-transcripts",
}

_CONTAINED = {"cli": {"http", "sqlite"}, "otlp": {"otel"}}  # extras that another one contains
_OF_COMMANDS: Mapping[str, str] = {"mcp": "mcp"}
_OF_FLAGS: Mapping[str, str] = {"--mcp": "mcp", "--otel": "otlp"}
_OF_STORES = (("postgres", "postgres"),)
_OF_MODELS = (
    ("local", "local"),
    ("bedrock", "cloud"),
    ("aws", "cloud"),
    ("vertex", "cloud"),
    ("google-vertex", "cloud"),
)
_ASKS_A_MODEL = frozenset(("chat", "run", "serve", "acp", "worker", "gateway"))


def install_command(library: str | None, words: Sequence[str] | None = None) -> str | None:
    """The command that installs a missing library of ours; None for any other library.

    With the words of a command line, it installs everything that they need, so that no second library is missing.
    """
    extra, package = EXTRAS.get(library or ""), LIBRARY_PACKAGES.get(library or "")
    if extra is None and package is None:
        return None
    packages = [] if package is None else [package]
    extras = set() if extra is None else {extra}
    if words is not None:
        own = COMMAND_PACKAGES.get(_command_of(words))
        if own is not None and not any(name.startswith(own) for name in packages):
            packages.append(own)
        extras |= {"cli", *_extras_of(words)}
        for container in extras & _CONTAINED.keys():
            extras -= _CONTAINED[container]
        if packages:  # each of them depends on bartack[cli]
            extras.remove("cli")
    requirements = [f"'{name}'" if "[" in name else name for name in packages]
    if extras:
        requirements.append(f"'bartack[{','.join(sorted(extras, key=lambda name: (name != 'cli', name)))}]'")
    return f"pip install {' '.join(requirements)}"


def _command_of(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "") if words else "chat"


def _extras_of(words: Sequence[str]) -> Iterator[str]:
    """The extras that a command line and the environment ask for."""
    command = _command_of(words)
    if command in _OF_COMMANDS:
        yield _OF_COMMANDS[command]
    yield from (extra for flag, extra in _OF_FLAGS.items() if flag in words)
    yield from _by_start(_value(words, "BARTACK_STORE", "--store"), _OF_STORES)
    if command in _ASKS_A_MODEL:
        yield from _by_start(_value(words, "BARTACK_MODEL", "--model", "-m") or _default_model(), _OF_MODELS)


def _value(words: Sequence[str], variable: str, *flags: str) -> str:
    """The value that follows one of the flags, or else that of the variable."""
    for flag, value in pairwise(words):
        if flag in flags:
            return value
    assigned = (word.partition("=")[2] for word in words if word.partition("=")[0] in flags)
    return next(assigned, os.environ.get(variable, "")).strip()


def _by_start(value: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield from (extra for start, extra in rows if value.startswith(start))


def _default_model() -> str:
    from bartack.models.by_name import default_model  # noqa: PLC0415 - slow, and needed only after a failure

    return default_model().name
