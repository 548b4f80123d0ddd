"""Leases: which process may write to a session, and what happens when it is gone.

A lease makes it unlikely that two runs write to one session. Its *epoch*, which every new lease increases, makes it
impossible: an append whose lease is not the current one is refused in the same transaction that would store it. Losing
a lease too early therefore costs a run its work, but never the session its order, and the rules for when a lease ends
may err on the side of letting others continue. A released lease stays there without an owner, to keep its epoch.

A lease is held until it is released, it has expired, or its process has ended. Waiting for the expiry alone would keep
a session closed for the whole duration after each crash, and a short duration would cost a process that was merely
suspended its lease. So a lease names its *holder*: the machine since its last boot, the pid namespace, the pid and the
time the process started. Pids are reused, and a container sees neither the processes of another one nor those of the
machine. Whether a process of another machine or container is alive cannot be known here, so it counts as alive until
its lease expires.

The functions take the current lease and the current moment, and return the lease to store or raise: a store calls them
inside its own transaction, with its own clock. That of PostgreSQL is the server's, because the clocks of machines
differ. The other stores are used by the processes of one machine, whose wall clock may be set at any time, by a person
or by NTP: their leases also expire by the time since the boot, which nothing can set and which all its processes share,
and the wall clock counts only for a lease of another boot. A container with a time namespace of its own is not covered.
"""

import os
import socket
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from bartack.nouns.errors import LeaseLost, SessionInUse
from bartack.nouns.noun import Noun
from bartack.store.errors import invalid_value_error

__all__ = [
    "Claim",
    "Holder",
    "Lease",
    "Moment",
    "check_fence",
    "extended",
    "held_lease",
    "is_dead",
    "is_held",
    "release_lease",
    "renew_lease",
    "session_in_use_error",
    "take_lease",
    "this_process",
]


class Holder(Noun, frozen=True):
    """A process. `boot` and `started` are empty on systems without ``/proc``."""

    host: str
    pid: int
    boot: str = ""  # the boot id of the machine, and the pid namespace
    started: str = ""  # the start of the process, in clock ticks since the boot

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> Holder:
    """The process that calls this."""
    return _holder(os.getpid())


@lru_cache(maxsize=1)  # the key is the pid: after a fork the child is another process
def _holder(pid: int) -> Holder:
    _, started = _status(pid) or ("", "")
    return Holder(socket.gethostname(), pid, _boot(), started)


def is_dead(holder: Holder) -> bool:
    """Whether the process ran here and has ended."""
    own = this_process()
    if (holder.host, holder.boot) != (own.host, own.boot):
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


class Lease(Noun, frozen=True):
    """The right to write to a session. `epoch` is the fence: an append with an older one raises `LeaseLost`."""

    session_id: str
    owner: str
    epoch: int
    expires_at: datetime
    ttl_s: float
    holder: Holder
    boot_expires_s: float | None = None  # since the boot of the holder's machine; None: only `expires_at` counts


class Moment(NamedTuple):
    """The current time, and how long ago the machine was booted; None if that is unknown or the clock is a server's."""

    time: datetime
    boot_s: float | None = None


class Claim(Noun, frozen=True):
    """A request for the lease of a session, as part of an append."""

    owner: str
    ttl_s: float
    holder: Holder
    takeover: bool = False  # takes the lease even if another owner holds it


def take_lease(session_id: str, claim: Claim, now: Moment, current_lease: Lease | None) -> Lease:
    """The lease that the claim gets after the current one; `SessionInUse` while another owner holds that."""
    if not claim.owner or claim.ttl_s <= 0:
        raise invalid_value_error(
            f"A lease needs an owner and a positive ttl, got {claim.owner!r} and {claim.ttl_s} s."
        )
    is_own = current_lease is not None and current_lease.owner == claim.owner
    if current_lease is not None and not is_own and not claim.takeover and is_held(current_lease, now):
        raise session_in_use_error(current_lease, now)
    epoch = 1 if current_lease is None else current_lease.epoch + 1
    return extended(Lease(session_id, claim.owner, epoch, now.time, claim.ttl_s, claim.holder), now, claim.ttl_s)


def is_held(lease: Lease, now: Moment) -> bool:
    """Whether the lease has an owner that may be alive.

    If a lease has more time left than its duration, the clock was set back after it was taken. When it really expires
    is unknown, so it counts as expired; the fence still protects the session.
    """
    left_s = _left_s(lease, now)
    return bool(lease.owner) and 0 < left_s <= lease.ttl_s and not is_dead(lease.holder)


def _left_s(lease: Lease, now: Moment) -> float:
    """How long the lease lasts if it is not renewed."""
    if now.boot_s is not None and lease.boot_expires_s is not None and _is_same_boot(lease.holder, this_process()):
        return lease.boot_expires_s - now.boot_s
    return (lease.expires_at - now.time).total_seconds()


def _is_same_boot(holder: Holder, other: Holder) -> bool:
    """Whether both have run on the same machine since the same boot, in any container."""
    return bool(holder.boot) and holder.boot.partition(" ")[0] == other.boot.partition(" ")[0]


def held_lease(lease: Lease | None, now: Moment) -> Lease | None:
    """The lease if it is held; None if there is none, or it has been released or has expired."""
    return lease if lease is not None and is_held(lease, now) else None


def session_in_use_error(lease: Lease, now: Moment) -> SessionInUse:
    """The error for a session whose lease another owner holds."""
    left_s = _left_s(lease, now)
    return SessionInUse(
        f"Session {lease.session_id!r} is in use by {lease.owner} ({lease.holder}); its lease expires in {left_s:.0f} "
        "s unless it is renewed. Wait for it to finish, or take over the session with takeover=True.",
        owner=lease.owner,
        expires_in_s=left_s,
    )


def renew_lease(lease: Lease, now: Moment, ttl_s: float, current_lease: Lease | None) -> Lease:
    """The same lease, expiring later; `LeaseLost` if it is no longer the current one."""
    check_fence(lease.session_id, lease, current_lease)
    return extended(lease, now, ttl_s)


def extended(lease: Lease, now: Moment, ttl_s: float) -> Lease:
    """The lease, expiring `ttl_s` seconds from now."""
    boot_expires_s = None if now.boot_s is None else now.boot_s + ttl_s
    return replace(lease, expires_at=now.time + timedelta(seconds=ttl_s), ttl_s=ttl_s, boot_expires_s=boot_expires_s)


def release_lease(lease: Lease, current_lease: Lease | None) -> Lease | None:
    """The lease without an owner, which keeps its epoch; None if it is no longer the current one."""
    return replace(lease, owner="") if _is_current(lease, current_lease) else None


def check_fence(session_id: str, lease: Lease, current_lease: Lease | None) -> None:
    """Raise `LeaseLost` for a lease that is not the session's current one."""
    if lease.session_id != session_id:
        raise invalid_value_error(f"The lease is for session {lease.session_id!r}, not for {session_id!r}.")
    if not _is_current(lease, current_lease):
        owner = "" if current_lease is None else current_lease.owner
        reason = f"{owner} has it now" if owner else "nothing holds it now"
        raise LeaseLost(
            f"The lease of {lease.owner} on session {session_id!r} (epoch {lease.epoch}) was lost: {reason}."
        )


def _is_current(lease: Lease, current_lease: Lease | None) -> bool:
    return current_lease is not None and (lease.epoch, lease.owner) == (current_lease.epoch, current_lease.owner)
