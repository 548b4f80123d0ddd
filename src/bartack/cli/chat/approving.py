"""Asking a human whether a tool call may run: yes, no, edit the arguments, always for this tool, or stop the answer."""

from contextlib import suppress
from typing import Any, Literal

import msgspec
from rich.console import Console

from bartack.agent import Run
from bartack.cli.chat.keyboard import Keyboard
from bartack.cli.safe_json import json_bytes
from bartack.cli.terminal.safe_text import safe_line
from bartack.cli.terminal.screen import Screen, show_request
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import NotFound
from bartack.nouns.parts import ToolCall
from bartack.tools import ToolDefinition, by_tool

__all__ = ["Approvals"]

_QUESTION = "[y]es  [n]o, or n and why  [e]dit  [a]lways  [q] stop: "
_SHORT = "[y]es [n]o [e]dit [a]lways [q] stop: "  # for windows in which the other one would be folded
_HELP = "Answer y, n, e, a or q: always is for this tool until you leave, q stops the answer."
_WORDS = {"yes": "y", "no": "n", "edit": "e", "always": "a", "quit": "q", "stop": "q", "abort": "q"}


class Approvals:
    """The approvals of one chat: its policy, and the questions to the human."""

    def __init__(
        self, console: Console, keyboard: Keyboard, rules: dict[str, Literal["never", "always"]] | None = None
    ) -> None:
        self._console = console
        self._keyboard = keyboard
        self._policy = by_tool(rules or {})
        self.always: set[str] = set()  # tools that the human has allowed until the chat ends

    def policy(self, call: ToolCall, definition: ToolDefinition) -> bool | str:
        """Whether a call needs the human: as the configuration says, else as the tool does."""
        return False if definition.name in self.always else self._policy(call, definition)

    def asks(self, definition: ToolDefinition) -> bool:
        """Whether calls of this tool are asked for, as far as that depends on no arguments."""
        return bool(self.policy(ToolCall("any", definition.name, {}), definition))

    async def ask(self, run: Run, request: ApprovalRequired, screen: Screen) -> bool:
        """Ask, while the screen of the run stands still, and let the run know; False if the answer is to be stopped.
        Raises as the keyboard does."""
        with suppress(NotFound):  # the run ended meanwhile, and says why
            if request.tool_name in self.always:
                run.approve(request.tool_call_id, decided_by="always")
                return True
            screen.suspend()
            try:
                show_request(self._console, request)
                return await self._answered(run, request)
            finally:
                screen.resume()
        return True

    async def _answered(self, run: Run, request: ApprovalRequired) -> bool:
        call_id, is_decided = request.tool_call_id, False
        while not is_decided:
            is_decided = True
            match await self._choice():
                case "y", _:
                    run.approve(call_id, decided_by="user")
                case "n", reason:
                    run.deny(call_id, reason=reason or None, decided_by="user")
                case "a", _:
                    self.always.add(request.tool_name)
                    run.approve(call_id, decided_by="always")
                case "e", _:
                    arguments = await self._edited(request.arguments)
                    if arguments is not None:
                        run.approve(call_id, arguments=arguments, decided_by="user")
                    is_decided = arguments is not None
                case _:
                    return False
        return True

    async def _choice(self) -> tuple[str, str]:
        """The letter, and what was said after it; asked again until it is one. Only the letter or its whole word
        count: who types something else has not read the question."""
        question = _QUESTION if len(_QUESTION) < self._console.width else _SHORT
        while True:
            word, _, rest = (await self._keyboard.choice(question)).partition(" ")
            letter = _WORDS.get(word.lower(), word.lower())
            if letter in _WORDS.values():
                return letter, rest.strip()
            self._console.print(_HELP, style="dim", markup=False, highlight=False)

    async def _edited(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """What the user made of the arguments; None if they went back with Ctrl-C or Ctrl-D."""
        text = json_bytes(arguments, indent=2).decode()
        self._console.print("Enter takes it, Alt-Enter begins a line, Ctrl-C goes back.", style="dim")
        while True:
            try:
                text = await self._keyboard.edited("", text)
                return msgspec.json.decode(text, type=dict[str, Any])
            except (KeyboardInterrupt, EOFError):
                return None
            except msgspec.MsgspecError as error:
                said = f"That is no JSON object: {safe_line(str(error))}"
                self._console.print(said, style="red", markup=False, highlight=False)
