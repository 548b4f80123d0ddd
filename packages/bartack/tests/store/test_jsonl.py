"""Damaged files of a JSONL store, and how the store recovers."""

from pathlib import Path

import pytest

from bartack.nouns import wire
from bartack.nouns.entries import Custom
from bartack.nouns.errors import NotFound
from bartack.nouns.messages import user
from bartack.session.outline import UNREADABLE
from bartack.store.jsonl import JsonlStore
from bartack.store.maintenance import check, repair
from tests.sample_session import SESSION
from tests.store.stores import add
from tests.store.test_maintenance import faults


async def damaged(folder: Path, change: dict[int, bytes | None]) -> JsonlStore:
    """A store with the session, some of whose lines (by index) are replaced or removed."""
    store = await JsonlStore.open(folder)
    await store.append("s", SESSION, None)
    await store.close()
    path = folder / "s.jsonl"
    lines = [line.rstrip(b" \n") + b"\n" for line in path.read_bytes().splitlines()]
    changed = [change.get(index, line) for index, line in enumerate(lines)]
    path.write_bytes(b"".join(line for line in changed if line is not None))
    return await JsonlStore.open(folder)


async def test_a_damaged_line_leaves_its_session_usable(tmp_path: Path) -> None:
    store = await damaged(tmp_path, {3: b'{"id":"e3", ...\n'})
    assert faults(await check(store)) == [(4, "checksum"), (4, "bad_json"), (5, "broken_parent")]
    loaded = await store.load("s")
    assert len(loaded) == len(SESSION)
    fact = loaded[3].fact
    assert isinstance(fact, Custom)
    assert (fact.name, loaded[3].seq) == (UNREADABLE, 4)
    await add(store, "s", user("more"))
    assert len(await store.load("s")) == len(SESSION) + 1
    await store.close()


async def test_an_entry_of_an_unknown_kind_is_kept_as_unreadable(tmp_path: Path) -> None:
    newer = wire.encode(SESSION[1]).replace(b'"run_started"', b'"run_teleported"')
    store = await damaged(tmp_path, {1: newer + b"\n"})
    assert faults(await check(store)) == [(2, "checksum"), (2, "bad_json")]
    loaded = await store.load("s")
    assert (loaded[1].id, loaded[1].timestamp) == (SESSION[1].id, SESSION[1].timestamp)
    assert loaded.texts[1] == newer
    await store.close()


async def test_a_missing_line_is_reported_as_a_gap(tmp_path: Path) -> None:
    store = await damaged(tmp_path, {1: None})
    assert faults(await check(store)) == [(3, "checksum"), (3, "gap"), (3, "broken_parent")]
    await add(store, "s", user("more"))
    assert (await store.load("s"))[-1].seq == 14
    await store.close()


async def test_a_file_without_its_first_line_opens(tmp_path: Path) -> None:
    store = await damaged(tmp_path, {0: None})
    assert faults(await check(store)) == [(2, "checksum"), (2, "gap"), (2, "broken_parent")]
    assert len(await store.load("s")) == len(SESSION) - 1
    assert (await store.sessions()).items[0].title is None
    await store.close()


async def test_repeated_and_foreign_lines_are_found(tmp_path: Path) -> None:
    second, foreign = wire.encode(SESSION[1]), wire.encode(SESSION[2]).replace(b'"s"', b'"other"', 1)
    store = await damaged(tmp_path, {1: second + b"\n" + second + b"\n", 2: foreign + b"\n"})
    problems = faults(await check(store))
    assert [fault for fault in problems if fault[1] != "checksum"][:3] == [(2, "repeat")] * 2 + [(3, "wrong_session")]
    assert (2, "checksum") in problems
    await store.close()


@pytest.mark.parametrize("torn", [b'{"id":"x', b"\0" * 40 + b"\n", b"{}\n", wire.encode(SESSION[0]) + b" \n"])
async def test_torn_bytes_are_moved_to_a_file_of_their_own(tmp_path: Path, torn: bytes) -> None:
    store = await damaged(tmp_path, {})
    await store.close()
    path = tmp_path / "s.jsonl"
    intact = path.read_bytes()
    path.write_bytes(intact + torn)
    store = await JsonlStore.open(tmp_path)
    assert await store.load("s") == SESSION
    assert [(finding.fault, finding.repairable) for finding in await check(store)] == [("torn", True)]
    assert await repair(store, "s") == []
    assert (tmp_path / "s.torn-1").read_bytes() == torn
    path.write_bytes(intact + b"second")
    await add(store, "s", user("more"))
    assert (tmp_path / "s.torn-2").read_bytes() == b"second"
    assert path.read_bytes().startswith(intact)
    assert len(await store.load("s")) == len(SESSION) + 1
    await store.close()


async def test_torn_bytes_never_replace_earlier_ones(tmp_path: Path) -> None:
    store = await damaged(tmp_path, {})
    path = tmp_path / "s.jsonl"
    for torn in (b"first", b"second"):
        path.write_bytes(path.read_bytes() + torn)
        await add(store, "s", user("more"))
    (tmp_path / "s.torn-1").unlink()
    path.write_bytes(path.read_bytes() + b"third")
    await add(store, "s", user("more"))
    assert [(tmp_path / f"s.torn-{number}").read_bytes() for number in (1, 2)] == [b"third", b"second"]
    await store.close()


async def test_a_session_whose_first_line_is_torn_can_be_created(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path)
    (tmp_path / "s.jsonl").write_bytes(b'{"id"')
    with pytest.raises(NotFound):
        await store.load("s")
    header = await store.create_session("s")
    assert await store.load("s") == [header]
    assert (tmp_path / "s.torn-1").read_bytes() == b'{"id"'
    await store.close()


async def test_missing_and_altered_blobs_are_found(tmp_path: Path) -> None:
    store = await JsonlStore.open(tmp_path)
    await store.create_session("s")
    await add(store, "s", user("x" * 70_000), user("y" * 70_000))
    lost, changed = sorted((tmp_path / "blobs").iterdir())
    lost.unlink()
    changed.write_bytes(b"z")
    problems = {finding.message.split()[-1] for finding in (await store.inspect("s")).findings}
    assert problems == {"altered", "missing", "checksum"}
    await store.close()
