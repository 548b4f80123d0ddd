"""Each wall of each sandbox, tried from inside, as root and as an ordinary user. Every attempt is made without the
sandbox too, where it succeeds: so the wall is what stops it."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from bartack import ToolError
from bartack.tools import LocalRuntime, confinement
from bartack.tools.confinement import Bubblewrap, Landlock, SandboxPolicy, Seatbelt, available_sandboxes, new_sandbox
from bartack.tools.runtime import RunCommand

_NOBODY = 65534
_KINDS: dict[str, type[Bubblewrap | Landlock]] = {"bubblewrap": Bubblewrap, "landlock": Landlock}
_STRICT = "landlock without mounts"


class Place(NamedTuple):
    """A workspace with things around it that a command must not reach, and a process of the same user."""

    base: Path
    uid: int
    policy: SandboxPolicy
    sandbox: str
    bystander: int
    port: int
    terminal: str

    @property
    def workspace(self) -> Path:
        return self.base / "home/user/work"

    def run(self, script: str, *, confined: bool = True, **changes: Any) -> "subprocess.CompletedProcess[str]":
        """Run a script, in which names in capitals stand for places."""
        values = {
            "SHARED": f"/dev/shm/{self.base.name}",
            "BASE": self.base,
            "HOME": self.base / "home/user",
            "PID": self.bystander,
            "PORT": self.port,
            "TERMINAL": self.terminal,
            "KEY": self.bystander,
            "NAME": self.base.name,
        }
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **{name: str(value) for name, value in values.items()}}
        words = ["/bin/bash", "-c", script]
        if confined:
            kind = _KINDS[self.sandbox.partition(" ")[0]](msgspec.structs.replace(self.policy, **changes))
            words, environment = kind.wrap(words, self.workspace), kind.environment(environment)
            if self.sandbox == _STRICT:
                words[3:4] = ["-c", _WITHOUT_MOUNTS, words[3]]
            if "bartack-tmp-" in environment.get("TMPDIR", ""):
                os.chown(environment["TMPDIR"], self.uid, -1)
        identity: dict[str, Any] = {"user": self.uid, "group": self.uid, "extra_groups": []} if self.uid else {}
        try:
            return subprocess.run(
                words, cwd=self.workspace, env=environment, capture_output=True, text=True, timeout=300, check=False,
                **(identity if os.geteuid() == 0 else {}),
            )  # fmt: skip
        finally:
            if confined:
                kind.close()


# Runs the launcher as it is on a kernel that refuses new mounts.
_WITHOUT_MOUNTS = """
import importlib.util, sys
path = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location("launcher", path)
launcher = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launcher)
launcher.protect = lambda readonly, masked: False
launcher.main()
"""


@pytest.fixture(params=["root", "user"])
def uid(request: pytest.FixtureRequest) -> int:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("not running as root")
    return 0 if request.param == "root" else _NOBODY if os.geteuid() == 0 else os.geteuid()


@pytest.fixture(params=["bubblewrap", "landlock", _STRICT])
def place(request: pytest.FixtureRequest, uid: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    sandbox = request.param
    if sandbox.partition(" ")[0] not in available_sandboxes():
        pytest.skip(f"{sandbox} does not work on this machine")
    if uid == _NOBODY:
        monkeypatch.setattr(sys, "executable", _public_python())
    base = Path(tempfile.mkdtemp(prefix="bartack-walls-", dir="/var/tmp")).resolve()
    texts = {
        "outside/file": "x", "home/user/.ssh/id_ed25519": "hunter2", "home/user/.netrc": "hunter2", "home/user/a": "a",
        "home/other/diary": "hunter2", "home/user/work/.git/config": "x", "home/user/work/.bartack/x": "x",
        "home/user/work/src/a.py": "x", "home/user/work/private.db": "hunter2", "home/user/work/.envrc": "x",
        "home/user/work/.vscode/tasks.json": "x", "home/user/server.pem": "hunter2",
        "home/user/work/AGENTS.md": "x",
    }  # fmt: skip
    for name, text in texts.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
    for path in (base, *base.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
        if os.geteuid() == 0:
            os.chown(path, uid, uid)
    monkeypatch.setattr(confinement, "_HOMES", (str(base / "home"),))
    identity: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if uid != os.geteuid() else {}
    bystander = subprocess.Popen(["sleep", "3600"], env={"PATH": os.environ["PATH"], "KEY": "hunter2"}, **identity)
    policy = SandboxPolicy(
        root=base / "home/user/work", home=base / "home/user", hidden=(base / "home/user/work/private.db",)
    )
    shared = Path("/dev/shm", base.name)
    shared.write_text("hunter2")
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as services:
        for name in ("home/user/work/service", "outside/service", "outside/datagrams"):
            kind = socket.SOCK_DGRAM if name.endswith("datagrams") else socket.SOCK_STREAM
            service = services.enter_context(socket.socket(socket.AF_UNIX, kind))
            service.bind(str(base / name))
            if kind == socket.SOCK_STREAM:
                service.listen(100)
            (base / name).chmod(0o777)
        abstract = services.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{base.name}")
        abstract.listen(100)
        controller, terminal = os.openpty()
        if os.geteuid() == 0:
            os.fchown(terminal, uid, -1)
        os.write(controller, b"typed\n")
        subprocess.run([sys.executable, "-c", _CREATE, str(bystander.pid)], check=True, **identity)
        yield Place(base, uid, policy, sandbox, bystander.pid, server.getsockname()[1], os.ttyname(terminal))
        subprocess.run(["ipcrm", "-M", str(bystander.pid)], check=True)
        os.close(terminal)
        os.close(controller)
    shared.unlink()
    bystander.kill()
    bystander.wait()
    shutil.rmtree(base)


def _public_python() -> str:
    """A Python that every user can execute."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with suppress(OSError):
            subprocess.run([path, "-c", ""], user=_NOBODY, group=_NOBODY, extra_groups=[], check=True)
            return path
    pytest.skip("no Python that an ordinary user can execute")


_CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
# From one of two connected sockets, which need no permission to be made.
_SEND = "import socket, sys; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', sys.argv[1])"
_ABSTRACT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(chr(0) + sys.argv[1])"
_ATTACH = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) != 0)"
_SHARED = "import ctypes, sys; sys.exit(ctypes.CDLL(None).shmget(int(sys.argv[1]), 0, 0) < 0)"
_KEYCTL = "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(250, 0, -3, 1) < 0)"  # KEYCTL_GET_KEYRING_ID
_CREATE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).shmget(int(sys.argv[1]), 4096, 0o1600) < 0)"
_VSOCK = "import socket; socket.socket(socket.AF_VSOCK)"

ATTEMPTS = {
    "write beside the workspace": "echo y > $BASE/outside/file",
    "create a file beside the workspace": "echo y > $BASE/outside/new",
    "write in the home": "echo y > $HOME/a",
    "change the history": "echo y > .git/config",
    "add a hook": "mkdir -p .git/hooks && echo y > .git/hooks/pre-commit",
    "move the history away": "mv .git old",
    "change Bartack's settings": "echo y > .bartack/x",
    "change what a shell obeys": "echo y > .envrc",
    "change what agents are told": "echo y > AGENTS.md",
    "change what an editor executes": "echo y > .vscode/tasks.json",
    "read a key": "grep hunter2 $HOME/.ssh/id_ed25519",
    "read a key through a link": "ln -sf $HOME/.ssh/id_ed25519 src/link && grep hunter2 src/link",
    "read a key file": "grep hunter2 $HOME/server.pem",
    "read shared memory": "grep hunter2 $SHARED",
    "read a password": "grep hunter2 $HOME/.netrc",
    "link a password into the workspace": "ln $HOME/.netrc src/netrc && grep hunter2 src/netrc",
    "read the home of another user": "grep hunter2 $BASE/home/other/diary",
    "read a forbidden file of the workspace": "grep hunter2 private.db",
    "read the environment of a process": "tr '\\0' '\\n' < /proc/$PID/environ | grep hunter2",
    "signal a process": "kill -0 $PID",
    "connect to a server": "exec 3<>/dev/tcp/127.0.0.1/$PORT",
    "read memory of a process": "python3 -c 'open(\"/proc/'$PID'/mem\", \"rb\").close()'",
    "look into the files of a process": "ls /proc/$PID/root/ /proc/$PID/fd",
    "attach to a process": f"python3 -c '{_ATTACH}' $PID",
    "read what is typed": "timeout 5 head -c 1 $TERMINAL",
    "read shared memory of System V": f"python3 -c '{_SHARED}' $KEY",
    "use the keys in the kernel": f"python3 -c '{_KEYCTL}'",
    "change the history through a hard link": "ln .git/config src/alias && echo y > src/alias",
    "change the history through a link": "ln -sf ../.git src/history && echo y > src/history/config",
    "connect to a service by an abstract name": f"python3 -c '{_ABSTRACT}' $NAME",
    "connect to a service in the workspace": f"python3 -c '{_CONNECT}' $PWD/service",
    "connect to a service elsewhere": f"python3 -c '{_CONNECT}' $BASE/outside/service",
    "connect to a service by a relative path": f"python3 -c '{_CONNECT}' ../../../outside/service",
    "connect to a service through a link": f"ln -sf $BASE/outside src/way; python3 -c '{_CONNECT}' src/way/service",
    "connect to a renamed service": f"mv service a; python3 -c '{_CONNECT}' a; code=$?; mv a service; exit $code",
    "send to a service": f'python3 -c "{_SEND}" $BASE/outside/datagrams',
    "create a socket of the machine": f"python3 -c '{_VSOCK}'",
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_each_wall_holds_and_is_what_holds(place: Place, attempt: str) -> None:
    confined = place.run(ATTEMPTS[attempt])
    assert confined.returncode != 0
    assert "hunter2" not in confined.stdout
    assert "could not be set up" not in confined.stderr
    control = place.run(ATTEMPTS[attempt], confined=False)
    assert control.returncode == 0, control.stderr


@pytest.mark.parametrize(
    "attempt",
    [
        "exec 3>> /proc/sys/kernel/core_pattern",
        "unshare -rmpf sh -c 'mount -t proc x /mnt && exec 3>> /mnt/sys/kernel/core_pattern'",
    ],
)
def test_the_settings_of_the_kernel_cannot_be_changed(place: Place, attempt: str) -> None:
    """A new /proc shows the settings to root as its own files, and the kernel checks no capability for most of them.
    `core_pattern` names a program that the kernel runs outside of all namespaces."""
    if place.run("exec 3>> /proc/sys/kernel/core_pattern", confined=False).returncode != 0:
        pytest.skip("this user cannot change them outside either")
    assert place.run(attempt).returncode != 0


_SERVICES = """
import multiprocessing, socket, sys, threading
if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")
    with multiprocessing.Pool(1) as pool:
        assert pool.map(abs, [-1]) == [1]
    names = ["own", "/tmp/own", "\\0own", ("127.0.0.1", 0)]
    for name in names:
        family = socket.AF_INET if isinstance(name, tuple) else socket.AF_UNIX
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind(name)
            server.listen()
            connecting = threading.Thread(target=client.connect, args=(server.getsockname(),))
            connecting.start()
            connection, _ = server.accept()
            connecting.join()
            client.send(b"x")
            assert connection.recv(1) == b"x"
    for name, expected in (("own", ConnectionRefusedError), ("none", FileNotFoundError)):
        try:
            socket.socket(socket.AF_UNIX).connect(name)
        except expected:
            continue
        sys.exit(f"{name}: no {expected.__name__}")
"""


def test_commands_can_connect_to_each_other(place: Place) -> None:
    (place.workspace / "src/services.py").write_text(_SERVICES)
    ended = place.run("python3 src/services.py; code=$?; rm -f own; exit $code")
    assert (ended.returncode == 0) is (place.sandbox == "bubblewrap"), ended.stderr


def test_a_service_cannot_be_shown_as_one_of_the_command(place: Place) -> None:
    """A command with its own mount namespace shows a service of the machine in the workspace."""
    bound = f"mount --bind $BASE/outside src && python3 -c '{_CONNECT}' src/service"
    if place.sandbox != "bubblewrap":
        pytest.skip("all sockets are refused")
    ended = place.run(f'unshare -rm bash -c "{bound}"')
    assert ended.returncode != 0
    assert place.run("unshare -rm true").returncode != 0 or "PermissionError" in ended.stderr
    if place.run("unshare -rm true", confined=False).returncode == 0:
        assert place.run(f'unshare -rm bash -c "{bound}"', confined=False).returncode == 0


def test_a_sandbox_inside_another_one_connects_to_nothing(place: Place) -> None:
    """The kernel passes the calls of a process to one other process."""
    if place.sandbox != "bubblewrap":
        pytest.skip("all sockets are refused")
    spec = json.dumps({"memory": 1 << 33, "processes": 1_000, "landlock": None, "sockets": ["/"]})
    launcher = [sys.executable, "-I", "-S", confinement._LAUNCHER, spec]
    outer = [*launcher, *launcher, "python3", "-c", _CONNECT, str(place.workspace / "service")]
    assert "PermissionError" in subprocess.run(outer, capture_output=True, text=True, check=False).stderr


def test_nothing_is_left_of_a_command(place: Place) -> None:
    """Also not what makes its connections."""
    assert place.run("sleep 0.1").returncode == 0
    deadline = time.monotonic() + 60
    while any(str(place.workspace) in line for line in _command_lines()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_text(errors="replace")


def test_ordinary_work_is_possible_inside(place: Place) -> None:
    script = (
        "echo y > src/a.py && mkdir -p src/deep && echo z > src/deep/b && mv src/deep/b src/b && rm -r src/deep"
        ' && cat /etc/passwd "$HOME/a" .git/config > /dev/null && echo t > "$TMPDIR/t" && cat "$TMPDIR/t"'
        " && python3 -c 'import subprocess; subprocess.run([\"true\"], check=True)' && id -u && pwd"
    )
    inside = place.run(script)
    assert (inside.returncode, inside.stderr) == (0, "")
    assert inside.stdout.split() == ["t", str(place.uid), str(place.workspace)]
    assert (place.workspace / "src/b").read_text() == "z\n"


def test_a_pipe_that_ends_early_ends_its_writer(place: Place) -> None:
    """The launcher is written in Python, which ignores SIGPIPE; commands must not inherit that."""
    inside = place.run("set -o pipefail; yes | head -n 1")
    assert (inside.returncode, inside.stdout, inside.stderr) == (128 + 13, "y\n", "")


def test_new_files_at_the_top_need_a_sandbox_that_can_mount(place: Place) -> None:
    assert (place.run("echo y > new").returncode == 0) is (place.sandbox != _STRICT)


def test_the_network_can_be_allowed(place: Place) -> None:
    assert place.run(ATTEMPTS["connect to a server"], network=True).returncode == 0


def test_further_folders_can_be_writable(place: Place) -> None:
    script = "echo y > $BASE/outside/new"
    assert place.run(script, writable=(place.base / "outside",)).returncode == 0


def test_memory_is_limited(place: Place) -> None:
    script = "python3 -c 'bytearray(600_000_000)'"
    assert "MemoryError" in place.run(script, memory_bytes=300_000_000).stderr
    assert place.run(script).returncode == 0


FORTY_PROCESSES = """python3 -c '
import subprocess
jobs = []
try:
    for _ in range(40):
        jobs.append(subprocess.Popen(["sleep", "600"]))
finally:
    for job in jobs:
        job.kill()
'"""


def test_processes_are_limited_for_ordinary_users(place: Place) -> None:
    if place.uid == 0:
        pytest.skip("the kernel does not limit the processes of root")
    assert "Resource temporarily unavailable" in place.run(FORTY_PROCESSES, processes=20).stderr
    assert place.run(FORTY_PROCESSES, processes=400).returncode == 0


def test_a_workspace_that_is_the_home_keeps_its_secrets(place: Place) -> None:
    home = place.base / "home/user"
    inside = place.run("echo y > $HOME/a; cat $HOME/.ssh/id_ed25519 $HOME/.netrc", root=home)
    if place.sandbox != _STRICT:
        assert (home / "a").read_text() == "y\n"
    assert "hunter2" not in inside.stdout
    assert inside.returncode != 0


# -- choosing a sandbox


def test_there_may_be_no_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    policy = SandboxPolicy(root=tmp_path, home=tmp_path)
    for kind in (Bubblewrap, Landlock, Seatbelt):
        monkeypatch.setattr(kind, "is_available", lambda: False)
    assert available_sandboxes() == []
    assert new_sandbox(policy) is None
    with pytest.raises(ToolError, match="'landlock' does not work"):
        new_sandbox(policy, "landlock")


def test_the_best_one_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    policy = SandboxPolicy(root=tmp_path, home=tmp_path)
    monkeypatch.setattr(Bubblewrap, "is_available", lambda: True)
    monkeypatch.setattr(Landlock, "is_available", lambda: True)
    assert isinstance(new_sandbox(policy), Bubblewrap)
    assert isinstance(new_sandbox(policy, "landlock"), Landlock)
    assert new_sandbox(policy, "off") is None


def test_a_sandbox_that_cannot_be_set_up_does_not_run_the_command(tmp_path: Path) -> None:
    """The launcher refuses to continue with fewer walls."""
    if "landlock" not in available_sandboxes():
        pytest.skip("landlock does not work on this machine")
    sandbox = Landlock(SandboxPolicy(root=tmp_path, home=tmp_path))
    words = sandbox.wrap(["touch", str(tmp_path / "ran")], tmp_path)
    broken = f"""
import ctypes, runpy
class Libc:
    def __getattr__(self, name):
        return lambda *arguments: -1
ctypes.CDLL = lambda *arguments, **options: Libc()
runpy.run_path({words[3]!r}, run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-c", broken, *words[4:]], capture_output=True, text=True, check=False)
    sandbox.close()
    assert ended.returncode != 0
    assert "could not be set up" in ended.stderr
    assert not (tmp_path / "ran").exists()


def test_the_profile_for_macos_denies_what_the_policy_denies(tmp_path: Path) -> None:
    for name in ("work/.git", "home/.ssh"):
        (tmp_path / name).mkdir(parents=True)
    policy = SandboxPolicy(root=tmp_path / "work", home=tmp_path / "home", writable=(tmp_path / 'a "b" \\c',))
    profile = Seatbelt(policy).profile().splitlines()
    expected = [
        "(deny file-write*)",
        f'(allow file-write* (subpath "{tmp_path}/work"))',
        f'(allow file-write* (subpath "{tmp_path}/a \\"b\\" \\\\c"))',
        f'(deny file-write* (subpath "{tmp_path}/work/.git"))',
        f'(deny file-read* file-write* (subpath "{tmp_path}/home/.ssh"))',
        "(deny network*)",
    ]
    assert [line for line in profile if line in expected] == expected  # the last rule that matches decides
    words = Seatbelt(policy).wrap(["true"], policy.root)
    assert words[words.index("/usr/bin/sandbox-exec") + 1 :] == ["-p", "\n".join(profile), "true"]
    open_profile = Seatbelt(SandboxPolicy(root=tmp_path, home=tmp_path, network=True)).profile()
    assert "deny network" not in open_profile


# -- in a runtime


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
async def test_a_runtime_confines_its_commands(tmp_path: Path, name: Any) -> None:
    if name not in available_sandboxes():
        pytest.skip(f"{name} does not work on this machine")
    (tmp_path / "work/.git").mkdir(parents=True)
    runtime = LocalRuntime(tmp_path / "work", sandbox=name)
    await runtime.connect()
    assert runtime.sandbox is not None
    assert (await runtime.get_init_data())["sandbox"] == name
    assert "sandbox" in runtime.get_hints()
    escape = f"echo inside > file; cat file; echo x > {tmp_path}/outside"
    output = await runtime.execute(RunCommand(command=escape))
    assert output.content.startswith("inside\n")
    assert not (tmp_path / "outside").exists()
    preview = await runtime.preview(RunCommand(command=escape))
    assert preview is not None
    assert preview["sandbox"].startswith(f"{name}: writes only below {tmp_path}/work, no network")
    leaving = RunCommand(command=escape, unsandboxed=True)
    assert (await runtime.preview(leaving) or {})["sandbox"] == "none"
    await runtime.execute(leaving)
    assert (tmp_path / "outside").exists()
    await runtime.close()
