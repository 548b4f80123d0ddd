"""Sandboxes for commands: what a command may reach, and the programs and kernel features that enforce it.

Inside a sandbox, the workspace is writable except for its history and settings (`READONLY`), a temporary folder is
writable, and the rest of the disk is readable except for secrets: credentials in the user's home (`SECRETS`), the homes
of other users, and run-time folders with the sockets of services. There is no network unless it is allowed. The memory
of a process and the number of processes are limited; the limit on processes does not bind root. Processes outside can
be neither inspected nor signalled.

A sandbox is a prefix: `wrap` turns the words of a command into those of a command that confines it. So anything that
starts programs can use one, also the terminal of an editor. Three have the same walls:

- **bubblewrap** builds new namespaces with their own mounts, processes and network. Without a network, a command
  connects to sockets in the file system only if they belong to it (see `bartack.tools.confine_process`).
- **Landlock**, with seccomp, needs no program beside Python. Without a network it refuses sockets altogether, also on
  the loopback interface.
- **Seatbelt** on macOS interprets a profile.

**podman and docker** are a choice of their own: each command runs in a new container of an image, which has the
workspace and nothing else of the disk. Only the workspace outlives the command.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from shutil import rmtree, which
from typing import Literal, Protocol

from msgspec import Struct

from bartack.nouns.errors import ToolError
from bartack.tools.shell import MACHINE_VARIABLES

__all__ = [
    "READONLY",
    "Bubblewrap",
    "CommandSandbox",
    "Container",
    "Landlock",
    "SandboxName",
    "SandboxPolicy",
    "Seatbelt",
    "available_sandboxes",
    "new_sandbox",
]

SandboxName = Literal["auto", "bubblewrap", "landlock", "seatbelt", "podman", "docker", "off"]

READONLY = (
    ".git", ".hg", ".svn", ".husky", ".envrc", ".vscode", ".idea", ".zed", ".devcontainer",
    ".bartack", ".claude", ".agents", ".codex", ".cursor", ".gemini", ".opencode", ".mcp.json",
    "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md",
)  # fmt: skip
"""What version control, shells, editors, Bartack and other agents execute or obey, at the top of the workspace."""

# Credentials and histories, relative to the home of the user.
_SECRETS = """
.ssh .aws .azure .gnupg .kube .docker .netrc .npmrc .pypirc .pgpass .my.cnf .git-credentials .vault-token .terraform.d
.password-store .config/gcloud .config/gh .config/op .config/bartack .config/rclone .config/hub .local/share/bartack
.local/share/keyrings .cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings.xml .boto .s3cfg
.config/git/credentials .config/containers/auth.json .config/doctl .config/glab-cli .fly .huggingface/token
.cache/huggingface/token .claude/.credentials.json .codex/auth.json
.gemini .mozilla .config/google-chrome .config/chromium .bash_history
.zsh_history .python_history .psql_history .node_repl_history .lesshst .viminfo Library/Keychains Library/Cookies
"""
# Keys in files at the top of the home, where people download them.
_KEY_FILES = ["*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"]
_SYSTEM_SECRETS = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private", "/etc/ssh", "/run")
_HOMES = ("/home", "/Users")  # the folders of all users' homes
# Where all users have files, and where disks, terminals and shared memory are. Landlock grants harmless devices again.
_TEMPORARY = ("/tmp", "/dev")
# What root could change in a new /proc with no capability at all: the kernel compares only the user.
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/mtrr")
_PROBE_S = 20.0
# Named and not imported: it needs modules that other systems lack.
_LAUNCHER = str(Path(__file__).with_name("confine_process.py"))


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """What a command may reach and use, beside reading the rest of the disk."""

    root: Path
    """The workspace, which is writable."""
    home: Path
    network: bool = False
    writable: tuple[Path, ...] = ()
    """Further folders that are writable, such as a compiler's cache."""
    hidden: tuple[Path, ...] = ()
    """Further files and folders that are out of reach."""
    memory_bytes: int = 8 << 30
    """What a single process may allocate."""
    processes: int = 1_024
    """How many more processes and threads the user may have."""
    image: str | None = None
    """For containers: what they are made from."""

    def readonly_paths(self) -> list[str]:
        """The parts of the workspace that are read-only, as far as they exist."""
        return [str(path) for name in READONLY if (path := self.root / name).exists() and not path.is_symlink()]

    def hidden_paths(self) -> list[str]:
        """The existing files and folders that are out of reach, without those inside another one. What contains the
        workspace is not hidden as a whole: everything beside the way to the workspace is."""
        paths = {path for candidate in self._secrets() if (path := _resolved(candidate)) is not None}
        around = {inside for path in paths for inside in _beside(path, self.root)}
        return sorted(str(path) for path in around if not any(parent in around for parent in path.parents))

    def _secrets(self) -> Iterator[Path]:
        yield from (self.home / name for name in _SECRETS.split())
        with suppress(OSError):
            yield from (path for path in self.home.iterdir() if any(fnmatchcase(path.name, key) for key in _KEY_FILES))
        yield from map(Path, _SYSTEM_SECRETS)
        yield from self.hidden
        for folder in map(Path, _HOMES):
            with suppress(OSError):
                yield from (entry for entry in folder.iterdir() if not self.home.is_relative_to(entry))
        if not self.home.is_relative_to("/root"):
            yield Path("/root")

    @property
    def text(self) -> str:
        """The rules in words."""
        network = "network" if self.network else "no network"
        where = "no access to credentials" if self.image is None else f"a new container of {self.image}"
        return f"writes only below {self.root}, {network}, {where}"


