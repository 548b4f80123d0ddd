"""Prove imports and exports with the real programs, installed from npm and PyPI. It needs Node 20 or newer.

For each program: it writes a session against a scripted model on loopback; the session is imported and exported into a
fresh home; the program resumes the original and the export with the same prompt; both requests must be equal. Then the
session is continued here, compacted here, and exported to the other programs; each time the program resumes it, and its
request must contain every text, call and result of the session.

    python -m lab.interop [--record] [claude-code codex pi opencode gemini qwen strands]

The programs are installed in .interop, in the versions of their lock: those for Node in `node_modules`, those in Python
in `venv`. `--record` only continues a fixed session in each program, and writes what it sends to a file, with which the
tests compare the exports (`tests.transcripts.evidence`).
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from uuid import uuid4

from bartack.environment import Environment
from bartack.nouns.entries import CompactionSummary, Entry, Fact, branch
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, user
from bartack.nouns.parts import Text
from bartack.session.context.fold import ContextFold
from bartack.store import MemoryStore, Tail, next_entries
from bartack_transcripts.disk.files import FoundTranscript, found_at, read_transcripts
from bartack_transcripts.disk.importing import import_transcript
from bartack_transcripts.formats import FORMATS, Exported, exported
from lab.repository import ROOT, find_test
from lab.scripted_model import ScriptedModel, script
from tests.transcripts import evidence

Json = dict[str, Any]
INSTALLED = ROOT / ".interop"
LOCKS = find_test("transcripts/programs")
STRANDS = str(LOCKS / "strands_agent.py")
TIMEOUT_S = 180


class Program(NamedTuple):
    """How a program is started. `{id}`, `{prompt}` and `{file}` are replaced; a prompt in no word is the input."""

    binary: str  # in the folder of the programs
    home: str  # the environment variable of its folder
    folder: str  # in that folder, where its files are
    start: tuple[str, ...]
    resume: tuple[str, ...]
    tools: tuple[str, str]  # a command tool, and the name of its argument
    load: tuple[str, ...] = ()  # imports a file, in a program that does not find files itself
    place: str = ""  # where its sessions are, if not in the usual place


PROGRAMS = {
    "claude-code": Program(
        "node_modules/.bin/claude",
        "CLAUDE_CONFIG_DIR",
        ".",
        ("-p", "{prompt}", "--session-id", "{id}", "--allowedTools", "Bash,Read"),
        ("-p", "{prompt}", "--resume", "{id}", "--allowedTools", "Bash,Read"),
        ("Bash", "command"),
    ),
    "codex": Program(
        "node_modules/.bin/codex",
        "CODEX_HOME",
        ".",
        ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "{prompt}"),
        ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "resume", "{id}", "{prompt}"),
        ("exec_command", "cmd"),
    ),
    "pi": Program(
        "node_modules/.bin/pi",
        "PI_CODING_AGENT_DIR",
        ".",
        ("-p", "--provider", "mock", "--model", "claude-mock", "{prompt}"),
        ("-p", "--provider", "mock", "--model", "claude-mock", "--session", "{id}", "{prompt}"),
        ("bash", "command"),
    ),
    "opencode": Program(
        "node_modules/.bin/opencode",
        "XDG_DATA_HOME",
        "opencode",
        ("run", "-m", "mock/claude-mock"),
        ("run", "-m", "mock/claude-mock", "-s", "{id}"),
        ("bash", "command"),
        ("import", "{file}"),
    ),
    "gemini": Program(
        "node_modules/.bin/gemini",
        "HOME",
        ".gemini",
        ("-p", "{prompt}", "--approval-mode", "yolo", "-m", "gemini-2.5-pro"),
        ("-p", "{prompt}", "--approval-mode", "yolo", "-m", "gemini-2.5-pro", "--resume", "{id}"),
        ("run_shell_command", "command"),
    ),
    "qwen": Program(
        "node_modules/.bin/qwen",
        "HOME",
        ".qwen",
        ("-p", "{prompt}", "--approval-mode", "yolo", "--auth-type", "openai"),
        ("-p", "{prompt}", "--approval-mode", "yolo", "--auth-type", "openai", "--resume", "{id}"),
        ("run_shell_command", "command"),
    ),
    "strands": Program(
        "venv/bin/python",
        "HOME",
        ".",
        (STRANDS, "{id}", "{prompt}"),
        (STRANDS, "{id}", "{prompt}"),
        ("shell", "command"),
        place="session_*",
    ),
}


class Lab:
    """A scripted model, and folders for the programs."""

    def __init__(self, folder: Path, programs: Path, model: ScriptedModel) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.programs = programs
        self.model = model
        self._url = model.url

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
        if agent == "gemini":
            (home / ".gemini").mkdir()
            auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
            (home / ".gemini" / "settings.json").write_text(json.dumps(auth))
        if agent == "pi":
            model = {"id": "claude-mock", "reasoning": True, "contextWindow": 200_000, "maxTokens": 8000}
            provider = {"baseUrl": self._url, "api": "anthropic-messages", "apiKey": "x", "models": [model]}
            (home / "models.json").write_text(json.dumps({"providers": {"mock": provider}}))
        return home

    def environment(self, agent: str, home: Path) -> dict[str, str]:
        """The variables of a program: nothing of this machine but its path, and the scripted model for every API."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            PROGRAMS[agent].home: str(home),
            "ANTHROPIC_BASE_URL": self._url,
            "ANTHROPIC_API_KEY": "x",
            "MOCK_KEY": "x",
            "GEMINI_API_KEY": "x",
            "GOOGLE_GEMINI_BASE_URL": self._url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "OPENAI_BASE_URL": f"{self._url}/v1",
            "OPENAI_API_KEY": "x",
            "OPENAI_MODEL": "qwen-mock",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "PI_OFFLINE": "1",
            **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "CACHE", "STATE")},
            "OPENCODE_CONFIG": str(home / "config.json"),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        }

    def run(self, agent: str, home: Path, words: tuple[str, ...], **values: str) -> list[Json]:
        """Run a program, and return the requests that it made."""
        program = PROGRAMS[agent]
        before = len(self.model.requests)
        command = [str(self.programs / program.binary), *(word.format(**values) for word in words)]
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment(agent, home),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            input="" if any("{prompt}" in word for word in words) else values.get("prompt", ""),
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return self.model.requests[before:]


