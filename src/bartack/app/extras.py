"""The extras: which one installs a library, and the one command that installs all that a command line needs.

The command line imports this before anything that an extra installs.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

# The extra that installs each import name. A test compares it with pyproject.toml.
EXTRAS: Mapping[str, str] = {
    "typer": "cli",
    "rich": "cli",
    "markdown_it": "cli",
    "prompt_toolkit": "cli",
    "platformdirs": "cli",
    "aiohttp": "http",
    "genai_prices": "http",
    "jsonschema_rs": "http",
    "botocore": "cloud",
    "google": "cloud",  # a namespace package: missing altogether, or present without google.auth
    "google.auth": "cloud",
    "apsw": "sqlite",
    "asyncpg": "postgres",
    "uvloop": "cli",
    "zstandard": "cli",
    "xllamacpp": "local",
    "huggingface_hub": "local",
    "mcp": "mcp",
    "httpx2": "mcp",
    "anyio": "mcp",
    "opentelemetry": "otel",
    "opentelemetry.sdk": "otlp",
    "opentelemetry.exporter.otlp.proto.http": "otlp",
    "starlette": "web",
    "httptools": "web",
    "uvicorn": "web",
    "nh3": "web",
    "pygments": "web",
    "acp": "acp",
    "dbos": "distributed",
}

_CONTAINED = {"cli": {"http", "sqlite"}, "otlp": {"otel"}}  # extras that another one contains
_OF_COMMANDS: Mapping[str, str] = {"acp": "acp", "mcp": "mcp", "serve": "web"}
_OF_FLAGS: Mapping[str, str] = {"--mcp": "mcp", "--otel": "otlp"}
_OF_STORES = (("postgres", "postgres"),)
_OF_MODELS = (
    ("local", "local"),
    ("bedrock", "cloud"),
    ("aws", "cloud"),
    ("vertex", "cloud"),
    ("google-vertex", "cloud"),
)
_ASKS_A_MODEL = frozenset(("chat", "run", "serve", "acp", "worker"))


def install_command(library: str | None, words: Sequence[str] | None = None) -> str | None:
    """The command that installs a missing library of one of our extras; None for any other library.

    With the words of a command line, it installs everything that they need, so that no second library is missing.
    """
    extra = EXTRAS.get(library or "")
    if extra is None:
        return None
    if words is None:
        return f"pip install 'bartack[{extra}]'"
    needed = {"cli", extra, *_extras_of(words)}
    for one in needed & _CONTAINED.keys():
        needed -= _CONTAINED[one]
    return f"pip install 'bartack[{','.join(['cli', *sorted(needed - {'cli'})])}]'"


def _extras_of(words: Sequence[str]) -> Iterator[str]:
    """The extras that a command line and the environment ask for."""
    command = next((word for word in words if not word.startswith("-")), "") if words else "chat"
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