_PROBE = SandboxPolicy(root=Path("/"), home=Path("/nonexistent"))


class CommandSandbox(Protocol):
    """Confines commands to what a policy allows."""

    policy: SandboxPolicy

    @property
    def name(self) -> str:
        """What enforces the policy."""

    def wrap(self, words: Sequence[str], directory: Path) -> list[str]:
        """The words of a command that runs the given one in this directory, confined."""

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables of a command, with those that the sandbox needs to be different."""

    def close(self) -> None:
        """Delete what the sandbox has created."""


class Bubblewrap:
    """Namespaces made by the program bwrap."""

    name = "bubblewrap"

    def __init__(self, policy: SandboxPolicy) -> None:
        self.policy = policy

    @staticmethod
    @cache
    def is_available() -> bool:
        """Whether bwrap is installed and the system lets this user make namespaces."""
        program = which("bwrap")
        words = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
        return program is not None and _succeeds(_launched(_PROBE, words, sockets=[]))

    def wrap(self, words: Sequence[str], directory: Path) -> list[str]:
        """See `CommandSandbox`."""
        policy = self.policy
        arguments = ["--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        arguments += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        for path in _KERNEL_SETTINGS:
            arguments += ["--ro-bind-try", path, path]
        if not policy.network:
            arguments.append("--unshare-net")
        writable = [str(path) for path in (policy.root, *policy.writable) if path.exists()]
        hidden = policy.hidden_paths()
        # Mounts are made in this order, and a later one covers an earlier one: what contains the workspace is hidden
        # before the workspace is mounted, and what it contains afterwards.
        for path in hidden:
            if not _is_below(path, writable):
                arguments += _covered(path)
        for path in writable:
            arguments += ["--bind", path, path]
        for path in hidden:
            if _is_below(path, writable):
                arguments += _covered(path)
        for path in policy.readonly_paths():
            arguments += ["--ro-bind", path, path]
        if policy.network and Path("/run/systemd/resolve").exists():
            arguments += ["--ro-bind", "/run/systemd/resolve", "/run/systemd/resolve"]
        words = ["bwrap", *arguments, "--chdir", str(directory), "--", *words]
        return _launched(policy, words, sockets=None if policy.network else writable)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables, but for the folder for temporary files, which is private inside."""
        return {**variables, "TMPDIR": "/tmp"}

    def close(self) -> None:
        """Nothing to delete."""


