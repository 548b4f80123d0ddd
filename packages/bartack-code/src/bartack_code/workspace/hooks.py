"""Hooks: programs that run before and after tools and at the end of a turn.

They are declared in the configuration file, and in ``.bartack/hooks.toml`` of a project:

    [[hooks]]
    event = "after_tool"             # or "before_tool", "end_of_turn"
    tools = ["write_file", "edit_file"]   # without it, all tools
    command = "ruff check --quiet ."
    timeout_s = 60

A hook gets a JSON object on stdin: ``event directory``, for tools also ``tool toolCallId arguments``, after one
``result isError``, and at the end of a turn ``sessionId``. It runs in the directory of the project, with the user's
environment and outside the sandbox, for the calls of sub-agents too. Exit status 0 means: continue. With exit status 2,
its stderr is for the model: before a tool, it is the reason why the tool does not run; after a tool, it is added to the
result. Any other failure is reported to the user and changes nothing.

Hooks of a project are programs of others, so each version of their file is used only once the user has agreed to
exactly that: the digest of the file is kept with the list of trusted folders.
"""

import asyncio
import json
import os
import signal
import tempfile
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bartack.agent import Hooks
from bartack.app.errors import with_hint
from bartack.app.safe_text import valid_text
from bartack.app.settings import HookSettings
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.parts import Text, ToolCall, ToolResult
from bartack.tools import error_result
from bartack.tools.mcp.saved_files import change_file, read_file
from bartack.tools.shell import shell_words
from bartack_code.workspace.project import HOOK_FILE, folders_of_project, text_of_file
from bartack_code.workspace.trust import trust_file

__all__ = ["Ended", "HookFile", "HookRunner", "find_hook_file", "run_user_program"]

_FOR_THE_MODEL = 2  # the exit status
_MAX_CHARS = 10_000  # The rest of what a hook prints is cut.
_CLOSING_S = 1.0  # for the pipes of a killed program, which a process in another session may hold open


class _Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hooks: tuple[HookSettings, ...] = ()


class HookFile(NamedTuple):
    """The hooks of a project, as they are declared now."""

    path: Path
    digest: str
    hooks: tuple[HookSettings, ...]

    @property
    def is_trusted(self) -> bool:
        """Whether the user has agreed to this version of the file."""
        return read_file(trust_file()).get(f"hooks:{self.path}") == self.digest

    def trust(self) -> None:
        """Keep that the user has agreed to this version. Raises `OSError`."""
        change_file(trust_file(), lambda trusted: trusted.update({f"hooks:{self.path}": self.digest}))


def find_hook_file(directory: Path, home: Path) -> HookFile | None:
    """The hooks of the project, from the nearest folder that has some. Raises `BartackError` if they are invalid."""
    folders = folders_of_project(directory.resolve(), home)
    for folder in reversed(folders):
        path = folder / HOOK_FILE
        text = text_of_file(path, folders[0])
        if not text:
            continue
        try:
            declared = msgspec.convert(tomllib.loads(text), _Declared)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            problem = BartackError(f"{path} is invalid: {error}.", code=ErrorCode.INVALID_CONFIG)
            raise with_hint(problem, "Fix or delete it.") from error
        return HookFile(path, sha256(text.encode()).hexdigest(), declared.hooks)
    return None


class HookRunner:
    """Runs hooks. `report` shows the user that one has failed."""

    def __init__(self, hooks: Sequence[HookSettings], directory: Path, report: Callable[[str], None]) -> None:
        self._hooks = tuple(hooks)
        self._directory = directory
        self._report = report

    def for_agent(self) -> list[Hooks]:
        """The hooks around tools, for an agent."""
        if not any(hook.event != "end_of_turn" for hook in self._hooks):
            return []
        return [Hooks(before_tool=self._before_tool, after_tool=self._after_tool, name="hooks")]

    async def end_turn(self, session_id: str | None) -> None:
        """Run the hooks for the end of a turn. What they have for the model is shown to the user."""
        for hook in self._hooks:
            if hook.event == "end_of_turn":
                message = await self._run(hook, {"sessionId": session_id})
                if message is not None:
                    self._report(message)

    async def _before_tool(self, call: ToolCall) -> ToolResult | None:
        for hook in self._for_tool("before_tool", call):
            message = await self._run(hook, _call_json(call))
            if message is not None:
                return error_result(call.tool_call_id, ErrorCode.TOOL_DENIED, f"A hook refused this call: {message}")
        return None

    async def _after_tool(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
        changed: ToolResult | None = None
        for hook in self._for_tool("after_tool", call):
            content = msgspec.to_builtins(result.content) if isinstance(result.content, dict) else _text(result)
            message = await self._run(hook, {**_call_json(call), "result": content, "isError": result.is_error})
            if message is not None:
                result = changed = msgspec.structs.replace(result, content=_with_note(result, message))
        return changed

    def _for_tool(self, event: str, call: ToolCall) -> list[HookSettings]:
        return [
            hook
            for hook in self._hooks
            if hook.event == event
            and (not hook.tools or any(fnmatchcase(call.tool_name, pattern) for pattern in hook.tools))
        ]

    async def _run(self, hook: HookSettings, data: Mapping[str, Any]) -> str | None:
        """What the hook has for the model; None if the work can continue."""
        request = {"event": hook.event, "directory": str(self._directory), **data}
        try:
            ended = await run_user_program(hook.command, self._directory, request, timeout_s=hook.timeout_s)
        except TimeoutError:
            self._report(f"A hook ({hook.command}) did not end within {hook.timeout_s:g} s.")
            return None
        message = valid_text(ended.errors.strip())[:_MAX_CHARS]
        if ended.exit_code == _FOR_THE_MODEL:
            return message or "no reason given"
        if ended.exit_code:
            self._report(f"A hook ({hook.command}) failed with exit code {ended.exit_code}: {message[-500:]}")
        return None


def _call_json(call: ToolCall) -> dict[str, Any]:
    return {"tool": call.tool_name, "toolCallId": call.tool_call_id, "arguments": call.arguments}


def _text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def _with_note(result: ToolResult, message: str) -> Any:
    note = f"[hook: {message}]"
    match result.content:
        case str(text):
            return f"{text}\n{note}"
        case dict(values):
            return {**values, "hook": message}
        case parts:
            return (*parts, Text(note))


# -- programs that the user configures, also for the status line


class Ended(NamedTuple):
    """How a program has ended, and what it has printed."""

    exit_code: int
    output: str
    errors: str


async def run_user_program(command: str, directory: Path, data: Mapping[str, Any], *, timeout_s: float) -> Ended:
    """Run a program in the directory, with the user's environment and outside the sandbox, and kill what it leaves
    behind. Raises `TimeoutError`, and `OSError` if it cannot be started."""
    with tempfile.TemporaryFile() as request:  # a pipe would break if the program ends without reading it
        request.write(json.dumps(data).encode())
        request.seek(0)
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *shell_words(command),
                cwd=directory,
                stdin=request,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )
        reading = asyncio.ensure_future(_communicate(starting))
        try:
            async with asyncio.timeout(timeout_s):
                output, errors = await asyncio.shield(reading)
        finally:
            process = await starting  # if it were cancelled, only the shell would be killed
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait({reading}, timeout=_CLOSING_S)
            reading.cancel()
    assert process.returncode is not None
    return Ended(process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))


async def _communicate(starting: Awaitable[asyncio.subprocess.Process]) -> tuple[bytes, bytes]:
    process = await starting
    return await process.communicate()
