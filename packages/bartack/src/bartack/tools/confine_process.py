"""Confines itself, then becomes the command. Runs as a separate process and uses only the standard library.

Its first argument is JSON: ``{"memory", "processes", "landlock", "sockets"}`` or ``{"container"}``; the others are the
command. Limits are set with setrlimit. ``landlock`` is null, or ``{"writable", "readonly", "hidden", "network"}``,
lists of paths and a flag; it is enforced by four mechanisms of the kernel, each for what the others cannot do:

- Landlock grants access to files. It can only grant: a hidden path is left out by granting its neighbours instead, all
  the way down from the root. It also keeps the process from inspecting or signalling any process outside.
- A mount namespace makes ``readonly`` paths inside writable ones read-only, and covers hidden ones, which Landlock
  cannot express. Where the kernel refuses one, the entries beside such a path are granted one by one, and nothing new
  can be created there.
- Seccomp refuses sockets, because Landlock knows only TCP, and a socket of a local service can be a way out. It also
  refuses io_uring, which performs operations that seccomp does not see, system calls of other architectures, the keys
  that the kernel keeps for a user, and System V memory, which other processes of the user share.
- All capabilities are dropped, so that root has no more rights than the owner of its files.

``sockets`` is null, or lists the writable folders of a command that gets its own network namespace, as from bubblewrap.
Such a command can still reach services through sockets in the file system. Seccomp does not see paths, so it passes
each connect() to a process that stays outside (see `SocketConnector`). It refuses sockets that can send without
connecting, and families that network namespaces do not separate.

``container`` is the beginning of a command line of podman or docker, which confine the command themselves.

Every step that fails ends the process: a command never runs with fewer walls than were asked for.
"""

import _thread
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from contextlib import suppress

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

_NO_NEW_PRIVS = 38

# The architecture, and the numbers of seccomp(), socket(), socketpair() and connect().
_SECCOMP = {"x86_64": (0xC000003E, 317, 41, 53, 42), "aarch64": (0xC00000B7, 277, 198, 199, 203)}
# The numbers of add_key(), request_key() and keyctl(), and of shmget(), semget() and msgget().
_KEYS = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}
_SHARED = {"x86_64": (29, 64, 68), "aarch64": (194, 190, 186)}
_I386 = (0x40000003, (102, 359, 360, 362))  # the same for 32-bit programs, with socketcall(); they get no sockets
_IO_URING_SETUP = 425
_X32 = 0x40000000  # a second numbering of the same calls
_ALLOW, _NOTIFY, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of seccomp programs
_ARCHITECTURE, _CALL, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 4, 0, 16, 24  # what they load
_DATAGRAM = 2  # a bit of SOCK_DGRAM and SOCK_RAW, and not of SOCK_STREAM and SOCK_SEQPACKET

_NEW_LISTENER, _WAIT_KILLABLE = 8, 32
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_PIDFD_GETFD, _OPENAT2 = 438, 437
_NO_SYMLINKS, _IN_ROOT = 4, 16
_TMPFS = 0x01021994
_SOCK_DIAG, _DUMP, _DONE, _VFS = 4, 0x301, 3, 1

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Apply the limits and walls in the first argument, and run the command in the others."""
    spec = json.loads(sys.argv[1])
    if "container" in spec:
        run_container(spec["container"], sys.argv[2:])
    set_limits(spec["memory"], spec["processes"])
    if spec["landlock"] is not None:
        confine(**spec["landlock"])
    if spec["sockets"] is not None:
        confine_sockets(spec["sockets"])
    # Python ignores these, and a command would inherit that: `yes | head` would not end quietly.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[2], sys.argv[2:])


def run_container(start: list[str], words: list[str]) -> None:
    """Become the client that runs a command in a new container, and remove the container once the client has ended,
    also if it was killed: containers are no children of the client."""
    name = f"bartack-{os.urandom(8).hex()}"
    names = os.environ.pop("BARTACK_CONTAINER_VARIABLES", "").split()
    client = os.getpid()
    if os.fork() == 0:
        os.setsid()
        leave_standard_streams()
        while os.getppid() == client:
            time.sleep(0.05)
        at_once = ["--time", "0"] if os.path.basename(start[0]) == "podman" else []
        os.execvp(start[0], [start[0], "rm", "--force", *at_once, name])
    # The shell of this machine may not exist in the image.
    shell = ["sh", "-c", 'command -v "$0" >/dev/null || exec sh "$@"; exec "$0" "$@"', os.path.basename(words[0])]
    variables = [word for variable in names for word in ("--env", variable)]
    options, image = start[1:-1], start[-1]
    os.execvp(start[0], [start[0], *options, "--name", name, *variables, image, *shell, *words[1:]])


def leave_standard_streams() -> None:
    """Close them: the reader of the output waits until no process has it open."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)


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
    check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
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
        check(filter_sockets({}, 0), "seccomp")


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


