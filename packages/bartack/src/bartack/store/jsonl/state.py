"""`State`: what is kept beside a session file: how much of it is confirmed, the lease, and a summary for lists.

A state is written after the entries it confirms are durable and before their append is acknowledged. Within one boot of
the machine it is therefore exact: what it does not confirm is being written, or was left by a process that died, and
readers need no lock to know that. It is not synced, so after a power loss it may be older than the session file, never
newer. A state of another boot confirms what it confirms, and the rest counts if it is complete.

The file has a fixed size and is written with one system call. It ends in a checksum: a reader that meets a write half
done reads again.
"""

import errno
import os
import time
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bartack.store.checksums import seal, unseal
from bartack.store.index import totals_of
from bartack.store.memory import SessionLog
from bartack.store.session_store import Lease, ModelSpend, SessionInfo

__all__ = ["SessionSummary", "State", "boot_id", "is_state_torn", "read_state", "summary_of", "write_state"]

_SIZE = 4096  # one page, which the kernel copies as a whole
_ATTEMPTS = 4


class SessionSummary(Struct, frozen=True):
    """What lists and totals need of a session."""

    info: SessionInfo
    models: tuple[ModelSpend, ...] = ()


def summary_of(log: SessionLog) -> SessionSummary:
    """The summary of a session, from all of its entries."""
    return SessionSummary(log.info(), totals_of(log.spends().items()).models)


class State(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a session file. `size` is 0 until its first append is durable."""

    boot: str
    size: int = 0  # how many bytes are confirmed
    seq: int = 0  # the seq of the last confirmed entry
    checksum: str = ""  # the checksum of the last confirmed entry, in hex
    lease: Lease | None = None
    summary: SessionSummary | None = None  # None: it did not fit

    @property
    def is_current(self) -> bool:
        """Whether it was written since the machine was started."""
        return self.boot == boot_id() != ""


_STATE = msgspec.json.Decoder(State)


@cache
def boot_id() -> str:
    """Identifies the time since the machine was started; empty where the system does not have it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read_state(path: Path, *, is_locked: bool = False) -> State | None:
    """The state; None if there is none or it is damaged. It cannot change while the folder is locked."""
    for attempt in range(1 if is_locked else _ATTEMPTS):
        data = _read(path)
        if data is None:
            return None
        state = _decoded(data)
        if state is not None:
            return state
        time.sleep(attempt / 10_000)
    return None


def is_state_torn(path: Path) -> bool:
    """Whether there is a state that cannot be read. The caller holds the folder's lock.

    One that is empty or full of zeros never reached the disk, which is the same as none.
    """
    return read_state(path, is_locked=True) is None and bool((_read(path) or b"").strip(b"\0"))


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, _SIZE + 1)
    finally:
        os.close(descriptor)


def _decoded(data: bytes) -> State | None:
    text = unseal(data.rstrip(b" \n"))
    if len(data) != _SIZE or text is None:
        return None
    try:
        return _STATE.decode(text)
    except ValueError:
        return None  # a newer version wrote it


def write_state(path: Path, state: State) -> None:
    """Write the state, without its summary if it is too long; raises `OSError`."""
    data = seal(msgspec.json.encode(state))
    if len(data) >= _SIZE:
        data = seal(msgspec.json.encode(replace(state, summary=None)))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        if os.pwrite(descriptor, data.ljust(_SIZE - 1) + b"\n", 0) != _SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)
