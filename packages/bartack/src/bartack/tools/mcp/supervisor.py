"""Runs one server process and terminates everything it started when the other end of a pipe is closed.

    python supervisor.py FD COMMAND [ARGUMENT ...]

FD is the read end of a pipe whose write end only the client holds. If the client dies, in whatever way, the system
closes the pipe; so no server outlives it. The server leads its own session and process group. On Linux the supervisor
also adopts processes that have left that group, and a server whose supervisor is killed is killed with it.

This file runs on its own, with the standard library only. Exit status: that of the server, 127 if it cannot be started.
"""

import contextlib
import os
import select
import signal
import sys
import time

_GRACE_S = 1.0  # between SIGTERM and SIGKILL
_POLL_S = 0.02
_MAX_SWEEPS = 100  # descendants may keep forking
_SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(control: int, command: list[str]) -> int:
    """Run the command until it exits or `control` is closed; returns its exit status."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    server = os.fork()
    if server == 0:
        become_server(command)
    release_pipes()
    status = wait(server, control, wake)
    if status is None:
        signal_group(server, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while status is None and time.monotonic() < deadline:
            status = reaped(server)
            time.sleep(_POLL_S)
    signal_group(server, signal.SIGKILL)
    kill_descendants()
    if status is None:
        status = reaped(server, block=True)
    return 0 if status is None else os.waitstatus_to_exitcode(status) & 0xFF


def become_server(command: list[str]) -> None:
    """Replace this process, a fork of the supervisor, by the server."""
    os.setsid()
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def release_pipes() -> None:
    """Leave the server's standard streams to the server alone, so that each side sees when the other closes them."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def wait(server: int, control: int, wake: int) -> int | None:
    """The server's wait status once it has exited; None if the control pipe was closed, or a signal came, before."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(control, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == control or any(number != signal.SIGCHLD for number in os.read(wake, 4096)):
                return None
        status = reaped(server)
        if status is not None:
            return status


def reaped(server: int, *, block: bool = False) -> int | None:
    """Reap children that have exited; the wait status of the server if it is one of them."""
    last_status = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, 0 if block and last_status is None else os.WNOHANG)
            if pid == server:
                last_status = status
            if pid == 0:
                break
    return last_status


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a process group, if any of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_descendants() -> None:
    """Kill what is left below this process, where /proc shows it: processes that have left the group are adopted."""
    for _ in range(_MAX_SWEEPS):
        children = descendants(os.getpid())
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_POLL_S / 10)


def descendants(of: int) -> list[int]:
    """The processes below one, without those that have exited."""
    parents: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 - as below
            if name.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - importing pathlib doubles the start
                        state, parent = file.read().rpartition(b")")[2].split()[:2]
                    if state != b"Z":
                        parents[int(name)] = int(parent)
    family = {of}
    while children := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= children
    return sorted(family - {of})


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process on Linux; elsewhere, do nothing."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only there

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
