"""Confines itself, then becomes the command. Runs as a separate process and uses only the standard library.

Its first argument is JSON: ``{"memory", "processes", "landlock"}``; the others are the command. Limits are set with
setrlimit. ``landlock`` is null, or ``{"writable", "readonly", "hidden", "network"}``, lists of paths and a flag; it is
enforced by four mechanisms of the kernel, each for what the others cannot do:

- Landlock grants access to files. It can only grant: a hidden path is left out by granting its neighbours instead, all
  the way down from the root. It also keeps the process from inspecting or signalling any process outside.
- A mount namespace makes ``readonly`` paths inside writable ones read-only, and covers hidden ones, which Landlock
  cannot express. Where the kernel refuses one, the entries beside such a path are granted one by one, and nothing new
  can be created there.
- Seccomp refuses sockets, because Landlock knows only TCP, and a socket of a local service can be a way out. It also
  refuses io_uring, which performs operations that seccomp does not see, and system calls of other architectures.
- All capabilities are dropped, so that root has no more rights than the owner of its files.

Every step that fails ends the process: a command never runs with fewer walls than were asked for.
"""

import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
# Rights over files, as numbered in linux/landlock.h.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_FIRST_VERSION = (1 << 13) - 1
_DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_LOCKED = 2 | 4 | 8  # nosuid, nodev and noexec, which a user namespace may not take away

_SECCOMP = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # the architecture, and the number of socket()
_IO_URING_SETUP = 425
_X32 = 0x40000000  # a second numbering of the same calls
_EPERM, _ENOSYS = 1, 38

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Apply the limits and walls in the first argument, and run the command in the others."""
    spec = json.loads(sys.argv[1])
    set_limits(spec["memory"], spec["processes"])
    if spec["landlock"] is not None:
        confine(**spec["landlock"])
    # Python ignores these, and a command would inherit that: `yes | head` would not end quietly.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[2], sys.argv[2:])


def set_limits(memory: int, processes: int) -> None:
    """Limit what one process can allocate, and how many more processes this user can have."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Data and not address space: runtimes such as V8 reserve far more addresses than they use.
    lower_limit(resource.RLIMIT_DATA, memory)
    lower_limit(resource.RLIMIT_NPROC, running_threads() + processes)


def lower_limit(kind: int, value: int) -> None:
    _, most = resource.getrlimit(kind)
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(kind, (value, value))


def running_threads() -> int:
    """The threads of this user, which the kernel counts as processes; 0 where there is no /proc."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdecimal():
            try:
                if os.stat(f"/proc/{name}").st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:  # it has ended
                continue
    return count


def confine(writable: list[str], readonly: list[str], hidden: list[str], network: bool) -> None:
    """Put up all walls."""
    readonly = [path for path in readonly if os.path.lexists(path)]
    masked = [path for path in hidden if any(path.startswith(f"{folder}/") for folder in writable)]
    has_mounts = not (readonly or masked) or protect(readonly, masked)
    drop_capabilities()
    check(libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
    version = libc.syscall(_CREATE_RULESET, None, 0, 1)
    check(version, "landlock")
    files = _FIRST_VERSION | (version >= 2) * _REFER | (version >= 3) * _TRUNCATE | (version >= 5) * _IOCTL_DEV
    tcp = 3 if version >= 4 and not network else 0
    scopes = 3 if version >= 6 else 0  # abstract sockets and signals of processes outside
    ruleset = libc.syscall(_CREATE_RULESET, struct.pack("QQQ", files, tcp, scopes), 24, 0)
    check(ruleset, "landlock")
    grant_around(ruleset, "/", hidden, files & _READING)
    closed = [] if has_mounts else [*hidden, *readonly]
    for path in writable:
        grant_around(ruleset, path, closed, files)
        if not has_mounts:
            grant_around(ruleset, path, hidden, files & _READING)
    for path in _DEVICES:
        grant(ruleset, path, files & (_READ_FILE | _WRITE_FILE | _IOCTL_DEV))
    check(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)
    if not network:
        forbid_sockets()


def grant_around(ruleset: int, path: str, closed: list[str], rights: int) -> None:
    """Grant rights over a directory and everything in it, but for the closed paths."""
    if path in closed or os.path.islink(path):  # a link grants nothing: its target does
        return
    prefix = path.rstrip("/") + "/"
    if not any(inside.startswith(prefix) for inside in closed):
        grant(ruleset, path, rights)
        return
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        grant_around(ruleset, prefix + name, closed, rights)


def grant(ruleset: int, path: str, rights: int) -> None:
    """Grant rights over a file, or over a directory and everything below."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what cannot be opened needs no right
    rights = rights if os.path.isdir(path) else rights & _OF_FILES
    check(libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, fd), 0), f"landlock: {path}")
    os.close(fd)


def protect(readonly: list[str], masked: list[str]) -> bool:
    """Make paths read-only, and cover others with something empty, for this process and its children; False if the
    kernel lets this user make no mounts."""
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_MOUNTS | (0 if uid == 0 else _NEW_USERS)) != 0:
        return False
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    if libc.mount(None, b"/", None, _REC | _PRIVATE, None) != 0:
        return False
    for path in map(os.fsencode, masked):
        is_folder = os.path.isdir(path)
        source, kind, flags = (b"tmpfs", b"tmpfs", _RDONLY) if is_folder else (b"/dev/null", None, _BIND)
        if libc.mount(source, path, kind, flags, None) != 0:
            return False
    for path in map(os.fsencode, readonly):
        flags = _BIND | _REMOUNT | _RDONLY | (os.statvfs(path).f_flag & _LOCKED)
        if libc.mount(path, path, None, _BIND | _REC, None) != 0 or libc.mount(None, path, None, flags, None) != 0:
            return False
    os.chdir(os.getcwd())  # the old directory may be behind a new mount
    return True


def drop_capabilities() -> None:
    """Give up every capability, also for programs that are executed later."""
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP fails after the last one, and for users without any
    check(libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24)), "capabilities")


def forbid_sockets() -> None:
    """Let no process from here on create a socket. A pair of connected sockets is harmless."""
    architecture, socket = _SECCOMP[platform.machine()]
    program = [
        (0x20, 0, 0, 4),  # the architecture
        (0x15, 0, 6, architecture),
        (0x20, 0, 0, 0),  # the number of the call
        (0x35, 4, 0, _X32),
        (0x15, 3, 0, socket),
        (0x15, 1, 0, _IO_URING_SETUP),
        (0x06, 0, 0, 0x7FFF0000),  # allow
        (0x06, 0, 0, 0x00050000 | _ENOSYS),
        (0x06, 0, 0, 0x00050000 | _EPERM),
    ]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_program = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    check(libc.prctl(22, 2, filter_program, 0, 0), "seccomp")


def check(result: int, what: str) -> None:
    if result < 0:
        sys.exit(f"The sandbox could not be set up ({what}: {os.strerror(ctypes.get_errno())}).")


if __name__ == "__main__":
    main()
