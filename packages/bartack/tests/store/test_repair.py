"""Damage to one session: it is reported, the rest of the store works, and a repair makes the session whole again."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.nouns.entries import Custom
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import assistant, user
from bartack.nouns.parts import ToolCall
from bartack.session.outline import REPAIRED, UNREADABLE
from bartack.store import MemoryStore, SessionStore, open_store
from bartack.store.maintenance import check, check_all
from bartack.store.transfer import import_lines
from tests.store.stores import add
from tests.store.test_transfer import lines_of

BLOB = "blob " * 20_000
Damage = Callable[[bytes], bytes]


def unreadable(data: bytes) -> bytes:
    """The data with the JSON of one entry broken, in all of its copies: a database has old ones too."""
    changed = bytearray(data)
    for match in re.finditer(b'"marked"', data):
        changed[data.rindex(b'{"id"', 0, match.start())] = ord("[")
    return bytes(changed)


def altered(data: bytes) -> bytes:
    return data.replace(b'"marked"', b'"maRked"')


def altered_blob(data: bytes) -> bytes:
    """The blob of "s": it ends in that, and in a database it comes last."""
    start = data.rindex(b"blob blob")
    return data[:start] + b"bLob" + data[start + 4 :]


def without_line(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if b"marked" not in line)


async def filled(address: str) -> None:
    store = await open_store(address)
    for name in ("fine", "s"):
        await store.create_session(name)
        await add(store, name, user("first"), user("marked" if name == "s" else "other"), user("third"))
        await add(store, name, user(BLOB + name), assistant(ToolCall(f"{name}-call", "clock", {})))
    await store.close()


def damage_file(folder: Path, kind: str, damage: Damage) -> None:
    """Apply the damage to the file of the session in which it changes something."""
    store = folder / "store"
    files = [store] if kind == "sqlite" else [store / "s.jsonl", *(store / "blobs").iterdir()]
    for path in files:
        data = path.read_bytes()
        is_blob = kind == "jsonl" and path.parent.name == "blobs"
        if is_blob == (kind == "jsonl" and damage is altered_blob) and not data.endswith(b"fine"):
            path.write_bytes(damage(data))
            return
    raise AssertionError(files)


CASES = [
    *((kind, damage) for kind in ("jsonl", "sqlite") for damage in (unreadable, altered, altered_blob)),
    ("jsonl", without_line),
]


@pytest.mark.parametrize(("kind", "damage"), CASES)
async def test_damage_to_one_session(tmp_path: Path, kind: str, damage: Damage) -> None:
    address = f"{kind}:{tmp_path / 'store'}"
    await filled(address)
    damage_file(tmp_path, kind, damage)
    store = await open_store(address)
    problems = await check(store)
    assert {finding.session_id for finding in problems if finding.fault != "dangling_call"} <= {"s", None}
    assert any(finding.session_id == "s" and finding.fault != "dangling_call" for finding in problems)
    await usable(store, "fine")
    await usable(store, "s")
    checked = await check_all(store, ["fine", "s"], do_repair=True)
    assert (checked.repaired, checked.findings) == (("fine", "s"), ())
    facts = [entry.fact for entry in await store.entries("s")]
    notes = [fact for fact in facts if isinstance(fact, Custom) and fact.name == REPAIRED]
    assert len(notes) == 1
    assert (await check_all(store, ["fine", "s"])).findings == ()
    await usable(store, "s")
    await store.close()


async def usable(store: SessionStore, session_id: str) -> None:
    """The session can be listed, searched, read, continued, exported, and imported elsewhere."""
    assert session_id in {info.id for info in (await store.sessions()).items}
    assert session_id in {hit.session_id for hit in await store.search("first")}
    before = await store.load(session_id)
    assert len(before) >= 5
    assert sum(getattr(entry.fact, "name", "") == UNREADABLE for entry in before) <= 1
    await add(store, session_id, user("more"))
    target = MemoryStore()
    await import_lines(target, await lines_of(store, session_id))
    assert (await target.load(session_id))[0] == before[0]


async def test_a_check_reports_what_it_cannot_read_and_continues(tmp_path: Path) -> None:
    """A SQLite file whose pages are damaged raises for some queries."""
    address = f"sqlite:{tmp_path / 'store'}"
    await filled(address)
    path = tmp_path / "store"
    data = bytearray(path.read_bytes())
    page = int.from_bytes(data[16:18], "big")
    reported = 0
    for start in range(page, len(data), page):
        path.write_bytes(bytes(data[:start]) + b"\xff" * page + bytes(data[start + page :]))
        for extra in ("store-wal", "store-shm"):
            (tmp_path / extra).unlink(missing_ok=True)
        try:
            store = await open_store(address)
        except StoreError:
            continue
        reported += await check(store) != []
        await store.close()
    assert reported


@pytest.mark.parametrize("damage", [1, [1], [[[]]], [[1, {}, "text"]], [["a", "gap", "text"]], [[1, "gap"]]])
async def test_a_forged_note_of_a_repair_hides_nothing(store: SessionStore, damage: object) -> None:
    await store.create_session("s")
    await add(store, "s", assistant(ToolCall("c1", "look", {})), Custom(name=REPAIRED, data={"damage": damage}))
    assert [finding.fault for finding in await check(store)] == ["dangling_call"]
