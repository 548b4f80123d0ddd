"""Asking the user whether a tool call may run."""

from contextlib import suppress
from typing import Any, Literal

import msgspec
from rich.console import Console

from bartack.agent import Run
from bartack.app.safe_text import json_bytes, safe_line
from bartack.cli.chat.keyboard import Keyboard
from bartack.cli.terminal.messages import show_request
from bartack.cli.terminal.screen import Screen
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import NotFound
from bartack.nouns.parts import ToolCall
from bartack.tools import ToolDefinition, by_tool

_QUESTION = "[y]es  [n]o, or n REASON  [e]dit  [a]lways  [q] stop: "
_SHORT_QUESTION = "[y]es [n]o [e]dit [a]lways [q] stop: "  # for windows in which the other one would wrap
_HELP = "y: run it, n: deny it, e: edit the arguments, a: always allow this tool in this chat, q: stop the answer."
_EDIT_HELP = "Enter: accept, Alt-Enter: new line, Ctrl-C: back"
_WORDS = {"yes": "y", "no": "n", "edit": "e", "always": "a", "quit": "q", "stop": "q", "abort": "q"}


class Approvals:
    """The approval policy of a chat, and its questions to the user."""

    def __init__(
        self, console: Console, keyboard: Keyboard, rules: dict[str, Literal["never", "always"]] | None = None
    ) -> None:
        self._console = console
        self._keyboard = keyboard
        self._policy = by_tool(rules or {})
        self._allowed: set[tuple[str, str | None]] = set()  # tools and digests that the user has allowed for this chat

    def policy(self, call: ToolCall, definition: ToolDefinition) -> bool | str:
        """Whether a call needs approval: as configured, or else as the tool is declared."""
        return False if (definition.name, definition.digest) in self._allowed else self._policy(call, definition)

    def is_required(self, definition: ToolDefinition) -> bool:
        """Whether calls of this tool need approval, as far as that does not depend on their arguments."""
        return bool(self.policy(ToolCall("any", definition.name, {}), definition))

    async def ask(self, run: Run, request: ApprovalRequired, screen: Screen) -> bool:
        """Ask the user and pass the decision to the run; False to stop the answer. Raises as `Keyboard` does."""
        with suppress(NotFound):  # the run ended in the meantime
            if (request.tool_name, request.definition_digest) in self._allowed:
                run.approve(request.tool_call_id, decided_by="always")
                return True
            screen.suspend()
            try:
                show_request(self._console, request)
                return await self._decide(run, request)
            finally:
                screen.resume()
        return True

    async def _decide(self, run: Run, request: ApprovalRequired) -> bool:
        call_id = request.tool_call_id
        while True:
            match await self._choice():
                case "y", _:
                    run.approve(call_id, decided_by="user")
                case "n", reason:
                    run.deny(call_id, reason=reason or None, decided_by="user")
                case "a", _:
                    self._allowed.add((request.tool_name, request.definition_digest))
                    run.approve(call_id, decided_by="always")
                case "e", _:
                    arguments = await self._edited(request.arguments)
                    if arguments is None:
                        continue
                    run.approve(call_id, arguments=arguments, decided_by="user")
                case _:
                    return False
            return True

    async def _choice(self) -> tuple[str, str]:
        """The chosen letter and the text after it. Only the letter or its whole word count: any other input was not
        meant as an answer."""
        question = _QUESTION if len(_QUESTION) < self._console.width else _SHORT_QUESTION
        while True:
            word, _, rest = (await self._keyboard.choice(question)).partition(" ")
            letter = _WORDS.get(word.lower(), word.lower())
            if letter in _WORDS.values():
                return letter, rest.strip()
            self._console.print(_HELP, style="dim", markup=False, highlight=False)

    async def _edited(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """The edited arguments; None after Ctrl-C or Ctrl-D."""
        text = json_bytes(arguments, indent=2).decode()
        self._console.print(_EDIT_HELP, style="dim")
        while True:
            try:
                text = await self._keyboard.edited(text)
                return msgspec.json.decode(text, type=dict[str, Any])
            except (KeyboardInterrupt, EOFError):
                return None
            except msgspec.MsgspecError as error:
                problem = f"Not a valid JSON object: {safe_line(str(error))}"
                self._console.print(problem, style="red", markup=False, highlight=False)
