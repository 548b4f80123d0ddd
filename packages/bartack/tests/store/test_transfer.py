"""Exporting and importing sessions."""

from pathlib import Path

import pytest

from bartack.nouns import wire
from bartack.nouns.entries import Custom, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, StoreError
from bartack.nouns.messages import user
from bartack.nouns.parts import Image
from bartack.store import SessionStore
from bartack.store.checksums import split_checksum
from bartack.store.transfer import export_session, import_lines
from tests.sample_session import SESSION
from tests.store.stores import KINDS, add, opener


async def lines_of(store: SessionStore, session_id: str) -> list[bytes]:
    return [line async for line in export_session(store, session_id)]


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
async def test_a_session_can_be_moved_between_any_two_stores(tmp_path: Path, source: str, target: str) -> None:
    """D-7.3.2"""
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    source_store, target_store = await opener(source, tmp_path / "from")(), await opener(target, tmp_path / "to")()
    await source_store.append("s", SESSION, None)
    await source_store.create_session("t", SessionHeader(title="T"))
    await add(
        source_store,
        "t",
        user("x" * 100_000, Image("image/png", data=b"\x00" * 90_000)),
        Custom(name="c", data={"$blob": "no"}),
    )
    lines = [line for session_id in ("s", "t") for line in await lines_of(source_store, session_id)]
    imported = await import_lines(target_store, [*lines, b"\n"])
    assert (imported.sessions, imported.entries) == (("s", "t"), len(SESSION) + 3)
    assert [line for session_id in ("s", "t") for line in await lines_of(target_store, session_id)] == lines
    await import_lines(target_store, lines)
    assert len(await target_store.load("s")) == len(SESSION)
    assert await target_store.totals() == await source_store.totals()
    assert await target_store.search("rain") == await source_store.search("rain")
    await source_store.close()
    await target_store.close()


async def test_redacted_content_is_not_exported(store: SessionStore) -> None:
    """D-5.6.1."""
    await store.create_session("s")
    secret, _ = await add(store, "s", user("the secret"), user("fine"))
    await add(store, "s", Redaction(entry_id=secret.id))
    lines = await lines_of(store, "s")
    assert b"secret" not in b"".join(lines)
    assert len(lines) == 4
    assert split_checksum(lines[2].rstrip())[0] == (await store.entries("s")).texts[2]


@pytest.mark.parametrize("line", [b"{", b"nonsense", b"[]", b'{"id":"x"}', b"\xff\xfe"])
async def test_a_malformed_line_is_named_and_nothing_is_imported(store: SessionStore, line: bytes) -> None:
    good = [wire.encode(entry) + b"\n" for entry in SESSION]
    with pytest.raises(StoreError, match="Line 3 is not an entry") as caught:
        await import_lines(store, [*good[:2], line + b"\n", *good[2:]])
    assert caught.value.code is ErrorCode.INVALID_VALUE
    assert (await store.sessions()).items == ()


async def test_an_import_that_contradicts_the_store_raises_conflict(store: SessionStore) -> None:
    await store.append("s", SESSION, None)
    altered = wire.encode(SESSION[0]).replace(b"Weather", b"Whether")
    with pytest.raises(Conflict):
        await import_lines(store, [altered])
