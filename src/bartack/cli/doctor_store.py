"""What `bartack doctor` says about the store: where it is, and whether it can be used and is whole. None is made."""

import asyncio
from collections.abc import Iterator

from bartack.cli.doctor_checks import Check, Probe
from bartack.cli.settings import first_said
from bartack.cli.store_access import with_store
from bartack.cli.store_place import is_there, place_of_store
from bartack.nouns.errors import BartackError
from bartack.store import Finding, SessionStore
from bartack.store.maintenance import check

__all__ = ["store_probe"]

_HINT = "--store and BARTACK_STORE name another store; bartack --debug sessions list shows where it happens"


def store_probe(said: str | None) -> Probe:
    """The probe of the store that --store or BARTACK_STORE names, or else the configuration file."""
    return Probe("store", "store", lambda: _look(said), _HINT)


def _look(said: str | None) -> Iterator[Check]:
    try:
        said = first_said(said, "store")
    except BartackError:  # which is a check of its own
        yield Check("store", "store", "note", "not looked for, because of the configuration file")
        return
    place = place_of_store(said)
    yield Check("store", "place", "ok", place.shown)
    if place.kind == "memory":
        yield Check("store", "sessions", "ok", "not kept")
    elif not asyncio.run(is_there(place)):
        yield Check("store", "sessions", "ok", "not there yet; the first session makes it")
    else:
        sessions, findings = with_store(place.url, _counted)
        yield Check("store", "sessions", "ok", str(sessions))
        yield _health(findings)


async def _counted(store: SessionStore) -> tuple[int, list[Finding]]:
    count, cursor = 0, None
    while True:
        page = await store.sessions(100, cursor)
        count, cursor = count + len(page.items), page.cursor
        if cursor is None:
            return count, await check(store)


def _health(findings: list[Finding]) -> Check:
    if not findings:
        return Check("store", "health", "ok", "nothing is damaged")
    text = f"{len(findings)} {'finding' if len(findings) == 1 else 'findings'}, the first: {findings[0].message}"
    if all(finding.repairable for finding in findings):  # what a crash leaves, and a run that is under way
        return Check("store", "health", "note", text, "bartack sessions fsck lists them, and --repair mends them")
    return Check("store", "health", "fault", text, "bartack sessions fsck lists what is damaged")
