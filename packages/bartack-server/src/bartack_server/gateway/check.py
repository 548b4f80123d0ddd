"""Runs an installed program against a gateway with a scripted model, to see whether the two work together here.

The gateway listens on a free port of the loopback interface, and the program runs in an empty folder with an empty
home, so that neither its settings nor its sessions are touched. There are two scripts. In the first one, the model
calls the program's shell tool and answers after its result. In the second one, the answer is cut off right after the
complete call, and the call must not run.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from bartack.models.guard import GuardedStream
from bartack.models.scripted import ScriptedModel, ScriptedResponse
from bartack.nouns.deltas import Delta, Failed, Start, TextDelta, ToolCallArgs, ToolCallEnd, ToolCallStart
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import assistant
from bartack.nouns.parts import ToolCall
from bartack.nouns.requests import ModelRequest
from bartack.store.memory import MemoryStore
from bartack_server.gateway.app import gateway
from bartack_server.gateway.keys import GatewayKey, add_key, digest_of, new_secret
from bartack_server.gateway.programs import settings_for, write_settings

__all__ = ["CHECKED", "CheckFinding", "check_program", "output_of", "served", "set_up", "store_with_key"]

_TIME_LIMIT_S = 180.0
_MODEL = "checked"
_MARKER = "ran.txt"
_COMMAND = f"echo yes > {_MARKER}"
_ANSWER = "All done."
_LOST = "The connection was lost."


class _Program(NamedTuple):
    """How to start a program once, without questions, and which tool of it runs a command."""

    words: Sequence[str]
    tool: str
    arguments: Mapping[str, Any]
    variables: Mapping[str, str] = {}
    files: Mapping[str, str] = {}  # below its home


CHECKED: Mapping[str, _Program] = {
    "claude": _Program(
        ("claude", "-p", "Run the command.", "--allowedTools", "Bash"),
        "Bash",
        {"command": _COMMAND, "description": "Mark"},
        {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
    ),
    "codex": _Program(
        (
            *("codex", "exec", "--skip-git-repo-check"),
            *("--dangerously-bypass-approvals-and-sandbox", "Run the command."),
        ),
        "exec_command",
        {"cmd": _COMMAND},
    ),
    "gemini": _Program(
        ("gemini", "-y", "-p", "Run the command."),
        "run_shell_command",
        {"command": _COMMAND},
        {"GEMINI_CLI_TRUST_WORKSPACE": "true"},
        files={".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'},
    ),
    "opencode": _Program(
        ("opencode", "run", "Run the command."),
        "bash",
        {"command": _COMMAND, "description": "Mark"},
        {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
    ),
    "qwen": _Program(
        ("qwen", "--auth-type", "openai", "--approval-mode", "yolo", "-p", "Run the command."),
        "run_shell_command",
        {"command": _COMMAND, "is_background": False},
        # The answers of the script are not for a sub-agent that reads the conversation for memories.
        files={".qwen/settings.json": '{"memory": {"enableManagedAutoMemory": false}}'},
    ),
    "pi": _Program(
        ("pi", "-p", "--provider", "bartack", "--model", _MODEL, "Run the command."),
        "bash",
        {"command": _COMMAND},
        {"PI_OFFLINE": "1"},
    ),
}


class CheckFinding(NamedTuple):
    """One thing that was checked."""

    claim: str
    is_true: bool
    detail: str = ""


async def check_program(program: str, path: str | None = None) -> list[CheckFinding]:
    """What works, with the program on this path. Raises `BartackError` if it is not installed."""
    row = CHECKED[program]
    executable = shutil.which(row.words[0], path=path)
    if executable is None:
        raise BartackError(f"{row.words[0]} is not installed, or not on PATH.", code=ErrorCode.MISSING_DEPENDENCY)
    call = ToolCall("call_1", row.tool, dict(row.arguments))
    whole = await _run(program, executable, [assistant("I run it.", call), *[_ANSWER] * 8])
    cut: list[Delta] = [
        Start(_MODEL, "r1"),
        TextDelta("I run it."),
        ToolCallStart("call_1", row.tool),
        ToolCallArgs("call_1", json_text(dict(row.arguments))),
        ToolCallEnd("call_1"),
        Failed(ErrorCode.STREAM_TRUNCATED, _LOST, retryable=True),
    ]
    broken = await _run(program, executable, [cut, *[_ANSWER] * 8])
    return [
        CheckFinding("runs a tool call", whole.has_run, whole.output),
        CheckFinding(
            "sends its result, and shows the answer", whole.calls > 1 and _ANSWER in whole.output, whole.output
        ),
        CheckFinding("does not run a call of an answer that was cut off", not broken.has_run, broken.output),
        CheckFinding("retries or reports an answer that was cut off", broken.is_noticed, broken.output),
    ]


class _Outcome(NamedTuple):
    has_run: bool
    calls: int  # how often the model was called
    output: str

    @property
    def is_noticed(self) -> bool:
        """Whether the program did not take what it got for an answer."""
        return self.calls > 1 or "error" in self.output.lower() or _LOST in self.output


class _CheckedModel(ScriptedModel):
    """Plays the script to requests with tools only: programs also ask for titles, at any time."""

    def respond(self, request: ModelRequest) -> GuardedStream:
        if request.tools:
            return super().respond(request)
        return ScriptedModel(["A title"], model_id=_MODEL).respond(request)


async def _run(program: str, executable: str, script: Sequence[ScriptedResponse]) -> _Outcome:
    row = CHECKED[program]
    model = _CheckedModel(script, model_id=_MODEL)
    with tempfile.TemporaryDirectory(prefix="bartack-check-") as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        store, key = await store_with_key()
        async with served(gateway(default=[model], store=store)) as url:
            variables = set_up(program, home, work, url=url, key=key)
            output = await output_of([executable, *row.words[1:]], variables, work)
            has_run = await asyncio.to_thread((work / _MARKER).exists)
        return _Outcome(has_run, len(model.calls), output)


def set_up(program: str, home: Path, work: Path, *, url: str, key: str) -> dict[str, str]:
    """Create a home with the settings of the program, and a folder to work in; returns its variables."""
    row = CHECKED[program]
    home.mkdir()
    work.mkdir()
    write_settings(settings_for(program, url=url, key=key, model=_MODEL), home)
    for name, text in row.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    variables = {"HOME": str(home), "PATH": os.environ.get("PATH", ""), "BARTACK_GATEWAY_KEY": key, "CI": "1"}
    return {**variables, **row.variables}


async def output_of(words: Sequence[str], variables: Mapping[str, str], folder: Path, text: str = "") -> str:
    """What a program prints until it ends; `text` is its input."""
    process = await asyncio.create_subprocess_exec(
        *words,
        env=dict(variables),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_TIME_LIMIT_S):
            output, _ = await process.communicate(text.encode())
    except TimeoutError:
        return f"{words[0]} did not end within {_TIME_LIMIT_S:g} s."
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace").strip()


async def store_with_key() -> tuple[MemoryStore, str]:
    """A new store, and the secret of the only key in it."""
    store, secret = MemoryStore(), new_secret()
    await add_key(
        store, GatewayKey(id="check", name="check", digest=digest_of(secret), created=store.environment.now())
    )
    return store, secret


class _Drained(Protocol):
    """An ASGI application whose streams can be ended."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def drain(self) -> None: ...


@asynccontextmanager
async def served(app: _Drained, wrapped: ASGIApp | None = None) -> AsyncIterator[str]:
    """The URL of a gateway in this process. `wrapped` is served in its place: the gateway inside of another app."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(wrapped or app, lifespan="on", ws="none", log_config=None, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await app.drain()
        server.should_exit = True
        await serving
