"""Proves imports and exports with the real programs: `make interop`. It needs them installed, and Node.

For each program: it writes a session against a scripted model on loopback; the session is imported and exported into a
fresh home; the program resumes the original and the export with the same prompt; both requests must be equal. Then the
session is exported to the other programs, and each of these resumes it; its request must contain every text, call and
result of the session.

    python -m scripts.interop PROGRAMS [claude-code codex pi opencode]

PROGRAMS is a folder with `node_modules`. BARTACK_MOCK_SERVER names the scripted model.
"""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from bartack.app.transcripts import Found, found_at, import_transcript, read_transcripts
from bartack.interop import FORMATS, Exported, exported
from bartack.nouns.entries import Entry, branch
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.store import MemoryStore

Json = dict[str, Any]
SERVER = Path(__file__).parents[2] / "shared" / "tools" / "mock_model_server.py"
TIMEOUT_S = 180


class Program(NamedTuple):
    """How a program is started. `{id}`, `{prompt}` and `{file}` are replaced; a prompt in no word is the input."""

    binary: str
    home: str  # the environment variable of its folder
    start: tuple[str, ...]
    resume: tuple[str, ...]
    tools: tuple[str, str]  # a command tool, and the name of its argument
    load: tuple[str, ...] = ()  # imports a file, in a program that does not find files itself


PROGRAMS = {
    "claude-code": Program(
        "claude",
        "CLAUDE_CONFIG_DIR",
        ("-p", "{prompt}", "--session-id", "{id}", "--allowedTools", "Bash,Read"),
        ("-p", "{prompt}", "--resume", "{id}", "--allowedTools", "Bash,Read"),
        ("Bash", "command"),
    ),
    "codex": Program(
        "codex",
        "CODEX_HOME",
        ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "{prompt}"),
        ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "resume", "{id}", "{prompt}"),
        ("exec_command", "cmd"),
    ),
    "pi": Program(
        "pi",
        "PI_CODING_AGENT_DIR",
        ("-p", "--provider", "mock", "--model", "claude-mock", "{prompt}"),
        ("-p", "--provider", "mock", "--model", "claude-mock", "--session", "{id}", "{prompt}"),
        ("bash", "command"),
    ),
    "opencode": Program(
        "opencode",
        "XDG_DATA_HOME",
        ("run", "-m", "mock/claude-mock"),
        ("run", "-m", "mock/claude-mock", "-s", "{id}"),
        ("bash", "command"),
        ("import", "{file}"),
    ),
}


