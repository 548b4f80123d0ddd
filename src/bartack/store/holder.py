"""`Holder`: the process that holds a lease, so that a dead one is recognised before its lease expires.

A process is identified by its machine since the last boot, its pid namespace, its pid and the time it started: pids are
reused, and a container sees neither the processes of another one nor those of the machine. Whether a process of another
machine or container is alive cannot be known here, so it counts as alive until its lease expires.
"""

import os
import socket
from functools import lru_cache
from pathlib import Path

from bartack.nouns.noun import Noun

__all__ = ["Holder", "is_dead", "this_process"]


class Holder(Noun, frozen=True):
    """A process. `boot` and `started` are empty on systems without ``/proc``."""

    host: str
    pid: int
    boot: str = ""  # the boot id of the machine, and the pid namespace
    started: str = ""  # in clock ticks since the boot

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> Holder:
    """The process that calls this."""
    return _holder(os.getpid())


@lru_cache(maxsize=1)  # by pid: after a fork the child is another process
def _holder(pid: int) -> Holder:
    _, started = _status(pid) or ("", "")
    return Holder(socket.gethostname(), pid, _boot(), started)


def is_dead(holder: Holder) -> bool:
    """Whether the process ran here and has ended."""
    here = this_process()
    if (holder.host, holder.boot) != (here.host, here.boot):
        return False
    if not holder.boot:
        return not _exists(holder.pid)
    status = _status(holder.pid)
    return status is None or status[0] in ("Z", "X") or status[1] != holder.started


def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _status(pid: int) -> tuple[str, str] | None:
    """The state and start time of a process; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return fields[0], fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, and belongs to another user
    return True
