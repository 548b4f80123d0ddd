"""Maintenance of stores that others write to, and imports and purges that are killed at every system call.

    python -m lab.maintenance live [--store sqlite] [--rounds 5] [--control]
    python -m lab.maintenance kills [--store sqlite] [--step 1] [--control]

`live` runs two writers in processes of their own and, meanwhile, a check, a backup, a restore of it, an import, a purge
and (of files) a salvage, again and again. No check may find anything, and no acknowledged entry may be missing in the
end. With `--control`, an entry is damaged behind the back of the store, and the check must find it.

`kills` runs an import or a purge under strace, which kills it at the Nth of the system calls that change files or talk
to the server, for every N. strace counts them in each thread, and the thread that writes makes most of them. Then the
store must have all of the import or nothing, and after a purge the old session or the new one; both can be repeated.
With `--control`, a program that appends the entries one by one is killed instead, and some kill must leave a part.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]

from bartack.environment import Environment
from bartack.nouns import wire
from bartack.nouns.entries import Entry, Fact, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, NotFound
from bartack.nouns.messages import user
from bartack.store import SessionStore, next_entries, open_store
from bartack.store.backup import backup, restore, salvage
from bartack.store.maintenance import check_all, purge
from bartack.store.transfer import import_lines
from bartack.testing.store_steps import add
from tests.store import postgres_server

STORES = ("jsonl", "sqlite", "postgres")
SYSTEM_CALLS = "write,pwrite64,writev,sendto,sendmsg,fsync,fdatasync,ftruncate,truncate,rename,unlink,mkdir"
_MODULE = "lab.maintenance"
_IMPORTED = 40  # entries


def address_of(kind: str, folder: Path) -> str:
    if kind == "postgres":
        return postgres_server.address(str(folder))
    return f"{kind}:{folder / 'store'}"


def session_lines(session_id: str) -> list[bytes]:
    messages = (user(f"{number} " + "x" * 300 * (number % 7)) for number in range(_IMPORTED - 1))
    facts: list[Fact] = [SessionHeader(), *messages]
    return [wire.encode(entry) + b"\n" for entry in next_entries(session_id, None, facts, Environment())]


# -- under live writers


async def write_forever(address: str, name: str) -> None:
    """Append, and print how many entries are acknowledged."""
    store = await open_store(address)
    await store.create_session(name)
    for number in range(2, sys.maxsize):
        await add(store, name, user(f"word{number} " * (number % 50)))
        print(number, flush=True)


async def run_live(kind: str, folder: Path, rounds: int, *, is_control: bool) -> list[str]:
    """What went wrong."""
    address = address_of(kind, folder)
    store = await open_store(address)
    logs = {name: folder / f"{name}.log" for name in ("w1", "w2")}
    writers = []
    for name, log in logs.items():
        with log.open("wb") as file:
            command = [sys.executable, "-m", _MODULE, "writer", address, name]
            writers.append(await asyncio.create_subprocess_exec(*command, stdout=file))
    problems: list[str] = []
    try:
        while not all(log.stat().st_size for log in logs.values()):  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.05)
        for number in range(rounds):
            problems += await one_round(kind, store, folder, number)
    finally:
        for writer in writers:
            writer.kill()
            await writer.wait()
    for name, log in logs.items():
        acknowledged = int(log.read_text().split("\n")[-2])
        if len(await store.entries(name)) < acknowledged:
            problems.append(f"{name}: acknowledged entries are missing")
    await store.close()
    if is_control:
        await damage(kind, folder, address)
    store = await open_store(address)
    findings = (await check_all(store)).findings
    problems += [
        f"in the end: {finding.message}" for finding in findings if finding.fault != "torn"
    ]  # kills tear lines
    await store.close()
    return problems


async def damage(kind: str, folder: Path, address: str) -> None:
    """Change an entry of a writer behind the back of the store."""
    if kind == "postgres":
        connection = await asyncpg.connect(postgres_server.SERVER)
        try:
            await connection.execute(f"SET search_path TO {postgres_server.schema_of(address)}")
            await connection.execute("SET session_replication_role = replica")  # disables the triggers
            await connection.execute("UPDATE entries SET text = replace(text, 'word3 ', 'Word3 ')")
        finally:
            await connection.close()
        return
    path = folder / "store" / "w1.jsonl" if kind == "jsonl" else folder / "store"
    data = path.read_bytes()
    place = data.rindex(b"word3 ")
    path.write_bytes(data[:place] + b"W" + data[place + 1 :])


async def one_round(kind: str, store: SessionStore, folder: Path, number: int) -> list[str]:
    problems = [f"live: {finding.message}" for finding in (await check_all(store)).findings]
    await import_lines(store, session_lines(f"imported{number}"))
    copy = folder / f"copy{number}"
    await backup(store, copy, limit_s=300)
    place = folder / f"restored{number}"
    target = f"{'sqlite' if kind == 'postgres' else kind}:{place}"
    await restore(copy, target)
    restored = await open_store(target)
    problems += [f"restored: {finding.message}" for finding in (await check_all(restored)).findings]
    if len(await restored.entries(f"imported{number}")) != _IMPORTED:
        problems.append("the backup lacks what was stored before it")
    await restored.close()
    (entry,) = await add(store, f"imported{number}", user("secret"))
    await add(store, f"imported{number}", Redaction(entry_id=entry.id))
    await purge(store, f"imported{number}")
    if kind != "postgres":
        salvaged = [entry async for entry in salvage(copy)]
        if sum(entry.session_id == f"imported{number}" for entry in salvaged) != _IMPORTED:
            problems.append("not everything was salvaged from an intact backup")
    return problems


# -- killed at every system call


async def act(address: str, action: str) -> None:
    """What is killed: an import, a purge, or appends one by one."""
    store = await open_store(address)
    match action:
        case "import":
            await import_lines(store, session_lines("s"))
        case "purge":
            await purge(store, "s")
        case _:
            await store.create_session("s")
            for number in range(_IMPORTED - 1):
                await add(store, "s", user(f"{number}"))
    await store.close()


async def run_kills(kind: str, folder: Path, action: str, step: int, limit: int | None) -> tuple[int, list[str]]:
    """How many kills there were, and what went wrong. Ends when the action survives."""
    problems: list[str] = []
    for number in range(1, sys.maxsize, step):
        if limit is not None and number > limit * step:
            return number // step, problems
        place = folder / f"{action}{number}"
        place.mkdir()
        address = address_of(kind, place)
        store = await open_store(address)
        await store.create_session("other")
        if action == "purge":
            await import_lines(store, session_lines("s"))
            await add(store, "s", Redaction(entry_id=(await store.entries("s"))[3].id))
        await store.close()
        injected = f"inject={SYSTEM_CALLS}:signal=KILL:when={number}"
        command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={SYSTEM_CALLS}", "-e", injected]
        command += [sys.executable, "-m", _MODULE, "act", address, action]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
        problems += [f"{action}, kill {number}: {problem}" for problem in await judge(address, action)]
        if done.returncode == 0:
            return number // step, problems
        if done.returncode not in (-signal.SIGKILL, 128 + signal.SIGKILL):
            problems.append(f"{action}, kill {number}: status {done.returncode}: {done.stderr.decode()[-300:]}")
    raise AssertionError


async def judge(address: str, action: str) -> list[str]:
    store = await open_store(address)
    problems = [finding.message for finding in (await check_all(store)).findings if finding.fault != "torn"]
    names = {info.id for info in (await store.sessions()).items} - {"other"}
    if action == "purge":
        if not 1 <= len(names) <= 2:  # both, if it was killed in between
            problems.append(f"the sessions are {sorted(names)}")
        with suppress(NotFound, Conflict):
            await purge(store, "s")
    else:
        count = len(await store.entries("s")) if names else 0
        if count not in (0, _IMPORTED):
            problems.append(f"{count} of {_IMPORTED} entries are stored")
        elif action == "import":
            await import_lines(store, session_lines_again(list(await store.entries("s")) if count else []))
    problems += [f"after repeating: {finding.message}" for finding in (await check_all(store)).findings]
    await store.close()
    return problems


def session_lines_again(stored: list[Entry]) -> list[bytes]:
    """The file again: the same entries if they are stored, whose ids are new in each process."""
    return [wire.encode(entry) + b"\n" for entry in stored] or session_lines("s")


async def main(arguments: argparse.Namespace) -> int:
    problems: list[str] = []
    for kind in arguments.store or STORES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if arguments.mode == "live":
                problems += await run_live(kind, folder, arguments.rounds, is_control=arguments.control)
                print(f"{kind}: {arguments.rounds} rounds of maintenance under live writers", flush=True)
                continue
            for action in ("append",) if arguments.control else ("import", "purge"):
                kills, faults = await run_kills(kind, folder, action, arguments.step, arguments.limit)
                problems += faults
                print(f"{kind}: {action} killed {kills} times", flush=True)
    postgres_server.drop_schemas()
    for problem in problems[:20]:
        print(problem)
    print(f"{len(problems)} problems")
    return int(bool(problems) is not arguments.control)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("live", "kills"))
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step", type=int, default=1, help="kill at every STEPth system call")
    parser.add_argument("--limit", type=int, help="at most so many kills of each action")
    parser.add_argument("--control", action="store_true", help="problems are expected: the status is 1 without any")
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["writer"]:
        asyncio.run(write_forever(*sys.argv[2:]))
    elif sys.argv[1:2] == ["act"]:
        asyncio.run(act(*sys.argv[2:]))
    else:
        sys.exit(asyncio.run(main(parsed())))