class Lab:
    """A scripted model, and folders for the programs."""

    def __init__(self, folder: Path, programs: Path, port: int) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.project = folder / "project"
        self.project.mkdir()
        self._bin = programs / "node_modules" / ".bin"
        self._url = f"http://127.0.0.1:{port}"

    def home(self, agent: str, name: str) -> Path:
        """A new home for a program, set up for the scripted model."""
        home = self.folder / f"{agent}-{name}"
        home.mkdir()
        if agent == "codex":
            (home / "config.toml").write_text(
                'model = "gpt-5"\nmodel_provider = "mock"\n[model_providers.mock]\nname = "mock"\n'
                f'base_url = "{self._url}/v1"\nwire_api = "responses"\nenv_key = "MOCK_KEY"\n'
            )
        if agent == "opencode":
            limit = {"context": 200_000, "output": 8000}
            mock = {"name": "mock", "reasoning": True, "tool_call": True, "limit": limit}
            options = {"baseURL": f"{self._url}/v1", "apiKey": "x"}
            vendor = {"npm": "@ai-sdk/anthropic", "options": options, "models": {"claude-mock": mock}}
            (home / "config.json").write_text(json.dumps({"provider": {"mock": vendor}}))
        if agent == "pi":
            model = {"id": "claude-mock", "reasoning": True, "contextWindow": 200_000, "maxTokens": 8000}
            provider = {"baseUrl": self._url, "api": "anthropic-messages", "apiKey": "x", "models": [model]}
            (home / "models.json").write_text(json.dumps({"providers": {"mock": provider}}))
        return home

    def run(self, agent: str, home: Path, words: tuple[str, ...], **values: str) -> list[Json]:
        """Run a program, and return the requests that it made."""
        program = PROGRAMS[agent]
        before = set(self.log.glob("*.json"))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            program.home: str(home),
            "ANTHROPIC_BASE_URL": self._url,
            "ANTHROPIC_API_KEY": "x",
            "MOCK_KEY": "x",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "PI_OFFLINE": "1",
            **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "CACHE", "STATE")},
            "OPENCODE_CONFIG": str(home / "config.json"),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        }
        command = [str(self._bin / program.binary), *(word.format(**values) for word in words)]
        done = subprocess.run(
            command,
            cwd=self.project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            input="" if any("{prompt}" in word for word in words) else values.get("prompt", ""),
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return [json.loads(path.read_bytes()) for path in sorted(set(self.log.glob("*.json")) - before)]


@contextmanager
def lab(programs: Path) -> Iterator[Lab]:
    folder = Path(tempfile.mkdtemp(prefix="bartack-interop-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = os.environ.get("BARTACK_MOCK_SERVER", str(SERVER))
    process = subprocess.Popen([sys.executable, server, str(port), str(folder / "log")])
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield Lab(folder, programs, port)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def script(*steps: Json) -> str:
    return f"@@{json.dumps(list(steps))}@@"


def newest(agent: str, home: Path) -> Found:
    """The newest transcript in a home."""
    root = home / "opencode" if agent == "opencode" else home
    paths = [path for place in FORMATS[agent].places for path in root.glob(f"{place.folder}/{place.file}")]
    return found_at(max(paths, key=lambda path: path.stat().st_mtime), agent)


async def imported(found: Found) -> list[Entry]:
    """The entries that a transcript becomes."""
    store = MemoryStore()
    transcript, *_ = read_transcripts(found)
    await import_transcript(store, transcript, found.modified)
    return list(await store.entries(transcript.session_id))


def install(made: Exported, agent: str, home: Path, here: Lab) -> None:
    for name, data in made.files.items():
        path = home / made.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if PROGRAMS[agent].load:
            here.run(agent, home, PROGRAMS[agent].load, file=str(path))


def conversation(body: Json) -> str:
    """The messages of a request as text, without what differs from run to run."""
    text = json.dumps(body.get("messages") or body.get("input"), sort_keys=True, ensure_ascii=False)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?", "TIME", text)
    return re.sub(r'"cache_control": \{[^}]*\}(, )?', "", text)


def main_request(requests: list[Json], marker: str) -> Json:
    """The request with the prompt; programs make others, for titles and the like."""
    found = [one.get("body", one) for one in requests if marker in json.dumps(one)]
    if not found:
        raise SystemExit(f"no request contains {marker!r}")
    return max(found, key=lambda body: len(json.dumps(body)))


def prove(agent: str, others: list[str], here: Lab) -> None:
    program = PROGRAMS[agent]
    tool, argument = program.tools
    steps = script(
        {
            "think": "Look first.",
            "text": "Looking.",
            "tools": [[tool, {argument: "echo one"}], [tool, {argument: "echo two"}]],
        },
        {"tools": [[tool, {argument: "exit 3"}]]},
        {"text": "All done \u2713."},
    )
    home, id = here.home(agent, "original"), str(uuid4())
    here.run(agent, home, program.start, id=id, prompt=f"Please look around. {steps}")
    entries = asyncio.run(imported(newest(agent, home)))
    writer = FORMATS[agent].writer
    assert writer is not None
    made = exported(entries, agent, writer, new_id=str(uuid4()))
    assert made.is_exact or PROGRAMS[agent].load
    # The export takes the place of the original, because programs send paths in their home to the model.
    original = home.rename(home.with_name(f"{agent}-aside"))
    install(made, agent, here.home(agent, "original"), here)
    again = f"What did you do? {script({'text': 'I looked.'})}"
    bodies = []
    for _ in range(2):
        requests = here.run(agent, home, program.resume, id=made.id, prompt=again)
        bodies.append(conversation(main_request(requests, "What did you do?")))
        if original.exists():
            shutil.rmtree(home)
            original.rename(home)
    if bodies[0] != bodies[1]:
        raise SystemExit(f"{agent}: the requests differ:\n{bodies[0][-3000:]}\n\n{bodies[1][-3000:]}")
    print(f"{agent}: the original and its export give the same request ({len(bodies[0]):,} characters)")
    for other in others:
        cross(agent, other, entries, here)


def cross(agent: str, other: str, entries: list[Entry], here: Lab) -> None:
    """Continue a session of one program in another."""
    writer = FORMATS[other].writer
    assert writer is not None
    made = exported(entries, other, writer, new_id=str(uuid4()), directory=str(here.project))
    home = here.home(other, f"from-{agent}")
    install(made, other, home, here)
    prompt = f"Go on there. {script({'text': 'Yes.'})}"
    requests = here.run(other, home, PROGRAMS[other].resume, id=made.id, prompt=prompt)
    body = json.dumps(main_request(requests, "Go on there."), ensure_ascii=False)
    missing = [text for text in expected_texts(entries) if json.dumps(text, ensure_ascii=False)[1:-1] not in body]
    if missing:
        raise SystemExit(f"{agent} -> {other}: missing in the request: {missing}\n{body[-4000:]}")
    print(f"{agent} -> {other}: every text, call and result is in the request")


def expected_texts(entries: list[Entry]) -> list[str]:
    """The texts, commands and results of a session, as far as models saw them."""
    found: list[str] = []
    for entry in branch(entries, entries[-1].id):
        if isinstance(entry.fact, Message):
            found += [part.text for part in entry.fact.parts if isinstance(part, Text) and not part.ignored]
            found += [str(value) for call in entry.fact.tool_calls for value in call.arguments.values()]
            found += [result.content for result in entry.fact.tool_results if isinstance(result.content, str)]
    return [text.strip() for text in found if text.strip()]


def main() -> None:
    programs, *chosen = sys.argv[1:]
    with lab(Path(programs).absolute()) as here:
        for agent in chosen or PROGRAMS:
            prove(agent, [other for other in PROGRAMS if other != agent and (not chosen or other in chosen)], here)


if __name__ == "__main__":
    main()
