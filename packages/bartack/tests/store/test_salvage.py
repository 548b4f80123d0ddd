"""What is salvaged of damaged SQLite files, compared with a walker that reads the pages in another way."""

import asyncio
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bartack.nouns import wire
from bartack.nouns.entries import Entry
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import user
from bartack.store.backup import salvage
from bartack.store.sqlite import SqliteStore
from tests.store.stores import add

PAGE = 4096
Damage = Callable[[bytearray, random.Random], None]


def zero_page(data: bytearray, number: int) -> None:
    data[(number - 1) * PAGE : number * PAGE] = bytes(len(data[(number - 1) * PAGE : number * PAGE]))


def zero_pages(count: int) -> Damage:
    def damage(data: bytearray, chance: random.Random) -> None:
        for _ in range(count):
            zero_page(data, chance.randrange(1, len(data) // PAGE + 1))

    return damage


def scramble_pages(count: int) -> Damage:
    def damage(data: bytearray, chance: random.Random) -> None:
        for _ in range(count):
            number = chance.randrange(len(data) // PAGE)
            data[number * PAGE : (number + 1) * PAGE] = chance.randbytes(PAGE)

    return damage


def scramble_bytes(count: int) -> Damage:
    def damage(data: bytearray, chance: random.Random) -> None:
        for _ in range(count):
            data[chance.randrange(len(data))] = chance.randrange(256)

    return damage


def cut(share: float, odd: int = 0) -> Damage:
    def damage(data: bytearray, chance: random.Random) -> None:
        del data[int(len(data) * (1 - share)) // PAGE * PAGE + odd :]

    return damage


def lose_interior_pages(data: bytearray, chance: random.Random) -> None:
    for start in range(PAGE, len(data), PAGE):
        if data[start] in (2, 5):
            data[start : start + PAGE] = bytes(PAGE)


def lose_page_headers(data: bytearray, chance: random.Random) -> None:
    for start in range(PAGE, len(data), 3 * PAGE):
        if data[start] == 13:
            data[start : start + 8] = bytes(8)


def lose_header(data: bytearray, chance: random.Random) -> None:
    data[:100] = bytes(100)


def lose_schema(data: bytearray, chance: random.Random) -> None:
    data[100:PAGE] = chance.randbytes(PAGE - 100)


def free_everything(data: bytearray, chance: random.Random) -> None:
    """The header says that the database has one page, and the rest is free."""
    data[28:40] = (1).to_bytes(4) + (2).to_bytes(4) + (len(data) // PAGE - 1).to_bytes(4)


def lose_first_pages(data: bytearray, chance: random.Random) -> None:
    data[: 8 * PAGE] = bytes(8 * PAGE)


SHAPES: dict[str, Damage] = {
    **{f"zeroed {count}": zero_pages(count) for count in (1, 5, 20, 60)},
    **{f"scrambled {count}": scramble_pages(count) for count in (1, 5, 20, 60)},
    **{f"bytes {count}": scramble_bytes(count) for count in (10, 1000)},
    **{f"cut {share}": cut(share) for share in (0.01, 0.1, 0.5)},
    "cut in a page": cut(0.05, odd=1234),
    "interior": lose_interior_pages,
    "page headers": lose_page_headers,
    "header": lose_header,
    "schema": lose_schema,
    "free": free_everything,
    "first pages": lose_first_pages,
}


async def filled(path: Path) -> int:
    """A closed store with entries of many lengths; how many there are."""
    store = await SqliteStore.open(path)
    chance = random.Random(5)
    for name in ("a", "b", "c"):
        await store.create_session(name)
        for number in range(40):
            await add(store, name, *(user(f"{number} " + "word " * chance.choice([3, 100, 900, 5000])) for _ in "xyz"))
    await store.close()
    return 3 * 121


def walked(data: bytes) -> set[tuple[str, int]]:
    """The entries of all leaf pages, found by the arrays of cells and followed through their chains."""
    entries: set[tuple[str, int]] = set()
    for start in range(0, len(data) - PAGE + 1, PAGE):
        page = data[start : start + PAGE]
        header = 100 if start == 0 else 0
        if page[header] != 13:
            continue
        for index in range(int.from_bytes(page[header + 3 : header + 5])):
            place = header + 8 + 2 * index
            text = cell_text(data, page, int.from_bytes(page[place : place + 2]))
            with suppress(PartValidationError):
                entry = wire.decode(Entry, text or b"")
                entries.add((entry.session_id, entry.seq))
    return entries


def cell_text(data: bytes, page: bytes, place: int) -> bytes | None:
    try:
        size, place = number_at(page, place)
        _, place = number_at(page, place)
        whole = page[place : place + size] if size <= PAGE - 35 else spilled(data, page, place, size)
        header_size, at_type = number_at(whole, 0)
        begin = header_size
        sizes: list[int] = []
        while at_type < header_size:
            kind, at_type = number_at(whole, at_type)
            sizes.append((kind - 12) // 2 if kind >= 12 else [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0][kind])
        begin += sum(sizes[:4])
        return whole[begin : begin + sizes[4]] if len(sizes) == 7 else None
    except IndexError:
        return None


def spilled(data: bytes, page: bytes, place: int, size: int) -> bytes:
    least = (PAGE - 12) * 32 // 255 - 23
    local = least + (size - least) % (PAGE - 4)
    local = local if local <= PAGE - 35 else least
    content = page[place : place + local]
    following = int.from_bytes(page[place + local : place + local + 4])
    while len(content) < size and 0 < following <= len(data) // PAGE:
        overflow = data[(following - 1) * PAGE : following * PAGE]
        content += overflow[4 : 4 + size - len(content)]
        following = int.from_bytes(overflow[:4])
    return content


def number_at(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for _ in range(9):
        value = value * 128 + data[place] % 128
        place += 1
        if data[place - 1] < 128:
            break
    return value, place


async def salvaged(path: Path) -> set[tuple[str, int]]:
    return {
        (entry.session_id, entry.seq)
        async for entry in salvage(path)
        if not (entry.fact.kind == "custom" or (entry.fact.kind == "session_header" and entry.timestamp.year == 1970))
    }


@pytest.mark.parametrize("shape", SHAPES)
async def test_no_less_is_salvaged_than_a_walker_finds(fast_path: Path, shape: str) -> None:
    path = fast_path / "a.db"
    total = await filled(path)
    intact = await asyncio.to_thread(path.read_bytes)
    assert len(walked(intact)) == total
    data = bytearray(intact)
    SHAPES[shape](data, random.Random(1))
    assert data != intact
    await asyncio.to_thread(path.write_bytes, data)
    expected = walked(bytes(data))
    left = await salvaged(path)
    assert left >= expected
    if shape in ("header", "schema", "free", "first pages"):
        assert len(left) > total * 0.9


async def test_entries_in_the_log_and_long_ones_are_salvaged(fast_path: Path) -> None:
    path = fast_path / "a.db"
    store = await SqliteStore.open(path)
    await store.create_session("s")
    await add(store, "s", *(user("word " * length) for length in (10, 3000, 12_000, 40_000)))
    shutil.copy(fast_path / "a.db-wal", fast_path / "copy-a.db-wal")
    assert [len(text) for text in (await store.entries("s")).texts][-1] > 200_000
    expected = list(await store.entries("s"))
    await store.close()
    (fast_path / "copy-a.db").write_bytes(bytes(100))
    assert [entry async for entry in salvage(fast_path / "copy-a.db")] == expected
