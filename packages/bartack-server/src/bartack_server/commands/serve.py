"""`bartack serve`: the web page and the API for the sessions of a store, with an agent that answers in them."""

import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from bartack.agent.tracing import TelemetrySink
from bartack.app.agent_setup import AgentSetup, new_agent, resolve_setup
from bartack.app.errors import with_hint
from bartack.app.platform import run_async
from bartack.app.queues import QUEUE, queue_opener
from bartack.app.safe_text import safe_line
from bartack.app.sessions import opened_store
from bartack.cli import options
from bartack.cli.options import export_for, exporting
from bartack.cli.output import note
from bartack.nouns.errors import BartackError, ErrorCode, StoreError
from bartack.queues import RunQueue
from bartack.store import SessionStore
from bartack.store.address import default_path
from bartack.store.files import new_file
from bartack_server.web.access import TokenAccess
from bartack_server.web.app import app as web_app
from bartack_server.web.server import Address, bound_socket
from bartack_server.web.server import serve as serve_app

app = options.new_app("Serve a web page and an API for sessions.")

_PORT = 4747
_TOKEN = "BARTACK_WEB_TOKEN"
_MIN_TOKEN = 32  # characters, as many as no one can guess
_PORT_HINT = "Choose another port with --port; 0 picks a free port."


@app.command(no_args_is_help=False)
def serve(
    model: options.ModelOption = None,
    *,
    offer: Annotated[
        list[str] | None,
        typer.Option("--offer", metavar="MODEL", help="Another model to choose on the page. May be repeated."),
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
    drain: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for live runs when stopping.")
    ] = 20.0,
    tools: Annotated[
        bool, typer.Option("--tools/--no-tools", help="Enable tools for files and commands in this directory.")
    ] = True,
    tool: options.ToolOption = None,
    instructions: options.InstructionsOption = None,
    workers: Annotated[
        bool,
        typer.Option("--workers", help="Hand runs to workers (see 'bartack worker') instead of running them."),
    ] = False,
    queue: options.QueueOption = QUEUE,
    engine: options.EngineOption = "store",
    store: options.StoreOption = None,
    otel: options.OtelOption = None,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True, help="Stop when stdin is closed.")] = False,
) -> None:
    """Serve a web page to chat with a model and watch it work, and the API that the page uses.

    The printed link signs in one browser; then a new link is printed. Programs send the token stored in the user's data
    folder, or the one in BARTACK_WEB_TOKEN. Runs belong to the server: they continue after every window is closed, and
    after a restart.
    """
    address = Address(host, port, tls_cert, tls_key, public_url)
    with options.usage_errors():
        _check(address)
        setup = resolve_setup(model=model, tools=tool or (), files=tools, instructions=instructions, store=store)
        jobs = queue_opener(setup.address, queue, engine=engine) if workers else None
        token = _given_token() or kept_token(default_path().with_name("web-token"))
        try:
            listener = bound_socket(address)
        except BartackError as error:
            raise with_hint(error, _PORT_HINT) from None
        export = export_for(otel)
    telemetry = None if export is None else export.telemetry
    if until_eof:
        threading.Thread(target=_stop_at_eof, daemon=True).start()
    with exporting(export):
        run_async(_serve(setup, address, listener, token, offer or [], drain, telemetry, jobs))


def _stop_at_eof() -> None:
    """Stop as SIGTERM does once stdin is closed. Its other end is in the process that started this one, so that this
    happens however that process ends."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _check(address: Address) -> None:
    try:
        address.check()
    except BartackError as error:
        raise with_hint(error, "See --tls-cert, --tls-key and --public-url in 'bartack serve --help'.") from None


def _given_token() -> str:
    """The token in the environment; empty if there is none."""
    token = os.environ.get(_TOKEN, "").strip()
    if 0 < len(token) < _MIN_TOKEN:
        text = f"The token in {_TOKEN} is too short; it needs at least {_MIN_TOKEN} characters."
        raise BartackError(text, code=ErrorCode.INVALID_CONFIG)
    return token


def kept_token(path: Path) -> str:
    """The token in this file, which is created if needed, for its owner only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _create_token(path)
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(
            f"Cannot read or create the token in {path}: {error}.", code=ErrorCode.INVALID_CONFIG
        ) from error
    if len(token) < _MIN_TOKEN:
        text = f"The token in {path} is too short. Delete the file to have a new one created."
        raise BartackError(text, code=ErrorCode.INVALID_CONFIG)
    return token


def _create_token(path: Path) -> None:
    try:
        with new_file(path, overwrite=False) as file:
            file.write(secrets.token_urlsafe(32).encode())
    except StoreError:
        if not path.exists():  # otherwise another server that starts has created it, and both use the same
            raise


async def _serve(  # noqa: PLR0917 - called once, above
    setup: AgentSetup,
    address: Address,
    listener: socket.socket,
    token: str,
    models: list[str],
    drain_s: float,
    telemetry: TelemetrySink | None,
    queue: Callable[[SessionStore], RunQueue] | None,
) -> None:
    """With `queue`, runs are handed to workers through it."""
    origins = address.origins(listener.getsockname()[1])
    async with (
        opened_store(setup.address) as store,
        new_agent(setup, store, approver=None, telemetry=telemetry) as agent,
    ):
        application = web_app(
            agent,
            store=store,
            token=token,
            hosts=origins,
            models=models,
            drain_s=drain_s,
            queue=queue,
        )
        access = application.access
        assert isinstance(access, TokenAccess)
        access.on_new_code = lambda code: _print(f"For another browser: {origins[0]}/#code={code}")

        def ready() -> None:
            note(
                f"bartack {version('bartack')} · {safe_line(setup.choice.name)} · {setup.address.display}", is_dim=True
            )
            _print(f"Open {origins[0]}/#code={access.code}")
            note("Ctrl-C stops.", is_dim=True)

        await serve_app(application, address, listener, ready)


def _print(line: str) -> None:
    print(line, file=sys.stdout, flush=True)
