"""Commands of the chat that show, save, attach or write something."""

import asyncio
import re
import webbrowser
from pathlib import Path

import msgspec

from bartack.app.context_usage import context_rows
from bartack.app.errors import with_hint
from bartack.app.mentions import as_mention
from bartack.app.project import init_prompt
from bartack.app.transcript import markdown_transcript
from bartack.app.usage import format_context, format_cost, format_count, format_tokens
from bartack.cli.chat.clipboard import saved_image
from bartack.cli.chat.conversation import Conversation
from bartack.cli.output import columns, print_table
from bartack.cli.sessions import MODEL_SPEND, model_spend_rows
from bartack.cli.terminal.style import is_plain
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.store.address import default_path
from bartack.store.transfer import export_session
from bartack.views import document

_BAR = 20  # columns of a bar


async def cost_command(chat: Conversation, argument: str) -> None:
    if chat.session_id is None:
        chat.note("Nothing used yet.")
        return
    totals = await chat.store.totals(chat.session_id)
    print_table(MODEL_SPEND, model_spend_rows(totals.models))
    chat.note(f"Total: {format_tokens(totals.spend)}, {format_cost(totals.spend) or '$0'}")


async def context_command(chat: Conversation, argument: str) -> None:
    branch, info = await chat.branch(), chat.model.model_info()
    sent = await chat.agent.request_after(chat.session_id or "", branch) if branch else None
    if sent is None:
        chat.note("Nothing is in the context yet.")
        return
    rows = context_rows(sent.request, chat.usage.context_tokens)
    total = sum(row.tokens for row in rows)
    window = info.context_window
    print_table(
        columns("part tokens# share# _"),
        (
            (
                row.name,
                format_count(row.tokens),
                f"{row.tokens * 100 // max(total, 1)} %",
                _bar(row.tokens, total, chat),
            )
            for row in rows
        ),
    )
    chat.note(f"{format_context(total, window)}. /compact makes room.")


def _bar(tokens: int, total: int, chat: Conversation) -> str:
    sign = "#" if chat.console.is_dumb_terminal else "█"
    return sign * (tokens * _BAR // max(total, 1))


async def inspect_command(chat: Conversation, argument: str) -> None:
    if chat.session_id is None:
        chat.note("Send a message first: there is no session yet.")
        return
    url = await chat.page.url(chat.session_id, chat.model_name)
    chat.note(f"Open {url}", soft_wrap=True)
    if not is_plain(chat.console):
        await asyncio.to_thread(webbrowser.open, url)


async def init_command(chat: Conversation, argument: str) -> str | None:
    text = init_prompt(chat.directory)
    return None if await chat.send(text) else text


async def paste_command(chat: Conversation, argument: str) -> str | None:
    path = await asyncio.to_thread(saved_image, default_path().with_name("clipboard"))
    if path is None:
        chat.note("No image in the clipboard, or no program to read it (wl-paste, xclip or pngpaste).")
        return None
    return f"{as_mention(str(path))} "


async def transcript_command(chat: Conversation, argument: str) -> None:
    await chat.show_transcript()


async def export_command(chat: Conversation, argument: str) -> None:
    if chat.session_id is None:
        chat.note("Nothing to export.")
        return
    path = Path(argument or _file_name(chat.session_id))
    match path.suffix:
        case ".md":
            data = markdown_transcript(await chat.branch()).encode()
        case ".json":
            data = msgspec.json.format(msgspec.json.encode(document.dump(await chat.branch())), indent=2)
        case ".jsonl":
            data = b"".join([line async for line in export_session(chat.store, chat.session_id)])
        case _:
            raise BartackError(
                f"Unsupported file type {path.name!r}. Use .md, .json or .jsonl.", code=ErrorCode.INVALID_CONFIG
            )
    await asyncio.to_thread(_write_new, path, data)
    chat.note(f"Saved to {path}", soft_wrap=True)


def _file_name(session_id: str) -> str:
    """A file name in this directory, whatever the session is called."""
    name = re.sub(r"[^\w.-]+", "-", session_id).strip(".-")
    return f"{name or 'session'}.md"


def _write_new(path: Path, data: bytes) -> None:
    try:
        with path.expanduser().open("xb") as file:  # never overwrite
            file.write(data)
    except FileExistsError as error:
        exists = BartackError(f"{path} already exists.", code=ErrorCode.INVALID_CONFIG)
        raise with_hint(exists, "Choose another name, or delete the file first.") from error