def filter_sockets(families: dict[int, int], flags: int, on_connect: int = _ALLOW) -> int:
    """Allow this process and its children sockets of these families only, and of each only the kinds that have none of
    the bits in its value. Without any family, no namespace separates System V memory either, so that is refused too.
    The two numbers inside an instruction say how many to skip if its test is true, or false."""
    architecture, seccomp, create, create_pair, connect = _SECCOMP[platform.machine()]
    refused = _KEYS[platform.machine()] + (() if families else _SHARED[platform.machine()])
    other, other_calls = _I386
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 6 + 2 * len(other_calls), 0, architecture),
        (_EQUAL, 1, 0, other),
        refuse,
        (_LOAD, 0, 0, _CALL),
        *(step for call in (*other_calls, _IO_URING_SETUP) for step in ((_EQUAL, 0, 1, call), refuse)),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program[1] = (_EQUAL, len(program) - 2, 0, architecture)
    program += [(_LOAD, 0, 0, _CALL), (_AT_LEAST, 0, 1, _X32), refuse]
    program += [(_EQUAL, 0, 1, _IO_URING_SETUP), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    program += [(_EQUAL, 0, 1, connect), (_RETURN, 0, 0, on_connect)]
    program += [step for call in refused for step in ((_EQUAL, 0, 1, call), refuse)]
    # A datagram can be sent to any address, also from one of a pair of connected sockets.
    program += [(_EQUAL, 0, 3, create_pair), (_LOAD, 0, 0, _SECOND_ARGUMENT), (_ANY_BIT, 0, 1, _DATAGRAM), refuse]
    program += [(_LOAD, 0, 0, _CALL), (_EQUAL, 1, 0, create), (_RETURN, 0, 0, _ALLOW)]
    for family, refused_kinds in families.items():
        program += [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 4, family), (_LOAD, 0, 0, _SECOND_ARGUMENT)]
        program += [(_ANY_BIT, 0, 1, refused_kinds), refuse, (_RETURN, 0, 0, _ALLOW)]
    program.append(refuse)
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    result: int = libc.syscall(seccomp, 1, flags, struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer)))
    return result


def confine_sockets(folders: list[str]) -> None:
    """Allow the command to connect to its own services only. Inside another sandbox of this kind, it connects to none,
    because the kernel passes calls to one process only."""
    families: dict[int, int] = {socket.AF_UNIX: _DATAGRAM, socket.AF_INET: 0, socket.AF_INET6: 0, socket.AF_NETLINK: 0}
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        if os.fork() != 0:  # so that the command has no child that it did not start
            os._exit(0)
        ours.close()
        leave_standard_streams()
        _, received, _, _ = socket.recv_fds(theirs, 1, 1)
        for listener in received:
            SocketConnector(listener, folders).serve()
        os._exit(0)
    os.wait()
    theirs.close()
    check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    listener = filter_sockets(families, _NEW_LISTENER | _WAIT_KILLABLE, _NOTIFY)
    if listener < 0:
        check(filter_sockets(families, 0, _ERRNO | errno.EPERM), "seccomp")
    else:
        socket.send_fds(ours, [b"x"], [listener])
        os.close(listener)
    ours.close()


