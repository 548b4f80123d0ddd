"""Commands of the chat that show, save, attach or write something."""

import asyncio
import re
import webbrowser
from pathlib import Path
from typing import NamedTuple

import msgspec

from bartack.app.coding_prompt import PROMPT_VERSION, coding_prompt, is_small
from bartack.app.errors import with_hint
from bartack.app.safe_text import safe_text
from bartack.app.transcript import markdown_transcript
from bartack.app.usage import format_context, format_cost, format_count, format_tokens
from bartack.cli.output import columns, print_table
from bartack.cli.sessions import MODEL_SPEND, model_spend_rows
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack.session.context.window import message_tokens, tool_tokens
from bartack.store import Spend
from bartack.store.address import default_path
from bartack.store.transfer import export_session
from bartack.views import document
from bartack_code.chat.conversation import Conversation
from bartack_code.chat.pastes import saved_image
from bartack_code.terminal.style import is_plain
from bartack_code.workspace.attachments import as_mention
from bartack_code.workspace.project import init_prompt

_BAR = 20  # columns of a bar
_INSTRUCTION_FILE = re.compile(r"(?m)^Instructions of .+?, from (.+):$")


async def cost_command(chat: Conversation, argument: str) -> None:
    if chat.session_id is None:
        chat.note("Nothing used yet.")
        return
    totals = await chat.store.totals(chat.session_id)
    print_table(MODEL_SPEND, model_spend_rows(totals.models))
    chat.note(f"Total: {format_tokens(totals.spend)}, {format_cost(totals.spend) or '$0'}{_cached(totals.spend)}")


def _cached(spend: Spend) -> str:
    """How much of the input came from the provider's cache."""
    if not spend.cache_read_tokens:
        return ""
    share = spend.cache_read_tokens * 100 // max(spend.input_tokens, 1)
    return f"; {format_count(spend.cache_read_tokens)} of the input ({share} %) came from the cache"


async def context_command(chat: Conversation, argument: str) -> None:
    branch, info = await chat.branch(), chat.model.model_info()
    request = await chat.agent.request_after(chat.session_id or "", branch) if branch else None
    if request is None:
        chat.note("Nothing is in the context yet.")
        return
    if argument == "prompt":
        chat.console.print(safe_text("\n\n".join(_system_texts(request.request))), markup=False, highlight=False)
        return
    rows = context_rows(request.request, chat.usage.context_tokens)
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
    if any(message.text.startswith(coding_prompt(info.provider, window)) for message in request.request.messages):
        variant = "short" if is_small(info.provider, window) else "long"
        chat.note(f"Coding prompt: version {PROMPT_VERSION}, {variant}. /context prompt shows it.")
    if files := _INSTRUCTION_FILE.findall("\n\n".join(_system_texts(request.request))):
        chat.note(f"Instructions from {', '.join(files)}.")
    chat.note(f"{format_context(total, window)}. /compact makes room.")


def _system_texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "system"]


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


# -- what fills the context window

_KINDS = ("instructions", "tools", "your messages", "attachments", "answers", "thinking", "tool calls", "tool results")


class ContextRow(NamedTuple):
    """A kind of content, and its tokens."""

    name: str
    tokens: int


def context_rows(request: ModelRequest, reported: int | None = None) -> list[ContextRow]:
    """The tokens of each kind of content in a request. They are estimates, scaled to the count that the provider has
    reported, if there is one."""
    sizes = dict.fromkeys(_KINDS, 0)
    sizes["tools"] = tool_tokens(request.tools)
    for message in request.messages:
        for part in message.parts:
            single = Message(message.role, (part,))
            sizes[_kind_of(message.role, part)] += message_tokens(single)
    total = sum(sizes.values())
    scale = reported / total if reported and total else 1.0
    return [ContextRow(name, round(size * scale)) for name, size in sizes.items() if size]


def _kind_of(role: str, part: Part) -> str:
    match part:
        case ToolResult():
            return "tool results"
        case ToolCall():
            return "tool calls"
        case Thinking():
            return "thinking"
        case Image() | FileRef():
            return "attachments"
        case Text():
            return {"system": "instructions", "user": "your messages"}.get(role, "answers")
