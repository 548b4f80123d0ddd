"""Commands of the chat about its model, its tools and how it looks."""

import asyncio
import os
import shlex
import subprocess
from functools import partial
from pathlib import Path
from typing import cast, get_args

from bartack.app.agent_setup import connect_model
from bartack.app.modes import MODE_TEXTS, MODES, Mode
from bartack.app.notices import format_seconds
from bartack.app.safe_text import safe_line, safe_text
from bartack.cli.mcp import tool_rows
from bartack.cli.options import complete_models
from bartack.cli.output import columns, print_table
from bartack.display.visible_text import visible_text
from bartack.models.vendors import VENDORS
from bartack.models.weights import known_models
from bartack.store.requests import ThinkingLevel, override_system_prompt, set_thinking_level
from bartack.tools.mcp import McpServer, ServerStatus
from bartack.tools.toolset import origin_of
from bartack_code.chat.conversation import Conversation
from bartack_code.chat.keyboard import Offers
from bartack_code.chat.slash_sessions import set_in_session
from bartack_code.terminal.style import THEMES

_JOB_LINES = 40  # shown of the output of a command in the background


async def model_command(chat: Conversation, argument: str) -> None:
    if not argument:
        chat.line(f"Model: {safe_line(chat.model_name)}")
        names = [f"local:{name}" for name, model in known_models().items() if model.is_downloaded]
        downloaded = f" Downloaded: {', '.join(names)}." if names else ""
        chat.note(f"/model VENDOR:MODEL switches to another.{downloaded} Vendors: {', '.join(VENDORS)}.")
        return
    await chat.switch_model(connect_model(argument), argument)
    chat.note(f"Switched to {safe_line(argument)}.")


async def model_names(chat: Conversation) -> Offers:
    totals = await chat.store.totals()
    used_models = [f"{total.model.provider}:{total.model.model}" for total in totals.models if total.model is not None]
    return [*((name, "used before") for name in used_models), *complete_models()]


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


async def jobs_command(chat: Conversation, argument: str) -> None:
    word, _, job_id = argument.partition(" ")
    jobs = chat.runtime.jobs
    if word == "kill":
        job = jobs.named(job_id.strip())
        await asyncio.to_thread(job.kill)
        chat.note(f"{job.id}: {job.status}")
    elif word:
        job = jobs.named(word)
        output = await asyncio.to_thread(job.log.read_bytes)
        lines = safe_text(output.decode("utf-8", "replace").rstrip()).split("\n")
        chat.console.print("\n".join(lines[-_JOB_LINES:]), markup=False, highlight=False)
        chat.note(f"{job.id}: {safe_line(job.status)}")
    elif jobs.all:
        rows = (
            (job.id, safe_line(job.status), format_seconds(job.seconds), safe_line(job.command)) for job in jobs.all
        )
        print_table(columns("job state time command"), rows)
        chat.note("/jobs job-1 shows the end of its output, /jobs kill job-1 ends it. All end with this chat.")
    else:
        chat.note("No commands run in the background.")


async def job_words(chat: Conversation) -> Offers:
    jobs = chat.runtime.jobs.all
    running = [(f"kill {job.id}", safe_line(job.command)) for job in jobs if job.is_running]
    return [*((job.id, safe_line(job.command)) for job in jobs), *running]


async def permissions_command(chat: Conversation, argument: str) -> None:
    approvals = chat.approvals
    project_rules = approvals.permission_file.rules()
    word, _, number = argument.partition(" ")
    if word == "edit":
        await _edit_file(chat, approvals.permission_file.path)
    elif (
        word == "remove"
        and number.isdecimal()
        and 1 <= int(number) <= len(project_rules) + len(approvals.session_rules)
    ):
        index = int(number) - 1
        removed = (
            project_rules[index]
            if index < len(project_rules)
            else approvals.session_rules.pop(index - len(project_rules))
        )
        if index < len(project_rules):
            approvals.permission_file.remove(index)
        chat.note(f"Removed: {visible_text(removed.text)}")
    elif argument:
        chat.note(
            "/permissions lists the rules, /permissions remove NUMBER removes one, /permissions edit edits the file."
        )
    else:
        rules = [(rule, "always here") for rule in project_rules] + [
            (rule, "this chat") for rule in approvals.session_rules
        ]
        rows = ((str(index), scope, visible_text(rule.text)) for index, (rule, scope) in enumerate(rules, 1))
        if rules:
            print_table(columns("_# until allowed"), rows)
        chat.note(
            f"File: {approvals.permission_file.path}"
            if rules
            else f"Nothing is allowed without asking. File: {approvals.permission_file.path}",
            soft_wrap=True,
        )


async def mode_command(chat: Conversation, argument: str) -> None:
    name, _, keep = argument.partition(" ")
    mode = next((mode for mode in MODES if mode == name), None)
    if mode is None or keep not in ("", "keep"):
        print_table(columns("mode effect"), MODE_TEXTS.items())
        chat.note(
            f"Current: {chat.approvals.modes.mode}. /mode NAME changes it, /mode NAME keep also for later chats here."
        )
        return
    if mode == "sandbox" and not chat.approvals.is_confined:
        chat.note("There is no sandbox here, so commands are still asked about. 'bartack doctor' says why.")
    if keep and mode != "yes":
        chat.approvals.permission_file.keep_mode(mode)
    chat.approvals.modes.mode = mode
    chat.note(f"Mode: {mode} ({MODE_TEXTS[mode]}).")
    if mode == "yes":
        chat.error("Every command and change runs without asking" + ("." if not keep else "; this mode is never kept."))


async def mode_names(chat: Conversation) -> Offers:
    return list(MODE_TEXTS.items())


def next_mode(chat: Conversation) -> None:
    """Switch to the mode after the current one; to ``yes`` only by its name."""
    modes: list[Mode] = ["ask", "plan", "edit", *(["sandbox"] if chat.approvals.is_confined else [])]  # type: ignore[list-item]
    current = chat.approvals.modes.mode
    chat.approvals.modes.mode = modes[(modes.index(current) + 1) % len(modes)] if current in modes else "ask"


def report_walls(chat: Conversation) -> None:
    """Say once that commands are not confined, and warn of a mode that asks about nothing."""
    if not chat.approvals.is_confined:
        chat.note("No sandbox: commands can do whatever you can, so each one is asked about. See 'bartack doctor'.")
    if chat.approvals.modes.mode == "yes":
        chat.error("Mode yes: every command and change runs without asking.")


async def permission_words(chat: Conversation) -> Offers:
    rules = [*chat.approvals.permission_file.rules(), *chat.approvals.session_rules]
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
    servers = {
        origin.name: origin for origin in map(origin_of, chat.agent.tools.toolsets) if isinstance(origin, McpServer)
    }
    if argument and argument not in servers:
        chat.note(f"No MCP server {safe_line(argument)}. Type /mcp for a list.")
    elif argument:
        print_table(columns("tool approval description"), tool_rows(servers[argument].status))
    elif servers:
        rows = ((safe_line(name), *_server_cells(server.status)) for name, server in servers.items())
        print_table(columns("server state tools# details"), rows)
        chat.note("/mcp NAME lists the tools of a server.")
    else:
        chat.note("No MCP servers. 'bartack mcp add' adds one, and --mcp FILE uses the servers in a file.")


async def server_names(chat: Conversation) -> Offers:
    servers = map(origin_of, chat.agent.tools.toolsets)
    return [(server.name, server.status.state) for server in servers if isinstance(server, McpServer)]


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
