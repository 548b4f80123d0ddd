"""A scene: a provider that answers by a script, and folders in which chats are started."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.chat.terminal import Terminal, bartack, place
from tests.cli.provider_server import ProviderServer, Step, provider

__all__ = ["Scene", "scene", "writes"]


class Scene:
    """The provider, the folder of the project, and how to start a chat there."""

    def __init__(self, server: ProviderServer, folder: Path) -> None:
        self.server = server
        self.env = place(folder, server.base_url)
        self.project = folder / "project"

    def chat(self, *words: str, columns: int = 100, rows: int = 40, **env: str) -> Terminal:
        """A chat, to be used as a context."""
        return Terminal({**self.env, **env}, *words, columns=columns, rows=rows)

    def bartack(self, *words: str) -> str:
        """What another command says."""
        return bartack(*words, env=self.env)

    def messages(self, request: int = -1) -> list[dict[str, Any]]:
        """What the provider was sent, without the instructions."""
        sent: list[dict[str, Any]] = self.server.requests[request]["messages"]
        return [message for message in sent if message["role"] != "system"]

    def said(self, request: int = -1) -> list[Any]:
        """The texts of the users' messages that the provider was sent."""
        return [message["content"] for message in self.messages(request) if message["role"] == "user"]


@contextmanager
def scene(folder: Path, *answers: Sequence[Step]) -> Iterator[Scene]:
    """A scene whose provider gives these answers in turn, the last one again and again."""
    with provider(answers) as server:
        yield Scene(server, folder)


def writes(path: str, text: str) -> dict[str, Any]:
    """A call of write_file."""
    return {"call": "write_file", "arguments": {"path": path, "text": text}}