class SocketConnector:
    """Connects the sockets of a command, in a process that the command cannot reach.

    A call cannot be checked and then allowed: by then, another thread may have changed the address in memory, or the
    socket behind the number. So the address is read once, the file is opened once, and the command's socket is
    connected to that file from here. A file belongs to the command if its file system is not mounted outside, or if it
    is in a writable folder and no process outside has bound it.
    """

    def __init__(self, listener: int, folders: list[str]) -> None:
        self.listener = listener
        self.prefixes = tuple(f"{folder.rstrip('/')}/" for folder in folders)

    def serve(self) -> None:
        """Answer every call until no process is left that could make one."""
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        while all(event & select.POLLIN for _, event in poll.poll()):
            with suppress(OSError):  # the caller has been killed
                call = fcntl.ioctl(self.listener, _RECEIVE, bytes(80))
                _thread.start_new_thread(self.answer, (call,))  # connecting may take long

    def answer(self, call: bytes) -> None:
        call_id, thread, _, _, _, _, fd, address, length, *_ = struct.unpack("QIIiIQ6Q", call)
        try:
            self.connect(call_id, thread, fd, address, length)
            number = 0
        except OSError as error:
            number = error.errno or errno.EPERM
        with suppress(OSError):
            fcntl.ioctl(self.listener, _SEND, struct.pack("QqiI", call_id, 0, -number, 0))

    def connect(self, call_id: int, thread: int, fd: int, address: int, length: int) -> None:
        """Do what the call asks for, or raise `OSError`."""
        if length > 128:
            raise OSError(errno.EINVAL, "address")
        with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as status:
            process = next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))
        with open(f"/proc/{thread}/mem", "rb", 0) as memory:
            memory.seek(address)
            data = memory.read(length)
        pidfd = os.pidfd_open(process)
        try:
            own = checked(libc.syscall(_PIDFD_GETFD, pidfd, fd, 0))
        finally:
            os.close(pidfd)
        target = -1
        try:
            fcntl.ioctl(self.listener, _IS_VALID, struct.pack("Q", call_id))  # the thread was still the one that called
            if data[:2] == struct.pack("H", socket.AF_UNIX) and len(data) > 2 and data[2] != 0:
                target = self.own_service(thread, os.fsdecode(data[2:].split(b"\0")[0]))
                data = data[:2] + b"/proc/self/fd/%d" % target
            checked(libc.connect(own, data, len(data)))
        finally:
            os.close(own)
            if target >= 0:
                os.close(target)

    def own_service(self, thread: int, path: str) -> int:
        """The socket at a path as the command sees it, opened; `PermissionError` unless it is one of its own."""
        if not path.startswith("/"):
            path = f"{os.readlink(f'/proc/{thread}/cwd')}/{path}"
        root = os.open(f"/proc/{thread}/root", os.O_PATH | os.O_CLOEXEC)
        try:
            seen = open_path(root, path, _IN_ROOT)
        finally:
            os.close(root)
        info = os.fstat(seen)
        if not stat.S_ISSOCK(info.st_mode):
            os.close(seen)
            raise OSError(errno.ECONNREFUSED, path)
        if is_tmpfs(seen) and info.st_dev not in mounted_devices():
            return seen
        path = os.readlink(f"/proc/self/fd/{seen}")
        os.close(seen)
        if path.startswith(self.prefixes) and info.st_ino & 0xFFFFFFFF not in bound_inodes():
            # A command with its own mount namespace can show any file under such a path.
            found = open_path(-1, path, _NO_SYMLINKS)
            if os.path.samestat(os.fstat(found), info):
                return found
            os.close(found)
        raise PermissionError(errno.EPERM, path)


def open_path(folder: int, path: str, rules: int) -> int:
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, rules)
    return checked(libc.syscall(_OPENAT2, folder, os.fsencode(path), how, len(how)))


def is_tmpfs(fd: int) -> bool:
    """Whether a file is on a tmpfs. Files on btrfs, for example, have devices that no list of mounts shows."""
    info = ctypes.create_string_buffer(256)
    checked(libc.fstatfs(fd, info))
    return bool(struct.unpack_from("q", info.raw)[0] == _TMPFS)


def mounted_devices() -> set[int]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        pairs = (line.split()[2].split(":") for line in mounts)
        return {os.makedev(int(major), int(minor)) for major, minor in pairs}


def bound_inodes() -> set[int]:
    """The lower halves of the inode numbers of all sockets that processes of this network have bound to a path."""
    query = struct.pack("BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, 2, 0xFFFFFFFF, 0xFFFFFFFF)
    inodes: set[int] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(struct.pack("IHHII", 16 + len(query), 20, _DUMP, 1, 0) + query)
        while True:
            for kind, body in parts("IH", 16, kernel.recv(1 << 18)):
                if kind <= _DONE:  # errors are below it
                    if kind != _DONE:
                        raise OSError(errno.EPERM, "sock_diag")
                    return inodes
                inodes.update(
                    struct.unpack_from("I", value)[0] for kind, value in parts("HH", 4, body[16:]) if kind == _VFS
                )


def parts(header: str, header_size: int, data: bytes) -> "list[tuple[int, bytes]]":
    """The messages of a netlink packet, or the attributes of a message: the kind and the content of each."""
    found, offset = [], 0
    while offset + header_size <= len(data):
        length, kind = struct.unpack_from(header, data, offset)
        found.append((kind, data[offset + header_size : offset + length]))
        offset += max(length, header_size) + 3 & ~3
    return found


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def check(result: int, what: str) -> None:
    if result < 0:
        sys.exit(f"The sandbox could not be set up ({what}: {os.strerror(ctypes.get_errno())}).")


if __name__ == "__main__":
    main()
