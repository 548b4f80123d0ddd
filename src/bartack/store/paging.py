"""Pages of sessions: the order that every store lists them in, and the cursor that goes on from one."""

import msgspec

from bartack.store.admission import invalid, sortable
from bartack.store.session_store import Page, SessionInfo

__all__ = ["cursor_of", "cut_page", "page_of", "read_cursor"]


def cursor_of(info: SessionInfo) -> str:
    """The cursor behind this session."""
    return msgspec.json.encode([sortable(info.updated), info.id]).decode()


def read_cursor(cursor: str) -> tuple[str, str]:
    """The time and id that a cursor stands behind."""
    try:
        return msgspec.json.decode(cursor, type=tuple[str, str])
    except ValueError as error:
        raise invalid(f"{cursor[:80]!r} is not a cursor of a list of sessions", error) from None


def page_of(infos: list[SessionInfo], limit: int, cursor: str | None) -> Page:
    """The page behind `cursor`: newest first, and by id among equals."""
    ordered = sorted(infos, key=_place, reverse=True)
    if cursor is not None:
        place = read_cursor(cursor)
        ordered = [info for info in ordered if _place(info) < place]
    return cut_page(ordered[: limit + 1], limit)


def cut_page(infos: list[SessionInfo], limit: int) -> Page:
    """A page of `limit` out of `limit` + 1 sessions: the last one only says that there are more."""
    if limit < 1:
        raise invalid(f"a page has at least one session, not {limit}")
    items = tuple(infos[:limit])
    return Page(items, cursor_of(items[-1]) if len(infos) > limit else None)


def _place(info: SessionInfo) -> tuple[str, str]:
    return sortable(info.updated), info.id
