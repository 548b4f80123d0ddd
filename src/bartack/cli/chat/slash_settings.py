"""Commands of the chat about its model, its tools and how it looks."""

import asyncio
import os
import shlex
import subprocess
from functools import partial
from pathlib import Path
from typing import cast, get_args

from bartack.app.agent_setup import connect_model
from bartack.app.safe_text import safe_line, visible_text
from bartack.cli.chat.completion import Offers
from bartack.cli.chat.conversation import Conversation
from bartack.cli.chat.slash_sessions import set_in_session
from bartack.cli.mcp import tool_rows
from bartack.cli.options import complete_models
from bartack.cli.output import columns, print_table
from bartack.cli.terminal.style import THEMES
from bartack.models.vendors import VENDORS
from bartack.models.weights import known_models
from bartack.store.requests import ThinkingLevel, override_system_prompt, set_thinking_level
from bartack.tools.mcp import McpServer, ServerStatus
from bartack.tools.toolset import origin_of


async def model_command(chat: Conversation, argument: str) -> None:
    if not argument:
        chat.line(f"Model: {safe_line(chat.model_name)}")
        here = [f"local:{name}" for name, model in known_models().items() if model.is_downloaded]
        downloaded = f" Downloaded: {', '.join(here)}." if here else ""
        chat.note(f"/model VENDOR:MODEL switches to another.{downloaded} Vendors: {', '.join(VENDORS)}.")
        return
    await chat.switch_model(connect_model(argument), argument)
    chat.note(f"Switched to {safe_line(argument)}.")


async def model_names(chat: Conversation) -> Offers:
    totals = await chat.store.totals()
    used = [f"{each.model.provider}:{each.model.model}" for each in totals.models if each.model is not None]
    return [*((name, "used before") for name in used), *complete_models()]


async def efforts(chat: Conversation) -> Offers:
    return [(level, "") for level in get_args(ThinkingLevel)]


async def effort_command(chat: Conversation, argument: str) -> None:
    levels = ", ".join(get_args(ThinkingLevel))
    if argument not in get_args(ThinkingLevel):
        chat.note(f"/effort LEVEL sets how much the model thinks: {levels}.")
    elif await set_in_session(chat, partial(set_thinking_level, level=cast(ThinkingLevel, argument))):
        chat.note(f"Thinking level: {argument}.")


async def system_command(chat: Conversation, argument: str) -> None:
    if not argument:
        chat.note("/system TEXT replaces the system prompt for this session; /system - restores it.")
    elif await set_in_session(chat, partial(override_system_prompt, text=None if argument == "-" else argument)):
        chat.note("System prompt restored." if argument == "-" else "System prompt replaced.")


async def tools_command(chat: Conversation, argument: str) -> None:
    if not len(chat.agent.tools):
        chat.note("No tools.")
        return
    needs = {True: "asks first", False: "not needed"}
    rows = (
        (tool.name, needs[chat.approvals.is_required(tool)], safe_line("".join(tool.description.splitlines()[:1])))
        for tool in chat.agent.tools
    )
    print_table(columns("tool approval description"), rows)


async def permissions_command(chat: Conversation, argument: str) -> None:
    approvals = chat.approvals
    kept = approvals.kept.rules()
    word, _, number = argument.partition(" ")
    if word == "edit":
        await _edit_file(chat, approvals.kept.path)
    elif word == "remove" and number.isdecimal() and 1 <= int(number) <= len(kept) + len(approvals.session_rules):
        index = int(number) - 1
        removed = kept[index] if index < len(kept) else approvals.session_rules.pop(index - len(kept))
        if index < len(kept):
            approvals.kept.remove(index)
        chat.note(f"Removed: {visible_text(removed.text)}")
    elif argument:
        chat.note(
            "/permissions lists the rules, /permissions remove NUMBER removes one, /permissions edit edits the file."
        )
    else:
        rules = [(rule, "always here") for rule in kept] + [(rule, "this chat") for rule in approvals.session_rules]
        rows = ((str(index), until, visible_text(rule.text)) for index, (rule, until) in enumerate(rules, 1))
        if rules:
            print_table(columns("_# until allowed"), rows)
        chat.note(
            f"File: {approvals.kept.path}"
            if rules
            else f"Nothing is allowed without asking. File: {approvals.kept.path}",
            soft_wrap=True,
        )


async def permission_words(chat: Conversation) -> Offers:
    rules = [*chat.approvals.kept.rules(), *chat.approvals.session_rules]
    removals = [(f"remove {number}", visible_text(rule.text)) for number, rule in enumerate(rules, 1)]
    return [("edit", "open the file in your editor"), *removals]


async def _edit_file(chat: Conversation, path: Path) -> None:
    """Open the file in the user's editor."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        chat.note(f"Set EDITOR, or edit the file yourself: {path}", soft_wrap=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    await asyncio.to_thread(subprocess.run, [*shlex.split(editor), str(path)], check=False)


async def mcp_command(chat: Conversation, argument: str) -> None:
    servers = {one.name: one for one in map(origin_of, chat.agent.tools.toolsets) if isinstance(one, McpServer)}
    if argument and argument not in servers:
        chat.note(f"No MCP server {safe_line(argument)}. Type /mcp for a list.")
    elif argument:
        print_table(columns("tool approval description"), tool_rows(servers[argument].status))
    elif servers:
        rows = ((safe_line(name), *_server_cells(one.status)) for name, one in servers.items())
        print_table(columns("server state tools# details"), rows)
        chat.note("/mcp NAME lists the tools of a server.")
    else:
        chat.note("No MCP servers. 'bartack mcp add' adds one, and --mcp FILE uses the servers in a file.")


async def server_names(chat: Conversation) -> Offers:
    servers = map(origin_of, chat.agent.tools.toolsets)
    return [(one.name, one.status.state) for one in servers if isinstance(one, McpServer)]


def _server_cells(status: ServerStatus) -> tuple[str, str, str]:
    state = "not connected yet" if status.state == "closed" else status.state
    return state, str(len(status.tools)), visible_text(status.problem or status.title or status.address)


async def theme_command(chat: Conversation, argument: str) -> None:
    if argument in THEMES:
        chat.console.use(argument)
        chat.note(f'Theme: {argument}. Put theme = "{argument}" into the configuration file to keep it.')
    else:
        chat.note(f"/theme NAME changes the colors: {', '.join(THEMES)}. Current: {chat.console.theme_name}.")


async def theme_names(chat: Conversation) -> Offers:
    return [(name, "") for name in THEMES]


async def thinking_command(chat: Conversation, argument: str) -> None:
    chat.toggle_thinking()