def install_programs() -> None:
    """Install the locked versions of all programs, unless they are installed already."""
    names = ("package.json", "package-lock.json", "requirements.txt")
    marker, locks = INSTALLED / "locked", "".join((LOCKS / name).read_text(encoding="utf-8") for name in names)
    if marker.exists() and marker.read_text(encoding="utf-8") == locks:
        return
    INSTALLED.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(LOCKS / name, INSTALLED)
    python = str(INSTALLED / "venv" / "bin" / "python")
    for command in (
        # Not `npm ci`, which fails if a registry lacks the package of any other platform. The lock sets the versions.
        ["npm", "install", "--no-save", "--no-audit", "--no-fund"],
        [sys.executable, "-m", "venv", "--clear", "venv"],
        [python, "-m", "pip", "install", "-qq", "--no-deps", "--require-hashes", "-r", "requirements.txt"],
    ):
        subprocess.run(command, cwd=INSTALLED, check=True)
    marker.write_text(locks, encoding="utf-8")


@contextmanager
def lab(programs: Path) -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="bartack-interop-") as folder, ScriptedModel() as model:
        thread = Thread(target=model.serve_forever)
        thread.start()
        try:
            yield Lab(Path(folder), programs, model)
        finally:
            model.shutdown()
            thread.join()


def newest(agent: str, home: Path) -> FoundTranscript:
    """The newest transcript in a home."""
    root, place = home / PROGRAMS[agent].folder, PROGRAMS[agent].place
    patterns = [place] if place else [f"{place.folder}/{place.file}" for place in FORMATS[agent].places]
    paths = [path for pattern in patterns for path in root.glob(pattern)]
    return found_at(max(paths, key=lambda path: path.stat().st_mtime), agent)


async def imported(file: FoundTranscript) -> list[Entry]:
    """The entries that a transcript becomes."""
    store = MemoryStore()
    transcript, *_ = read_transcripts(file)
    await import_transcript(store, transcript, file.modified)
    return list(await store.entries(transcript.session_id))


def install(export: Exported, agent: str, home: Path, workshop: Lab) -> None:
    for name, data in export.files.items():
        path = home / PROGRAMS[agent].folder / export.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if PROGRAMS[agent].load:
            workshop.run(agent, home, PROGRAMS[agent].load, file=str(path))


def conversation(body: Json) -> str:
    """The messages of a request as text, without what differs from run to run."""
    text = json.dumps(
        body.get("messages") or body.get("input") or body.get("contents"), sort_keys=True, ensure_ascii=False
    )
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?", "TIME", text)
    return re.sub(r'"cache_control": \{[^}]*\}(, )?', "", text)


def main_request(requests: list[Json], marker: str) -> Json:
    """The request with the prompt; programs make others, for titles and the like."""
    matching = [body for body in requests if marker in json.dumps(body)]
    if not matching:
        raise SystemExit(f"no request contains {marker!r}")
    return max(matching, key=lambda body: len(json.dumps(body)))


