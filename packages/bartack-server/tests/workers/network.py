"""A machine of its own for a process: a network namespace with a link that can be cut, so that packets disappear."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lab.postgres_cluster import Cluster, find_programs

_ACCESS = "host all all samenet trust\n"


class Link:
    """The link between this machine and the other one."""

    def __init__(self) -> None:
        self._name = f"bt{secrets.token_hex(4)}"
        net = secrets.randbelow(2**16)
        self._net = f"10.{net >> 8}.{net & 255}"
        self.address = f"{self._net}.1"  # this machine, as the other one sees it

    def make(self) -> None:
        inner = f"{self._name}n"
        _ip("netns", "add", self._name)
        _ip("link", "add", self._name, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", self._name)
        _ip("addr", "add", f"{self.address}/30", "dev", self._name)
        _ip("link", "set", self._name, "up")
        for words in (("addr", "add", f"{self._net}.2/30", "dev", inner), ("link", "set", inner, "up")):
            _ip("-n", self._name, *words)
        _ip("-n", self._name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for words in (("link", "del", self._name), ("netns", "del", self._name)):
            subprocess.run(["ip", *words], check=False, capture_output=True)

    def on_other_machine(self, *words: str) -> tuple[str, ...]:
        """The command that runs this one there."""
        return ("ip", "netns", "exec", self._name, *words)

    def cut(self) -> None:
        _ip("link", "set", self._name, "down")

    def restore(self) -> None:
        _ip("link", "set", self._name, "up")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def linked_server() -> Iterator[tuple[Link, Cluster]]:
    """A PostgreSQL server on this machine, and a link to another one; skips the test where this is not permitted."""
    programs = find_programs()
    if programs is None or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root, iproute2, and the programs of PostgreSQL")
    with ExitStack() as stack:
        link = Link()
        stack.callback(link.remove)
        try:
            link.make()
        except OSError as error:
            pytest.skip(f"no network namespaces here ({error})")
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o755)
        access = folder / "access"
        access.write_text(_ACCESS, encoding="utf-8")
        settings = f"listen_addresses = '127.0.0.1, {link.address}'\nhba_file = '{access}'\n"
        yield link, stack.enter_context(Cluster(programs, settings))
