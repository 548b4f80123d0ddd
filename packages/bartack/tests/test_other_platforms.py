"""What Bartack does on other systems, as far as a process on Linux can show. Windows: without fcntl, process groups,
POSIX signals and `os.pread`, with `sys.platform` set, and with a stand-in for msvcrt. macOS: with its number and layout
of file locks, which a stand-in for fcntl translates."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.provider_server import provider

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows need not be imitated there")

# Libraries of others are imported before, because they are built for this system.
WINDOWS = """
import asyncio, fcntl, os, signal, socket, ssl, subprocess, sys, types
import aiohttp, apsw, genai_prices, jsonschema_rs, msgspec, platformdirs, prompt_toolkit, rich.console, typer

posix = fcntl

def locking(fd, mode, size):
    kind = {msvcrt.LK_NBLCK: posix.LOCK_EX | posix.LOCK_NB, msvcrt.LK_UNLCK: posix.LOCK_UN}[mode]
    posix.lockf(fd, kind, size, os.lseek(fd, 0, os.SEEK_CUR))

msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.LK_UNLCK, msvcrt.locking = 2, 0, locking
sys.modules["msvcrt"] = msvcrt
sys.modules["fcntl"] = sys.modules["termios"] = sys.modules["uvloop"] = sys.modules["resource"] = None
sys.platform = "win32"
for name in ("fork", "killpg", "setsid", "pread", "pwrite", "waitid", "getuid", "geteuid", "fchmod", "O_NOFOLLOW"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGCONT", "SIGCHLD", "SIGWINCH", "SIGPIPE"):
    delattr(signal, name)
"""


def on_windows(code: str, *words: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "BARTACK_CONFIG": os.devnull, "BARTACK_CACHE": str(cwd)}
    return subprocess.run(
        [sys.executable, "-c", WINDOWS + code, *words],
        cwd=cwd,
        env=env | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


STORES = """
import bartack
from bartack import Agent
from bartack.models import ScriptedModel
from bartack.nouns.errors import StoreError, ToolError
from bartack.store import open_store
from bartack.store.files import WriteLock
from bartack.tools import LocalRuntime
from bartack.tools.mcp.saved_files import change_file
from pathlib import Path

async def main():
    for store in ("memory:", "sqlite:sessions.db"):
        agent = Agent(ScriptedModel(["Hello.", "Again."]), store=store)
        assert (await agent.run("Hi", session="s")).output == "Hello."
        assert (await agent.run("And?", session="s")).output == "Again."
        await agent.close()
    async with Agent(ScriptedModel(["Third."]), store="sqlite:sessions.db") as agent:
        result = await agent.run("Still there?", session="s")
        assert result.output == "Third."
    try:
        await open_store("jsonl:folder")
    except StoreError as error:
        print(error.message)
    try:
        await LocalRuntime(".").connect()
    except ToolError as error:
        print(error.message)
    try:
        change_file(Path("tokens", "file.json"), dict.clear)
    except OSError as error:
        print(error.strerror)

asyncio.run(main())
first, second = WriteLock(Path("lock")), WriteLock(Path("lock"))
with first.held(wait_s=0.0):
    print("child", subprocess.call([sys.executable, "-c", CHILD]))
with second.held():
    print("free again")
"""
CHILD = """
import fcntl, sys
file = open("lock", "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1 << 30)
except OSError:
    sys.exit(7)
"""


def test_the_library_and_the_stores_work_and_the_rest_is_refused(tmp_path: Path) -> None:
    done = on_windows(f"CHILD = {CHILD!r}\n{STORES}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    refused = [
        "folder: JSONL stores need a POSIX system. Use SQLite.",
        "LocalRuntime requires a POSIX system.",
        "Changing it requires a POSIX system. Edit the file instead",
    ]
    lines = done.stdout.splitlines()
    assert [line.rpartition("/")[2] for line in lines[:1]] + lines[1:3] == refused
    assert lines[3:] == ["child 7", "free again"]  # the lock is real: another process did not get it


START = "from bartack.cli import main; main()"


def test_bartack_run_answers_and_commands_that_need_posix_report_it(tmp_path: Path) -> None:
    with provider([["It will rain."]]) as server:
        model = {"BARTACK_MODEL": "openai-compatible:test", "OPENAI_COMPATIBLE_BASE_URL": server.base_url}
        done = on_windows(START, "run", "Hi", "-q", "--store", "sqlite:s.db", cwd=tmp_path, **model)
        assert (done.returncode, done.stdout, done.stderr) == (0, "It will rain.\n", "")
        tools = on_windows(START, "run", "Hi", "--tools", "files", "--store", "sqlite:s.db", cwd=tmp_path, **model)
    assert (tools.returncode, tools.stdout) == (2, "")
    assert tools.stderr.startswith(
        "bartack: Tools for files and commands require Linux or macOS.\nhint: Leave out --tools"
    )
    listed = on_windows(START, "sessions", "list", "--json", "--store", "sqlite:s.db", cwd=tmp_path)
    assert [item["title"] for item in json.loads(listed.stdout)["items"]] == ["Hi"]
    worker = on_windows(START, "worker", "--store", "sqlite:s.db", cwd=tmp_path, **model)
    assert worker.returncode == 2
    assert worker.stderr.startswith("bartack: Workers require Linux or macOS.\nhint: On Windows, work in WSL")
    chat = on_windows(START, "chat", "--no-tools", cwd=tmp_path, **model)
    assert chat.returncode == 2
    assert chat.stderr.startswith("bartack: Chats in a terminal require Linux or macOS.\nhint: On Windows, work in WSL")


MACOS = """
import fcntl, struct, sys

real = fcntl.fcntl
locked = []

def translated(fd, command, request=0):
    if command != 90:
        return real(fd, command, request)
    start, size, pid, kind, whence = struct.unpack("qqihh", request)
    locked.append((hex(start), size, kind))
    return real(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, whence, start, size, pid))

import bartack.store.files
from bartack.store import open_store
bartack.store.files.fcntl.fcntl = translated
sys.platform = "darwin"
"""
OPENED = """
import asyncio, os
from bartack.nouns.errors import StoreError

async def main():
    store = await open_store("sqlite:s.db")
    await store.create_session("s")
    os.close(os.open("s.db", os.O_RDONLY))  # releases SQLite's own locks
    print(locked)
    print(sum(line.split()[1] == "OFDLCK" for line in open("/proc/locks")) > 0)
    await store.close()

for attempt in range(2):
    try:
        asyncio.run(main())
        break
    except StoreError as error:
        print(error.message)
"""


def python(code: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="imitates macOS on Linux")
def test_a_sqlite_store_on_macos_is_guarded(tmp_path: Path) -> None:
    first, second = python(MACOS + OPENED, tmp_path).splitlines()
    assert (first, second) == ("[('0x40000002', 510, 0)]", "True")


@pytest.mark.skipif(sys.platform != "linux", reason="imitates other systems on Linux")
@pytest.mark.parametrize(
    "system", ["fcntl.F_OFD_SETLK = 12345", "sys.platform = 'freebsd14'"], ids=["macOS", "FreeBSD"]
)
def test_a_sqlite_store_without_a_guard_is_refused(tmp_path: Path, system: str) -> None:
    said = python(f"{MACOS}\n{system}\n{OPENED}", tmp_path).splitlines()
    refusal = "SQLite stores need open file description locks, which this system does not have ("
    assert [line.startswith(refusal) for line in said] == [True, True]  # also when it is tried again
