"""A scene: a scripted provider, and a folder in which chats are started."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.provider_server import ProviderServer, Step, provider
from tests.code.chat.terminal import Terminal, bartack, chat_environment

__all__ = ["Scene", "scene", "writes"]


class Scene:
    """The provider, the project folder, and a way to start chats there."""

    def __init__(self, server: ProviderServer, folder: Path) -> None:
        self.server = server
        self.env = chat_environment(folder, server.base_url)
        self.project = folder / "project"

    def chat(self, *words: str, columns: int = 100, rows: int = 40, **env: str) -> Terminal:
        """A chat, as a context manager."""
        return Terminal({**self.env, **env}, *words, columns=columns, rows=rows)

    def shell(self, *, columns: int = 100, rows: int = 40, **env: str) -> Terminal:
        """A shell with `bartack` on its path, as a context manager."""
        path = f"{Path(sys.executable).parent}:{self.env['PATH']}"
        own = {**self.env, "PATH": path, "PS1": "$ ", **env}
        return Terminal(own, "--norc", "--noprofile", columns=columns, rows=rows, program=("bash",))

    def bartack(self, *words: str) -> str:
        """The output of another command."""
        return bartack(*words, env=self.env)

    def messages(self, request: int = -1) -> list[dict[str, Any]]:
        """The messages of a request, without the instructions."""
        messages: list[dict[str, Any]] = self.server.requests[request]["messages"]
        return [message for message in messages if message["role"] != "system"]

    def user_texts(self, request: int = -1) -> list[Any]:
        """The texts of the user messages of a request."""
        return [message["content"] for message in self.messages(request) if message["role"] == "user"]


@contextmanager
def scene(folder: Path, *answers: Sequence[Step]) -> Iterator[Scene]:
    """A scene whose provider gives these answers in turn, and then repeats the last one."""
    with provider(answers) as server:
        yield Scene(server, folder)


def writes(path: str, text: str) -> dict[str, Any]:
    """A write_file call."""
    return {"call": "write_file", "arguments": {"path": path, "text": text}}
