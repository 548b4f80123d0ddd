"""Commands of the chat about sessions: choosing, naming and removing them."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import count

from rich.console import Console

from bartack.app.safe_text import safe_line
from bartack.app.sessions import (
    directory_of,
    find_session,
    home_path,
    short_ids,
)
from bartack.cli.output import Row, columns, print_table
from bartack.cli.sessions import session_rows
from bartack.nouns.entries import Entry
from bartack.nouns.messages import Message
from bartack.store import SessionInfo
from bartack.store.maintenance import purge
from bartack.store.requests import rename
from bartack_code.chat.conversation import Conversation
from bartack_code.chat.keyboard import Offers
from bartack_code.chat.pager import recorded
from bartack_code.chat.picker import Listed, Picker
from bartack_code.terminal.messages import show_message
from bartack_code.terminal.style import is_plain

_SHOWN = 20  # sessions in a list
_LISTED = 200  # sessions to choose from
_PREVIEWED = 6  # messages
_SESSIONS = columns("_# _ title~ updated tokens#? cost#?")


async def sessions_command(chat: Conversation, argument: str) -> None:
    page = await chat.store.sessions(_SHOWN)
    if argument:
        numbered = dict(zip(map(str, count(1)), page.items, strict=False))
        await chat.open(numbered[argument].id if argument in numbered else argument)
    elif not page.items:
        chat.note("No sessions yet.")
    elif is_plain(chat.console):
        print_table(_SESSIONS, _session_rows(page.items, chat.session_id))
        chat.note("/sessions NUMBER continues one of them.")
    elif (chosen := await pick_session(chat)) is not None:
        await chat.open(chosen)


async def pick_session(chat: Conversation) -> str | None:
    """The session that the user chooses from a list."""
    page = await chat.store.sessions(_LISTED)
    shorts = short_ids([info.id for info in page.items])
    listed = [
        Listed(
            info.id,
            safe_line(short),
            safe_line(info.title or ""),
            safe_line(home_path(await directory_of(chat.store, info.id) or "")),
            info.updated,
        )
        for short, info in zip(shorts, page.items, strict=True)
    ]
    if not listed:
        chat.note("No sessions yet.")
        return None

    async def preview(session_id: str) -> list[str]:
        branch = await chat.store.load(session_id)
        messages = [entry.fact for entry in branch if isinstance(entry.fact, Message)][-_PREVIEWED:]

        def draw(console: Console) -> None:
            for message in messages:
                show_message(console, message)

        return recorded(chat.console, draw)

    async def search(words: str) -> set[str]:
        return {info.id for info in (await chat.store.sessions(_LISTED, query=words)).items}

    return await chat.keyboard.pick(Picker(listed, preview=preview, search=search))


async def session_names(chat: Conversation) -> Offers:
    page = await chat.store.sessions(_SHOWN)
    shorts = short_ids([info.id for info in page.items])
    return [(short, safe_line(info.title or "")) for short, info in zip(shorts, page.items, strict=True)]


async def rename_command(chat: Conversation, argument: str) -> None:
    if not argument:
        chat.note("/rename TITLE changes the title of this session.")
    elif await set_in_session(chat, partial(rename, title=argument)):
        chat.note(f"Renamed to: {safe_line(argument)}")


async def delete_command(chat: Conversation, argument: str) -> None:
    if not argument:
        chat.note("/delete SESSION permanently removes a session. SESSION is its id, or its first characters.")
        return
    session_id = await find_session(chat.store, argument)
    if session_id == chat.session_id:
        chat.note("This is the current session. Type /new first.")
        return
    title = next((info.title for info in (await chat.store.sessions(_LISTED)).items if info.id == session_id), None)
    answer = await chat.keyboard.choice(f"Permanently remove {safe_line(title or session_id)}? [y/n]: ")
    if answer.lower() in {"y", "yes"}:
        await purge(chat.store, session_id, everything=True)
        chat.note("Removed.")
    else:
        chat.note("Nothing was removed.")


def _session_rows(infos: Sequence[SessionInfo], current: str | None) -> Iterator[Row]:
    for number, info, row in zip(count(1), infos, session_rows(infos), strict=False):
        _, title, _, *cells = row
        yield str(number), "*" if info.id == current else "", title, *cells


async def new_command(chat: Conversation, argument: str) -> None:
    chat.new_session()
    chat.note("The next message starts a new session.")


async def set_in_session(chat: Conversation, store_setting: Callable[..., Awaitable[Entry]]) -> bool:
    """Store the setting where the next message will follow; False if there is no session yet."""
    if chat.session_id is None:
        chat.note("Send a message first: this is stored in the session.")
        return False
    await store_setting(chat.store, chat.session_id, head=chat.head)
    chat.head = None  # the entry is the session's last one now
    return True
