"""Prove the gateway with the real programs, installed from npm in `.interop`. It needs Node 20 or newer.

Each program runs one script: text and thinking, three parallel calls, the result with an image, the result of a command
that failed, an answer, and a second prompt in the resumed session. It runs the script on a model of its own format
without a gateway, and then through the gateway on a model of each format. All its requests must be the same, apart from
ids and signatures: the program has understood the same from every answer. Where the formats are equal, the bytes of
each request and response must be the same on both sides of the gateway. Envelopes must come back to the model as its
own signatures, also after twenty turns. At last, `bartack gateway check` is run: no program may run a call of an answer
that was cut off.

    python -m lab.gateway_programs [claude codex gemini opencode qwen pi]
"""

import asyncio
import base64
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bartack.models import connect
from bartack_server.gateway.app import gateway
from bartack_server.gateway.check import CHECKED, check_program, output_of, served, set_up, store_with_key
from lab.interop import INSTALLED, install_programs
from lab.scripted_model import ScriptedModel, script

Json = dict[str, Any]
MODEL = "checked"
FORMATS = {  # the vendor of each, and the path after which its API begins
    "anthropic-messages": ("anthropic", "/v1"),
    "openai-chat": ("openai-compatible", "/v1"),
    "openai-responses": ("openai", "/v1"),
    "gemini-generate": ("google", "/v1beta"),
}
TURNS = 20
LONG = {"claude": "openai-responses", "codex": "anthropic-messages"}  # the other clients keep no signed thinking
# 2 x 2 pixels
PIXELS = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="


class Client(NamedTuple):
    """How a program is started and resumed, and which of its tools do what. A prompt in no word is the input."""

    format: str
    start: tuple[str, ...]
    resume: tuple[str, ...]
    command: tuple[str, str]  # a tool, and the argument for a command
    image: tuple[str, str]  # a tool, and the argument for a path
    extra: Mapping[str, Any] = {}  # arguments of the command tool


CLIENTS = {
    "claude": Client(
        "anthropic-messages",
        ("-p", "{prompt}", "--session-id", "7b1f9a52-6a0e-4e0e-9d35-0a4f7e6f1c11", "--allowedTools", "Bash,Read"),
        ("-p", "{prompt}", "--continue", "--allowedTools", "Bash,Read"),
        ("Bash", "command"),
        ("Read", "file_path"),
        {"description": "Run"},
    ),
    "codex": Client(
        "openai-responses",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "{prompt}"),
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "resume", "--last", "{prompt}"),
        ("exec_command", "cmd"),
        ("view_image", "path"),
    ),
    "gemini": Client(
        "gemini-generate",
        ("-y", "-p", "{prompt}"),
        ("-y", "--resume", "latest", "-p", "{prompt}"),
        ("run_shell_command", "command"),
        ("read_file", "file_path"),
    ),
    "opencode": Client(
        "openai-chat",
        ("run",),
        ("run", "--continue"),
        ("bash", "command"),
        ("read", "filePath"),
        {"description": "Run"},
    ),
    "qwen": Client(
        "openai-chat",
        ("--auth-type", "openai", "--approval-mode", "yolo", "-p", "{prompt}"),
        ("--auth-type", "openai", "--approval-mode", "yolo", "--continue", "-p", "{prompt}"),
        ("run_shell_command", "command"),
        ("read_file", "file_path"),
        {"is_background": False},
    ),
    "pi": Client(
        "openai-chat",
        ("-p", "--provider", "bartack", "--model", MODEL, "{prompt}"),
        ("-p", "--provider", "bartack", "--model", MODEL, "--continue", "{prompt}"),
        ("bash", "command"),
        ("read", "path"),
    ),
}


class Exchange(NamedTuple):
    """A request of a program and the response, as bytes."""

    path: str
    request: bytes
    response: bytes


