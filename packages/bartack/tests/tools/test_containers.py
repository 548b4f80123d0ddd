"""Commands in containers of podman, with an image that is built from busybox without a registry."""

import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bartack import ToolError
from bartack.tools import LocalRuntime
from bartack.tools.confinement import Container, SandboxPolicy, new_sandbox
from bartack.tools.runtime import RunCommand

_IMAGE = "localhost/bartack-test:1"
_CONFIGURATION = """
[containers]
default_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "{runtime}"
"""


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An image in a storage of its own."""
    busybox = shutil.which("busybox")
    if shutil.which("podman") is None or busybox is None:
        pytest.skip("podman or busybox is not installed")
    folder = tmp_path_factory.mktemp("containers")
    runtime = "runc" if shutil.which("runc") else "crun"
    (folder / "containers.conf").write_text(_CONFIGURATION.format(runtime=runtime))
    storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    (folder / "storage.conf").write_text(storage)
    with tarfile.open(folder / "image.tar", "w") as tar:
        tar.add(Path(busybox).resolve(), "bin/busybox")
        for name in ("sh", "ls", "cat", "id", "env", "touch", "sleep", "grep", "wc"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for name in ("tmp", "proc", "dev", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
        text = tarfile.TarInfo("of-image")
        text.size = 1
        tar.addfile(text, io.BytesIO(b"x"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        patched.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
        for words in (
            ["import", str(folder / "image.tar"), _IMAGE],
            ["run", "--rm", "--network", "none", _IMAGE, "id"],
        ):
            ended = subprocess.run(["podman", *words], capture_output=True, text=True, check=False)
            if ended.returncode != 0:
                pytest.skip(f"podman does not work here: {ended.stderr.strip()}")
        yield


@pytest.fixture
async def runtime(podman: None, tmp_path: Path) -> LocalRuntime:
    for name in ("work/.git/config", "work/private.db", "outside"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("hunter2")
    forbidden = [tmp_path / "work/private.db"]
    variables = {"KEY": "a b"}
    runtime = LocalRuntime(
        tmp_path / "work", forbidden=forbidden, environment=variables, sandbox="podman", image=_IMAGE
    )
    await runtime.connect()
    return runtime


async def run(runtime: LocalRuntime, command: str, timeout_ms: int | None = None) -> str:
    output = await runtime.execute(RunCommand(command=command, timeout_ms=timeout_ms))
    assert isinstance(output.content, str)
    return output.content


async def test_commands_run_in_a_container(runtime: LocalRuntime, tmp_path: Path) -> None:
    assert await run(runtime, 'cat /of-image; echo "$KEY" > file; cat file') == "xa b\n"
    assert (tmp_path / "work/file").stat().st_uid == os.getuid()
    assert f"new container of {_IMAGE}" in runtime.get_hints()
    preview = await runtime.preview(RunCommand(command="true"))
    assert preview is not None
    assert preview["sandbox"].endswith(f"no network, a new container of {_IMAGE}")
    assert "[exit code 3]" in await run(runtime, "exit 3")
    await runtime.close()


@pytest.mark.parametrize(
    "attempt",
    [
        "cat ../outside",
        "grep hunter2 private.db",
        "touch .git/hook",
        "echo y > .git/config",
        "touch /sys/kernel/x",
        "echo x > /proc/sys/kernel/core_pattern",
        "grep -v -e 0000000000000000 -e CapBnd /proc/self/status | grep ^Cap",
        "[ $(ls /sys/class/net | wc -l) -gt 1 ]",
    ],
)
async def test_each_wall_of_a_container_holds(runtime: LocalRuntime, attempt: str) -> None:
    content = await run(runtime, f"{attempt} && echo got in")
    assert "got in" not in content
    assert "[exit code " in content
    await runtime.close()


async def test_a_command_that_is_stopped_leaves_no_container(runtime: LocalRuntime) -> None:
    assert "timed out" in await run(runtime, "sleep 3600", timeout_ms=3_000)
    deadline = time.monotonic() + 60
    while containers():
        assert time.monotonic() < deadline
    await runtime.close()


def containers() -> list[object]:
    listed = subprocess.run(["podman", "ps", "--all", "--format", "json"], capture_output=True, check=True)
    with suppress(json.JSONDecodeError):
        return list(json.loads(listed.stdout))
    return []


async def test_an_image_that_is_not_there_is_named(podman: None, tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, sandbox="podman", image="localhost/none")
    with pytest.raises(ToolError, match=r"has no image 'localhost/none', or does not work\. Try: podman pull"):
        await runtime.connect()
    with pytest.raises(ToolError, match="needs an image"):
        new_sandbox(SandboxPolicy(root=tmp_path, home=tmp_path), "podman")


def test_the_command_line_for_docker(tmp_path: Path) -> None:
    for name in ("a,b/.git", "a,b/hidden", "cache"):
        (tmp_path / name).mkdir(parents=True)
    root = tmp_path / "a,b"
    policy = SandboxPolicy(
        root=root, home=tmp_path / "home", writable=(tmp_path / "cache",), hidden=(root / "hidden",), image="i:1"
    )
    sandbox = Container(policy, "docker")
    words = sandbox.wrap(["/usr/bin/bash", "-c", "true"], root)
    assert words[-3:] == ["/usr/bin/bash", "-c", "true"]
    line = json.loads(words[4])["container"]
    assert line[:5] == ["docker", "run", "--rm", "--pull", "never"]
    assert line[-1] == "i:1"
    assert line[line.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
    assert line[line.index("--network") + 1] == "none"
    mounts = [line[index + 1] for index, word in enumerate(line) if word == "--mount"]
    assert mounts == [
        f'type=bind,"source={root}","target={root}"',
        f"type=bind,source={tmp_path}/cache,target={tmp_path}/cache",
        f'type=bind,"source={root}/.git","target={root}/.git",readonly',
    ]
    assert line[line.index("--tmpfs") + 1] == f"{root}/hidden:ro"
    names = sandbox.environment({"PATH": "/bin", "LANG": "C", "DATABASE_URL": "x"})["BARTACK_CONTAINER_VARIABLES"]
    assert names == "DATABASE_URL LANG"
