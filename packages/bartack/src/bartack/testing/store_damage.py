"""`check_damage`: damage to one session is found, and everything else stays usable."""

import inspect
from collections.abc import Awaitable, Callable

from bartack.nouns.entries import Custom, Entry, SessionHeader
from bartack.nouns.errors import StoreError
from bartack.nouns.messages import user
from bartack.store.maintenance import check
from bartack.store.session_store import SessionStore, next_entries
from bartack.store.transfer import export_session
from bartack.testing.store_steps import OpenStore, add, opened

__all__ = ["Damage", "check_damage"]

Damage = Callable[[str], Awaitable[None] | None]

_DAMAGED, _INTACT = "damaged", "intact"


async def check_damage(open_store: OpenStore, damage: Damage) -> None:
    """Check that a store survives what `damage` does to it; raises `AssertionError` with the violation.

    `damage` is called while the store is closed, with the id of a session of six entries. It damages how one of them is
    stored, as a failing disk would. Only the entry with seq 3 contains the word ``needle``, and only the one with seq 5
    is so large that a store may keep a part of it elsewhere.

    Afterwards `bartack.store.maintenance.check` must find the damage, but none in another session, which must be usable
    as before. Of the damaged session, the five other entries must still be there. It must be listed, loaded and
    exported without an error, and accept another entry.
    """
    async with opened(open_store) as store:
        sessions = {session_id: await _filled(store, session_id) for session_id in (_DAMAGED, _INTACT)}
        findings = await check(store)
        assert not findings, f"an intact store has the findings {findings}"
    done = damage(_DAMAGED)
    if inspect.isawaitable(done):
        await done
    async with opened(open_store) as store:
        await _check_findings(store)
        try:
            await _check_intact(store, sessions[_INTACT])
        except StoreError as error:
            raise AssertionError(f"damage to one session makes another one unusable: {error}") from error
        try:
            await _check_damaged(store, sessions[_DAMAGED])
        except StoreError as error:
            raise AssertionError(f"a damaged session cannot be used any more: {error}") from error


async def _filled(store: SessionStore, session_id: str) -> list[Entry]:
    facts = [user("one"), user(f"a needle in {session_id}"), user("three"), user(session_id * 10_000), user("five")]
    entries = next_entries(session_id, None, [SessionHeader(title=session_id), *facts], store.environment)
    await store.append(session_id, entries[:1], None)
    for entry in entries[1:]:
        await store.append(session_id, [entry], entry.parent_id)
    return list(entries)


async def _check_findings(store: SessionStore) -> None:
    try:
        findings = await check(store)
    except StoreError as error:
        raise AssertionError(f"the check must report damage, not stop at it: {error}") from error
    assert findings, "the check does not find the damage"
    wrong = [finding for finding in findings if finding.session_id == _INTACT]
    assert not wrong, f"the check finds damage in a session that has none: {wrong}"


async def _check_intact(store: SessionStore, entries: list[Entry]) -> None:
    assert await store.load(_INTACT) == entries, "damage to one session changed another one"
    assert _INTACT in [info.id for info in (await store.sessions()).items], "an intact session is no longer listed"
    hits = [hit.seq for hit in await store.search(f"needle {_INTACT}")]
    assert hits == [3], f"search finds {hits} in an intact session, expected its seq 3"
    await add(store, _INTACT, user("more"))


async def _check_damaged(store: SessionStore, entries: list[Entry]) -> None:
    listed = [info.id for info in (await store.sessions()).items]
    assert _DAMAGED in listed, f"the damaged session is no longer listed, only {listed}"
    for name, readable_ids in {
        "entries": {entry.id for entry in await store.entries(_DAMAGED) if entry in entries},
        "load": {entry.id for entry in await store.load(_DAMAGED) if entry in entries},
    }.items():
        lost = [entry.seq for entry in entries if entry.id not in readable_ids]
        assert len(lost) <= 1, f"one entry was damaged, but {name} does not return those with seq {lost}"
    lines = b"".join([line async for line in export_session(store, _DAMAGED)])
    missing = [entry.seq for entry in entries if entry.id.encode() not in lines]
    assert len(missing) <= 1, f"one entry was damaged, but those with seq {missing} are not exported"
    (added,) = await add(store, _DAMAGED, Custom(name="after the damage", data={}))
    assert (await store.entries(_DAMAGED))[-1] == added, "an entry that was added after the damage is not the last one"