class Landlock:
    """Landlock, seccomp and, where the kernel permits, a mount namespace."""

    name = "landlock"

    def __init__(self, policy: SandboxPolicy) -> None:
        self.policy = policy
        self._temporary: Path | None = None

    @staticmethod
    @cache
    def is_available() -> bool:
        """Whether the kernel has Landlock and seccomp, and accepts them."""
        if sys.platform != "linux":
            return False
        walls = {"writable": [], "readonly": [], "hidden": [], "network": False}
        return _succeeds(_launched(_PROBE, ["true"], landlock=walls))

    def wrap(self, words: Sequence[str], directory: Path) -> list[str]:
        """See `CommandSandbox`. The directory is the one that the process is started in."""
        policy = self.policy
        folders = (policy.root, *policy.writable, self._temporary_folder())
        walls = {
            "writable": [str(path) for path in folders],
            "readonly": policy.readonly_paths(),
            "hidden": sorted({*policy.hidden_paths(), *self._hidden_temporary()}),
            "network": policy.network,
        }
        return _launched(policy, words, landlock=walls)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables, with a private folder for temporary files."""
        return {**variables, "TMPDIR": str(self._temporary_folder())}

    def close(self) -> None:
        """Delete the temporary folder."""
        if self._temporary is not None:
            rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _temporary_folder(self) -> Path:
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="bartack-tmp-")).resolve()
        return self._temporary

    def _hidden_temporary(self) -> list[str]:
        """Everybody's temporary files, except the workspace if it is there, and the folder of this sandbox."""
        paths = set(map(Path, _TEMPORARY))
        for path in (self.policy.root, *self.policy.writable, self._temporary_folder()):
            paths = {part for hidden in paths for part in _beside(hidden, path)}
        return [str(path) for path in paths]


class Seatbelt:
    """The program sandbox-exec of macOS, with a generated profile."""

    name = "seatbelt"
    program = "/usr/bin/sandbox-exec"

    def __init__(self, policy: SandboxPolicy) -> None:
        self.policy = policy

    @staticmethod
    @cache
    def is_available() -> bool:
        """Whether this is macOS and sandbox-exec works, which it does not inside another sandbox."""
        words = [Seatbelt.program, "-p", "(version 1)(allow default)", "/usr/bin/true"]
        return sys.platform == "darwin" and _succeeds(words)

    def wrap(self, words: Sequence[str], directory: Path) -> list[str]:
        """See `CommandSandbox`. The directory is the one that the process is started in."""
        return _launched(self.policy, [self.program, "-p", self.profile(), *words])

    def profile(self) -> str:
        """The rules; of those that match, the last one decides."""
        policy = self.policy
        temporary = (Path("/private/tmp"), Path("/private/var/folders"))
        rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
        rules += [_allowed("file-write*", path) for path in (policy.root, *policy.writable, *temporary)]
        rules += ['(allow file-write* (regex #"^/dev/(null|zero|tty|fd/.*|std(out|err))$"))']
        rules += [_denied("file-write*", path) for path in policy.readonly_paths()]
        rules += [_denied("file-read* file-write*", path) for path in policy.hidden_paths()]
        rules += ["(deny process-info* (target others))", "(deny signal (target others))", "(deny mach-priv*)"]
        if not policy.network:
            rules += ["(deny network*)", '(allow network* (local ip "localhost:*"))']
        return "\n".join(rules)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables as they are."""
        return dict(variables)

    def close(self) -> None:
        """Nothing to delete."""


class Container:
    """A new container for each command, made by podman or docker."""

    def __init__(self, policy: SandboxPolicy, name: Literal["podman", "docker"]) -> None:
        self.policy = policy
        self.name: str = name

    def check(self) -> None:
        """Raise `ToolError` if the program or the image is missing. An image is never pulled for a command: that could
        take longer than the command may."""
        image = self.policy.image
        if which(self.name) is None:
            raise ToolError(f"{self.name} is not installed.")
        if image is None:
            raise ToolError(f"The sandbox {self.name!r} needs an image; set image in [commands].")
        if not _succeeds([self.name, "image", "inspect", image]):
            raise ToolError(f"{self.name} has no image {image!r}, or does not work. Try: {self.name} pull {image}")

    def wrap(self, words: Sequence[str], directory: Path) -> list[str]:
        """See `CommandSandbox`. The command is a shell with arguments; an image without that shell uses its sh."""
        policy = self.policy
        writable = [str(path) for path in (policy.root, *policy.writable) if path.exists()]
        hidden = [path for path in policy.hidden_paths() if _is_below(path, writable)]
        options = ["run", "--rm", "--pull", "never", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        options += ["--security-opt", "label=disable", "--memory", str(policy.memory_bytes)]
        options += ["--pids-limit", str(policy.processes), "--workdir", str(directory)]
        options += ["--userns", "keep-id"] if self.name == "podman" and os.getuid() else ["--user", _user_and_group()]
        options += [] if policy.network else ["--network", "none"]
        for path in writable:
            options += _mounted(path, path)
        for path in hidden:
            options += ["--tmpfs", f"{path}:ro"] if Path(path).is_dir() else _mounted("/dev/null", path, "readonly")
        for path in policy.readonly_paths():
            options += _mounted(path, path, "readonly")
        container = [self.name, *options, str(policy.image)]
        return _started({"container": container}, words)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables of this process, for the client, and which of them the container gets."""
        names = " ".join(sorted(set(variables) - MACHINE_VARIABLES))
        return {**os.environ, **variables, "BARTACK_CONTAINER_VARIABLES": names}

    def close(self) -> None:
        """Nothing to delete."""