class Wiretap:
    """An ASGI application that records what another one receives and sends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.exchanges: list[Exchange] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, response = bytearray(), bytearray()

        async def receive_recorded() -> Message:
            message = await receive()
            request.extend(message.get("body", b""))
            return message

        async def send_recorded(message: Message) -> None:
            response.extend(message.get("body", b""))
            await send(message)

        await self._app(scope, receive_recorded, send_recorded)
        if scope["type"] == "http":
            self.exchanges.append(Exchange(scope["path"], bytes(request), bytes(response)))


class Workshop:
    """A scripted model, and one folder for the programs: their requests contain its path."""

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        self._folder = folder
        self.model = model
        self.path = os.pathsep.join((str(INSTALLED / "node_modules" / ".bin"), os.environ["PATH"]))

    async def play(self, program: str, url: str, key: str, *, is_long: bool = False) -> None:
        """Run the script in a new home; the short one has a second prompt, in the resumed session."""
        client, work = CLIENTS[program], self._folder / "work"
        for folder in (self._folder / "home", work):
            shutil.rmtree(folder, ignore_errors=True)
        variables = set_up(program, self._folder / "home", work, url=url, key=key) | {"PATH": self.path}
        (work / "dot.png").write_bytes(base64.b64decode(PIXELS))
        executable = str(INSTALLED / "node_modules" / ".bin" / CHECKED[program].words[0])
        prompts: list[tuple[Sequence[str], Sequence[Json]]] = [
            (client.start, self._steps(client, work)),
            (client.resume, ({"text": "I looked."},)),
        ]
        for words, steps in [(client.start, self._long_steps(client))] if is_long else prompts:
            prompt = f"Please look. {script(*steps)}"
            is_input = "{prompt}" not in words
            command = [executable, *(word.format(prompt=prompt) for word in words)]
            await output_of(command, variables, work, prompt if is_input else "")

    def _long_steps(self, client: Client) -> Sequence[Json]:
        tool, argument = client.command
        turns = [
            {"think": f"Step {number}.", "tools": [[tool, {**client.extra, argument: f"echo step{number}"}]]}
            for number in range(TURNS)
        ]
        return (*turns, {"text": "All done."})

    def _steps(self, client: Client, work: Path) -> Sequence[Json]:
        tool, argument = client.command
        # Some programs send results in the order in which the calls end.
        calls = [
            [tool, {**client.extra, argument: f"sleep {delay_s}; echo {word}"}]
            for delay_s, word in enumerate(("one", "two", "three"))
        ]
        image, path = client.image
        return (
            {"think": "Look first.", "text": "Looking.", "tools": calls},
            {"think": "A picture.", "tools": [[image, {path: str(work / "dot.png")}]]},
            {"tools": [[tool, {**client.extra, argument: "echo broken >&2; exit 3"}]]},
            {"text": "All done \u2713."},
        )


# -- requests of programs

_VOLATILE = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"http://127\.0\.0\.1:\d+", "URL"),
    (r"cch=[0-9a-f]+", "CCH"),
    (r"Chunk ID: [0-9a-f]+", "CHUNK"),
    (r"Wall time: [\d.]+ seconds", "SECONDS"),
    (r"Process Group PGID: \d+", "PGID"),
    (r"(?<=[/-])session-[\w:-]+", "SESSION"),
    (r'(?<=device_id\\":\\")[0-9a-f]+', "DEVICE"),
    (r'(?<=_unix_ms\\":)\d+', "TIME"),
)
_IDS = frozenset(("id", "tool_use_id", "call_id", "tool_call_id"))
_SIGNATURES = frozenset(("signature", "encrypted_content", "thoughtSignature"))
_SIGNED = re.compile(rf'"({"|".join(_SIGNATURES)})": ?"([^"]+)"')


def normalised(body: bytes) -> str:
    """A request with ids numbered by their first occurrence, without signatures and what differs from run to run."""
    numbers: dict[str, str] = {}

    def number(id: str) -> str:
        return numbers.setdefault(id, f"id{len(numbers)}")

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            name: numbers.setdefault(item, f"id{len(numbers)}")
            if name in _IDS and isinstance(item, str)
            else walk(item)
            for name, item in value.items()
            if name not in _SIGNATURES
        }

    text = json.dumps(walk(json.loads(body)), sort_keys=True, ensure_ascii=False, indent=1)
    for pattern, name in _VOLATILE:
        text = re.sub(pattern, name, text)
    return text


def is_main(exchange: Exchange) -> bool:
    """Whether a request belongs to the conversation: titles and other side calls come at any time."""
    return b'"tools"' in exchange.request and "count" not in exchange.path


def differences(expected: Sequence[str], actual: Sequence[str]) -> Iterator[str]:
    """The lines in which the requests of two runs differ."""
    if len(expected) != len(actual):
        yield f"{len(actual)} requests, not {len(expected)}"
    for number, (own, other) in enumerate(zip(expected, actual, strict=False)):
        pairs = [pair for pair in zip(own.splitlines(), other.splitlines(), strict=False) if pair[0] != pair[1]]
        for left, right in pairs[:3]:
            yield f"request {number}: {left.strip()[:300]} | {right.strip()[:300]}"
        if not pairs and own != other:
            yield f"request {number}: {len(own.splitlines())} lines, not {len(other.splitlines())}"


# -- the proof


async def prove(program: str, workshop: Workshop) -> list[str]:
    """What is wrong with a program."""
    model, own_format = workshop.model, CLIENTS[program].format
    expected = await _requests(program, workshop)
    problems = [] if expected else [f"{program} made no request without a gateway"]
    for text in ("All done", "I looked."):
        if not _has_answered(model, text):
            problems.append(f"{program} does not get as far as the answer {text!r}, without a gateway either")
    for format in FORMATS:
        tap = await _through_gateway(program, workshop, format)
        actual = [normalised(exchange.request) for exchange in tap.exchanges if is_main(exchange)]
        faults = [f"{program} on {format}: {line}" for line in differences(expected, actual)]
        if format == own_format and not _passed(tap.exchanges, [_exchange(row) for row in model.exchanges]):
            faults.append(f"{program}: the bytes are not the same on both sides of the gateway")
        faults += [f"{program} on {format}: {line}" for line in _foreign_signatures(model)]
        print(f"{'FAIL' if faults else 'ok  '} {program} on {format}", flush=True)
        problems += faults
    if program in LONG:
        problems += await prove_long(program, workshop, LONG[program])
    return problems


async def prove_long(program: str, workshop: Workshop, format: str) -> list[str]:
    """What is wrong with twenty turns of a program on a model of another format, whose signatures must come back."""
    model = workshop.model
    expected = await _requests(program, workshop, is_long=True)
    tap = await _through_gateway(program, workshop, format, is_long=True)
    actual = [normalised(exchange.request) for exchange in tap.exchanges if is_main(exchange)]
    faults = [f"{program}, {TURNS} turns on {format}: {line}" for line in differences(expected, actual)]
    faults += _foreign_signatures(model)
    _, last, _ = max(model.exchanges, key=lambda row: len(row[1]))
    signatures = {value for _, value in _SIGNED.findall(last.decode())}
    if len(signatures) != TURNS:
        faults.append(f"{program}: {len(signatures)} signatures came back to the model after {TURNS} turns")
    print(f"{'FAIL' if faults else 'ok  '} {program}, {TURNS} turns on {format}", flush=True)
    return faults


async def _requests(program: str, workshop: Workshop, *, is_long: bool = False) -> list[str]:
    """The requests of a program without a gateway."""
    model = workshop.model
    model.exchanges.clear()
    await workshop.play(program, model.url, "x", is_long=is_long)
    requests = [normalised(exchange.request) for exchange in map(_exchange, model.exchanges) if is_main(exchange)]
    print(f"{program}: {len(requests)} requests without a gateway", flush=True)
    return requests


async def _through_gateway(program: str, workshop: Workshop, format: str, *, is_long: bool = False) -> Wiretap:
    """The exchanges of a program with a gateway in front of a model of this format."""
    vendor, path = FORMATS[format]
    store, key = await store_with_key()
    upstream = connect(f"{vendor}:{MODEL}", api_key="x", base_url=workshop.model.url + path)
    app = gateway(default=[upstream], store=store)
    tap = Wiretap(app)
    workshop.model.exchanges.clear()
    async with served(app, tap) as url:
        await workshop.play(program, url, key, is_long=is_long)
    return tap


def _has_answered(model: ScriptedModel, text: str) -> bool:
    return any(text in response.decode() for _, _, response in model.exchanges)


def _exchange(row: tuple[str, bytes, bytes]) -> Exchange:
    return Exchange(*row)


def _passed(outside: Sequence[Exchange], inside: Sequence[Exchange]) -> bool:
    sent, received = ([row for row in rows if "count" not in row.path] for rows in (outside, inside))
    return sorted(row[1:] for row in sent if row.request) == sorted(row[1:] for row in received)


def _foreign_signatures(model: ScriptedModel) -> Iterator[str]:
    """Signatures in the requests to the model that it has not issued."""
    issued = "".join(row[2].decode() for row in model.exchanges)
    for _, request, _ in model.exchanges:
        for name, value in _SIGNED.findall(request.decode()):
            if value not in issued and value != "skip_thought_signature_validator":
                yield f"a {name} that the model has not issued: {value[:80]}"


async def main(programs: Sequence[str]) -> int:
    """Prove these programs; 0 if everything works."""
    install_programs()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bartack-gateway-") as folder, ScriptedModel() as model:
        thread = Thread(target=model.serve_forever)
        thread.start()
        try:
            workshop = Workshop(Path(folder), model)
            for program in programs or CLIENTS:
                problems += await prove(program, workshop)
                findings = await check_program(program, workshop.path)
                problems += [
                    f"{program} {finding.claim}\n{finding.detail}" for finding in findings if not finding.is_true
                ]
        finally:
            model.shutdown()
            thread.join()
    print("\n".join(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
