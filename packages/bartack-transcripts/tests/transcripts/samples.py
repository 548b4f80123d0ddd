"""The sample transcripts of other agents. They are not part of the repository and must not be copied into it."""

import os
from pathlib import Path

from bartack_transcripts.disk.files import FoundTranscript, found_at
from bartack_transcripts.formats import FORMATS
from lab.repository import ROOT

_FOLDERS = {
    "gemini": "gemini-cli",
    "qwen": "qwen-code",
    "llm": "simonw-llm",
}  # folders that are not named after their format
_PATTERNS = {
    "amp": ("test-thread-*.json",),
    "opencode": ("opencode.db", "export_*.json", "sidecar-layout-b"),
    "strands": ("session_*", "snapshot.json"),
    "gemini": ("*.jsonl", "gemini_session.json"),
    "pydantic-ai": ("messages*.json",),
    "langchain": ("langchain_*.json",),
    "llm": ("logs.db",),
}


def samples_root() -> Path:
    """The folder of the samples; BARTACK_TRANSCRIPTS names another one."""
    default = ROOT.parent / "shared" / "transcripts"
    return Path(os.environ.get("BARTACK_TRANSCRIPTS", default))


def unexpected(place: object, problem: object) -> None:
    """A callback that fails if anything cannot be read."""
    raise AssertionError(f"{place}: {problem}")


def samples(*agents: str) -> list[FoundTranscript]:
    """The transcripts of these agents, or of all."""
    sources = []
    for agent in agents or FORMATS:
        root = samples_root() / _FOLDERS.get(agent, agent)
        paths = {path for pattern in _PATTERNS.get(agent, ("*.jsonl",)) for path in root.rglob(pattern)}
        sources += [found_at(path, agent) for path in sorted(paths) if path.name not in _NOT_TRANSCRIPTS]
    return sources


# A log of another program, pretty-printed.
_NOT_TRANSCRIPTS = ("duplicate-assistant-response-2.jsonl",)
NO_SAMPLES = f"no sample transcripts at {samples_root()}; BARTACK_TRANSCRIPTS names their folder"