_KINDS: dict[str, type[Bubblewrap] | type[Landlock] | type[Seatbelt]] = {
    kind.name: kind for kind in (Bubblewrap, Landlock, Seatbelt)
}


def available_sandboxes() -> list[str]:
    """The names of the sandboxes that work here, the best one first."""
    return [name for name, kind in _KINDS.items() if kind.is_available()]


def new_sandbox(policy: SandboxPolicy, name: SandboxName = "auto") -> CommandSandbox | None:
    """The named sandbox, or with ``auto`` the best one here; None if there is none, or with ``off``. Raises `ToolError`
    if the named one does not work here."""
    if name == "off":
        return None
    if name in ("podman", "docker"):
        container = Container(policy, name)
        container.check()
        return container
    names = available_sandboxes() if name == "auto" else [name]
    if not names:
        return None
    kind = _KINDS[names[0]]
    if not kind.is_available():
        raise ToolError(f"The sandbox {name!r} does not work on this machine.")
    return kind(policy)


def _launched(
    policy: SandboxPolicy,
    words: Sequence[str],
    *,
    landlock: Mapping[str, object] | None = None,
    sockets: Sequence[str] | None = None,
) -> list[str]:
    """A command under the limits of the policy, and behind walls of Landlock or for sockets, if there are some."""
    limits = {"memory": policy.memory_bytes, "processes": policy.processes}
    return _started({**limits, "landlock": landlock, "sockets": sockets}, words)


def _started(spec: Mapping[str, object], words: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", _LAUNCHER, json.dumps(spec), *words]


def _succeeds(words: Sequence[str]) -> bool:
    try:
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _resolved(path: Path) -> Path | None:
    """Where the path leads; None if it leads nowhere, or cannot be looked at."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _beside(hidden: Path, inside: Path) -> Iterator[Path]:
    """The hidden path, or, if another path is inside, everything beside the way to that."""
    if not inside.is_relative_to(hidden):
        yield hidden
        return
    for depth in range(len(hidden.parts), len(inside.parts)):
        folder = Path(*inside.parts[:depth])
        with suppress(OSError):
            yield from (entry for entry in folder.iterdir() if not inside.is_relative_to(entry))


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _covered(path: str) -> list[str]:
    """Arguments of bwrap that put something empty in the place of a file or folder."""
    if Path(path).is_dir():
        return ["--tmpfs", path, "--remount-ro", path]
    return ["--ro-bind", "/dev/null", path]


def _mounted(source: str, target: str, *options: str) -> list[str]:
    """Arguments of podman and docker, which read them as a line of CSV."""
    fields = ("type=bind", f"source={source}", f"target={target}", *options)
    return ["--mount", ",".join('"' + field.replace('"', '""') + '"' if "," in field else field for field in fields)]


def _user_and_group() -> str:
    return f"{os.getuid()}:{os.getgid()}"


def _allowed(operation: str, path: str | Path) -> str:
    return f"(allow {operation} (subpath {_quoted(path)}))"


def _denied(operation: str, path: str | Path) -> str:
    return f"(deny {operation} (subpath {_quoted(path)}))"


def _quoted(path: str | Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