def prove(agent: str, targets: list[str], workshop: Lab) -> None:
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
    home, id = workshop.home(agent, "original"), str(uuid4())
    workshop.run(agent, home, program.start, id=id, prompt=f"Please look around. {steps}")
    entries = asyncio.run(imported(newest(agent, home)))
    writer = FORMATS[agent].writer
    assert writer is not None
    export = exported(entries, agent, writer, new_id=str(uuid4()))
    assert export.is_exact or PROGRAMS[agent].load
    # The export takes the place of the original, because programs send paths in their home to the model.
    original = home.rename(home.with_name(f"{agent}-aside"))
    install(export, agent, workshop.home(agent, "original"), workshop)
    again = f"What did you do? {script({'text': 'I looked.'})}"
    bodies = []
    for _ in range(2):
        requests = workshop.run(agent, home, program.resume, id=export.id, prompt=again)
        bodies.append(conversation(main_request(requests, "What did you do?")))
        if original.exists():
            shutil.rmtree(home)
            original.rename(home)
    if bodies[0] != bodies[1]:
        raise SystemExit(f"{agent}: the requests differ:\n{bodies[0][-3000:]}\n\n{bodies[1][-3000:]}")
    print(f"{agent}: the original and its export give the same request ({len(bodies[0]):,} characters)")
    addition = [user("This was added."), assistant("Noted \u2713.", meta=Meta(model=model_in(entries)))]
    cross(agent, agent, [*entries, *added(entries, *addition)], workshop, "continued")
    first_kept = next(
        entry.id for entry in entries if isinstance(entry.fact, Message) and entry.fact.role == "assistant"
    )
    cross(
        agent,
        agent,
        [
            *entries,
            *added(entries, CompactionSummary(summary="They looked.", first_kept_entry_id=first_kept), *addition),
        ],
        workshop,
        "compacted",
    )
    for target in targets:
        cross(agent, target, entries, workshop)


def model_in(entries: list[Entry]) -> ModelRef | None:
    metas = [entry.fact.meta for entry in entries if isinstance(entry.fact, Message)]
    return next((meta.model for meta in metas if meta is not None and meta.model is not None), None)


def added(entries: list[Entry], *facts: Fact) -> list[Entry]:
    """Entries that continue a session."""
    last = entries[-1]
    return list(next_entries(last.session_id, Tail(last.id, last.seq), facts, Environment()))


def cross(agent: str, target: str, entries: list[Entry], workshop: Lab, change: str = "") -> None:
    """Continue a session of one program in another, or in the same after something was done to it here."""
    writer = FORMATS[target].writer
    assert writer is not None
    export = exported(entries, target, writer, new_id=str(uuid4()), directory=str(workshop.project))
    home = workshop.home(target, f"{change}-from-{agent}")
    install(export, target, home, workshop)
    prompt = f"Go on there. {script({'text': 'Yes.'})}"
    requests = workshop.run(target, home, PROGRAMS[target].resume, id=export.id, prompt=prompt)
    body = json.dumps(main_request(requests, "Go on there."), ensure_ascii=False)
    missing = [text for text in expected_texts(entries) if json.dumps(text, ensure_ascii=False)[1:-1] not in body]
    if missing:
        raise SystemExit(f"{agent} {change}-> {target}: missing in the request: {missing}\n{body[-4000:]}")
    print(f"{' '.join(filter(None, (agent, change)))} -> {target}: every text, call and result is in the request")


def expected_texts(entries: list[Entry]) -> list[str]:
    """The texts, commands and results of a session, as far as models saw them."""
    context = ContextFold.of(branch(entries, entries[-1].id))
    texts = (
        []
        if context.summary is None
        else [entry.fact.summary for entry in entries if isinstance(entry.fact, CompactionSummary)]
    )
    for message in (item.message for item in context.items):
        texts += [part.text for part in message.parts if isinstance(part, Text) and not part.ignored]
        texts += [str(value) for call in message.tool_calls for value in call.arguments.values()]
        texts += [result.content for result in message.tool_results if isinstance(result.content, str)]
    return [text.strip() for text in texts if text.strip()]


def record(agents: list[str], workshop: Lab) -> None:
    """Continue the fixed session in each program, and keep what it sends."""
    workshop.project = Path(evidence.DIRECTORY)
    workshop.project.mkdir(exist_ok=True)
    records = json.loads(evidence.RECORDED.read_text()) if evidence.RECORDED.exists() else {}
    for agent in agents:
        export, home = evidence.export(agent), workshop.home(agent, "evidence")
        install(export, agent, home, workshop)
        prompt = f"{evidence.PROMPT} {script({'text': 'Nothing.'})}"
        requests = workshop.run(agent, home, PROGRAMS[agent].resume, id=export.id, prompt=prompt)
        body = main_request(requests, evidence.PROMPT)
        messages = evidence.own_words(body.get("messages") or body.get("input") or body.get("contents"))
        records[agent] = {"export": evidence.digest(export), "request": messages}
        evidence.RECORDED.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
        print(f"{agent}: recorded")
    workshop.project.rmdir()


def main() -> None:
    chosen = sys.argv[1:]
    install_programs()
    with lab(INSTALLED) as workshop:
        if "--record" in chosen:
            record([name for name in chosen if name in PROGRAMS] or list(PROGRAMS), workshop)
            return
        for agent in chosen or PROGRAMS:
            prove(
                agent, [target for target in PROGRAMS if target != agent and (not chosen or target in chosen)], workshop
            )


if __name__ == "__main__":
    main()
