"""`bartack gateway`: models for the clients of other APIs, with keys, and settings for the programs that use it."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from bartack.agent import Agent
from bartack.app.agent_setup import connect_model, load_agents
from bartack.app.errors import with_hint
from bartack.app.platform import run_async
from bartack.app.safe_text import safe_line, safe_text
from bartack.app.sessions import configured_store, opened_store
from bartack.app.settings import settings_file
from bartack.cli import options
from bartack.cli.output import columns, note, print_json, print_table
from bartack.cli.store_access import with_store
from bartack.models.by_name import default_model
from bartack.models.model import StreamingModel
from bartack.nouns.errors import BartackError, Conflict, ErrorCode
from bartack.store import SessionStore
from bartack.store.address import StoreAddress, default_path
from bartack_server.gateway.app import GatewayApp
from bartack_server.gateway.check import CHECKED, check_program
from bartack_server.gateway.drafts import drafts_folder
from bartack_server.gateway.keys import Budget, GatewayKey, add_key, all_keys, digest_of, new_secret, revoke_key
from bartack_server.gateway.programs import PROGRAMS, settings_for, write_settings
from bartack_server.gateway.request_log import RequestLog, log_lines
from bartack_server.gateway.upstreams import Upstreams
from bartack_server.web.access import Hosts
from bartack_server.web.server import Address, bound_socket
from bartack_server.web.server import serve as serve_app

app = options.new_app("Serve models to the clients of other APIs, such as Claude Code and Codex.")
keys_app = options.new_app("Add, list and revoke the keys of clients.")
app.add_typer(keys_app, name="keys")

_PORT = 4748
_KEY = "BARTACK_GATEWAY_KEY"
_PORT_HINT = "Choose another port with --port; 0 picks a free port."
_KEY_COLUMNS = columns("NAME CREATED EXPIRES? MODELS?~ DAY? MONTH? PER-MINUTE#?")


@app.callback(invoke_without_command=True, no_args_is_help=False)
def serve(
    context: typer.Context,
    *,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="VENDOR:MODEL",
            autocompletion=options.complete_models,
            help="Model for every name that the configuration file does not define. May be repeated: the next one "
            "takes over if one fails.",
        ),
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(
            "--agents",
            metavar="MODULE:NAME",
            help="Agent, list of agents, or dict by name, served as models with the names agent:NAME.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on; 0 picks a free port.")
    ] = _PORT,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate, as PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the certificate, as PEM.")] = None,
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of a proxy in front of this server: https, or http on this machine."),
    ] = None,
    reuse_port: Annotated[
        bool,
        typer.Option("--reuse-port", help="Share the port with other gateways, such as one for each processor core."),
    ] = False,
    store: options.StoreOption = None,
) -> None:
    """Serve models to the clients of Anthropic, OpenAI, Google and Ollama.

    The first start creates a key and prints it once. Clients send it in place of a provider's key; the keys of
    providers come from the environment and stay here. Models by name are in the configuration file, under
    [gateway.models].
    """
    if context.invoked_subcommand is not None:
        return
    address = Address(host, port, tls_cert, tls_key, public_url, reuse_port)
    with options.usage_errors():
        upstreams = _upstreams(to or ())
        served = {} if agents is None else load_agents(agents)
        try:
            listener = bound_socket(address)
        except BartackError as error:
            raise with_hint(error, _PORT_HINT) from None
    run_async(_serve(upstreams, address, listener, configured_store(store), served))


def _upstreams(to: Sequence[str]) -> Upstreams:
    settings = settings_file().settings.gateway
    models = {name: _names(chain) for name, chain in settings.models.items()}
    default = tuple(to) or _names(settings.to)
    if not models and not default and default_model().name == "local":
        note("bartack: no API key is set; the local model answers. Choose another one with --to.", is_dim=True)
        default = ("local",)
    return Upstreams(models, default=default, connect=_connected)


def _names(chain: str | tuple[str, ...]) -> tuple[str, ...]:
    return (chain,) if isinstance(chain, str) else chain


def _connected(name: str) -> StreamingModel:
    model = connect_model(name)
    if not isinstance(model, StreamingModel):
        raise BartackError(f"The model {name} cannot serve requests.", code=ErrorCode.INVALID_CONFIG)
    return model


async def _serve(
    upstreams: Upstreams,
    address: Address,
    listener: socket.socket,
    store_address: StoreAddress,
    agents: Mapping[str, Agent[Any, Any]],
) -> None:
    origins = address.origins(listener.getsockname()[1])
    async with opened_store(store_address) as store:
        secret = None
        if not await all_keys(store):
            with suppress(Conflict):  # another gateway has started at the same time
                secret = await _add(store, "default")
        application = GatewayApp(
            upstreams, store, Hosts(origins), RequestLog(_log_path()), agents, drafts=drafts_folder(store_address)
        )

        def ready() -> None:
            note(f"bartack {version('bartack')} · {store_address.display}", is_dim=True)
            _print(f"Listening on {origins[0]}")
            if secret is not None:
                _print(f"Key, shown only once: {secret}")
            note("'bartack gateway env claude' prints the settings of a program. Ctrl-C stops.", is_dim=True)

        await serve_app(application, address, listener, ready)


def _print(line: str) -> None:
    print(line, file=sys.stdout, flush=True)


# -- keys


@keys_app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the person or program.")],
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="PATTERN", help="Allow only these models, such as 'claude-*'. May be repeated."
        ),
    ] = None,
    day_usd: Annotated[float | None, typer.Option(min=0, metavar="USD", help="Budget per day (UTC).")] = None,
    month_usd: Annotated[float | None, typer.Option(min=0, metavar="USD", help="Budget per month (UTC).")] = None,
    day_tokens: Annotated[int | None, typer.Option(min=0, metavar="COUNT", help="Tokens per day (UTC).")] = None,
    month_tokens: Annotated[int | None, typer.Option(min=0, metavar="COUNT", help="Tokens per month (UTC).")] = None,
    per_minute: Annotated[int | None, typer.Option(min=1, metavar="COUNT", help="Requests per minute.")] = None,
    days: Annotated[int | None, typer.Option(min=1, metavar="DAYS", help="How long the key is valid.")] = None,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Store the conversations of the key as sessions.")
    ] = True,
    store: options.StoreOption = None,
) -> None:
    """Create a key and print it. It cannot be shown again: the store has only its digest."""
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)

    async def create(opened: SessionStore) -> str:
        return await _add(
            opened,
            name,
            models=tuple(model or ()),
            day=Budget(usd=day_usd, tokens=day_tokens),
            month=Budget(usd=month_usd, tokens=month_tokens),
            per_minute=per_minute,
            expires=expires,
            records=record,
        )

    _print(with_store(store, create, may_be_new=True))


async def _add(store: SessionStore, name: str, **limits: object) -> str:
    secret, environment = new_secret(), store.environment
    key = GatewayKey(
        id=environment.new_id(),
        name=name,
        digest=digest_of(secret),
        created=environment.now(),
        **limits,  # type: ignore[arg-type]
    )
    await add_key(store, key)
    return secret


@keys_app.command("list", no_args_is_help=False)
def list_keys(*, as_json: options.JsonOption = False, store: options.StoreOption = None) -> None:
    """List the keys that are not revoked, without their secrets."""
    keys = with_store(store, all_keys, for_reading=True)
    if as_json:
        print_json([{name: value for name, value in _fields(key).items() if value} for key in keys])
        return
    print_table(_KEY_COLUMNS, [tuple(safe_line(value) for value in _fields(key).values()) for key in keys])


def _fields(key: GatewayKey) -> dict[str, str]:
    return {
        "name": key.name,
        "created": f"{key.created:%Y-%m-%d}",
        "expires": "" if key.expires is None else f"{key.expires:%Y-%m-%d}",
        "models": ", ".join(key.models),
        "day": _limits(key.day),
        "month": _limits(key.month),
        "perMinute": "" if key.per_minute is None else str(key.per_minute),
    }


def _limits(budget: Budget) -> str:
    limits = [] if budget.usd is None else [f"${budget.usd:g}"]
    return ", ".join([*limits, *([] if budget.tokens is None else [f"{budget.tokens:,} tokens"])])


@keys_app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")], *, store: options.StoreOption = None
) -> None:
    """Revoke a key. It stops working at once, in every gateway on this store."""
    with_store(store, lambda opened: revoke_key(opened, name))


# -- the log


def _log_path() -> Path:
    return default_path().with_name("gateway-log.jsonl")


@app.command("log", no_args_is_help=False)
def log(
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for further requests until Ctrl-C.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show the requests that gateways on this machine have answered, without their content."""
    for line in log_lines(_log_path(), follow=follow):
        if as_json:
            print_json(line)
        else:
            _print(safe_text(_summary(line)))


