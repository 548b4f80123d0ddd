"""Asking a human whether a tool call may run: yes, no, edit the arguments, always for this tool, or stop the answer."""

from typing import Any, Literal

import msgspec
from rich.console import Console

from weft.agent import Run
from weft.cli.chat.keyboard import Keyboard
from weft.cli.terminal.screen import show_request
from weft.entries import ApprovalRequired
from weft.parts import ToolCall
from weft.tools import ToolDefinition, by_tool

__all__ = ["Approvals"]

_QUESTION = "[y]es  [n]o, or n and why  [e]dit  [a]lways  [q] stop: "


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
        return bool(self.policy(ToolCall("", definition.name, {}), definition))

    async def ask(self, run: Run, request: ApprovalRequired) -> None:
        """Ask, and let the run know. Ctrl-C and Ctrl-D stop the answer."""
        call_id = request.tool_call_id
        if request.tool_name in self.always:
            run.approve(call_id, decided_by="always")
            return
        show_request(self._console, request)
        try:
            key, reason = await self._keyboard.choice(_QUESTION, "yneaq")
            match key:
                case "y":
                    run.approve(call_id, decided_by="user")
                case "n":
                    run.deny(call_id, reason=reason or None, decided_by="user")
                case "e":
                    run.approve(call_id, arguments=await self._edited(request.arguments), decided_by="user")
                case "a":
                    self.always.add(request.tool_name)
                    run.approve(call_id, decided_by="always")
                case _:
                    run.abort("user")
        except (KeyboardInterrupt, EOFError):
            run.abort("user")

    async def _edited(self, arguments: dict[str, Any]) -> dict[str, Any]:
        text = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
        while True:
            text = await self._keyboard.edited("arguments: ", text)
            try:
                return msgspec.json.decode(text, type=dict[str, Any])
            except msgspec.MsgspecError as error:
                self._console.print(f"That is no JSON object: {error}", style="red", markup=False)