def _summary(line: dict[str, Any]) -> str:
    tokens = f"{line.get('inputTokens', '?')} in, {line.get('outputTokens', '?')} out"
    cost = f", ${line['costUsd']:.4f}" if "costUsd" in line else ""
    times = f"{line.get('firstTokenMs', '-')} ms to the first token, {line['durationMs']} ms"
    words = [line["time"][:19], line["key"], f"{line['model']} -> {line.get('upstream') or '-'}", line["status"]]
    changes = [f"\n    {change}" for change in line.get("changes", ())]
    message = [f"\n    {line['message']}"] if "message" in line else []
    return "  ".join([*words, tokens + cost, times]) + "".join([*message, *changes])


# -- programs


@app.command("env")
def env(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help=f"One of: {', '.join(PROGRAMS)}.")],
    *,
    url: Annotated[str, typer.Option(metavar="URL", help="URL of the gateway.")] = f"http://127.0.0.1:{_PORT}",
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME", help="Name of the model that the program should use.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Add the settings to the settings file of the program instead.")
    ] = False,
) -> None:
    """Print the settings that make a program use the gateway: variables for a shell, or a part of its settings file.

    The key is taken from BARTACK_GATEWAY_KEY, or left for you to fill in.
    """
    with options.usage_errors():
        if program not in PROGRAMS:
            text = f"Unknown program {safe_line(program)!r}. Known programs: {', '.join(PROGRAMS)}."
            raise BartackError(text, code=ErrorCode.INVALID_CONFIG)
    key = os.environ.get(_KEY, "").strip() or "KEY"
    settings = settings_for(program, url=url.rstrip("/"), key=key, model=model or "default")
    if not write:
        _print(settings.text)
        return
    with options.usage_errors():
        path = write_settings(settings, Path.home())
    _print(f"Wrote {safe_line(str(path))}")


@app.command("check")
def check(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help=f"One of: {', '.join(CHECKED)}.")],
) -> None:
    """Run an installed program against a gateway with a scripted model, and report what works. Nothing is paid for.

    The program runs in a temporary folder with an empty home. The exit status is 0 only if everything works.
    """
    with options.usage_errors():
        if program not in CHECKED:
            text = f"Unknown program {safe_line(program)!r}. Programs that can be checked: {', '.join(CHECKED)}."
            raise BartackError(text, code=ErrorCode.INVALID_CONFIG)
    findings = run_async(check_program(program))
    for finding in findings:
        _print(f"{'ok  ' if finding.is_true else 'FAIL'}  {program} {finding.claim}")
        if not finding.is_true:
            note(safe_text(finding.detail[-2000:]))
    if not all(finding.is_true for finding in findings):
        raise typer.Exit(1)
